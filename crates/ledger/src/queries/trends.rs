//! Trends: what was asked for, given and used, summed up by the minute. They are made of the governor's events, and are
//! there when the events themselves are not any more.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use rusqlite::{Connection, Row, params, params_from_iter};
use serde::{Deserialize, Deserializer, Serialize};

use super::index::Select;
use crate::reader::{bounded, place};

/// How long a minute is, in milliseconds.
const MINUTE_MS: i64 = 60_000;

/// How many rows a query gives that does not say it.
const DEFAULT_LIMIT: u64 = 1000;

/// A name that is empty is none. The row without a pool counts every intent once, however many pools it is about.
pub(super) const TABLES: &str = "
    CREATE TABLE trends (
        minute INTEGER NOT NULL,
        pool TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        identity_id TEXT NOT NULL,
        workload_id TEXT NOT NULL,
        asks INTEGER NOT NULL,
        approved INTEGER NOT NULL,
        waited INTEGER NOT NULL,
        denied INTEGER NOT NULL,
        held INTEGER NOT NULL,
        used INTEGER NOT NULL,
        ghost INTEGER NOT NULL,
        expired INTEGER NOT NULL,
        released INTEGER NOT NULL,
        PRIMARY KEY (minute, pool, agent_id, identity_id, workload_id)
    ) STRICT, WITHOUT ROWID;";

/// How long the stretches of time are that are summed up. Hours and days are those of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrendStep {
    /// A minute.
    #[default]
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl TrendStep {
    fn minutes(self) -> i64 {
        match self {
            Self::Minute => 1,
            Self::Hour => 60,
            Self::Day => 24 * 60,
        }
    }
}

/// What is told apart in the rows. What is not is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrendBy {
    /// Pools.
    pub pool: bool,
    /// Agents.
    pub agent: bool,
    /// Identities.
    pub identity: bool,
    /// Workloads.
    pub workload: bool,
}

/// Which trends are wanted. What is `None` does not restrict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrendQuery {
    /// From the minute of this time on, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// Up to the minutes that begin before this time.
    pub to_ms: Option<i64>,
    /// Of this pool.
    pub pool: Option<String>,
    /// Of this agent.
    pub agent_id: Option<String>,
    /// Of this identity.
    pub identity_id: Option<String>,
    /// Of this workload.
    pub workload_id: Option<String>,
    /// How long the stretches of time are.
    pub step: TrendStep,
    /// What is told apart.
    pub by: TrendBy,
    /// At most so many rows, the earliest first.
    pub limit: u64,
}

impl Default for TrendQuery {
    fn default() -> Self {
        Self {
            from_ms: None,
            to_ms: None,
            pool: None,
            agent_id: None,
            identity_id: None,
            workload_id: None,
            step: TrendStep::default(),
            by: TrendBy::default(),
            limit: DEFAULT_LIMIT,
        }
    }
}

/// The sums of a stretch of time. An intent that is about several pools counts in each of them; in sums that are not of
/// pools it counts once, and amounts of all pools are added up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TrendRow {
    /// When the stretch begins, in milliseconds since 1970.
    pub start_ms: i64,
    /// The pool, if they are told apart.
    pub pool: Option<String>,
    /// The agent, if they are told apart and there was one.
    pub agent_id: Option<String>,
    /// The identity, likewise.
    pub identity_id: Option<String>,
    /// The workload, likewise.
    pub workload_id: Option<String>,
    /// The sums.
    #[serde(flatten)]
    pub sums: TrendSums,
}

/// What is summed up. What is too large for the database's numbers stays at the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct TrendSums {
    /// How many intents there were.
    pub asks: u64,
    /// How many were approved as they were.
    pub approved: u64,
    /// How many were approved with modifications.
    pub waited: u64,
    /// How many were denied.
    pub denied: u64,
    /// The amount that was held for those that were approved.
    pub held: u64,
    /// The amount that was settled.
    pub used: u64,
    /// The amount that was used without an intent.
    pub ghost: u64,
    /// The amount of holds that ran out and counts as spent.
    pub expired: u64,
    /// The amount of holds that ran out and was given back.
    pub released: u64,
}

