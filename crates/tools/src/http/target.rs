//! An address in its one normal spelling, and the host in it.

use std::{fmt, net::IpAddr};

use reqwest::Url;
use tollgate_contract::{Capability, HostName, Quoted, text::Clean};

use super::{HttpProblem, LONGEST_URL};

/// A host as capabilities name it, and the address that it is, if it is no name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    name: HostName,
    ip: Option<IpAddr>,
}

impl Host {
    /// The name or the address.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }

    /// The same, as capabilities name it.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The address, if it is no name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The capability that names this host.
    pub fn capability(&self) -> Capability {
        Capability::NetHost(self.name.clone())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: Url,
    pub(super) host: Host,
}

impl Target {
    /// Reads an address.
    pub(super) fn parse(text: &str) -> Result<Self, HttpProblem> {
        if text.len() > LONGEST_URL {
            return Err(HttpProblem::TooLong);
        }
        let url = Url::parse(text).map_err(unreadable)?;
        Self::checked(url)
    }

    /// Where a redirect leads, seen from here.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, HttpProblem> {
        if location.len() > LONGEST_URL {
            return Err(HttpProblem::TooLong);
        }
        self.url.join(location).map_err(unreadable).and_then(Self::checked)
    }

    /// Does the connection lose its encryption on the way to `next`?
    pub(super) fn is_downgraded_by(&self, next: &Self) -> bool {
        self.is_https() && !next.is_https()
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The port to connect to.
    pub(super) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }

    /// Brings the parts of an address into their normal form. The forms in which an IPv4 address can be disguised
    /// (`127.1`, `0x7f000001`, `2130706433`, full-width digits) were already undone by reading it.
    fn checked(mut url: Url) -> Result<Self, HttpProblem> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(HttpProblem::Scheme(Quoted::new(url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HttpProblem::Userinfo);
        }
        url.set_fragment(None);
        let written = url.host_str().unwrap_or_default().to_owned();
        if let Some(plain) = written.strip_suffix('.') {
            url.set_host(Some(plain)).map_err(unreadable)?;
        }
        let written = url.host_str().unwrap_or_default().to_owned();
        let ip = written.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        // An IPv4 address in IPv6 clothes connects to the same place: it is the same host.
        let ip = ip.map(|ip| ip.to_canonical());
        if let Some(ip) = ip {
            url.set_ip_host(ip).map_err(|()| unreadable("its host cannot be read"))?;
        } else if written.split('.').any(str::is_empty) {
            return Err(unreadable("its host has an empty part"));
        }
        let name = HostName::parse(url.host_str().unwrap_or_default());
        let name = name.ok_or_else(|| unreadable("its host cannot be read"))?;
        Ok(Self { url, host: Host { name, ip } })
    }
}

fn unreadable(problem: impl fmt::Display) -> HttpProblem {
    HttpProblem::Unreadable(Clean::new(&problem.to_string()))
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
