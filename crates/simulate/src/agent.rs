//! One agent: who it is, what it draws on, when it wants something, and what an act of it takes.

use std::{collections::HashMap, sync::Arc};

use tollgate_contract::Urgency;
use tollgate_governor::{Asker, Fresh, GovernorConfig, Intent, Per, Setup, Work};

use crate::{
    file::{Behaviour, Takes},
    random::Random,
    scenario::Group,
};

/// What a credential is called in events.
pub(crate) fn pseudonym(identity: &str) -> Arc<str> {
    format!("idn_{identity}").into()
}

/// One agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) group: usize,
    pub(crate) asker: Asker,
    pub(crate) intent: Intent,
    pub(crate) fresh: Fresh,
    pub(crate) draws: Vec<Draw>,
    pub(crate) random: Random,
    /// How much it wants and does not have, and where it is written down since when.
    pub(crate) open: u32,
    pub(crate) hunger: Option<usize>,
    /// How many of a burst are left.
    burst_left: u32,
    /// What was cut off its last pause, so that many short ones are as long as they should be.
    cut_off: f64,
}

/// What an act of it takes of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    pub(crate) pool: usize,
    pub(crate) key: u32,
    pub(crate) id: Arc<str>,
    pub(crate) key_name: Arc<str>,
    amount: Amount,
}

#[derive(Debug, Clone, Copy)]
enum Amount {
    /// What the scenario says that it takes.
    Said,
    /// What the route says.
    Routed(u64),
    /// What it costs, in millionths of a dollar for 1,000,000.
    Priced(u64),
}

