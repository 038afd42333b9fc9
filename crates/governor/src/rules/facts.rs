//! What a rule can look at: plain data that whoever decides fills in, and the one table of names under which
//! expressions read it. What is not known is left out, and reading it is an error.

use jiff::{Timestamp, Zoned, tz::TimeZone};
use tollgate_contract::Urgency;

use crate::config::LARGEST_AMOUNT;

/// Everything about one ask, as far as rules look at it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What is asked.
    pub intent: IntentFacts<'a>,
    /// Whose credential is used.
    pub identity: IdentityFacts<'a>,
    /// Who acts.
    pub agent: AgentFacts<'a>,
    /// The pool that is looked at; rules that read none need none.
    pub pool: Option<PoolFacts<'a>>,
    /// What is expected of that pool; only needed by rules that read it.
    pub forecast: Option<ForecastFacts>,
    /// What is asked of that pool.
    pub cost: Option<u64>,
    /// Now, in milliseconds since 1970.
    pub now: i64,
}

/// Facts about nobody, in which everything is known: to try how long an evaluation takes.
pub fn sample_facts() -> Facts<'static> {
    Facts {
        intent: IntentFacts {
            agent_id: "crawler-01",
            identity_id: "pat:me",
            workload_id: "repo_scan",
            scope_id: "repo:owner/name",
            urgency: Urgency::Normal,
            duration_ms: Some(1000),
            can_switch: false,
        },
        identity: IdentityFacts { name: "pat:me", kind: Some("user"), group: Some("github") },
        agent: AgentFacts { name: "crawler-01", demoted: false, open: Some(1) },
        pool: Some(PoolFacts {
            id: "github:core",
            unit: "calls",
            limit: Some(5000),
            used: Some(1000),
            held: Some(10),
            booked: Some(0),
            remaining: Some(3990),
            reset_in_ms: Some(600_000),
        }),
        forecast: Some(ForecastFacts {
            p_exhaust: Some(0.5),
            p_exhaust_with: Some(0.5),
            tte_p50: Some(600.0),
            tte_p90: Some(900.0),
            tte_p99: Some(f64::INFINITY),
            burn_rate: Some(2.0),
        }),
        cost: Some(1),
        now: 1_800_000_000_000,
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct IntentFacts<'a> {
    /// Who acts.
    pub agent_id: &'a str,
    /// Whose credential is used.
    pub identity_id: &'a str,
    /// What is done.
    pub workload_id: &'a str,
    /// Where.
    pub scope_id: &'a str,
    /// How much it matters, as it is believed.
    pub urgency: Urgency,
    /// How long it will run, in milliseconds, where that is said.
    pub duration_ms: Option<i64>,
    /// Can it use another credential?
    pub can_switch: bool,
}

/// What is known of a credential.
#[derive(Debug, Clone, Copy)]
pub struct IdentityFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// What kind of credential it is, if it is registered.
    pub kind: Option<&'a str>,
    /// The group it belongs to, if it is in one.
    pub group: Option<&'a str>,
}

/// What is known of an agent.
#[derive(Debug, Clone, Copy)]
pub struct AgentFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Was it demoted to background?
    pub demoted: bool,
    /// What it holds in the pool.
    pub open: Option<u64>,
}

/// What is known of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolFacts<'a> {
    /// Its name.
    pub id: &'a str,
    /// What is counted.
    pub unit: &'a str,
    /// The limit, once it is known.
    pub limit: Option<u64>,
    /// What is spent.
    pub used: Option<u64>,
    /// What is held.
    pub held: Option<u64>,
    /// What is booked for later.
    pub booked: Option<u64>,
    /// What is left.
    pub remaining: Option<u64>,
    /// In how many milliseconds the window ends, where it ends.
    pub reset_in_ms: Option<i64>,
}

impl PoolFacts<'_> {
    /// The share of the limit that is left, from 0 to 1. Of a limit of nothing, nothing is left.
    fn left(&self) -> Option<f64> {
        Some(share(self.remaining?, self.limit?))
    }
}

