//! Finding records by what they mean: by the nearness of their vectors.
//!
//! SQLite keeps the vectors and is the truth. A [`Plane`] of a session is made when it is first searched, and brought
//! up to date before every search: new vectors are read, and if many were removed it is made again. What was removed
//! since is passed over when the best are read in full. The planes that were not used for longest go when all of
//! them together take too much memory; for vectors that would not fit by themselves none is made, and they are
//! read from the database every time, which takes longer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    error::Failure,
    index::{self, Scope},
    plane::Plane,
    score::{Ranked, Score, rank},
    vector::{self, Model},
    words::Extent,
};

/// How many of the nearest are compared in full, at least, and for each that is wanted.
const IN_FULL: (usize, usize) = (100, 2);

/// Which part of a plane may be gone from the database before it is made again.
const STALE_PART: usize = 16;

/// What vectors a plane holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    model: i64,
    scope: Scope,
}

/// The planes of sessions that were searched lately.
pub(crate) struct Planes {
    /// How much memory they may take.
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    planes: HashMap<Key, Kept>,
    /// Counts the searches.
    searches: u64,
}

struct Kept {
    plane: Arc<RwLock<Plane>>,
    bytes: usize,
    /// In which search it was used last.
    used: u64,
}

impl Planes {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    /// The plane that is held, or an empty one.
    fn get(&self, key: Key, model: &Model) -> Arc<RwLock<Plane>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.searches += 1;
        let used = held.searches;
        let kept = held.planes.entry(key).or_insert_with(|| Kept {
            plane: Arc::new(RwLock::new(Plane::new(model.dimension, 0))),
            bytes: 0,
            used,
        });
        kept.used = used;
        Arc::clone(&kept.plane)
    }

    /// Could a plane of so many vectors be kept?
    fn has_room(&self, vectors: u64, dimension: usize) -> bool {
        let vectors = usize::try_from(vectors).unwrap_or(usize::MAX);
        Plane::expected_bytes(vectors, dimension) <= self.most
    }

    /// Notes how much memory a plane takes now, and lets go of what is too much.
    fn weigh(&self, key: Key, bytes: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = held.planes.get_mut(&key) {
            kept.bytes = bytes;
        }
        while held.planes.values().map(|kept| kept.bytes).sum::<usize>() > self.most {
            // This one goes last of all, and then with this search.
            let oldest = held.planes.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { break };
            held.planes.remove(&oldest);
        }
    }

    /// How much memory the planes take.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.held.lock().unwrap().planes.values().map(|kept| kept.bytes).sum()
    }
}

/// The nearest `most` records. Those whose cosine is not above 0 are not near.
pub(crate) fn find(
    connection: &Connection,
    planes: &Planes,
    (model_name, given): (&str, &[f32]),
    tags: &[String],
    (scope, extent): (Scope, &Extent),
    most: usize,
) -> Result<Vec<Ranked>, Failure> {
    vector::check_length(given)?;
    let unit = vector::unit(given)?;
    let Some(model) = vector::model(connection, model_name)? else { return Ok(Vec::new()) };
    model.check(model_name, given.len())?;
    let allowed = allowed(connection, tags, scope)?;
    if !planes.has_room(extent.records.min(model.vectors), model.dimension) {
        return scan(connection, &model, scope, &unit, allowed.as_ref(), most);
    }
    let key = Key { model: model.number, scope };
    let held = planes.get(key, &model);
    let (removed, last) = state(connection, &model, scope)?;
    bring_up_to_date(connection, &held, &model, scope, (removed, last))?;
    let plane = held.read().unwrap_or_else(PoisonError::into_inner);
    planes.weigh(key, plane.bytes());
    let gone = usize::try_from(removed.saturating_sub(plane.removed)).unwrap_or(0);
    let in_full = most.saturating_mul(IN_FULL.1).max(IN_FULL.0) + gone;
    let candidates = plane.nearest(&unit, in_full, allowed.as_ref());
    drop(plane);
    let near = in_full_of(connection, &candidates, &unit)?;
    Ok(rank(near, most))
}

/// The places with all of the tags; `None` if there is no tag.
fn allowed(
    connection: &Connection,
    tags: &[String],
    scope: Scope,
) -> Result<Option<HashSet<i64>>, Failure> {
    let Some(question) = index::tags_question(tags, scope) else { return Ok(None) };
    let mut query = connection.prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1")?;
    let places = query.query_map([question], |row| row.get(0))?;
    Ok(Some(places.collect::<Result<_, _>>()?))
}

