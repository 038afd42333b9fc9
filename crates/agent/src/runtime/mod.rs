//! The model loop: sessions that live in checkpoints, turns that run tools and models through the gate, and a trace
//! from which a turn can be run again offline.
//!
//! A turn is one function over a [`World`](world::World): the live one is the gate, the other is a trace. Whatever
//! is not certain (what a model says, what a tool gives, what is remembered, when it is stopped) comes from the world
//! and is written to the trace before it is used, so that the trace is both the journal that a crash is mended from
//! and the script of a replay.

mod again;
mod autopsy;
mod checkpoint_file;
mod finish;
mod hand;
mod journal;
mod kept;
mod live;
mod opened;
mod question;
mod recover;
mod roles;
mod run;
mod session;
mod settings;
mod trace_file;
mod turn;
mod wanted;
mod world;

pub use again::{Divergence, Replayed, replay_turn};
pub use autopsy::{Autopsy, Finding, RunReceipt, Severity, TurnLine};
pub use checkpoint_file::{CheckpointFile, SaveError};
pub use hand::NoteReport;
pub use journal::{Event, EventError, kinds};
pub use roles::PipelineRole;
pub use run::{AgentEvent, BindRoot, Listener, Runtime, TurnReport, TurnRequest};
pub use session::{SessionFolder, SessionSummary, SessionView};
pub use settings::{
    AgentConfig, Budget, BudgetDefaults, ModelChoice, OffWord, PolicyDefault, SessionSettings,
};
pub use trace_file::{TraceFiles, TraceLimits};
pub use turn::{Totals, TurnError};
pub use world::Stop;
