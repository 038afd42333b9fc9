//! The world on virtual time: agents that want something, ask, wait, act and report, in the order of a heap.
//! What happens at the same moment happens in the order in which it was planned, so that every run is alike.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use tollgate_contract::id::IntentId;
use tollgate_governor::Governor;

use crate::{
    agent::{self, Agent},
    governed::Governed,
    observed::{Observed, Seen, Take},
    provider::Provider,
    random::Random,
    scenario::{Scenario, Trouble},
};

mod acting;
mod trouble;

/// Something that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Trouble(usize),
    Over(usize),
    Wish(u32),
    Ask(u32),
    Act(u32),
    Done(u32),
    Expire,
    Poll(usize),
    Others(usize),
    Save,
}

/// What somebody wants, until it has it or lets it be.
#[derive(Debug, Clone, Copy)]
struct Wish {
    agent: u32,
    wished: i64,
    decided: i64,
    intent: Option<IntentId>,
    booked: bool,
    refused: bool,
    taken: u64,
    /// When it began to act, by the governor's clock.
    began: i64,
}

/// Everything there is.
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    now: i64,
    governed: Governed<'a>,
    providers: Vec<Provider>,
    observed: Observed,
    /// By group: so many times as often as usual.
    storms: Vec<u32>,
    /// By group: it says no more what it took.
    quiet: Vec<bool>,
    agents: Vec<Agent>,
    /// By pool: the provider behind it.
    behind: Vec<Option<usize>>,
    wishes: Vec<Wish>,
    free: Vec<u32>,
    planned: BinaryHeap<Reverse<(i64, u64, What)>>,
    number: u64,
    /// When something runs out that is planned for.
    watching: i64,
}

