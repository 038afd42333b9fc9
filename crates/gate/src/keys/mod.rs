//! API keys: who may come in, and with what. A key is shown once; here only its hash is known.
//!
//! The ring in memory is what decides. Every change is an event, and the record of a key is written
//! beside the chain in the same commit, so that a start reads the keys and not the history.

mod record;
mod ring;
mod text;

pub use record::{Claims, KeyRecord, KeySpec, PolicyRef, Role, TokenSpec};
pub(crate) use record::{SecretHash, label};
pub(crate) use ring::KeyRing;
pub use ring::Principal;
pub(crate) use text::{KeyText, digest};
