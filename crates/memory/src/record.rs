//! Records, and how large they may be. What a model says is cut to size rather than refused: a record that is a
//! little shorter is worth more than one that is lost.

use std::{borrow::Cow, collections::HashMap};

use rusqlite::Row;
use tollgate_contract::{Quoted, id::MemoryId, text::is_plain};

use crate::{
    error::{Failure, MemoryError},
    excerpt::{excerpt, one_line},
    term,
};

/// The longest text of a record, in bytes.
pub const LONGEST_TEXT: usize = 16 * 1024;

/// The most tags of a record.
pub const MOST_TAGS: usize = 32;

/// The longest tag, in characters.
pub const LONGEST_TAG: usize = 64;

/// The most records, or vectors, that are stored at once.
pub const MOST_AT_ONCE: usize = 10_000;

/// What a text that was cut ends with.
pub const CUT_MARK: &str = " […cut]";

/// The longest name of a session or a model, in characters.
const LONGEST_NAME: usize = 200;

/// Something to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Its id, made by the caller.
    pub id: MemoryId,
    /// What it says. Beyond [`LONGEST_TEXT`] it is cut, and says so.
    pub text: String,
    /// What it is about. Beyond [`MOST_TAGS`] they are left off, beyond [`LONGEST_TAG`] cut.
    pub tags: Vec<String>,
    /// The turn it is from.
    pub turn: u64,
    /// When that was, in milliseconds since 1970.
    pub at_ms: i64,
}

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its id.
    pub id: MemoryId,
    /// The session that it belongs to.
    pub session: String,
    /// What it says.
    pub text: String,
    /// What it is about.
    pub tags: Vec<String>,
    /// The turn it is from.
    pub turn: u64,
    /// When that was, in milliseconds since 1970.
    pub at_ms: i64,
}

/// What became of records that were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The ids of the records, in the order in which they were given. Where a text was known already, it is the id
    /// of the record that holds it.
    pub ids: Vec<MemoryId>,
    /// How many of the session's oldest records were dropped to make room.
    pub dropped: u64,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most records of a session. Beyond that the oldest are dropped.
    pub records_per_session: u64,
    /// The most memory for the vectors of sessions that were searched lately, in bytes.
    pub index_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records_per_session: 100_000, index_bytes: 256 << 20 }
    }
}

/// The text as it is stored.
pub(crate) fn bounded_text(record: &NewRecord) -> Result<Cow<'_, str>, MemoryError> {
    let text = if record.text.len() <= LONGEST_TEXT {
        Cow::Borrowed(record.text.as_str())
    } else {
        let kept = term::head(&record.text, LONGEST_TEXT - CUT_MARK.len());
        Cow::Owned(format!("{kept}{CUT_MARK}"))
    };
    if one_line(&text).is_empty() { Err(MemoryError::NoText(record.id)) } else { Ok(text) }
}

/// Adds the tags to those that are there, each once, as far as there is room.
pub(crate) fn unite(tags: &mut Vec<String>, more: &[String]) {
    for tag in more {
        let tag = bounded_tag(tag);
        if tags.len() < MOST_TAGS && !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
}

/// The tag as it is stored: on one line, without what cannot be seen, and not too long.
pub(crate) fn bounded_tag(tag: &str) -> String {
    let head: String = tag.chars().take(LONGEST_TAG * 8).collect();
    let kept: String = one_line(&head).chars().take(LONGEST_TAG).collect();
    kept.trim_end().to_owned()
}

/// Passes if this can be the name of a session.
pub(crate) fn check_session(name: &str) -> Result<(), MemoryError> {
    if is_name(name) { Ok(()) } else { Err(MemoryError::Session(Quoted::new(name))) }
}

/// Passes if this can be the name of a model.
pub(crate) fn check_model(name: &str) -> Result<(), MemoryError> {
    if is_name(name) { Ok(()) } else { Err(MemoryError::Model(Quoted::new(name))) }
}

fn is_name(name: &str) -> bool {
    // The count ends early, so that a name of megabytes costs nothing.
    let length = name.chars().take(LONGEST_NAME + 1).count();
    (1..=LONGEST_NAME).contains(&length) && name.chars().all(is_plain)
}

/// Passes if this is not too much at once.
pub(crate) fn check_count(given: usize) -> Result<(), MemoryError> {
    let most = MOST_AT_ONCE;
    if given > most { Err(MemoryError::TooMany { given, most }) } else { Ok(()) }
}

/// The columns that [`Record::of_row`] reads, for a query that calls the tables `r` and `s`.
pub(crate) const COLUMNS: &str = "r.id, s.name, r.text, r.tags, r.turn, r.at_ms";

impl Record {
    /// The record in a row of [`COLUMNS`].
    pub(crate) fn of_row(row: &Row<'_>) -> Result<Self, Failure> {
        Ok(Self {
            id: read_id(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?,
            session: row.get(1)?,
            text: row.get(2)?,
            tags: read_tags(row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?,
            turn: row.get::<_, i64>(4)?.cast_unsigned(),
            at_ms: row.get(5)?,
        })
    }

    /// How its text begins, on one line, at most [`LONGEST_EXCERPT`](crate::LONGEST_EXCERPT) characters of it.
    pub fn beginning(&self) -> String {
        excerpt(&self.text, &HashMap::new())
    }
}

/// An id that was stored.
pub(crate) fn read_id(text: &str) -> Result<MemoryId, Failure> {
    MemoryId::parse(text).map_err(|error| Failure::Damaged(error.to_string()))
}

/// Tags that were stored.
pub(crate) fn read_tags(json: &str) -> Result<Vec<String>, Failure> {
    let problem = |error| Failure::Damaged(format!("the tags of a record cannot be read: {error}"));
    serde_json::from_str(json).map_err(problem)
}
