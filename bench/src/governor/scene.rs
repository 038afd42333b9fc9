//! A governor of some size, in process, and those who ask it.
//!
//! Work is spread over routes with four pools each, one of every kind of window that is counted by
//! ourselves: fixed for everyone together, sliding for each identity, a bucket for each agent, days for
//! each scope. Time passes by 50 µs a decision. The oldest hold is settled as soon as there are more open
//! ones than wanted, so that their number stays.

use std::{collections::VecDeque, error::Error, time::Instant};

use serde_json::{Value, json};
use tollgate_contract::{Urgency, id::IntentId};
use tollgate_governor::{
    About, Answer, Ask, Asker, Configured, Decision, Effect, Event, Expected, Fresh, Governor,
    GovernorConfig, Intent, Report,
};

use crate::documents::Random;

/// A moment in the middle of an hour and of a day.
pub(crate) const START_MS: i64 = 1_800_000_000_000 + 1_900_000;

/// How much time passes from one decision to the next, in microseconds.
const STEP_US: i64 = 50;

/// How much of everything there is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// In fours: each route draws on four of its own.
    pub(crate) pools: usize,
    /// Routes that match none of the work, beside those that do.
    pub(crate) routes: usize,
    pub(crate) identities: usize,
    pub(crate) agents: usize,
    pub(crate) holds: usize,
    /// Decisions before anything counts.
    pub(crate) history: usize,
    pub(crate) answer: Wanted,
}

/// What answer the work gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Approval,
    /// A booking in the bucket.
    Wait,
    /// The bucket is booked up.
    Denial,
}

impl Size {
    /// The smallest.
    pub(crate) const LEAST: Self = Self {
        pools: 4,
        routes: 1,
        identities: 1,
        agents: 1,
        holds: 100,
        history: 0,
        answer: Wanted::Approval,
    };
}

/// Enough for every window to be in its steady state: more than a minute, in steps of a millisecond.
const SETTLING_IN: usize = 70_000;

/// How many pools one intent draws on.
pub(crate) const DRAWS: usize = 4;

pub(crate) struct Scene {
    governor: Governor,
    asker: Asker,
    intents: Vec<Intent>,
    open: VecDeque<IntentId>,
    size: Size,
    now_us: i64,
    number: u64,
    random: Random,
}

impl Scene {
    pub(crate) fn new(size: Size) -> Result<Self, Box<dyn Error>> {
        Self::ruled(size, Vec::new())
    }

    /// With rules.
    pub(crate) fn ruled(size: Size, rules: Vec<Value>) -> Result<Self, Box<dyn Error>> {
        let mut scene = Self::begun(size, rules)?;
        scene.settle_in()?;
        Ok(scene)
    }

    /// Before anybody has asked for anything.
    pub(crate) fn begun(size: Size, rules: Vec<Value>) -> Result<Self, Box<dyn Error>> {
        let config = config(&size, rules)?;
        let setup = config.build(START_MS)?;
        let governor = Governor::new(config, setup, START_MS);
        let workloads = (size.pools / DRAWS).max(1);
        let count = workloads.max(size.identities).max(size.agents);
        let intents = (0..count).map(|number| intent(number, &size, workloads)).collect();
        Ok(Self {
            governor,
            // Callers without a key may not open so many identities.
            asker: Asker { is_keyless: false, is_vouched: true, ..Asker::local() },
            intents,
            open: VecDeque::new(),
            size,
            now_us: START_MS * 1000,
            number: 0,
            random: Random::new(7),
        })
    }

    /// Everyone asks once, and every window gets to where it stays.
    fn settle_in(&mut self) -> Result<(), Box<dyn Error>> {
        let steps = match self.size.answer {
            Wanted::Approval => SETTLING_IN,
            // Until all that was in the bucket is gone.
            Wanted::Wait => 420_000,
            Wanted::Denial => 20_000,
        };
        for number in 0..self.intents.len() {
            self.decide_nth(number)?;
            self.settle_oldest()?;
        }
        for _ in 0..steps {
            if self.size.answer == Wanted::Approval {
                self.now_us += 1000 - STEP_US;
            }
            self.step()?;
        }
        while self.open.len() < self.size.holds && self.size.answer == Wanted::Approval {
            self.step()?;
        }
        for _ in 0..self.size.history {
            self.step()?;
        }
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.now_us / 1000
    }

