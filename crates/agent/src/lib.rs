//! Agents: whoever calls tools on behalf of a model or a person.
//!
//! Here is the governed direct runner ([`Agent`]): it describes and calls one tool at a time, live
//! through the gate, or offline from a trace, and emits the same events either way. [`Recorder`] makes
//! a trace of those events; [`TraceFile`] keeps it. The model loop is in [`runtime`]: sessions, turns, checkpoints,
//! and their own traces.

mod direct;
mod record;
mod replay;
pub mod runtime;
mod store;

pub use direct::{Agent, Answer, Source};
pub use record::Recorder;
pub use replay::Replayer;
pub use store::{TraceFile, TraceFileError};
