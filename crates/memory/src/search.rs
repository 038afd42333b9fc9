//! Searching: what is asked, what comes back, and how the two ways of finding are put together.

use rusqlite::{Connection, OptionalExtension};
use tollgate_contract::id::MemoryId;

use crate::{
    error::Failure,
    excerpt::excerpt,
    index::Scope,
    near::{self, Planes},
    record::{COLUMNS, MOST_TAGS, Record, bounded_tag},
    score::{By, fuse},
    words::{self, ByWords, Extent},
};

/// The most records that a search gives. More are not refused: they are not given.
pub const MOST_FOUND: usize = 1_000;

/// How deep the two rankings are that are fused, at least, and for each record that is wanted.
const DEPTH: (usize, usize) = (50, 4);

/// What is looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Query<'a> {
    /// In which session; `None` is all of them, which is for operators alone.
    pub session: Option<&'a str>,
    /// Words, such as a whole message. Nothing in it is syntax.
    pub text: &'a str,
    /// A model and what it made of the text.
    pub vector: Option<(&'a str, &'a [f32])>,
    /// Only records that have all of these.
    pub tags: &'a [&'a str],
    /// How many at most, up to [`MOST_FOUND`].
    pub limit: usize,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The record's id.
    pub id: MemoryId,
    /// How well it fits, from 0 to 1, in thousandths.
    pub score: f64,
    /// The part of the text that fits best, on one line.
    pub excerpt: String,
    /// What it says.
    pub text: String,
    /// What it is about.
    pub tags: Vec<String>,
    /// The session that it belongs to.
    pub session: String,
    /// The turn it is from.
    pub turn: u64,
    /// When that was, in milliseconds since 1970.
    pub at_ms: i64,
    /// How it was found.
    pub by: By,
}

/// The best records for a query.
pub(crate) fn search(
    connection: &Connection,
    planes: &Planes,
    query: &Query<'_>,
) -> Result<Vec<Found>, Failure> {
    let limit = query.limit.min(MOST_FOUND);
    let Some((scope, extent)) = scope_of(connection, query.session)? else {
        return Ok(Vec::new());
    };
    let Some(tags) = asked_tags(query.tags) else { return Ok(Vec::new()) };
    let depth = match query.vector {
        Some(_) => limit.saturating_mul(DEPTH.1).max(DEPTH.0),
        None => limit,
    };
    let ByWords { ranked, weights } =
        words::find(connection, query.text, &tags, scope, &extent, depth)?;
    let meaning = match query.vector {
        Some(vector) => near::find(connection, planes, vector, &tags, (scope, &extent), depth)?,
        None => Vec::new(),
    };
    let mut found = Vec::with_capacity(limit);
    for (one, by) in fuse(ranked, meaning, limit) {
        let Some(record) = at(connection, one.place)? else {
            return Err(Failure::Damaged("the index knows a record that is not there".to_owned()));
        };
        found.push(Found {
            id: record.id,
            score: one.score.value(),
            excerpt: excerpt(&record.text, &weights),
            text: record.text,
            tags: record.tags,
            session: record.session,
            turn: record.turn,
            at_ms: record.at_ms,
            by,
        });
    }
    Ok(found)
}

/// The tags as they are stored, each once; `None` if no record can have all of them.
fn asked_tags(given: &[&str]) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    for tag in given {
        let tag = bounded_tag(tag);
        if tag.is_empty() || (tags.len() == MOST_TAGS && !tags.contains(&tag)) {
            return None;
        }
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    Some(tags)
}

/// Where is searched and how much there is; `None` if there is no such session.
fn scope_of(
    connection: &Connection,
    session: Option<&str>,
) -> Result<Option<(Scope, Extent)>, Failure> {
    let Some(name) = session else {
        let sql = "SELECT coalesce(sum(records), 0), coalesce(sum(words), 0) FROM sessions";
        let extent = connection
            .prepare_cached(sql)?
            .query_row([], |row| Ok(Extent { records: row.get(0)?, words: row.get(1)? }))?;
        return Ok(Some((Scope::All, extent)));
    };
    let sql = "SELECT number, records, words FROM sessions WHERE name = ?1";
    let found = connection.prepare_cached(sql)?.query_row([name], |row| {
        let extent = Extent { records: row.get(1)?, words: row.get(2)? };
        Ok((Scope::Session(row.get(0)?), extent))
    });
    Ok(found.optional()?)
}

/// The record at this place.
fn at(connection: &Connection, place: i64) -> Result<Option<Record>, Failure> {
    let sql = format!(
        "SELECT {COLUMNS} FROM records r JOIN sessions s ON s.number = r.session WHERE r.place = ?1"
    );
    let mut query = connection.prepare_cached(&sql)?;
    let mut rows = query.query([place])?;
    rows.next()?.map(Record::of_row).transpose()
}