    /// One decision by somebody, and the end of the oldest hold if there are more than wanted. Gives how
    /// long the decision took, in nanoseconds.
    pub(crate) fn step(&mut self) -> Result<u64, Box<dyn Error>> {
        let chance = self.random.below(self.intents.len() as u64) as usize;
        let took = self.decide_nth(chance)?.0;
        self.settle_oldest()?;
        Ok(took)
    }

    /// One decision, with its time and its event.
    pub(crate) fn decide_nth(&mut self, number: usize) -> Result<(u64, Decided), Box<dyn Error>> {
        self.number += 1;
        self.now_us += STEP_US;
        let now = self.now_ms();
        let mut random = [0; 10];
        for (to, from) in random.iter_mut().skip(2).zip(self.number.to_be_bytes()) {
            *to = from;
        }
        let id = IntentId::from_parts(u64::try_from(now)?, random);
        let intent = self.intents.get(number).ok_or("no such intent")?;
        let is_known = self.governor.identities().by_name(&intent.identity_id).is_some();
        // As the gate does: only a credential that is new needs a name.
        let fresh = Fresh {
            pseudonym: if is_known {
                self.asker.key.clone()
            } else {
                format!("idn_{number:032x}").into()
            },
            salt: String::new(),
            name_hash: "".into(),
        };
        let ask = Ask {
            asker: &self.asker,
            intent,
            id,
            fresh: &fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let start = Instant::now();
        let outcome = self.governor.decide(&ask, now);
        let took = u64::try_from(start.elapsed().as_nanos())?;
        let outcome = outcome.map_err(|_| "the same request twice")?;
        if outcome.decision.answer.is_approval() {
            self.open.push_back(id);
        }
        Ok((took, Decided { decision: outcome.decision, events: outcome.events }))
    }

    /// One decision by somebody, without an end for any hold.
    pub(crate) fn ask(&mut self) -> Result<Decided, Box<dyn Error>> {
        let chance = self.random.below(self.intents.len() as u64) as usize;
        Ok(self.decide_nth(chance)?.1)
    }

    /// One decision by somebody and the end of what is over, with everything that was written down of it.
    pub(crate) fn record(&mut self, into: &mut Vec<Event>) -> Result<(), Box<dyn Error>> {
        into.extend(self.ask()?.events);
        if self.size.answer != Wanted::Approval {
            into.extend(self.governor.expire(self.now_ms()));
            return Ok(());
        }
        while self.open.len() > self.size.holds {
            into.push(self.end()?.1);
        }
        Ok(())
    }

    fn settle_oldest(&mut self) -> Result<(), Box<dyn Error>> {
        // Bookings are left alone: they are what fills the pool.
        if self.size.answer != Wanted::Approval {
            self.governor.expire(self.now_ms());
            return Ok(());
        }
        while self.open.len() > self.size.holds {
            self.settle()?;
        }
        Ok(())
    }

    /// Settles the oldest hold. Gives how long that took, in nanoseconds.
    pub(crate) fn settle(&mut self) -> Result<u64, Box<dyn Error>> {
        Ok(self.end()?.0)
    }

    /// Settles the oldest hold, and gives its event too.
    fn end(&mut self) -> Result<(u64, Event), Box<dyn Error>> {
        let oldest = self.open.pop_front().ok_or("nothing is held")?;
        let report = Report {
            asker: &self.asker,
            is_trusted: true,
            intent: Some(oldest),
            work: None,
            by_pool: Vec::new(),
            actual: Expected::UNKNOWN,
            nothing: false,
        };
        let start = Instant::now();
        let settled = self.governor.report(&report, self.now_us / 1000);
        let took = u64::try_from(start.elapsed().as_nanos())?;
        let event = settled.map_err(|refused| format!("a report was refused: {refused:?}"))?;
        Ok((took, event))
    }

    /// Lets every hold run out. Gives how many there were, and the events that say so.
    pub(crate) fn expire_all(&mut self) -> (usize, Vec<Event>) {
        let held = self.open.len();
        self.open.clear();
        self.now_us += 120_000_000;
        let now = self.now_ms();
        let mut events = Vec::new();
        while let Some(event) = self.governor.expire(now) {
            events.push(event);
        }
        (held, events)
    }

    /// The event that says how everything is configured, from the beginning on.
    pub(crate) fn configured(&self) -> Event {
        let governor = Some(self.governor.config().clone());
        let effect =
            Effect::Configured(Box::new(Configured { governor, about: serde_json::Map::new() }));
        Event { ts: START_MS, about: About::default(), effect }
    }

    /// A governor with the same configuration that knows nothing yet.
    pub(crate) fn empty(&self) -> Result<Governor, Box<dyn Error>> {
        let config = self.governor.config().clone();
        let setup = config.build(START_MS)?;
        Ok(Governor::new(config, setup, START_MS))
    }

    /// Is the answer the one that this scene is about?
    pub(crate) fn check(&mut self) -> Result<(), Box<dyn Error>> {
        let mut right = 0;
        let mut other = String::new();
        for _ in 0..100 {
            let decided = self.ask()?;
            self.settle_oldest()?;
            let answer = decided.decision.answer;
            let wanted = match self.size.answer {
                Wanted::Approval => Answer::Approve,
                Wanted::Wait => Answer::ApproveWithModifications,
                Wanted::Denial => Answer::DenyWithReason,
            };
            if decided.decision.pools.len() != DRAWS {
                return Err("an intent does not draw on four pools".into());
            }
            right += usize::from(answer == wanted);
            if answer != wanted {
                other = format!("{} ({})", answer.as_str(), decided.decision.summary());
            }
        }
        if right < 95 {
            return Err(format!("{right} of 100 answers are as wanted; another is {other}").into());
        }
        Ok(())
    }
}

/// A decision and its events.
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) events: Vec<Event>,
}

