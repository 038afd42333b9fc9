//! What a model can ask the runtime to do besides calling tools.

use std::fmt;

use tollgate_contract::Capability;

/// An action of a NOTES block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Fold the history now.
    CondenseNow,
    /// Have the model summarise what is folded.
    CondenseSmart,
    /// Ask a person for a capability.
    Request(Capability),
    /// The model grants itself a capability. It is a request like the one above: only people grant.
    Grant(Capability),
    /// A permission that does not exist.
    NoCapability(String),
    /// Nobody knows what it means.
    Unknown(String),
}

impl Action {
    /// Reads an action.
    pub fn parse(text: &str) -> Self {
        let capability = |text: &str, make: fn(Capability) -> Self| {
            Capability::parse(text).map_or_else(|_| Self::NoCapability(text.to_owned()), make)
        };
        match text.trim() {
            "condense_now" => Self::CondenseNow,
            "condense_smart" => Self::CondenseSmart,
            other => match other.split_once(':') {
                Some(("request_permission", wanted)) => capability(wanted, Self::Request),
                Some(("grant_permission", wanted)) => capability(wanted, Self::Grant),
                _ => Self::Unknown(other.to_owned()),
            },
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CondenseNow => f.write_str("condense_now"),
            Self::CondenseSmart => f.write_str("condense_smart"),
            Self::Request(wanted) => write!(f, "request_permission:{wanted}"),
            Self::Grant(wanted) => write!(f, "grant_permission:{wanted}"),
            Self::NoCapability(text) | Self::Unknown(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_and_what_is_unknown_is_told_apart() {
        let net = Capability::parse("net:huggingface.co").unwrap();
        assert_eq!(Action::parse("condense_now"), Action::CondenseNow);
        assert_eq!(Action::parse(" condense_smart "), Action::CondenseSmart);
        assert_eq!(
            Action::parse("request_permission:net:huggingface.co"),
            Action::Request(net.clone())
        );
        assert_eq!(Action::parse("grant_permission:net:huggingface.co"), Action::Grant(net));
        assert_eq!(Action::parse("request_permission:root"), Action::NoCapability("root".into()));
        for odd in ["", "condense", "Condense_Now", "request_permission", "rm -rf /"] {
            assert_eq!(Action::parse(odd), Action::Unknown(odd.trim().into()));
        }
    }
}
