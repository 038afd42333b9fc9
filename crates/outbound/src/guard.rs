//! Where a webhook may lead: to the public internet, and inside only where the operator says so.
//!
//! Whoever may register a webhook could otherwise use the gate to reach services that only the gate's machine
//! can reach. A name is resolved and checked, and the connection is made to the very addresses that were
//! checked, since a name may resolve to something else a moment later.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use reqwest::Url;
use tollgate_contract::{Quoted, text::Clean};

use crate::{
    address::{Special, special},
    http,
};

/// The longest address of a webhook.
const LONGEST: usize = 2_048;

/// How long resolving a name may take.
const RESOLVE: Duration = Duration::from_secs(5);

/// Decides whether an address that a user gave may be connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressGuard {
    /// May addresses of this machine and of private networks be used? Link-local ones may not even then: that
    /// is where clouds hand out credentials.
    pub allow_private: bool,
    /// Hosts that may have any address, as they are written in the webhook's address.
    pub allowed_hosts: Vec<String>,
}

/// An address that was checked, and what its host resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    url: Url,
    addresses: Vec<SocketAddr>,
}

/// Why an address is not connected to. It never repeats more than the host: a path may hold a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody needs that many characters.
    #[error("the address is longer than {LONGEST} characters; use a shorter one")]
    TooLong,
    /// It is no address at all.
    #[error("the address cannot be read ({0}); it looks like https://example.com/path")]
    Unreadable(String),
    /// Neither http nor https.
    #[error("{0} is not a way to send events; the address begins with https:// or http://")]
    Scheme(Quoted),
    /// A user name or a password would be kept and shown where addresses are.
    #[error(
        "the address holds a user name or a password; leave them out, and check the signature of each delivery instead"
    )]
    Userinfo,
    /// The name leads nowhere.
    #[error("the host {host} cannot be resolved ({problem}); check its spelling")]
    Unresolved {
        /// The host.
        host: Quoted,
        /// What the system said.
        problem: Clean,
    },
    /// It leads inside.
    #[error(
        "the host {host} leads to {address}, which is {what}; use a public address, or have the operator allow this host"
    )]
    NotPublic {
        /// The host.
        host: Quoted,
        /// Where it leads.
        address: IpAddr,
        /// What kind of address that is.
        what: &'static str,
    },
}

impl AddressGuard {
    /// Checks an address as far as that is possible without the network: its form, and an IP address in it.
    pub fn check_form(&self, address: &str) -> Result<(), Refused> {
        let (_, host) = read(address)?;
        match host.ip {
            Some(ip) => self.check_addresses(&host, [ip]),
            None => Ok(()),
        }
    }

    /// Checks an address, resolves its host, and checks everything that it resolves to.
    pub async fn check(&self, address: &str) -> Result<Checked, Refused> {
        let (url, host) = read(address)?;
        let port = url.port_or_known_default().unwrap_or(443);
        let addresses: Vec<SocketAddr> = match host.ip {
            Some(ip) => vec![SocketAddr::new(ip, port)],
            None => resolve(&host.name, port, RESOLVE).await.map_err(|problem| {
                Refused::Unresolved { host: Quoted::new(&host.name), problem: Clean::new(&problem) }
            })?,
        };
        self.check_addresses(&host, addresses.iter().map(SocketAddr::ip))?;
        Ok(Checked { url, addresses })
    }

    /// One address that is not allowed refuses all: which one is used is not ours to say.
    fn check_addresses(
        &self,
        host: &Host,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), Refused> {
        if self.allowed_hosts.iter().any(|allowed| host.is(allowed)) {
            return Ok(());
        }
        for address in addresses {
            match special(address) {
                None => {}
                Some(Special::Private(_)) if self.allow_private => {}
                Some(special) => {
                    let host = Quoted::new(&host.name);
                    return Err(Refused::NotPublic { host, address, what: special.what() });
                }
            }
        }
        Ok(())
    }
}

impl Checked {
    /// Where to send to.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// What may be connected to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A client that reaches this host at the addresses that were checked, and nowhere else.
    pub(crate) fn client(&self, timeout: Duration) -> Result<reqwest::Client, String> {
        let host = self.url.host_str().unwrap_or_default();
        http::builder(self.url.scheme() == "https", timeout)?
            .resolve_to_addrs(host, &self.addresses)
            .build()
            .map_err(http::problem)
    }
}

/// The host of an address.
struct Host {
    name: String,
    ip: Option<IpAddr>,
}

impl Host {
    fn is(&self, other: &str) -> bool {
        let plain = |name: &str| name.trim_matches(['[', ']']).trim_end_matches('.').to_lowercase();
        plain(&self.name) == plain(other)
    }
}

/// Reads an address. The forms in which an IPv4 address can be disguised (`127.1`, `0x7f000001`, `2130706433`)
/// are read as such addresses here.
fn read(address: &str) -> Result<(Url, Host), Refused> {
    if address.len() > LONGEST {
        return Err(Refused::TooLong);
    }
    let url = Url::parse(address).map_err(|error| Refused::Unreadable(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refused::Scheme(Quoted::new(url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::Userinfo);
    }
    let no_host = || Refused::Unreadable("it has no host".to_owned());
    let name = url.host_str().filter(|host| !host.is_empty()).ok_or_else(no_host)?.to_owned();
    let ip = name.trim_matches(['[', ']']).parse().ok();
    Ok((url, Host { name, ip }))
}

/// All that a name resolves to, asked once.
pub async fn resolve(name: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::time::timeout(within, tokio::net::lookup_host((name, port))).await;
    let found: Vec<_> = match found {
        Err(_) => return Err("the name server did not answer in time".to_owned()),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(found)) => found.collect(),
    };
    if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
