//! The vocabulary that every part of Tollgate speaks.
//!
//! Here live the tool contract and its invariants, effects, calls, verdicts with their explanation,
//! typed errors, event names, ids, secrets, strict and canonical JSON, and redaction. Everything is
//! pure: no I/O, no clock, no randomness, no async. Time and ids are passed in, so that the same
//! inputs always give the same answer. What decides (policy, governor), stores (ledger) or runs
//! (gate) is not here.

mod because;
pub mod behaviour;
pub mod call;
pub mod canonical;
pub mod capability;
pub mod declare;
pub mod effect;
pub mod error;
pub mod event;
pub mod id;
pub mod invariant;
pub mod json;
pub mod manifest;
pub mod name;
pub mod permission;
mod read;
pub mod reason;
pub mod redact;
pub mod schema;
pub mod secret;
pub mod text;
pub mod verdict;

pub use behaviour::{Behaviours, Mutation, Trade};
pub use call::{
    Call, Caller, Identity, InvalidKey, KeyFacts, KeyScope, Layer, Mode, Surface, Urgency,
};
pub use canonical::{InputHash, input_hash};
pub use capability::{Capability, HostName, Reach};
pub use declare::{Declaration, ToolDeclaration};
pub use effect::{CostEffect, Retry, Risk, SideEffect, Stability, Status};
pub use error::{Error, ErrorCode};
pub use invariant::{Violation, Violations};
pub use manifest::{ContractTool, Manifest, ManifestMode};
pub use name::{NameError, ToolName, ToolPattern};
pub use permission::Permission;
pub use reason::Reason;
pub use secret::Secret;
pub use text::Quoted;
pub use verdict::{Decision, Explain, Facts, Guardrail, Outcome, Step, StepRecord, Verdict};