#[expect(clippy::cast_precision_loss, reason = "amounts are exact as floats up to 2^53")]
pub(crate) fn share(of: u64, limit: u64) -> f64 {
    if limit == 0 { 0.0 } else { (of as f64 / limit as f64).clamp(0.0, 1.0) }
}

/// What is expected of a pool. What is left out is not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForecastFacts {
    /// How likely it is used up before it resets, from 0 to 1.
    pub p_exhaust: Option<f64>,
    /// The same with what is asked.
    pub p_exhaust_with: Option<f64>,
    /// Seconds until it is used up: half of the cases are later; may be infinite.
    pub tte_p50: Option<f64>,
    /// The same: nine of ten are later.
    pub tte_p90: Option<f64>,
    /// The same: 99 of 100 are later.
    pub tte_p99: Option<f64>,
    /// Units per second.
    pub burn_rate: Option<f64>,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A number with a fraction.
    Double,
    /// A text.
    Text,
}

impl Kind {
    /// Its name in expressions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
        }
    }
}

/// A value that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Known<'a> {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(&'a str),
}

/// A name that expressions can read.
pub struct Variable {
    /// Its name: `pool.remaining`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it is, in a line.
    pub about: &'static str,
    /// Is it left out where it is not known?
    pub can_be_unknown: bool,
    /// An expression that reads it.
    pub example: &'static str,
    pub(crate) read: for<'a> fn(&Facts<'a>, &TimeZone) -> Option<Known<'a>>,
    /// Its value in a sample, and the extremes that every expression must bear.
    pub(crate) usual: Known<'static>,
    pub(crate) extremes: &'static [Known<'static>],
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.kind.as_str())
    }
}

fn amount<'a>(amount: u64) -> Known<'a> {
    Known::Int(i64::try_from(amount).unwrap_or(i64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "times of this size are exact as floats")]
fn seconds<'a>(ms: i64) -> Known<'a> {
    Known::Double(ms as f64 / 1000.0)
}

/// The time of the facts on the clocks of this zone.
pub(crate) fn local(now: i64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_millisecond(now).ok()?.to_zoned(zone.clone()))
}

fn of_time<'a>(
    facts: &Facts<'_>,
    zone: &TimeZone,
    part: impl FnOnce(&Zoned) -> i16,
) -> Option<Known<'a>> {
    local(facts.now, zone).map(|time| Known::Int(i64::from(part(&time))))
}

use Known::{Bool, Double, Int, Text};