/// How many vectors were removed so far, and the number of the last that is there.
fn state(connection: &Connection, model: &Model, scope: Scope) -> Result<(i64, i64), Failure> {
    let Some(session) = scope.session() else {
        let sql = "SELECT max(number) FROM vectors WHERE model = ?1";
        let last: Option<i64> =
            connection.prepare_cached(sql)?.query_row([model.number], |row| row.get(0))?;
        return Ok((model.removed, last.unwrap_or(0)));
    };
    let sql = "SELECT removed FROM removals WHERE model = ?1 AND session = ?2";
    let removed: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([model.number, session], |row| row.get(0))
        .optional()?;
    let sql = "SELECT max(number) FROM vectors WHERE model = ?1 AND session = ?2";
    let last: Option<i64> =
        connection.prepare_cached(sql)?.query_row([model.number, session], |row| row.get(0))?;
    Ok((removed.unwrap_or(0), last.unwrap_or(0)))
}

/// Reads what the plane does not know, or everything if too much of it is gone.
fn bring_up_to_date(
    connection: &Connection,
    held: &RwLock<Plane>,
    model: &Model,
    scope: Scope,
    (removed, last): (i64, i64),
) -> Result<(), Failure> {
    let is_stale = |plane: &Plane| {
        let gone = usize::try_from(removed.saturating_sub(plane.removed)).unwrap_or(0);
        gone > plane.len() / STALE_PART
    };
    let knows_all = |plane: &Plane| plane.last().unwrap_or(0) >= last;
    {
        let plane = held.read().unwrap_or_else(PoisonError::into_inner);
        if knows_all(&plane) && !is_stale(&plane) {
            return Ok(());
        }
    }
    // Another search may have done it in between: the work below finds nothing to do then.
    let mut plane = held.write().unwrap_or_else(PoisonError::into_inner);
    if is_stale(&plane) {
        *plane = Plane::new(model.dimension, removed);
    }
    load(connection, &mut plane, model, scope)
}

fn load(
    connection: &Connection,
    plane: &mut Plane,
    model: &Model,
    scope: Scope,
) -> Result<(), Failure> {
    let after = plane.last().unwrap_or(0);
    each(connection, model, scope, after, |number, place, vector| {
        plane.push(number, place, &vector)
    })
}

/// Reads the vectors behind the number `after`, in order.
fn each(
    connection: &Connection,
    model: &Model,
    scope: Scope,
    after: i64,
    mut visit: impl FnMut(i64, i64, Vec<f32>),
) -> Result<(), Failure> {
    let (sql, session) = match scope {
        Scope::Session(session) => (
            "SELECT number, place, vector FROM vectors
            WHERE model = ?1 AND session = ?2 AND number > ?3 ORDER BY number",
            session,
        ),
        Scope::All => (
            "SELECT number, place, vector FROM vectors
            WHERE model = ?1 AND ?2 = 0 AND number > ?3 ORDER BY number",
            0,
        ),
    };
    let mut query = connection.prepare_cached(sql)?;
    let mut rows = query.query(params![model.number, session, after])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        visit(row.get(0)?, row.get(1)?, vector::of_bytes(bytes, model.dimension)?);
    }
    Ok(())
}

/// The nearest by reading all of them, a few at a time.
fn scan(
    connection: &Connection,
    model: &Model,
    scope: Scope,
    unit: &[f32],
    allowed: Option<&HashSet<i64>>,
    most: usize,
) -> Result<Vec<Ranked>, Failure> {
    let mut near = Vec::new();
    each(connection, model, scope, 0, |_, place, vector| {
        let is_allowed = allowed.is_none_or(|allowed| allowed.contains(&place));
        near.extend(is_allowed.then(|| ranked(place, unit, &vector)).flatten());
        if near.len() >= most.saturating_mul(IN_FULL.1).max(IN_FULL.0) {
            near = rank(std::mem::take(&mut near), most);
        }
    })?;
    Ok(rank(near, most))
}

/// A record with its cosine, if it is near at all.
fn ranked(place: i64, unit: &[f32], vector: &[f32]) -> Option<Ranked> {
    let cosine = vector::cosine(unit, vector);
    (cosine > 0.0).then(|| Ranked { place, score: Score::of(cosine) })
}

/// The records of these vectors with their cosines. A vector that is not there any more is passed over.
fn in_full_of(
    connection: &Connection,
    numbers: &[i64],
    unit: &[f32],
) -> Result<Vec<Ranked>, Failure> {
    let sql = "SELECT place, vector FROM vectors WHERE number = ?1";
    let mut query = connection.prepare_cached(sql)?;
    let mut near = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut rows = query.query([number])?;
        let Some(row) = rows.next()? else { continue };
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        near.extend(ranked(row.get(0)?, unit, &vector::of_bytes(bytes, unit.len())?));
    }
    Ok(near)
}

#[cfg(test)]
#[path = "near_tests.rs"]
mod tests;
