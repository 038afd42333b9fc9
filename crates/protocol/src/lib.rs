//! What a model and the runtime of an agent say to each other, and what the runtime keeps of it.
//!
//! Here are the [`State`] and the [`Checkpoint`] that a session lives in, the extractor that finds NOTES and
//! TOOL_CALLS blocks in what a model streams ([`Extractor`]), the rules by which they are read ([`NotesPatch`],
//! [`Plan`]) and applied, what a person notes ([`PersonNote`]), and the prompt that a model is given ([`Prompt`]). Everything here is pure: text goes in,
//! values come out, and whatever a model writes, parsing ends in a value and a list of warnings. Models, tools,
//! files and time are elsewhere.

mod actions;
mod calls;
mod checkpoint;
mod condense;
mod extract;
mod hand;
mod markers;
mod message;
mod name;
mod notes;
mod prompt;
mod segment;
mod state;
mod strike;
mod text;

pub use actions::Action;
pub use calls::{MOST_CALLS, Plan, Planned, Rejected, ToolResult};
pub use checkpoint::{Checkpoint, CheckpointError, SCHEMA_VERSION};
pub use condense::{Bounds, Folded, bound_exchange, fold};
pub use extract::{Extracted, Extractor, Piece, WarningKind, is_deeper};
pub use hand::{NoteEntry, Noted, PersonNote, PersonNoteError, StateList};
pub use markers::BlockKind;
pub use message::{ChatMessage, Role};
pub use name::{NameError, SessionName};
pub use notes::{Applied, MOST_ENTRIES, NotesPatch};
pub use prompt::{History, Prompt, PromptError, Section, Share, System, ToolText, Weighed};
pub use segment::{Segment, rebuild};
pub use state::{LONGEST_ENTRY, LONGEST_SUMMARY, Limits, State};
pub use text::{bounded, one_line};
