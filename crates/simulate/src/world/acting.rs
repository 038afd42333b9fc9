//! What agents do: they want something, ask, wait, act, report, and ask again.

use tollgate_contract::Reason;
use tollgate_governor::PoolShown;

use super::{What, Wish, World};
use crate::{
    file::{Behaviour, Retries},
    observed::{Acted, Answered, Asked, Hunger, Take},
};

/// How long somebody waits who was told to come back, but not when.
const SOME_TIME: i64 = 5000;

/// How long until somebody asks again who was not answered at all.
const NO_ANSWER: i64 = 1000;

impl World<'_> {
    /// An agent wants something.
    pub(super) fn wish(&mut self, agent: u32) {
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
    pub(super) fn hungers(&mut self, place: usize) {
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

    pub(super) fn ask(&mut self, place: u32) {
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
    fn compare(&mut self, agent: u32, shown: &[PoolShown]) {
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

    pub(super) fn act(&mut self, place: u32) {
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
    pub(super) fn done(&mut self, place: u32) {
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
}
