//! The governor's pure core: agents ask before they act, and it answers approve, wait or deny.
//!
//! Everything that is counted against a limit is an amount over a span of time: a spent call until its
//! window ends, a hold until it is settled, a booking from its slot on. A [`Profile`] keeps their sum at
//! every moment. [`Window`] says, for each kind of window, over which span a hold counts, so that a limit is
//! kept whenever its holder really acts. A [`Bucket`] is the one kind that refills steadily instead. A
//! [`Meter`] is one limit for one key. A [`Setup`] is a configuration that was checked: pools, and routes
//! from work to pools. A [`Governor`] is the whole state, and decides.
//!
//! What is decided becomes an [`Event`] with its effects in it, and applying that event is what changes the
//! state, now and whenever the events are read again. No clock, no I/O, no randomness: time, in milliseconds
//! since 1970, and new names are passed in. Storing and serving is the gate's work.

mod bucket;
mod conduct;
mod config;
mod costs;
mod decide;
mod decision;
mod effect;
mod forecast;
mod headers;
mod identity;
mod intent;
mod judge;
mod meter;
#[cfg(feature = "mutants")]
mod mutant;
mod profile;
mod renew;
mod rules;
mod setup;
mod state;
mod time;
mod usage;
mod watch;
mod what_if;
mod window;

pub use bucket::Bucket;
pub use conduct::Conduct;
pub use config::{
    Aligned, ByUrgency, DEFAULT_POOL, DrawConfig, GovernorConfig, LARGEST_AMOUNT, OnExpiry, Per,
    PoolConfig, RouteConfig, Settings, SinBin, WindowConfig, duration,
};
pub use costs::LearnedCost;
pub use decide::{AnotherRequest, Ask, Fresh, Outcome};
pub use decision::{Decision, PoolShown, TraceStep};
pub use effect::{
    About, Answer, AskedMore, Carried, Configured, Crossed, Decided, Deleted, Drawn, Effect, Ended,
    Event, Expired, ExpiredHold, Halt, Heard, Registered, Spent, Target, Told, Used,
};
pub use forecast::{Basis, ConePoint, Forecast};
pub use headers::{Learned, ProviderReport, from_headers};
pub use identity::{Identities, Named};
pub use intent::{Asker, Expected, Intent, LOCAL, UNKNOWN, whole};
pub use judge::RuleMatch;
pub use meter::{Asked, Hold, Meter, Reading};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use profile::{NoRoom, Profile};
pub use rules::{
    Action, AgentFacts, DuringConfig, Evaluated, ExampleConfig, Expectation, Facts, ForecastFacts,
    Head, IdentityFacts, IntentFacts, Kind, Matched, PoolFacts, Position, Rule, RuleConfig,
    RuleError, Rules, Said, Urgencies, VARIABLES, Variable, Wait, sample_facts, strictest,
};
pub use setup::{Draw, Pool, Setup, SetupError, Work};
pub use state::{Forecasted, Governor, OpenHold, REQUEST_REMEMBERED, Snapshot};
pub use time::SteadyTime;
pub use usage::{GhostWork, Observation, Report, ReportRefused};
pub use what_if::{Difference, Different, WhatIf};
pub use window::{Calendar, CalendarUnit, Window};
