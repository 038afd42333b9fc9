//! What is written: records, vectors, and what is forgotten. Everything here happens inside a transaction of the
//! caller's.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};
use tollgate_contract::id::MemoryId;

use crate::{
    error::{Failure, MemoryError},
    index::{self, Indexed},
    record::{
        Added, Limits, NewRecord, bounded_text, check_count, check_model, check_session, read_id,
        read_tags, unite,
    },
    vector,
};

/// A session that is being written to.
struct Session {
    number: i64,
    records: u64,
    words: u64,
}

/// Stores the records of one session, and drops its oldest where there are too many.
pub(crate) fn add(
    change: &Connection,
    session: &str,
    records: &[NewRecord],
    limits: Limits,
) -> Result<Added, Failure> {
    check_session(session)?;
    check_count(records.len())?;
    if records.is_empty() {
        return Ok(Added { ids: Vec::new(), dropped: 0 });
    }
    let mut session = Session::of(change, session)?;
    let mut ids = Vec::with_capacity(records.len());
    for record in records {
        ids.push(session.add(change, record)?);
    }
    let too_many = session.records.saturating_sub(limits.records_per_session);
    let dropped = session.drop_oldest(change, too_many)?;
    session.save(change)?;
    Ok(Added { ids, dropped })
}

impl Session {
    /// The session of this name, made if it is new.
    fn of(change: &Connection, name: &str) -> Result<Self, Failure> {
        if let Some(known) = Self::known(change, name)? {
            return Ok(known);
        }
        change
            .prepare_cached("INSERT INTO sessions (name, records, words) VALUES (?1, 0, 0)")?
            .execute([name])?;
        Ok(Self { number: change.last_insert_rowid(), records: 0, words: 0 })
    }

    fn known(change: &Connection, name: &str) -> Result<Option<Self>, Failure> {
        let sql = "SELECT number, records, words FROM sessions WHERE name = ?1";
        let row = change.prepare_cached(sql)?.query_row([name], Self::of_row).optional()?;
        Ok(row)
    }

