//! What an agent remembers beyond its bounded history: records with stable ids, in one SQLite file, found by their
//! words and, where vectors were given, by what they mean.
//!
//! [`Memory`] stores, searches and forgets. `term` makes words of a text, `index` says how they stand in the
//! full-text index, `words` ranks by them. `vector` and `plane` are the vectors on disk and in memory, `near` ranks by
//! them, `score` puts the two rankings together. `excerpt` and [`block()`] are what a model is shown of it, in a form
//! that no record can forge; [`citations`] finds what the model says it used.
//!
//! A session is a wall. Its words have lists of their own in the index, its vectors a plane of their own, and how
//! rare a word is, is counted in it alone: what others store neither appears in its searches nor slows them nor
//! changes a score.
//!
//! Nothing in here waits on a network, asks for permission or reads a clock. Vectors are computed elsewhere, and who
//! may search where is the caller's to decide.

mod block;
mod error;
mod excerpt;
mod index;
mod memory;
mod near;
mod plane;
mod record;
mod schema;
mod score;
mod search;
mod term;
mod vector;
mod words;
mod write;

pub use block::{Citation, block, citations, unknown_citations};
pub use error::MemoryError;
pub use excerpt::LONGEST_EXCERPT;
pub use memory::Memory;
pub use record::{
    Added, CUT_MARK, LONGEST_TAG, LONGEST_TEXT, Limits, MOST_AT_ONCE, MOST_TAGS, NewRecord, Record,
};
pub use score::By;
pub use search::{Found, MOST_FOUND, Query};
pub use vector::LONGEST_VECTOR;
