//! How records stand in the full-text index.
//!
//! The index is a table of FTS5 that is told terms, not text. Every term ends with the number of its session, so
//! that each session has lists of its own: a search reads its session's and no other's, however many there are. The
//! sign between the two says how often the term is in the record (once, a few times, often), as the index itself
//! does not count. For a search in all sessions, `term.` followed by anything is looked for.
//!
//! A record's place in the index is its number, and in the lowest bits how long it is: with that, a list of places
//! is all that a ranking needs to read.

use std::{collections::HashMap, fmt::Write};

use sha2::{Digest, Sha256};
use tollgate_contract::text::hex;

use crate::term::{self, Kind};

/// How many bits of a place say how long the record is.
const LENGTH_BITS: u32 = 5;

/// How many times as long the next class of lengths is. The last class begins at some 11,000 terms, and the longest
/// record has about as many.
const LENGTH_STEP: f64 = 1.35;

/// Begins a tag's term. No word begins with it.
const TAG: char = '#';

/// How often a term is in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Often {
    Once,
    AFew,
    Many,
}

impl Often {
    pub(crate) const ALL: [Self; 3] = [Self::Once, Self::AFew, Self::Many];

    fn of(count: u32) -> Self {
        match count {
            ..2 => Self::Once,
            2..4 => Self::AFew,
            4.. => Self::Many,
        }
    }

    /// As how many times it counts.
    pub(crate) fn times(self) -> f64 {
        match self {
            Self::Once => 1.0,
            Self::AFew => 2.0,
            Self::Many => 4.0,
        }
    }

    /// The sign between a term and its session.
    fn sign(self) -> char {
        match self {
            Self::Once => '.',
            Self::AFew => ':',
            Self::Many => ';',
        }
    }
}

/// Where is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// In the session of this number.
    Session(i64),
    /// In all of them.
    All,
}

impl Scope {
    /// The number, where there is one.
    pub(crate) fn session(self) -> Option<i64> {
        match self {
            Self::Session(number) => Some(number),
            Self::All => None,
        }
    }
}

/// What the index is told about a record.
pub(crate) struct Indexed {
    /// Its terms, with spaces between them.
    pub(crate) terms: String,
    /// How long it is, in terms.
    pub(crate) words: u32,
}

/// What the index is told about a record of the session with this number.
pub(crate) fn indexed(text: &str, tags: &[String], session: i64) -> Indexed {
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut words = 0;
    term::each(text, |term| {
        words += u32::from(term.kind != Kind::Character);
        match counts.get_mut(term.text) {
            Some(count) => *count += 1,
            None => _ = counts.insert(term.text.to_owned(), 1),
        }
    });
    let mut terms = String::new();
    // Writing into a string cannot fail.
    for (term, count) in &counts {
        _ = write!(terms, "{term}{}{session} ", Often::of(*count).sign());
    }
    for tag in tags {
        _ = write!(terms, "{}{session} ", tag_term(tag));
    }
    Indexed { terms, words }
}

/// A tag's term, up to the session. A tag may have any characters, a term may not.
fn tag_term(tag: &str) -> String {
    let digest = Sha256::digest(tag.as_bytes());
    let head = digest.first_chunk::<16>().copied().unwrap_or_default();
    format!("{TAG}{}{}", hex(&head), Often::Once.sign())
}

/// The question for the records that have the term as often as this, and all of the tags.
pub(crate) fn question(term: &str, often: Often, tags: &[String], scope: Scope) -> String {
    let mut question = in_scope(&format!("{term}{}", often.sign()), scope);
    for tag in tags {
        question.push_str(" AND ");
        question.push_str(&in_scope(&tag_term(tag), scope));
    }
    question
}

/// The question for the records that have all of the tags; `None` if there is no tag.
pub(crate) fn tags_question(tags: &[String], scope: Scope) -> Option<String> {
    let asked: Vec<String> = tags.iter().map(|tag| in_scope(&tag_term(tag), scope)).collect();
    (!asked.is_empty()).then(|| asked.join(" AND "))
}

/// A term in quotes. It holds letters, digits and our own signs; a quote in it would be doubled all the same.
fn in_scope(term: &str, scope: Scope) -> String {
    let term = term.replace('"', "\"\"");
    match scope {
        Scope::Session(number) => format!("\"{term}{number}\""),
        Scope::All => format!("\"{term}\" *"),
    }
}

/// The place of the record with this number and length.
pub(crate) fn place(number: i64, words: u32) -> i64 {
    (number << LENGTH_BITS) | length_class(words)
}

/// The number of the record at this place.
pub(crate) fn number(place: i64) -> i64 {
    place >> LENGTH_BITS
}

fn length_class(words: u32) -> i64 {
    let class = f64::from(words.max(1)).ln() / LENGTH_STEP.ln();
    // It is small and not negative.
    (class.round() as i64).min((1 << LENGTH_BITS) - 1)
}

/// About how long the record at this place is, in terms.
pub(crate) fn length(place: i64) -> f64 {
    let class = place & ((1 << LENGTH_BITS) - 1);
    LENGTH_STEP.powi(i32::try_from(class).unwrap_or_default())
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