impl TrendSums {
    fn values(&self) -> [u64; 9] {
        let Self { asks, approved, waited, denied, held, used, ghost, expired, released } = *self;
        [asks, approved, waited, denied, held, used, ghost, expired, released]
    }

    fn add(&mut self, other: &Self) {
        let Self { asks, approved, waited, denied, held, used, ghost, expired, released } = self;
        let mine = [asks, approved, waited, denied, held, used, ghost, expired, released];
        for (mine, its) in mine.into_iter().zip(other.values()) {
            *mine = mine.saturating_add(its).min(MOST);
        }
    }
}

/// The largest number of the database.
const MOST: u64 = i64::MAX.unsigned_abs();

/// Whom an event is about.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) agent_id: &'a str,
    pub(super) identity_id: &'a str,
    pub(super) workload_id: &'a str,
}

/// Whose sums: the minute, and the names of pool, agent, identity and workload.
type Key = (i64, [usize; 4]);

/// The number of no name; as a pool, all of them.
const NO_NAME: usize = 0;

/// The sums of a turn.
#[derive(Default)]
pub(super) struct Sums {
    /// Every name has a number, so that a sum is found without copying names.
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    sums: HashMap<Key, TrendSums>,
}

#[derive(Deserialize)]
struct Decided<'a> {
    #[serde(borrow)]
    decision: Cow<'a, str>,
    #[serde(borrow, default)]
    pools: Vec<Asked<'a>>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    pool: Cow<'a, str>,
    #[serde(default)]
    amount: u64,
}

#[derive(Deserialize)]
struct Observed<'a> {
    #[serde(default)]
    ghost: bool,
    #[serde(borrow, default)]
    pools: Vec<Used<'a>>,
}

#[derive(Deserialize)]
struct Used<'a> {
    #[serde(borrow)]
    pool: Cow<'a, str>,
    #[serde(default)]
    used: u64,
}

#[derive(Deserialize)]
struct Expired<'a> {
    #[serde(borrow, default)]
    holds: Vec<Hold<'a>>,
}

#[derive(Deserialize)]
struct Hold<'a> {
    #[serde(borrow, default, deserialize_with = "name_or_none")]
    agent_id: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "name_or_none")]
    identity_id: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "name_or_none")]
    workload_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pools: Vec<Left<'a>>,
}

/// A name, not copied where it stands as it is; empty where there is none.
fn name_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    let name = Option::<Name<'de>>::deserialize(deserializer)?;
    Ok(name.map_or(Cow::Borrowed(""), |Name(name)| name))
}

#[derive(Deserialize)]
struct Left<'a> {
    #[serde(borrow)]
    pool: Cow<'a, str>,
    #[serde(default)]
    amount: u64,
    #[serde(default)]
    released: bool,
}

impl Sums {
    /// Adds what an event says. What cannot be read as one of the governor's says nothing.
    pub(super) fn note(&mut self, ts_ms: i64, kind: &[u8], of: Of<'_>, payload: &[u8]) {
        let minute = ts_ms.div_euclid(MINUTE_MS);
        match kind {
            b"intent_decided" => self.decided(minute, of, payload),
            b"usage_observed" => self.observed(minute, of, payload),
            b"hold_expired" => self.expired(minute, payload),
            _ => None,
        };
    }

