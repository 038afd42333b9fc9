//! The simulator: agents, providers and sabotage against the governor itself, on virtual time.
//!
//! A [`Scenario`] is a file that says who asks how often, what really happens behind the limits, what goes
//! wrong and when, and what must hold all the same. Running it drives the same [`Governor`] that the gate
//! serves, far faster than real time, and the same every time for the same seed. An observer that never asks
//! the governor writes down what was asked and done, adds it up window by window, and an [`Outcome`] says
//! whether every invariant held. No clock and no files: text comes in, numbers and a picture go out.
//!
//! [`Governor`]: tollgate_governor::Governor

mod agent;
mod check;
mod clock;
mod error;
mod fields;
mod file;
mod file_world;
mod gauge;
mod governed;
mod metric;
mod observed;
mod outcome;
mod plot;
mod provider;
mod random;
mod sabotage;
mod scenario;
mod series;
mod table;
mod world;

pub use error::ScenarioError;
pub use metric::Metric;
pub use outcome::{AgentsMeasured, Bound, Outcome, PoolMeasured, Verdict};
pub use scenario::Scenario;
pub use table::Table;
