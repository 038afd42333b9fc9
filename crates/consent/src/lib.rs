//! What people have allowed: capabilities that were granted, and calls that they were asked about.
//!
//! The state is a fold over [`Change`]s. A command looks at the state and answers with the changes that it
//! would make, or with a [`Refusal`]; whoever keeps the state stores them first and applies them then. Everything
//! is pure: time, ids and who asks are passed in. Storing, waiting and telling are the gate's.
//!
//! Two rules run through all of it. Nobody answers or grants for themselves: not when it is given, and not when
//! it is used. And what is granted is never waiting at the same time.

mod grants;
mod item;
mod state;

pub use grants::{Grant, Holder};
pub use item::{Answer, Asked, Item, State as ItemState, What};
pub use state::{Change, Consent, Limits, NewGrant, Refusal, Requested, Said};