    fn of_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { number: row.get(0)?, records: row.get(1)?, words: row.get(2)? })
    }

    fn save(&self, change: &Connection) -> Result<(), Failure> {
        change
            .prepare_cached("UPDATE sessions SET records = ?2, words = ?3 WHERE number = ?1")?
            .execute(params![self.number, self.records, self.words])?;
        Ok(())
    }

    /// Stores a record, or adds its tags to the one with the same text.
    fn add(&mut self, change: &Connection, record: &NewRecord) -> Result<MemoryId, Failure> {
        let text = bounded_text(record)?;
        let digest = digest(&text);
        let sql = "SELECT place, id, tags FROM records WHERE session = ?1 AND digest = ?2";
        let known = change
            .prepare_cached(sql)?
            .query_row(params![self.number, digest], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            })
            .optional()?;
        if let Some((place, id, tags)) = known {
            self.unite_tags(change, place, &text, &tags, &record.tags)?;
            return read_id(&id);
        }
        if is_taken(change, record.id)? {
            return Err(MemoryError::IdTaken(record.id).into());
        }
        let mut tags = Vec::new();
        unite(&mut tags, &record.tags);
        let Indexed { terms, words } = index::indexed(&text, &tags, self.number);
        let place = index::place(next_number(change)?, words);
        let sql = "INSERT INTO records (place, session, id, digest, words, turn, at_ms, tags, text)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let id = record.id.to_string();
        change.prepare_cached(sql)?.execute(params![
            place,
            self.number,
            id,
            digest,
            words,
            record.turn.cast_signed(),
            record.at_ms,
            as_json(&tags)?,
            text
        ])?;
        insert_terms(change, place, &terms)?;
        self.records += 1;
        self.words += u64::from(words);
        Ok(record.id)
    }

    fn unite_tags(
        &self,
        change: &Connection,
        place: i64,
        text: &str,
        tags: &str,
        more: &[String],
    ) -> Result<(), Failure> {
        let mut tags = read_tags(tags)?;
        let before = tags.len();
        unite(&mut tags, more);
        if tags.len() == before {
            return Ok(());
        }
        change
            .prepare_cached("UPDATE records SET tags = ?2 WHERE place = ?1")?
            .execute(params![place, as_json(&tags)?])?;
        // The index keeps no text, so that a change is the old one's end and a new one.
        delete_terms(change, place)?;
        insert_terms(change, place, &index::indexed(text, &tags, self.number).terms)
    }

    /// Forgets so many of the oldest records.
    fn drop_oldest(&mut self, change: &Connection, count: u64) -> Result<u64, Failure> {
        if count == 0 {
            return Ok(0);
        }
        let sql = "SELECT place, words FROM records WHERE session = ?1 ORDER BY place LIMIT ?2";
        let oldest: Vec<(i64, u32)> = change
            .prepare_cached(sql)?
            .query_map(params![self.number, count], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (place, words) in &oldest {
            self.remove(change, *place, *words)?;
        }
        Ok(oldest.len() as u64)
    }

    /// Removes the record at this place and everything that hangs on it.
    fn remove(&mut self, change: &Connection, place: i64, words: u32) -> Result<(), Failure> {
        delete_terms(change, place)?;
        let models: Vec<i64> = change
            .prepare_cached("DELETE FROM vectors WHERE place = ?1 RETURNING model")?
            .query_map([place], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for model in models {
            vector_removed(change, model, self.number)?;
        }
        change.prepare_cached("DELETE FROM records WHERE place = ?1")?.execute([place])?;
        self.records = self.records.saturating_sub(1);
        self.words = self.words.saturating_sub(u64::from(words));
        Ok(())
    }
}

/// Forgets a session with all its records, and gives how many there were.
pub(crate) fn forget(change: &Connection, session: &str) -> Result<u64, Failure> {
    let Some(mut session) = Session::known(change, session)? else { return Ok(0) };
    let dropped = session.drop_oldest(change, i64::MAX.cast_unsigned())?;
    change.execute("DELETE FROM removals WHERE session = ?1", [session.number])?;
    change.execute("DELETE FROM sessions WHERE number = ?1", [session.number])?;
    Ok(dropped)
}

/// Forgets a record, and says whether it was there.
pub(crate) fn forget_one(change: &Connection, id: MemoryId) -> Result<bool, Failure> {
    let sql = "SELECT r.place, r.words, s.number, s.records, s.words
        FROM records r JOIN sessions s ON s.number = r.session WHERE r.id = ?1";
    let found = change
        .query_row(sql, [id.to_string()], |row| {
            let session = Session { number: row.get(2)?, records: row.get(3)?, words: row.get(4)? };
            Ok((row.get(0)?, row.get(1)?, session))
        })
        .optional()?;
    let Some((place, words, mut session)) = found else { return Ok(false) };
    session.remove(change, place, words)?;
    session.save(change)?;
    Ok(true)
}

/// Stores vectors of records, and gives how many. Records that are not there any more are passed over.
pub(crate) fn set_vectors(
    change: &Connection,
    model: &str,
    vectors: &[(MemoryId, Vec<f32>)],
) -> Result<usize, Failure> {
    check_model(model)?;
    check_count(vectors.len())?;
    let Some((_, first)) = vectors.first() else { return Ok(0) };
    let model_number = model_for(change, model, first.len())?;
    let mut stored = 0;
    for (id, given) in vectors {
        let known = first.len();
        vector::check_length(given)?;
        if given.len() != known {
            let (model, given) = (model.into(), given.len());
            return Err(MemoryError::Dimension { model, given, known }.into());
        }
        let unit = vector::unit(given)?;
        stored += usize::from(set_vector(change, model_number, *id, &unit)?);
    }
    change.execute(
        "UPDATE models SET vectors = vectors + ?2 WHERE number = ?1",
        params![model_number, stored],
    )?;
    Ok(stored)
}

fn set_vector(
    change: &Connection,
    model: i64,
    id: MemoryId,
    unit: &[f32],
) -> Result<bool, Failure> {
    let found: Option<(i64, i64)> = change
        .prepare_cached("SELECT place, session FROM records WHERE id = ?1")?
        .query_row([id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((place, session)) = found else { return Ok(false) };
    let replaced = change
        .prepare_cached("DELETE FROM vectors WHERE place = ?1 AND model = ?2")?
        .execute([place, model])?;
    if replaced > 0 {
        vector_removed(change, model, session)?;
    }
    change
        .prepare_cached(
            "INSERT INTO vectors (model, session, place, vector) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![model, session, place, vector::to_bytes(unit)])?;
    Ok(true)
}

/// The number of a model whose vectors have this length. The first vector of a model decides about the others.
fn model_for(change: &Connection, name: &str, dimension: usize) -> Result<i64, Failure> {
    if let Some(known) = vector::model(change, name)? {
        known.check(name, dimension)?;
        return Ok(known.number);
    }
    vector::check_dimension(dimension)?;
    change.execute(
        "INSERT INTO models (name, dimension, vectors, removed) VALUES (?1, ?2, 0, 0)",
        params![name, dimension],
    )?;
    Ok(change.last_insert_rowid())
}

/// Counts a vector that is gone, for those who hold a copy of the others.
fn vector_removed(change: &Connection, model: i64, session: i64) -> Result<(), Failure> {
    change
        .prepare_cached(
            "INSERT INTO removals (model, session, removed) VALUES (?1, ?2, 1)
            ON CONFLICT DO UPDATE SET removed = removed + 1",
        )?
        .execute([model, session])?;
    change
        .prepare_cached(
            "UPDATE models SET vectors = vectors - 1, removed = removed + 1 WHERE number = ?1",
        )?
        .execute([model])?;
    Ok(())
}

fn insert_terms(change: &Connection, place: i64, terms: &str) -> Result<(), Failure> {
    change
        .prepare_cached("INSERT INTO words (rowid, terms) VALUES (?1, ?2)")?
        .execute(params![place, terms])?;
    Ok(())
}

fn delete_terms(change: &Connection, place: i64) -> Result<(), Failure> {
    change.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([place])?;
    Ok(())
}

fn is_taken(change: &Connection, id: MemoryId) -> Result<bool, Failure> {
    let mut query = change.prepare_cached("SELECT 1 FROM records WHERE id = ?1")?;
    Ok(query.exists([id.to_string()])?)
}

/// The number behind the last record's.
fn next_number(change: &Connection) -> Result<i64, Failure> {
    let last: Option<i64> =
        change.prepare_cached("SELECT max(place) FROM records")?.query_row([], |row| row.get(0))?;
    Ok(last.map_or(1, |place| index::number(place) + 1))
}

/// What two texts have in common if they are the same.
fn digest(text: &str) -> Vec<u8> {
    let digest = Sha256::digest(text.as_bytes());
    digest.first_chunk::<16>().map(|head| head.to_vec()).unwrap_or_default()
}

fn as_json(tags: &[String]) -> Result<String, Failure> {
    serde_json::to_string(tags).map_err(|error| Failure::Damaged(error.to_string()))
}
