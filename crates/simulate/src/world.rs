//! The world on virtual time: agents that want something, ask, wait, act and report, in the order of a heap.
//! What happens at the same moment happens in the order in which it was planned, so that every run is alike.

use std::{cmp::Reverse, collections::BinaryHeap};

use tollgate_contract::{Reason, id::IntentId};
use tollgate_governor::Governor;

use crate::{
    agent::{self, Agent},
    file::{Behaviour, Retries},
    governed::Governed,
    observed::{Acted, Answered, Asked, Hunger, Observed, Seen, Take},
    provider::Provider,
    random::Random,
    scenario::{Scenario, Trouble},
};

/// How long somebody waits who was told to come back, but not when.
const SOME_TIME: i64 = 5000;

/// How long until somebody asks again who was not answered at all.
const NO_ANSWER: i64 = 1000;

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
    pub(crate) scenario: &'a Scenario,
    pub(crate) now: i64,
    pub(crate) governed: Governed<'a>,
    pub(crate) providers: Vec<Provider>,
    pub(crate) observed: Observed,
    /// By group: so many times as often as usual.
    pub(crate) storms: Vec<u32>,
    /// By group: it says no more what it took.
    pub(crate) quiet: Vec<bool>,
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

    /// An agent wants something.
    fn wish(&mut self, agent: u32) {
        let scenario = self.scenario;
        let Some(wanting) = self.agents.get_mut(agent as usize) else { return };
        let Some(group) = scenario.groups.get(wanting.group) else { return };
        if self.now >= scenario.starts_at.saturating_add(group.stops) {
            return;
        }
        wanting.open += 1;
        if !matches!(group.behaviour, Behaviour::Greedy { .. }) {
            let times = self.storms.get(wanting.group).copied().unwrap_or(1);
            let next = self.now.saturating_add(wanting.pause(&group.behaviour, times));
            self.plan(next, What::Wish(agent));
        }
        self.hungers(agent as usize);
        let (now, wish) = (self.now, self.free.pop());
        let wanted = Wish {
            agent,
            wished: now,
            decided: now,
            intent: None,
            booked: false,
            refused: false,
            taken: 0,
            began: now,
        };
        let place = wish.unwrap_or(self.wishes.len() as u32);
        match self.wishes.get_mut(place as usize) {
            Some(old) => *old = wanted,
            None => self.wishes.push(wanted),
        }
        self.ask(place);
    }

    /// Writes down that an agent wants something and has not been served.
    fn hungers(&mut self, place: usize) {
        let (now, list) = (self.now, &mut self.observed.hunger);
        let Some(agent) = self.agents.get_mut(place) else { return };
        match agent.hunger.and_then(|place| list.get_mut(place)) {
            Some(known) => known.to = now,
            None => {
                agent.hunger = Some(list.len());
                list.push(Hunger { agent: place as u32, from: now, to: now });
            }
        }
    }

    fn ask(&mut self, place: u32) {
        let (now, scenario) = (self.now, self.scenario);
        let Some(mut wish) = self.wishes.get(place as usize).copied() else { return };
        self.hungers(wish.agent as usize);
        let Some(agent) = self.agents.get_mut(wish.agent as usize) else { return };
        let Some(group) = scenario.groups.get(agent.group) else { return };
        let stops = scenario.starts_at.saturating_add(group.stops);
        if now >= stops || now.saturating_sub(wish.wished) > group.gives_up {
            return self.lets_be(place);
        }
        let Some((decision, time)) = self.governed.ask(agent, now) else {
            self.saw(wish.agent, Answered::Silence);
            return self.again(place, Some(NO_ANSWER));
        };
        self.compare(wish.agent, &decision.pools);
        self.watch();
        let Some(agent) = self.agents.get_mut(wish.agent as usize) else { return };
        (wish.decided, wish.intent, wish.booked) = (now, None, false);
        if decision.answer.is_approval() {
            let valid = decision.valid_until.unwrap_or(time).saturating_sub(time);
            let late = agent.random.up_to(group.acts_within);
            // It must act before its time is over.
            let later = decision.wait_ms.saturating_add(late).min(valid.saturating_sub(1));
            (wish.intent, wish.booked) = (Some(decision.intent), decision.wait_ms > 0);
            self.keep(place, wish);
            let answered = if wish.booked { Answered::Waits } else { Answered::Approved };
            self.saw(wish.agent, answered);
            self.plan(now.saturating_add(later.max(0)), What::Act(place));
            return;
        }
        let heeds = agent.random.happens(group.obeys.0);
        self.keep(place, wish);
        self.saw(wish.agent, Answered::Denied);
        if !heeds {
            return self.plan(now, What::Act(place));
        }
        let halted = decision.reason == Some(Reason::Halted);
        let told = decision.retry_at.map(|at| at.saturating_sub(time));
        self.again(place, told.or(halted.then_some(SOME_TIME)));
    }

    fn keep(&mut self, place: u32, wish: Wish) {
        if let Some(kept) = self.wishes.get_mut(place as usize) {
            *kept = wish;
        }
    }

    fn saw(&mut self, agent: u32, answered: Answered) {
        self.observed.asks.push(Asked { at: self.now, agent, answered });
    }

    /// Compares what an answer said is left with what the provider has.
    fn compare(&mut self, agent: u32, shown: &[tollgate_governor::PoolShown]) {
        let draws = self.agents.get(agent as usize).map_or(&[][..], |agent| &agent.draws);
        for draw in draws {
            let real = self.behind.get(draw.pool).copied().flatten();
            let real = real.and_then(|place| self.providers.get(place));
            let said = shown.iter().find(|shown| shown.id == draw.id).and_then(|s| s.remaining);
            if let (Some(real), Some(said), Some(drift)) =
                (real, said, self.observed.drift.get_mut(draw.pool))
            {
                *drift = Some(said.saturating_sub(real.left(draw.key, self.now)));
            }
        }
    }

    /// A no: what follows is the agent's way.
    fn again(&mut self, place: u32, told: Option<i64>) {
        let agent = self.wishes.get(place as usize).map(|wish| wish.agent as usize);
        let agent = agent.and_then(|agent| self.agents.get(agent));
        let group = agent.and_then(|agent| self.scenario.groups.get(agent.group));
        let wait = match group.map(|group| group.retries) {
            Some(Retries::WhenTold) => told,
            Some(Retries::Blindly(every)) => Some(every),
            Some(Retries::None) | None => None,
        };
        match wait {
            Some(wait) => self.plan(self.now.saturating_add(wait.max(1)), What::Ask(place)),
            None => self.lets_be(place),
        }
    }

    /// It does without.
    fn lets_be(&mut self, place: u32) {
        if let Some(wish) = self.wishes.get(place as usize).copied() {
            self.hungers(wish.agent as usize);
            if let Some(agent) = self.agents.get_mut(wish.agent as usize) {
                agent.open = agent.open.saturating_sub(1);
            }
            self.finish(place, wish.agent);
        }
    }

    /// A wish is no more. Who is greedy has the next one.
    fn finish(&mut self, place: u32, agent: u32) {
        self.free.push(place);
        let Some(who) = self.agents.get_mut(agent as usize) else { return };
        let Some(group) = self.scenario.groups.get(who.group) else { return };
        if matches!(group.behaviour, Behaviour::Greedy { .. }) {
            let times = self.storms.get(who.group).copied().unwrap_or(1);
            let next = self.now.saturating_add(who.pause(&group.behaviour, times));
            self.plan(next, What::Wish(agent));
        }
    }

    fn act(&mut self, place: u32) {
        let now = self.now;
        let Some(mut wish) = self.wishes.get(place as usize).copied() else { return };
        let Some(agent) = self.agents.get_mut(wish.agent as usize) else { return };
        let Some(group) = self.scenario.groups.get(agent.group) else { return };
        wish.taken = agent.takes(group.takes);
        wish.began = self.governed.time(now);
        let (mut slow, mut refused) = (0, false);
        for draw in &agent.draws {
            let real = self.behind.get(draw.pool).copied().flatten();
            if let Some(real) = real.and_then(|place| self.providers.get_mut(place)) {
                slow = slow.max(real.plan.latency.saturating_add(real.slow));
                // One provider's no is enough; the others have counted it all the same.
                refused |= !real.serve(draw.key, draw.amount(wish.taken), now);
            }
        }
        wish.refused = refused;
        let ends = now.saturating_add(group.runs).saturating_add(slow);
        let act = Some(self.observed.acts.len());
        for draw in &agent.draws {
            let amount = draw.amount(wish.taken);
            let take = Take { at: now, ends, key: draw.key, amount, act, refused };
            self.observed.takes.get_mut(draw.pool).into_iter().for_each(|all| all.push(take));
        }
        self.observed.acts.push(Acted {
            at: now,
            agent: wish.agent,
            wished: wish.wished,
            decided: wish.decided,
            booked: wish.booked,
            ghost: wish.intent.is_none(),
            refused,
        });
        self.hungers(wish.agent as usize);
        self.keep(place, wish);
        if !refused {
            self.served(wish.agent as usize);
        }
        self.plan(ends, What::Done(place));
    }

    /// An agent has got what it wanted.
    fn served(&mut self, place: usize) {
        let Some(agent) = self.agents.get_mut(place) else { return };
        agent.open = agent.open.saturating_sub(1);
        agent.hunger = None;
        if agent.open > 0 {
            self.hungers(place);
        }
    }

    /// An act is over: it is reported, and what the provider answered is heard.
    fn done(&mut self, place: u32) {
        let now = self.now;
        let Some(wish) = self.wishes.get(place as usize).copied() else { return };
        let Some(agent) = self.agents.get_mut(wish.agent as usize) else { return };
        let Some(group) = self.scenario.groups.get(agent.group) else { return };
        let is_quiet = self.quiet.get(agent.group).copied().unwrap_or(false);
        let reports = agent.random.happens(group.reports.0) && !is_quiet;
        if let Some(intent) = wish.intent.filter(|_| reports) {
            let used = || agent.draws.iter().map(|d| (d.id.to_string(), d.amount(wish.taken)));
            let used = (!wish.refused).then(|| used().collect());
            self.governed.report(agent, intent, used, now);
        }
        let mut told = None;
        for draw in &agent.draws {
            let real = self.behind.get(draw.pool).copied().flatten();
            let Some(real) = real.and_then(|place| self.providers.get(place)) else { continue };
            let left = real.resets_at(now).saturating_sub(now);
            told = told.max(Some(left));
            if let Some(said) = real.answers(draw.key, wish.refused, now) {
                // What nobody had allowed is not among what is held.
                let own = if wish.intent.is_some() { draw.amount(wish.taken) } else { 0 };
                self.governed.observe((&draw.id, &draw.key_name, own), said, wish.began, now);
            }
        }
        self.watch();
        if wish.refused { self.again(place, told) } else { self.finish(place, wish.agent) }
    }

    /// Somebody asks the provider what is left, for every key that is known.
    fn poll(&mut self, place: usize) {
        let Some(real) = self.providers.get(place) else { return };
        let (pool, now) = (real.plan.pool, self.now);
        let mut seen = std::collections::BTreeSet::new();
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
        let keys: std::collections::BTreeSet<u32> =
            draws.filter(|draw| draw.pool == pool).map(|draw| draw.key).collect();
        for key in keys {
            let amount = real.others(key, at);
            let take = Take { at, ends: at, key, amount, act: None, refused: false };
            self.observed.takes.get_mut(pool).into_iter().for_each(|all| all.push(take));
        }
        self.plan(at.saturating_add(1000), What::Others(place));
    }
}
