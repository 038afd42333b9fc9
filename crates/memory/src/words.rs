//! Finding records by their words.
//!
//! The score is BM25 (k1 = 1.2, b = 0.75) over the session's own records: how rare a word is and how long a record is
//! on average are the session's, so that nothing that others store changes it. A word counts as often as it is in the
//! record, in three steps (once; two or three times, as twice; more often, as four times). The sum is divided
//! by the most that any record could reach with the words that were asked for, those that no record has included
//! (of more than 32 words: with the 32 rarest that some record has). So it lies between 0 and 1 and says how much of the
//! question a record covers.
//!
//! How much is read is bounded, whatever is asked. A word that is in very many of the records tells little and costs
//! much: it is passed over while there is another one. If there is none, its newest records are looked at.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

use crate::{
    error::Failure,
    index::{self, Often, Scope},
    score::{Ranked, Score, rank},
    term::{self, Kind},
};

/// How much of a question is read, in bytes.
const LONGEST_QUESTION: usize = 64 * 1024;

/// How many different words of a question are looked up. Of more, these are the first.
const MOST_LOOKED_UP: usize = 256;

/// How many words a search ranks by: the rarest of those that were looked up.
pub(crate) const MOST_WORDS: usize = 32;

/// How many records of each word are read to find the rarest.
const PROBE: usize = 64;

/// A word that is in as many records as this is a common one: a tenth of them, within these bounds.
const COMMON: (u64, u64) = (2_000, 20_000);

/// How many places a search reads before it only looks whether the remaining words are rare, and how rare.
const BUDGET: (usize, usize) = (100_000, 1_000);

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The records that are searched, as numbers.
pub(crate) struct Extent {
    pub(crate) records: u64,
    /// How long they are together, in terms.
    pub(crate) words: u64,
}

/// What was found by words.
#[derive(Default)]
pub(crate) struct ByWords {
    /// The best, best first.
    pub(crate) ranked: Vec<Ranked>,
    /// What each word that was looked for weighs.
    pub(crate) weights: HashMap<String, f64>,
}

/// Where a word is.
struct Heard {
    term: String,
    places: Vec<(i64, Often)>,
    /// Are these all of its places, or the newest?
    all: bool,
}

/// The best `most` records for the words of a text.
pub(crate) fn find(
    connection: &Connection,
    text: &str,
    tags: &[String],
    scope: Scope,
    extent: &Extent,
    most: usize,
) -> Result<ByWords, Failure> {
    let asked = asked(text);
    let index = Index { connection, tags, scope };
    let asked = if asked.len() > MOST_WORDS { index.rarest(asked)? } else { asked };
    let heard = index.telling(asked, extent)?;
    let records = extent.records as f64;
    let average = (extent.words as f64 / records.max(1.0)).max(1.0);
    let (mut gained, mut weights, mut best) = (Vec::new(), HashMap::new(), 0.0);
    for word in heard {
        let weight = weight(word.places.len() as f64, records);
        best += weight * (K1 + 1.0);
        gained.extend(word.places.iter().map(|(place, often)| {
            (*place, weight * saturated(often.times(), index::length(*place) / average))
        }));
        weights.insert(word.term, weight);
    }
    // Places of one record side by side. The sort is stable: its words are added up in the order of the question.
    gained.sort_by_key(|(place, _)| *place);
    let sums = gained.chunk_by(|one, next| one.0 == next.0);
    let scored = sums.filter_map(|same| {
        let sum: f64 = same.iter().map(|(_, gain)| gain).sum();
        same.first().map(|(place, _)| Ranked { place: *place, score: Score::of(sum / best) })
    });
    Ok(ByWords { ranked: rank(scored.collect(), most), weights })
}

/// How much a word tells that is in `within` of so many records.
fn weight(within: f64, records: f64) -> f64 {
    // A record may be newer than the number of them.
    let without = (records - within).max(0.0);
    (1.0 + (without + 0.5) / (within + 0.5)).ln()
}

/// What a word's count adds in a record that is so many times as long as the average: less and less.
fn saturated(times: f64, length: f64) -> f64 {
    times * (K1 + 1.0) / (times + K1 * (1.0 - B + B * length))
}

/// The different words of a question. Words that say little are left out, unless there are no others.
fn asked(text: &str) -> Vec<String> {
    let (mut words, mut stop, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    term::each(term::head(text, LONGEST_QUESTION), |term| {
        let list = match term.kind {
            Kind::Word | Kind::Pair | Kind::Alone => &mut words,
            Kind::Stop => &mut stop,
            Kind::Character => return,
        };
        if list.len() < MOST_LOOKED_UP && !seen.contains(term.text) {
            seen.insert(term.text.to_owned());
            list.push(term.text.to_owned());
        }
    });
    if words.is_empty() { stop } else { words }
}

/// The full-text index, as far as one search looks at it.
struct Index<'a> {
    connection: &'a Connection,
    tags: &'a [String],
    scope: Scope,
}

impl Index<'_> {
    /// The words of the question that are in the fewest records, but in some.
    fn rarest(&self, asked: Vec<String>) -> Result<Vec<String>, Failure> {
        let mut counted = Vec::with_capacity(asked.len());
        for term in asked {
            let count = self.places(&term, PROBE)?.places.len();
            if count > 0 {
                counted.push((count, term));
            }
        }
        // Stable: among equals the first ones of the question stay.
        counted.sort_by_key(|(count, _)| *count);
        counted.truncate(MOST_WORDS);
        Ok(counted.into_iter().map(|(_, term)| term).collect())
    }

    /// Where the words are, without the common ones if there are others.
    fn telling(&self, asked: Vec<String>, extent: &Extent) -> Result<Vec<Heard>, Failure> {
        let common = (extent.records / 10).clamp(COMMON.0, COMMON.1);
        let common = usize::try_from(common).unwrap_or(usize::MAX);
        let (mut heard, mut read) = (Vec::with_capacity(asked.len()), 0);
        for term in asked {
            let most = if read < BUDGET.0 { common } else { BUDGET.1 };
            let word = self.places(&term, most)?;
            read += word.places.len();
            heard.push(word);
        }
        if heard.iter().any(|word| word.all && !word.places.is_empty()) {
            heard.retain(|word| word.all);
        }
        Ok(heard)
    }

    /// The newest places of a term, `most` of them.
    fn places(&self, term: &str, most: usize) -> Result<Heard, Failure> {
        // Without LIMIT: SQLite would plan the query anew for every value of it.
        let sql = "SELECT rowid FROM words WHERE words MATCH ?1 ORDER BY rowid DESC";
        let mut query = self.connection.prepare_cached(sql)?;
        let mut places = Vec::new();
        for often in Often::ALL {
            let question = index::question(term, often, self.tags, self.scope);
            let mut rows = query.query([question])?;
            let mut read = 0;
            while read < most
                && let Some(row) = rows.next()?
            {
                places.push((row.get(0)?, often));
                read += 1;
            }
        }
        let all = places.len() < most;
        if !all {
            places.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
            places.truncate(most);
        }
        Ok(Heard { term: term.to_owned(), places, all })
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