const FAR: f64 = f64::INFINITY;
const MOST: i64 = LARGEST_AMOUNT as i64;
const NAMES: &[Known<'static>] = &[Text(""), Text("a"), Text("ünïcode name with 'quotes' and \\")];
const FLAGS: &[Known<'static>] = &[Bool(false), Bool(true)];
const AMOUNTS: &[Known<'static>] = &[Int(0), Int(1), Int(MOST)];
const SHARES: &[Known<'static>] = &[Double(0.0), Double(1.0)];
const LENGTHS: &[Known<'static>] = &[Double(0.0), Double(0.001), Double(1e12)];
const HORIZONS: &[Known<'static>] = &[Double(0.0), Double(1e12), Double(FAR)];

/// One line of the table.
macro_rules! table {
    ($($name:literal $kind:ident $known:ident $usual:expr, $extremes:expr, $about:literal, $example:literal,
        |$facts:pat_param, $zone:pat_param| $read:expr;)*) => {
        /// Everything that expressions can read, in the order of the documentation.
        pub static VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            kind: Kind::$kind,
            about: $about,
            can_be_unknown: table!(@ $known),
            example: $example,
            read: |$facts, $zone| $read,
            usual: $usual,
            extremes: $extremes,
        }),*];
    };
    (@ known) => { false };
    (@ maybe) => { true };
}

table! {
    "intent.agent_id" Text known Text("agent"), NAMES, "who acts", "intent.agent_id.startsWith('ci-')", |f, _| Some(Text(f.intent.agent_id));
    "intent.identity_id" Text known Text("identity"), NAMES, "whose credential is used", "intent.identity_id == 'github:bot'", |f, _| Some(Text(f.intent.identity_id));
    "intent.workload_id" Text known Text("workload"), NAMES, "what is done", "intent.workload_id in ['search', 'fetch']", |f, _| Some(Text(f.intent.workload_id));
    "intent.scope_id" Text known Text("scope"), NAMES, "where", "intent.scope_id.contains('prod')", |f, _| Some(Text(f.intent.scope_id));
    "intent.urgency" Text known Text("normal"), &[Text("background"), Text("normal"), Text("high")], "how much it matters: high, normal or background", "intent.urgency == 'background'", |f, _| Some(Text(f.intent.urgency.as_str()));
    "intent.duration_s" Double maybe Double(30.0), LENGTHS, "how long it will run, in seconds, where that was said", "has(intent.duration_s) && intent.duration_s > 600.0", |f, _| f.intent.duration_ms.map(seconds);
    "intent.can_switch" Bool known Bool(false), FLAGS, "it can use another credential", "intent.can_switch", |f, _| Some(Bool(f.intent.can_switch));
    "identity.name" Text known Text("identity"), NAMES, "the credential's name", "identity.name.endsWith('-bot')", |f, _| Some(Text(f.identity.name));
    "identity.kind" Text maybe Text("key"), NAMES, "what kind of credential it is, if it is registered", "identity.kind == 'oauth'", |f, _| f.identity.kind.map(Text);
    "identity.group" Text maybe Text("group"), NAMES, "the group it belongs to, if it is in one", "identity.group.matches('^team-[ab]$')", |f, _| f.identity.group.map(Text);
    "agent.name" Text known Text("agent"), NAMES, "the agent's name", "size(agent.name) > 20", |f, _| Some(Text(f.agent.name));
    "agent.demoted" Bool known Bool(false), FLAGS, "it was demoted to background", "!agent.demoted", |f, _| Some(Bool(f.agent.demoted));
    "agent.open" Int maybe Int(3), AMOUNTS, "what the agent holds in this pool", "agent.open + cost > 100", |f, _| f.agent.open.map(amount);
    "pool.id" Text maybe Text("provider:name"), NAMES, "the pool", "pool.id.startsWith('github:')", |f, _| f.pool.map(|pool| Text(pool.id));
    "pool.unit" Text maybe Text("calls"), NAMES, "what is counted", "pool.unit == 'tokens'", |f, _| f.pool.map(|pool| Text(pool.unit));
    "pool.limit" Int maybe Int(1000), AMOUNTS, "the limit, once it is known", "has(pool.limit) && cost * 10 > pool.limit", |f, _| f.pool?.limit.map(amount);
    "pool.used" Int maybe Int(300), AMOUNTS, "what is spent", "pool.used > 900", |f, _| f.pool?.used.map(amount);
    "pool.held" Int maybe Int(100), AMOUNTS, "what is held", "pool.held > 50", |f, _| f.pool?.held.map(amount);
    "pool.booked" Int maybe Int(100), AMOUNTS, "what is booked for later", "pool.booked == 0", |f, _| f.pool?.booked.map(amount);
    "pool.remaining" Int maybe Int(500), AMOUNTS, "what is left", "pool.remaining - cost < 10", |f, _| f.pool?.remaining.map(amount);
    "pool.remaining_percent" Double maybe Double(50.0), &[Double(0.0), Double(100.0)], "what is left, in percent of the limit", "pool.remaining_percent < 20.0", |f, _| f.pool?.left().map(|left| Double(left * 100.0));
    "pool.utilization" Double maybe Double(0.5), SHARES, "what is not left, from 0 to 1", "pool.utilization >= 0.8", |f, _| f.pool?.left().map(|left| Double(1.0 - left));
    "pool.reset_in" Double maybe Double(600.0), LENGTHS, "seconds until the window ends, where it ends", "pool.reset_in > 3600.0", |f, _| f.pool?.reset_in_ms.map(seconds);
    "forecast.p_exhaust" Double maybe Double(0.1), SHARES, "how likely the pool is used up before it resets, from 0 to 1", "forecast.p_exhaust > 0.5", |f, _| f.forecast?.p_exhaust.map(Double);
    "forecast.p_exhaust_with" Double maybe Double(0.1), SHARES, "the same with what is asked", "forecast.p_exhaust_with > 0.9", |f, _| f.forecast?.p_exhaust_with.map(Double);
    "forecast.tte_p50" Double maybe Double(3600.0), HORIZONS, "for how many seconds it lasts at least, in half of the cases; infinite where it lasts until the reset", "forecast.tte_p50 < 60.0", |f, _| f.forecast?.tte_p50.map(Double);
    "forecast.tte_p90" Double maybe Double(1800.0), HORIZONS, "the same in nine of ten cases", "forecast.tte_p90 < pool.reset_in", |f, _| f.forecast?.tte_p90.map(Double);
    "forecast.tte_p99" Double maybe Double(900.0), HORIZONS, "the same in 99 of 100 cases", "forecast.tte_p99 < 30.0", |f, _| f.forecast?.tte_p99.map(Double);
    "forecast.burn_rate" Double maybe Double(0.5), LENGTHS, "units used per second", "forecast.burn_rate * 60.0 > 100.0", |f, _| f.forecast?.burn_rate.map(Double);
    "cost" Int maybe Int(1), AMOUNTS, "what is asked of this pool", "cost > 1000", |f, _| f.cost.map(amount);
    "time.hour" Int known Int(12), &[Int(0), Int(23)], "the hour, 0 to 23, in the zone of `during`, or UTC", "time.hour >= 22 || time.hour < 6", |f, zone| of_time(f, zone, |t| t.hour().into());
    "time.minute" Int known Int(30), &[Int(0), Int(59)], "the minute, 0 to 59", "time.minute < 5", |f, zone| of_time(f, zone, |t| t.minute().into());
    "time.weekday" Int known Int(3), &[Int(1), Int(7)], "the day of the week, 1 (Monday) to 7", "time.weekday >= 6", |f, zone| of_time(f, zone, |t| t.weekday().to_monday_one_offset().into());
    "time.day" Int known Int(15), &[Int(1), Int(31)], "the day of the month, 1 to 31", "time.day == 1", |f, zone| of_time(f, zone, |t| t.day().into());
    "time.month" Int known Int(6), &[Int(1), Int(12)], "the month, 1 to 12", "time.month in [6, 7, 8]", |f, zone| of_time(f, zone, |t| t.month().into());
    "time.year" Int known Int(2026), &[Int(1970), Int(9999)], "the year", "time.year >= 2027", |f, zone| of_time(f, zone, |t| t.year());
    "time.unix" Int known Int(1_780_000_000), &[Int(0), Int(253_402_300_799)], "seconds since 1970", "time.unix % 2 == 0", |f, _| Some(Int(f.now.div_euclid(1000)));
}

/// The place of a name in the table.
pub(crate) fn place_of(name: &str) -> Option<usize> {
    VARIABLES.iter().position(|variable| variable.name == name)
}

/// A set of names, by their places in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reads(u64);

impl Reads {
    pub(crate) fn add(&mut self, place: usize) {
        self.0 |= 1_u64.checked_shl(u32::try_from(place).unwrap_or(64)).unwrap_or(0);
    }

    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..VARIABLES.len()).filter(move |place| self.0 >> place & 1 == 1)
    }

    pub(crate) fn any(self, is: impl Fn(&str) -> bool) -> bool {
        self.places().filter_map(|place| VARIABLES.get(place)).any(|variable| is(variable.name))
    }
}
