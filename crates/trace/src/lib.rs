//! Traces: what was called, with what, and what came of it, so that a run can be audited and replayed.
//!
//! A trace is NDJSON, one [`Entry`] a line, already redacted. [`Replay`] answers calls from one,
//! strictly and both ways: a call that was not recorded is a miss and nothing else happens, and a
//! recorded call that was never asked for is told. [`Receipt`] sums a trace up, [`Difference`] compares
//! two. Where lines are written to and read from is the caller's business.

mod diff;
mod entry;
mod read;
mod receipt;
mod replay;

pub use diff::{Difference, diff};
pub use entry::{Ended, Entry, VERSION};
pub use read::{Trace, TraceError};
pub use receipt::{Receipt, ToolCount};
pub use replay::Replay;