fn config(size: &Size, rules: Vec<Value>) -> Result<GovernorConfig, Box<dyn Error>> {
    let most = 1_000_000_000_000_u64;
    // 20,000 decisions a second: all of them fit, or half of them fit later and later, or nearly none fits.
    let (bucket, horizon) = match size.answer {
        Wanted::Approval => (json!({"kind": "bucket", "refill": most, "every": "1h"}), 30),
        Wanted::Wait => (json!({"kind": "bucket", "refill": 10_000, "every": "1s"}), 3000),
        Wanted::Denial => (json!({"kind": "bucket", "refill": 100, "every": "1s"}), 30),
    };
    let (limit, valid) = match size.answer {
        Wanted::Approval => (most, "6s"),
        Wanted::Wait => (200_000, "100ms"),
        Wanted::Denial => (100, "100ms"),
    };
    let mut pools = Vec::new();
    let mut routes = Vec::new();
    for number in 0..(size.pools / DRAWS).max(1) {
        let kinds = [
            ("fixed", "global", most, json!({"kind": "fixed", "every": "1h"})),
            ("sliding", "identity", most, json!({"kind": "sliding", "every": "1m"})),
            ("bucket", "agent", limit, bucket.clone()),
            (
                "day",
                "scope",
                most,
                json!({"kind": "calendar", "every": "day", "zone": "Europe/Berlin"}),
            ),
        ];
        let mut draws = Vec::new();
        for (name, per, limit, window) in kinds {
            let id = format!("provider-{number}:{name}");
            draws.push(json!({"id": id}));
            pools.push(
                json!({"id": id, "limit": limit, "window": window, "per": per, "valid_for": valid}),
            );
        }
        routes.push(json!({"workload": format!("work-{number}"), "pools": draws}));
    }
    for number in 1..size.routes {
        let pool = json!([{"id": "provider-0:fixed"}]);
        // Half of them by name, half by the beginning of one; of many only the first thousand, since
        // loading takes a time that grows with the square of the beginnings.
        let star = if number % 2 == 0 && number < 2000 { "*" } else { "" };
        routes.push(json!({"workload": format!("other-{number}-{star}"), "pools": pool}));
    }
    let horizon = json!({"high": horizon, "normal": horizon, "background": horizon});
    let governor = json!({"horizon_seconds": horizon});
    Ok(serde_json::from_value(
        json!({"pools": pools, "routes": routes, "rules": rules, "governor": governor}),
    )?)
}

fn intent(number: usize, size: &Size, workloads: usize) -> Intent {
    Intent {
        agent_id: format!("crawler-{}", number % size.agents),
        identity_id: format!("pat:somebody-{}", number % size.identities),
        workload_id: format!("work-{}", number % workloads),
        scope_id: format!("repo:owner/name-{}", number % 100),
        urgency: Urgency::Normal,
        expected: Expected::UNKNOWN,
        duration_ms: None,
        can_switch: false,
        renew: None,
        patience_ms: None,
        named_only: false,
    }
}