    fn decided(&mut self, minute: i64, of: Of<'_>, payload: &[u8]) -> Option<()> {
        let told: Decided<'_> = serde_json::from_slice(payload).ok()?;
        let (mut once, holds) = match told.decision.as_ref() {
            "approve" => (TrendSums { approved: 1, ..TrendSums::default() }, true),
            "approve_with_modifications" => (TrendSums { waited: 1, ..TrendSums::default() }, true),
            "deny_with_reason" => (TrendSums { denied: 1, ..TrendSums::default() }, false),
            _ => return None,
        };
        once.asks = 1;
        let of = self.numbers_of(of);
        let mut all = once;
        for (place, one) in told.pools.iter().enumerate() {
            let held = if holds { one.amount } else { 0 };
            all.held = all.held.saturating_add(held);
            // A pool can be there more than once, with another key each time.
            let again = told.pools.iter().take(place).any(|before| before.pool == one.pool);
            let counts = if again { TrendSums::default() } else { once };
            self.add_to_pool(minute, &one.pool, of, &TrendSums { held, ..counts });
        }
        self.add(minute, NO_NAME, of, &all);
        Some(())
    }

    fn observed(&mut self, minute: i64, of: Of<'_>, payload: &[u8]) -> Option<()> {
        let told: Observed<'_> = serde_json::from_slice(payload).ok()?;
        let of = self.numbers_of(of);
        for one in &told.pools {
            let (used, ghost) = if told.ghost { (0, one.used) } else { (one.used, 0) };
            let amounts = TrendSums { used, ghost, ..TrendSums::default() };
            self.add_to_pool(minute, &one.pool, of, &amounts);
            self.add(minute, NO_NAME, of, &amounts);
        }
        Some(())
    }

    fn expired(&mut self, minute: i64, payload: &[u8]) -> Option<()> {
        let told: Expired<'_> = serde_json::from_slice(payload).ok()?;
        for hold in &told.holds {
            let of = self.numbers_of(Of {
                agent_id: &hold.agent_id,
                identity_id: &hold.identity_id,
                workload_id: &hold.workload_id,
            });
            for one in &hold.pools {
                let (expired, released) =
                    if one.released { (0, one.amount) } else { (one.amount, 0) };
                let amounts = TrendSums { expired, released, ..TrendSums::default() };
                self.add_to_pool(minute, &one.pool, of, &amounts);
                self.add(minute, NO_NAME, of, &amounts);
            }
        }
        Some(())
    }

    /// Adds to the sums of a pool. One without a name would be taken for all of them.
    fn add_to_pool(&mut self, minute: i64, pool: &str, of: [usize; 3], more: &TrendSums) {
        if !pool.is_empty() {
            let pool = self.number(pool);
            self.add(minute, pool, of, more);
        }
    }

    fn add(&mut self, minute: i64, pool: usize, of: [usize; 3], more: &TrendSums) {
        let [agent, identity, workload] = of;
        self.sums.entry((minute, [pool, agent, identity, workload])).or_default().add(more);
    }

    fn numbers_of(&mut self, of: Of<'_>) -> [usize; 3] {
        [of.agent_id, of.identity_id, of.workload_id].map(|name| self.number(name))
    }

    fn number(&mut self, name: &str) -> usize {
        if name.is_empty() {
            return NO_NAME;
        }
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() + 1;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// Adds the sums to those that are stored.
    pub(super) fn store(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.sums.is_empty() {
            return Ok(());
        }
        let sql = upsert();
        let mut statement = connection.prepare_cached(&sql)?;
        // In the order of the table.
        let mut sorted: Vec<_> = self
            .sums
            .iter()
            .map(|((minute, names), sums)| (*minute, names.map(|name| self.name(name)), sums))
            .collect();
        sorted.sort_unstable_by_key(|(minute, names, _)| (*minute, *names));
        for (minute, [pool, agent_id, identity_id, workload_id], sums) in sorted {
            let [asks, approved, waited, denied, held, used, ghost, expired, released] =
                sums.values().map(bounded);
            statement.execute(params![
                minute,
                pool,
                agent_id,
                identity_id,
                workload_id,
                asks,
                approved,
                waited,
                denied,
                held,
                used,
                ghost,
                expired,
                released,
            ])?;
        }
        Ok(())
    }

    fn name(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|place| self.names.get(place)).map_or("", String::as_str)
    }
}

