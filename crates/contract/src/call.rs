//! A call: who wants what done, before anything has been decided about it.

use std::fmt;

use serde_json::Value;

use crate::{effect::words, id::KeyId};

words! {
    /// Where a call comes in.
    Surface {
        /// Resource paths and the SDKs' resource methods.
        Sdk = "sdk",
        /// Everything else. Live execution always needs a key here.
        Agent = "agent",
    }
}

words! {
    /// What a run may do.
    Mode {
        /// Call tools.
        Live = "live",
        /// Look at contracts, call nothing.
        InspectOnly = "inspectOnly",
        /// Answer from a recorded trace, call nothing.
        ReplayOnly = "replayOnly",
    }
}

words! {
    /// How much a call matters, from least to most.
    Urgency {
        /// It can wait.
        Background = "background",
        /// As usual.
        Normal = "normal",
        /// Now.
        High = "high",
    }
}

words! {
    /// What a key is for. None includes another.
    KeyScope {
        /// Call tools.
        Call = "call",
        /// Ask the governor.
        Ask = "ask",
        /// Read pools, events, traces.
        Read = "read",
        /// Answer approvals, grant capabilities.
        Approve = "approve",
        /// Change configuration and keys.
        Admin = "admin",
    }
}

words! {
    /// Where a policy comes from, in the order in which layers are read. Each can only narrow.
    Layer {
        /// The server's own.
        Server = "server",
        /// The key's.
        Key = "key",
        /// The session's.
        Session = "session",
        /// The call's.
        Call = "call",
    }
}

words! {
    /// Why a key is not accepted. Callers are not told which; operators are.
    InvalidKey {
        /// It does not look like a key.
        Malformed = "malformed",
        /// Nobody made it here.
        Unknown = "unknown",
        /// It was withdrawn.
        Revoked = "revoked",
        /// Its time is over.
        Expired = "expired",
    }
}

/// Who calls, from where, and to do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Where the call comes in.
    pub surface: Surface,
    /// What the run may do.
    pub mode: Mode,
    /// Who it is.
    pub identity: Identity,
}

/// Who a caller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// No key was given.
    Anonymous,
    /// A key was given that does not count.
    Invalid(InvalidKey),
    /// A key that counts.
    Key(KeyFacts),
}

/// What is known of a key. Never the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFacts {
    /// Its public name.
    pub id: KeyId,
    /// What its owner calls it.
    pub name: String,
    /// The account that it belongs to.
    pub owner: String,
    /// What it is for.
    pub scopes: Vec<KeyScope>,
    /// Which of its texts was presented: a key that is made anew has another.
    pub generation: u32,
}

/// One call, as a door hands it to the gate.
#[derive(Clone, PartialEq)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// What was asked for, as it was written. Only resolution makes a tool of it.
    pub tool: String,
    /// The input, raw.
    pub input: Value,
    /// Where it happens, such as `repo:owner/name`.
    pub scope: Option<String>,
    /// How much it matters.
    pub urgency: Urgency,
    /// The session it belongs to.
    pub session: Option<String>,
    /// The caller's own key for at-most-once execution.
    pub idempotency_key: Option<String>,
}

impl fmt::Debug for Call {
    /// Leaves the input out: it may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("caller", &self.caller)
            .field("tool", &self.tool)
            .field("scope", &self.scope)
            .field("urgency", &self.urgency)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
