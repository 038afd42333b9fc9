//! The one path from a call to its result and its record: admit, run, settle.
//!
//! A door hands in a [`Call`](tollgate_contract::Call); the gate finds out who calls ([`keys`]), asks
//! the policy and the budget, writes what it decides to the ledger, lets an [`Executor`] work, and
//! records what came of it. There is no other way to an executor. The gate knows no tool: packs put
//! theirs into a [`Registry`].

mod admit;
mod allowance;
mod approval;
mod budget;
mod clock;
mod consent;
mod event;
mod gate;
mod governing;
mod idempotency;
pub mod keys;
mod manage;
mod metrics;
mod outcome;
mod record;
mod registry;
mod repeat;
mod run;
mod running;
mod seal;
pub mod secret_file;
mod session;
mod settle;
mod webhooks;
mod what_if;

pub use admit::check_call;
pub use allowance::{Allowance, Left};
pub use budget::observations;
pub use clock::{Clock, ManualClock, SystemClock, rfc3339};
pub use consent::{ConsentSettings, check_kept};
pub use event::{Deltas, Observer, RunEvent};
pub use gate::{CallOptions, Gate, Health, Parts, Settings};
pub use governing::{
    Asked, Governing, HaltTarget, PoolForecast, PoolReading, UsageReport, written,
};
pub use keys::Principal;
pub use manage::check_keys;
pub use metrics::Metrics;
pub use outcome::{CallFailure, ToolCallResult, Unfinished, Waits, WrittenVerdict};
pub use record::summary;
pub use registry::{Admitted, Context, Executor, Packs, Registry, ToolFailure, Working};
pub use running::{HaltDone, MetCall};
pub use webhooks::Webhook;
pub use what_if::{WhatIfCount, WhatIfPool, WhatIfRule, WhatIfSummary, answer_word, what_if};