impl Draw {
    /// How much, where the act takes `taken` in its first unit.
    pub(crate) fn amount(&self, taken: u64) -> u64 {
        match self.amount {
            Amount::Said => taken,
            Amount::Routed(amount) => amount,
            Amount::Priced(price) => {
                let money = (u128::from(taken) * u128::from(price)).div_ceil(1_000_000);
                u64::try_from(money).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Numbers for the keys of all pools.
#[derive(Debug, Default)]
pub(crate) struct Keys(HashMap<(usize, Arc<str>), u32>);

impl Keys {
    fn number(&mut self, pool: usize, key: &Arc<str>) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry((pool, Arc::clone(key))).or_insert(next)
    }
}

impl Agent {
    /// The agent of this number of a group, from 1.
    pub(crate) fn new(
        (place, group): (usize, &Group),
        number: u32,
        seed: u64,
        setup: &Setup,
        keys: &mut Keys,
    ) -> Self {
        let name = group.agent(number);
        let identity = group.identity.clone().unwrap_or_else(|| format!("pat:{name}"));
        let intent = Intent {
            agent_id: name,
            identity_id: identity,
            workload_id: group.workload.clone(),
            scope_id: group.scope.clone(),
            urgency: group.urgency,
            expected: group.expected.clone(),
            duration_ms: Some(group.runs.saturating_add(group.acts_within)).filter(|ms| *ms > 0),
            can_switch: false,
            renew: None,
            patience_ms: None,
            named_only: false,
        };
        let asker = Asker {
            account: group.account.as_str().into(),
            is_keyless: false,
            max_urgency: Urgency::High,
            is_vouched: group.vouched,
            ..Asker::local()
        };
        let fresh = Fresh {
            pseudonym: pseudonym(&intent.identity_id),
            salt: String::new(),
            name_hash: "".into(),
        };
        let draws = draws(&intent, &asker, &fresh.pseudonym, setup, keys);
        let random = Random::of(seed, &group.name, u64::from(number));
        Self {
            group: place,
            asker,
            intent,
            fresh,
            draws,
            random,
            open: 0,
            hunger: None,
            burst_left: 0,
            cut_off: 0.0,
        }
    }

    /// What its next act takes.
    pub(crate) fn takes(&mut self, takes: Takes) -> u64 {
        match takes {
            Takes::Always(amount) => amount,
            Takes::Between(range) => self.random.between(range.min, range.max),
            Takes::About(about) => self.random.exponential(about.mean).round() as u64,
        }
    }

    /// When it first wants something, after it starts. Those who do the same do not begin in step, unless
    /// that is what the story is about.
    pub(crate) fn first_pause(&mut self, behaviour: &Behaviour) -> i64 {
        match behaviour {
            Behaviour::Periodic { every, jitter } => {
                self.random.up_to((every.0 as f64 * jitter) as i64)
            }
            Behaviour::Greedy { .. } => 0,
            Behaviour::Poisson { .. } | Behaviour::Bursty { .. } => self.pause(behaviour, 1),
        }
    }

    /// How long it is until it wants something again, in a storm that many times as often.
    pub(crate) fn pause(&mut self, behaviour: &Behaviour, times: u32) -> i64 {
        let often = i64::from(times.max(1));
        let pause = match behaviour {
            Behaviour::Periodic { every, jitter } => {
                let width = (every.0 as f64 * jitter) as i64;
                let later = self.random.up_to(width.saturating_mul(2)).saturating_sub(width);
                every.0.saturating_add(later) / often
            }
            Behaviour::Greedy { pause } => pause.0 / often,
            Behaviour::Poisson { per_second } => {
                let mean = 1000.0 / per_second / f64::from(times.max(1));
                let exact = self.random.exponential(mean) + self.cut_off;
                self.cut_off = exact.fract();
                exact as i64
            }
            Behaviour::Bursty { burst, every, within } => {
                let burst = burst.saturating_mul(times.max(1));
                if self.burst_left == 0 {
                    self.burst_left = burst;
                    every.0.saturating_sub(within.0)
                } else {
                    within.0 / i64::from(burst.max(1))
                }
            }
        };
        self.burst_left = self.burst_left.saturating_sub(1);
        // Time must pass, or nobody else has a turn; chance may be quicker than a thousandth of a second.
        if matches!(behaviour, Behaviour::Poisson { .. } | Behaviour::Bursty { .. }) {
            pause.max(0)
        } else {
            pause.max(1)
        }
    }
}

/// What an agent draws on. Only the configuration is asked, not the governor.
fn draws(
    intent: &Intent,
    asker: &Asker,
    pseudonym: &Arc<str>,
    setup: &Setup,
    keys: &mut Keys,
) -> Vec<Draw> {
    let work = Work {
        agent: &intent.agent_id,
        identity: &intent.identity_id,
        workload: &intent.workload_id,
        scope: &intent.scope_id,
    };
    let routed = setup.draws_of(&work, &intent.expected, false);
    let pool_of = |draw: &tollgate_governor::Draw| setup.pool(draw.pool).cloned();
    let first = routed.first().and_then(pool_of);
    let all = routed.iter().filter_map(|draw| {
        let pool = pool_of(draw)?;
        let key_name: Arc<str> = match pool.per {
            Per::Global => "".into(),
            Per::Identity => Arc::clone(pseudonym),
            Per::Agent => intent.agent_id.as_str().into(),
            Per::Scope => intent.scope_id.as_str().into(),
            Per::Account => Arc::clone(&asker.account),
        };
        let price = first.as_ref().map_or(0, |first| first.price);
        let amount = if first.as_ref().is_some_and(|first| first.unit == pool.unit) {
            Amount::Said
        } else if pool.is_money() && price > 0 {
            Amount::Priced(price)
        } else {
            Amount::Routed(draw.amount)
        };
        let key = keys.number(draw.pool, &key_name);
        Some(Draw { pool: draw.pool, key, id: Arc::clone(&pool.id), key_name, amount })
    });
    all.collect()
}

/// All agents of a scenario.
pub(crate) fn all(groups: &[Group], config: &GovernorConfig, seed: u64, now: i64) -> Vec<Agent> {
    let Ok(setup) = config.build(now) else { return Vec::new() };
    let mut keys = Keys::default();
    let mut agents = Vec::new();
    for (place, group) in groups.iter().enumerate() {
        for number in 1..=group.count {
            agents.push(Agent::new((place, group), number, seed, &setup, &mut keys));
        }
    }
    agents
}
