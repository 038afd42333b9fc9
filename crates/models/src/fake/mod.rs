//! A model that says what a script says: for tests, for examples, and to try an agent without paying for it.
//!
//! The same [`Script`] is played by a server ([`FakeModel`], [`serve`]) that speaks both protocols, so that what is
//! tested is the client that talks to real ones, and in process by a model of the kind `scripted`.

mod ask;
mod frames;
mod played;
mod script;
mod server;
mod stage;
mod vectors;

pub(crate) use played::Played;
pub use script::{BadScript, Reply, Script, ScriptedCall, When};
pub use server::{FakeModel, serve};
pub use stage::{Ended, Seen};