const SUMS: [&str; 9] =
    ["asks", "approved", "waited", "denied", "held", "used", "ghost", "expired", "released"];

/// Adds within the database's numbers: it would make what is larger a number with a fraction.
fn upsert() -> String {
    let added = SUMS.map(|sum| {
        format!("{sum} = iif({sum} > {MOST} - excluded.{sum}, {MOST}, {sum} + excluded.{sum})")
    });
    format!(
        "INSERT INTO trends (minute, pool, agent_id, identity_id, workload_id, {})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (minute, pool, agent_id, identity_id, workload_id) DO UPDATE SET {}",
        SUMS.join(", "),
        added.join(", ")
    )
}

/// What is told apart in the rows of an answer: the time first, so that they come in its order.
type Group = (i64, [Option<String>; 4]);

/// The trends that are wanted.
pub(super) fn trends(
    connection: &Connection,
    wanted: &TrendQuery,
) -> rusqlite::Result<Vec<TrendRow>> {
    let mut select = Select::default();
    let minute = |ms: i64| ms.div_euclid(MINUTE_MS);
    select.only("minute >= ?", &wanted.from_ms.map(minute));
    // The last minute that begins before that time.
    select.only("minute <= ?", &wanted.to_ms.map(|to| minute(to.saturating_sub(1))));
    let all = (!wanted.by.pool).then(String::new);
    match wanted.pool.clone().or(all) {
        Some(pool) => select.only("pool = ?", &Some(pool)),
        None => select.only("pool > ?", &Some(String::new())),
    }
    select.only("agent_id = ?", &wanted.agent_id);
    select.only("identity_id = ?", &wanted.identity_id);
    select.only("workload_id = ?", &wanted.workload_id);
    let what = format!(
        "minute, pool, agent_id, identity_id, workload_id, {} FROM trends",
        SUMS.join(", ")
    );
    let (sql, values) = select.finish(&what, "minute", u64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let mut groups = BTreeMap::<Group, TrendSums>::new();
    while let Some(row) = rows.next()? {
        let minutes = wanted.step.minutes();
        let start = row.get::<_, i64>(0)?.div_euclid(minutes).saturating_mul(minutes);
        // What comes from here on is later than everything that is wanted.
        if groups.len() >= limit && groups.last_key_value().is_some_and(|((at, _), _)| *at < start)
        {
            break;
        }
        let by = wanted.by;
        let names = [
            told_apart(row, 1, by.pool)?,
            told_apart(row, 2, by.agent)?,
            told_apart(row, 3, by.identity)?,
            told_apart(row, 4, by.workload)?,
        ];
        groups.entry((start, names)).or_default().add(&sums(row)?);
    }
    Ok(groups.into_iter().take(limit).map(trend_row).collect())
}

fn told_apart(row: &Row<'_>, column: usize, wanted: bool) -> rusqlite::Result<Option<String>> {
    if !wanted {
        return Ok(None);
    }
    Ok(Some(row.get::<_, String>(column)?).filter(|name| !name.is_empty()))
}

fn sums(row: &Row<'_>) -> rusqlite::Result<TrendSums> {
    let sum = |column: usize| row.get::<_, i64>(column).map(place);
    Ok(TrendSums {
        asks: sum(5)?,
        approved: sum(6)?,
        waited: sum(7)?,
        denied: sum(8)?,
        held: sum(9)?,
        used: sum(10)?,
        ghost: sum(11)?,
        expired: sum(12)?,
        released: sum(13)?,
    })
}

fn trend_row(((start, names), sums): (Group, TrendSums)) -> TrendRow {
    let [pool, agent_id, identity_id, workload_id] = names;
    let start_ms = start.saturating_mul(MINUTE_MS);
    TrendRow { start_ms, pool, agent_id, identity_id, workload_id, sums }
}
