//! Capabilities: what a session or a key may reach beyond what its policy says, such as one host of the
//! network. A capability is text in one normal form, so that two spellings of one host are one capability.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Host;

use crate::text::Quoted;

/// The longest capability, as it is written.
const LONGEST: usize = 300;

/// One capability.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// `net`: the whole network, as far as the gate's own allowlist goes where there is one.
    Net,
    /// `net:<host>`: this host, whatever the allowlist says.
    NetHost(HostName),
    /// `net:*.<domain>`: every host below this domain, and not the domain itself.
    NetBelow(HostName),
}

/// A host in its one normal form: in lower case, in ASCII, without a dot at its end; an address as it is
/// usually written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// How far a capability reaches to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// To its public addresses.
    Public,
    /// To whatever address it has: somebody has named this very host.
    Named,
}

/// A text that is no capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// It does not begin with a kind that there is.
    #[error(
        "{0} is no capability; there is `net`, `net:<host>` such as `net:example.com`, and `net:*.<domain>` for the hosts below a domain"
    )]
    Unknown(Quoted),
    /// What stands behind `net:` is no host.
    #[error(
        "{0} is no host; write one such as `net:example.com`, without a scheme, a port or a path"
    )]
    NoHost(Quoted),
    /// A wildcard over too much.
    #[error(
        "{0} covers too much or nothing; write `net:*.example.com`, or `net` for all of the network"
    )]
    Wildcard(Quoted),
}

impl HostName {
    /// Reads a host: a name, or an address in any spelling that a browser would take for it.
    pub fn parse(text: &str) -> Option<Self> {
        // Only what a host may be made of: no port, path, user or zone hides behind it.
        let is_odd = |c: char| c.is_whitespace() || "/\\@?#%*".contains(c);
        if text.len() > LONGEST || text.chars().any(is_odd) {
            return None;
        }
        Self::of(&Host::parse(text).ok()?)
    }

    /// The host of an address that was read.
    pub fn of<S: AsRef<str>>(host: &Host<S>) -> Option<Self> {
        let text = match host {
            Host::Domain(name) => {
                let name = name.as_ref();
                name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
            }
            Host::Ipv4(address) => address.to_string(),
            // An address of the old kind in the clothes of the new one is the old one.
            Host::Ipv6(address) => match address.to_ipv4_mapped() {
                Some(old) => old.to_string(),
                None => format!("[{address}]"),
            },
        };
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = match host {
            Host::Domain(_) => {
                !text.starts_with('.') && !text.contains("..") && text.chars().all(is_usual)
            }
            Host::Ipv4(_) | Host::Ipv6(_) => true,
        };
        (is_name && !text.is_empty()).then_some(Self(text))
    }

    /// The host as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is it an address rather than a name?
    pub fn is_address(&self) -> bool {
        matches!(Host::parse(&self.0), Ok(Host::Ipv4(_) | Host::Ipv6(_)))
    }

    /// Is it below this domain?
    pub fn is_below(&self, domain: &Self) -> bool {
        !self.is_address()
            && self.0.strip_suffix(&domain.0).is_some_and(|head| head.ends_with('.') && head != ".")
    }
}

impl Capability {
    /// Reads a capability, and brings it into its normal form.
    pub fn parse(text: &str) -> Result<Self, CapabilityError> {
        if text == "net" {
            return Ok(Self::Net);
        }
        let quoted = || Quoted::new(text);
        let Some(host) = text.strip_prefix("net:") else {
            return Err(CapabilityError::Unknown(quoted()));
        };
        if let Some(domain) = host.strip_prefix("*.") {
            let domain = HostName::parse(domain).filter(|domain| !domain.is_address());
            // A wildcard over a whole top-level domain is no restriction worth the name.
            let domain = domain.filter(|domain| domain.as_str().contains('.'));
            return domain.map(Self::NetBelow).ok_or_else(|| CapabilityError::Wildcard(quoted()));
        }
        if host.contains('*') {
            return Err(CapabilityError::Wildcard(quoted()));
        }
        HostName::parse(host).map(Self::NetHost).ok_or_else(|| CapabilityError::NoHost(quoted()))
    }

    /// How far it reaches to this host. `allowlist` bounds `net` alone: whoever named a host or a domain meant
    /// it.
    pub fn reach(&self, host: &HostName, allowlist: Option<&[Self]>) -> Option<Reach> {
        match self {
            Self::NetHost(named) => (named == host).then_some(Reach::Named),
            Self::NetBelow(domain) => host.is_below(domain).then_some(Reach::Public),
            Self::Net => match allowlist {
                None => Some(Reach::Public),
                Some(list) => {
                    // `net` on the list would be a list that bounds nothing.
                    let covers = |entry: &Self| {
                        *entry != Self::Net && entry.reach(host, Some(&[])).is_some()
                    };
                    list.iter().any(covers).then_some(Reach::Public)
                }
            },
        }
    }

    /// Does it give all that `other` would give?
    pub fn covers(&self, other: &Self, allowlist: Option<&[Self]>) -> bool {
        match (self, other) {
            (own, other) if own == other => true,
            // To have named a host is more than to have a domain or the network: it may be inside.
            (_, Self::NetHost(_) | Self::Net) => false,
            (Self::NetBelow(own), Self::NetBelow(other)) => other.is_below(own),
            (Self::Net, Self::NetBelow(_)) => allowlist.is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net => f.write_str("net"),
            Self::NetHost(host) => write!(f, "net:{host}"),
            Self::NetBelow(domain) => write!(f, "net:*.{domain}"),
        }
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capability({self})")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostName({})", self.0)
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for Capability {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Capability".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`net`, `net:<host>` or `net:*.<domain>`",
            "pattern": r"^net(:[A-Za-z0-9*.:\[\]_-]+)?$",
            "maxLength": LONGEST,
        })
    }
}

#[cfg(test)]
#[path = "capability_tests.rs"]
mod tests;
