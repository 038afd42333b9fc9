//! What can go wrong with a fetch, in words that say what to do next.

use std::net::IpAddr;

use tollgate_contract::{
    Error, Quoted, ToolName,
    error::{Cancelled, CapabilityMissing, Internal, InvalidInput, Timeout, ToolFailed},
    schema::InputProblem,
    text::Clean,
};

use super::{GET, Host, LONGEST_URL};

/// Why `http.get` gave no page. No message repeats more of an address than its host: a path may hold a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpProblem {
    /// Nobody needs that many characters.
    #[error("is longer than {LONGEST_URL} characters; use a shorter one")]
    TooLong,
    /// It is no address at all.
    #[error("cannot be read as an address ({0}); it looks like https://example.com/path")]
    Unreadable(Clean),
    /// Neither http nor https.
    #[error("begins with {0}, which is not fetched; use http:// or https://")]
    Scheme(Quoted),
    /// A user name or a password would end up in records.
    #[error("holds a user name or a password; leave them out")]
    Userinfo,
    /// Nobody granted it.
    #[error("the host {} may not be reached: {why}", Quoted::new(.host.as_str()))]
    NotGranted {
        /// The host that was asked for, or that a redirect led to.
        host: Host,
        /// Why not.
        why: Clean,
    },
    /// It leads inside.
    #[error("the host {} leads to {what}; that takes {}", Quoted::new(.host.as_str()), takes(.host, *.by_address))]
    NotPublic {
        /// The host.
        host: Host,
        /// Where it leads.
        address: IpAddr,
        /// What kind of address that is.
        what: &'static str,
        /// Must the address itself be granted?
        by_address: bool,
    },
    /// The name leads nowhere.
    #[error("the host {} cannot be resolved ({problem}); check its spelling", Quoted::new(.host.as_str()))]
    Unresolved {
        /// The host.
        host: Host,
        /// What the system said.
        problem: Clean,
    },
    /// The connection or the answer.
    #[error("the host {} did not answer as it should: {problem}", Quoted::new(.host.as_str()))]
    Broken {
        /// The host.
        host: Host,
        /// What went wrong.
        problem: Clean,
    },
    /// A redirect that is not followed.
    #[error("the host {} redirects {to}, and that is not followed", Quoted::new(.host.as_str()))]
    Redirect {
        /// The host.
        host: Host,
        /// Where to.
        to: Clean,
    },
    /// Too many of them.
    #[error(
        "the address was redirected more than {0} times; ask for the address where it should end"
    )]
    TooManyRedirects(u32),
    /// It took too long.
    #[error("no complete answer came within {0} ms")]
    TimedOut(u64),
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// A fault of ours.
    #[error("{0}")]
    Internal(Clean),
}

fn takes(host: &Host, by_address: bool) -> String {
    if by_address {
        "a grant of that very address".to_owned()
    } else {
        format!("the capability {}", Quoted::new(&host.capability().to_string()))
    }
}

impl HttpProblem {
    /// The problem as an error of the tool. A host that was not granted is the capability that is missing.
    pub fn error(self) -> Error {
        let tool = match ToolName::parse(GET) {
            Ok(tool) => tool,
            Err(error) => return Internal::new(error.to_string()).into(),
        };
        let message = self.to_string();
        match self {
            Self::TooLong | Self::Unreadable(_) | Self::Scheme(_) | Self::Userinfo => {
                let problem = InputProblem { pointer: "/url".to_owned(), message };
                InvalidInput::new(tool, vec![problem]).into()
            }
            Self::NotGranted { host, .. } => {
                let capability = host.capability().to_string();
                let request = Clean::already(format!("tollgate request {capability}"));
                let grant = format!("tollgate grant {capability} --session NAME --for 1h");
                CapabilityMissing::new(tool, capability, request, Clean::already(grant)).into()
            }
            Self::TimedOut(after_ms) => Timeout::new(tool, after_ms).into(),
            Self::Cancelled => Cancelled::new(Some(tool)).into(),
            Self::Internal(problem) => Internal::new(problem).into(),
            Self::NotPublic { .. }
            | Self::Unresolved { .. }
            | Self::Broken { .. }
            | Self::Redirect { .. }
            | Self::TooManyRedirects(_) => ToolFailed::new(tool, Clean::already(message)).into(),
        }
    }
}