impl<'a> World<'a> {
    /// The world at its beginning.
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        prepare: &'a dyn Fn(&mut Governor),
    ) -> Option<Self> {
        let (config, starts_at) = (&scenario.config, scenario.starts_at);
        let crashes = scenario.sabotage.iter().any(|s| matches!(s.trouble, Trouble::Crash(_)));
        let agents = agent::all(&scenario.groups, config, seed, starts_at);
        let behind_pool = |pool| scenario.providers.iter().position(|plan| plan.pool == pool);
        let behind: Vec<_> = (0..config.pools.len()).map(behind_pool).collect();
        let providers: Vec<Provider> = scenario
            .providers
            .iter()
            .enumerate()
            .map(|(place, plan)| Provider::new(plan, Random::of(seed, "providers", place as u64)))
            .collect();
        let limits = config.pools.iter().zip(&behind).map(|(pool, behind)| {
            let provider = behind.and_then(|place| providers.get(place));
            vec![(starts_at, provider.map_or(pool.limit.unwrap_or(0), |real| real.limit))]
        });
        let seen = agents.iter().filter_map(|agent| {
            let urgency = scenario.groups.get(agent.group)?.urgency;
            Some(Seen { group: agent.group, urgency })
        });
        let observed = Observed {
            starts_at,
            ends_at: scenario.ends_at,
            agents: seen.collect(),
            takes: vec![Vec::new(); config.pools.len()],
            limits: limits.collect(),
            drift: vec![None; config.pools.len()],
            troubles_end: scenario.sabotage.iter().map(|trouble| trouble.ends).collect(),
            ..Observed::default()
        };
        Some(Self {
            scenario,
            now: starts_at,
            governed: Governed::new(config, starts_at, crashes, prepare)?,
            providers,
            observed,
            storms: vec![1; scenario.groups.len()],
            quiet: vec![false; scenario.groups.len()],
            agents,
            behind,
            wishes: Vec::new(),
            free: Vec::new(),
            planned: BinaryHeap::new(),
            number: 0,
            watching: i64::MAX,
        })
    }

    /// Lets everything happen until the end.
    pub(crate) fn run(mut self) -> Observed {
        self.begin();
        while let Some(Reverse((at, _, what))) = self.planned.pop()
            && at < self.scenario.ends_at
        {
            self.now = at;
            self.happens(what);
        }
        self.now = self.scenario.ends_at;
        for place in 0..self.agents.len() {
            if self.agents.get(place).is_some_and(|agent| agent.open > 0) {
                self.hungers(place);
            }
        }
        self.observed.decisions = self.governed.decisions();
        self.observed
    }

    fn plan(&mut self, at: i64, what: What) {
        self.number += 1;
        self.planned.push(Reverse((at.max(self.now), self.number, what)));
    }

    fn begin(&mut self) {
        for (place, trouble) in self.scenario.sabotage.iter().enumerate() {
            self.plan(trouble.at, What::Trouble(place));
            if trouble.ends > trouble.at || matches!(trouble.trouble, Trouble::Crash(_)) {
                self.plan(trouble.ends, What::Over(place));
            }
        }
        for (place, plan) in self.scenario.providers.iter().enumerate() {
            if plan.hidden_per_second > 0.0 {
                self.plan(self.now, What::Others(place));
            }
            if plan.polled.is_some() {
                self.plan(self.now, What::Poll(place));
            }
        }
        self.plan(self.now, What::Save);
        for place in 0..self.agents.len() {
            let Some(agent) = self.agents.get_mut(place) else { continue };
            let Some(group) = self.scenario.groups.get(agent.group) else { continue };
            let first = group.starts.saturating_add(agent.first_pause(&group.behaviour));
            self.plan(self.now.saturating_add(first), What::Wish(place as u32));
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Trouble(place) => self.trouble(place),
            What::Over(place) => self.trouble_over(place),
            What::Wish(agent) => self.wish(agent),
            What::Ask(wish) => self.ask(wish),
            What::Act(wish) => self.act(wish),
            What::Done(wish) => self.done(wish),
            // One that was planned before an earlier one came up has nothing left to do.
            What::Expire if self.now != self.watching => {}
            What::Expire => {
                self.watching = self.governed.expire(self.now);
                self.plan(self.watching, What::Expire);
            }
            What::Poll(provider) => self.poll(provider),
            What::Others(provider) => self.others(provider),
            What::Save => {
                if let Some(next) = self.governed.save(self.now) {
                    self.plan(next, What::Save);
                }
            }
        }
    }

    /// Sees to it that what runs out is noticed in time.
    fn watch(&mut self) {
        let due = self.governed.due(self.now);
        if due < self.watching {
            self.watching = due;
            self.plan(due, What::Expire);
        }
    }

    /// Somebody asks the provider what is left, for every key that is known.
    fn poll(&mut self, place: usize) {
        let Some(real) = self.providers.get(place) else { return };
        let (pool, now) = (real.plan.pool, self.now);
        let mut seen = BTreeSet::new();
        for draw in self.agents.iter().flat_map(|agent| &agent.draws) {
            if draw.pool == pool && seen.insert(draw.key) && !real.is_silent {
                let said = real.counts(draw.key, now);
                let began = self.governed.time(now);
                self.governed.observe((&draw.id, &draw.key_name, 0), said, began, now);
            }
        }
        if let Some(every) = real.plan.polled {
            self.plan(now.saturating_add(every), What::Poll(place));
        }
    }

    /// Others, whom nobody told us of, take their part of this second.
    fn others(&mut self, place: usize) {
        let Some(real) = self.providers.get_mut(place) else { return };
        let (pool, at) = (real.plan.pool, self.now);
        let draws = self.agents.iter().flat_map(|agent| &agent.draws);
        let keys: BTreeSet<u32> =
            draws.filter(|draw| draw.pool == pool).map(|draw| draw.key).collect();
        for key in keys {
            let amount = real.others(key, at);
            let take = Take { at, ends: at, key, amount, act: None, refused: false };
            self.observed.takes.get_mut(pool).into_iter().for_each(|all| all.push(take));
        }
        self.plan(at.saturating_add(1000), What::Others(place));
    }
}
