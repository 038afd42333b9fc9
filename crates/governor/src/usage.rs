//! What comes after a decision: usage that is reported, holds that run out, what providers say.

use std::sync::Arc;

use tollgate_contract::id::IntentId;

use crate::{
    config::Per,
    effect::{
        About, Carried, Deleted, Drawn, Effect, Ended, Event, Expired, ExpiredHold, Halt, Heard,
        Hint, Spent, Told, Used,
    },
    identity::Named,
    intent::{Asker, Expected},
    setup::{Pool, Work},
    state::{Governor, OpenHold, principal},
    window::Window,
};

/// How many holds one event tells the end of: few enough that nobody who asks waits long behind them.
const MOST_TOGETHER: usize = 64;

/// By how much a provider's reset may move without being another one, in milliseconds.
const SAME_RESET: i64 = 2000;

/// A report of usage.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// Who reports.
    pub asker: &'a Asker,
    /// Is it believed when it says that less was used? The gate is, about its own calls.
    pub is_trusted: bool,
    /// The intent that was acted on.
    pub intent: Option<IntentId>,
    /// Whose work it was, where nobody had asked.
    pub work: Option<GhostWork<'a>>,
    /// What was used, by pool.
    pub by_pool: Vec<(String, u64)>,
    /// What was used, by unit.
    pub actual: Expected,
    /// Nothing was done.
    pub nothing: bool,
}

/// Work that nobody had asked for.
#[derive(Debug, Clone, Copy)]
pub struct GhostWork<'a> {
    /// Whose work, by the names that were given.
    pub work: Work<'a>,
    /// The credential's pseudonym.
    pub identity: &'a Arc<str>,
}

/// Why a report is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportRefused {
    /// No hold of this caller is known under that name, or it was settled.
    Unknown,
    /// No route maps the work.
    Unmapped,
    /// A pool is named that the intent does not draw on.
    OtherPool,
    /// Its slot has not begun, and nobody can have acted on it.
    TooEarly,
}

/// What a provider said, and when the request began that it said it in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// The provider's own name of the limit.
    pub name: Option<String>,
    /// The limit.
    pub limit: Option<u64>,
    /// What is left.
    pub remaining: Option<u64>,
    /// When the window ends.
    pub reset_at: Option<i64>,
    /// Until when nobody should come.
    pub closed_until: Option<i64>,
}

impl Governor {
    /// Takes a report of usage: settles the hold, or charges what nobody had asked for.
    pub fn report(&mut self, report: &Report<'_>, now: i64) -> Result<Event, ReportRefused> {
        let now = self.advance(now);
        let (about, used) = match (report.intent, &report.work) {
            (Some(intent), _) => self.settlement(report, intent, now)?,
            (None, Some(work)) => self.ghost(report, work, now)?,
            (None, None) => return Err(ReportRefused::Unknown),
        };
        let event = Event { ts: now, about, effect: Effect::Used(used) };
        self.apply(&event);
        Ok(event)
    }

    fn settlement(
        &self,
        report: &Report<'_>,
        intent: IntentId,
        now: i64,
    ) -> Result<(About, Used), ReportRefused> {
        let is_own = |hold: &&Arc<OpenHold>| hold.account == report.asker.account;
        let hold = self.holds.get(&intent).filter(is_own).ok_or(ReportRefused::Unknown)?;
        let is_drawn = |pool: &str| hold.pools.iter().any(|drawn| *drawn.pool == *pool);
        if report.by_pool.iter().any(|(pool, _)| !is_drawn(pool)) {
            return Err(ReportRefused::OtherPool);
        }
        let drawn_pools = || hold.pools.iter().filter_map(|d| Some((d, self.pool_of(&d.pool)?)));
        // Whoever is not believed cannot move what was booked to another window by reporting early.
        let moves = |pool: &Pool| pool.window != Window::Concurrency && !believes(report, pool);
        if hold.from > now && drawn_pools().any(|(_, pool)| moves(pool)) {
            return Err(ReportRefused::TooEarly);
        }
        let first = drawn_pools().next().map(|(_, pool)| Arc::clone(&pool.unit));
        let mut pools = Vec::with_capacity(hold.pools.len());
        // What priced units cost, as far as it was said how many were used.
        let mut money: Option<u128> = None;
        for (drawn, pool) in drawn_pools() {
            let mut reported = reported(report, drawn, pool, first.as_ref() == Some(&pool.unit));
            if pool.is_money() {
                reported = reported.or(money.map(in_dollars));
            } else if let Some(used) = reported.filter(|_| pool.price > 0) {
                *money.get_or_insert(0) += u128::from(used) * u128::from(pool.price);
            }
            let counted = counted(report, pool, drawn.amount, reported, hold.is_over);
            pools.push(Spent {
                pool: Arc::clone(&drawn.pool),
                key: Arc::clone(&drawn.key),
                held: drawn.amount,
                used: counted,
                reported: reported.filter(|reported| *reported != counted),
                to: self.forgotten_at(drawn, pool, now),
            });
        }
        let about = About {
            agent: Some(Arc::clone(&hold.agent)),
            identity: Some(Arc::clone(&hold.identity)),
            workload: Some(Arc::clone(&hold.workload)),
            scope: None,
            intent: Some(intent),
        };
        let used = Used {
            caller: Arc::clone(&report.asker.key),
            account: Arc::clone(&report.asker.account),
            ghost: false,
            late: hold.is_over,
            trusted: report.is_trusted,
            pools,
            demoted_until: None,
        };
        Ok((about, used))
    }

    pub(crate) fn forgotten_at(&self, drawn: &Drawn, pool: &Pool, now: i64) -> i64 {
        let place = self.setup.place_near(&drawn.pool, drawn.hint);
        let meters = place.and_then(|place| self.meters.get(place));
        let meter = meters.and_then(|meters| meters.get(&drawn.key));
        pool.window.forgotten_at(now, meter.and_then(|meter| meter.reset_at()))
    }

    fn ghost(
        &self,
        report: &Report<'_>,
        ghost: &GhostWork<'_>,
        now: i64,
    ) -> Result<(About, Used), ReportRefused> {
        let draws = self.setup.draws_of(&ghost.work, &report.actual, false);
        if draws.is_empty() {
            return Err(ReportRefused::Unmapped);
        }
        let is_drawn = |id: &str| {
            draws.iter().any(|d| self.setup.pool(d.pool).is_some_and(|pool| *pool.id == *id))
        };
        if report.by_pool.iter().any(|(pool, _)| !is_drawn(pool)) {
            return Err(ReportRefused::OtherPool);
        }
        let mut pools = Vec::with_capacity(draws.len());
        for draw in &draws {
            let Some(pool) = self.setup.pool(draw.pool) else { continue };
            let key: Arc<str> = match pool.per {
                Per::Global => "".into(),
                Per::Identity => Arc::clone(ghost.identity),
                Per::Agent => ghost.work.agent.into(),
                Per::Scope => ghost.work.scope.into(),
                Per::Account => Arc::clone(&report.asker.account),
            };
            let said = report.by_pool.iter().find(|(id, _)| **id == *pool.id);
            let used = said.map_or(draw.amount, |(_, amount)| *amount);
            let hint = Hint(draw.pool);
            let drawn = Drawn { pool: Arc::clone(&pool.id), key, amount: used, to: None, hint };
            let to = self.forgotten_at(&drawn, pool, now);
            let Drawn { pool, key, .. } = drawn;
            pools.push(Spent { pool, key, held: 0, used, reported: None, to });
        }
        let who = principal(&report.asker.account, ghost.work.agent);
        let conduct = self.conduct.get(&who).cloned().unwrap_or_default();
        let rule = &self.setup.settings().sin_bin;
        let about = About {
            agent: Some(ghost.work.agent.into()),
            identity: Some(Arc::clone(ghost.identity)),
            workload: Some(ghost.work.workload.into()),
            scope: Some(ghost.work.scope.into()),
            intent: None,
        };
        let used = Used {
            caller: Arc::clone(&report.asker.key),
            account: Arc::clone(&report.asker.account),
            ghost: true,
            late: false,
            trusted: report.is_trusted,
            pools,
            demoted_until: conduct.would_ghost(now, rule),
        };
        Ok((about, used))
    }

    /// Ends the holds whose time is over. Gives one event for many of them; `None` when nothing is due.
    pub fn expire(&mut self, now: i64) -> Option<Event> {
        let due = self.runs_out(now, MOST_TOGETHER);
        let holds: Vec<ExpiredHold> = due.iter().filter_map(|id| self.ended(*id)).collect();
        if holds.is_empty() {
            return None;
        }
        let effect = Effect::Expired(Expired { holds });
        let event = Event { ts: self.now(), about: About::default(), effect };
        self.apply(&event);
        Some(event)
    }

    /// Ends these holds, as far as they are open.
    pub(crate) fn expire_these(&mut self, ids: impl Iterator<Item = IntentId>, now: i64) {
        let now = self.advance(now);
        let is_open = |hold: &Arc<OpenHold>| !hold.is_over;
        let open = ids.filter(|id| self.holds.get(id).is_some_and(is_open));
        let holds: Vec<ExpiredHold> = open.filter_map(|id| self.ended(id)).collect();
        let effect = Effect::Expired(Expired { holds });
        self.apply(&Event { ts: now, about: About::default(), effect });
    }

    fn ended(&self, intent_id: IntentId) -> Option<ExpiredHold> {
        let hold = self.holds.get(&intent_id)?;
        let releases = |pool: &Arc<Pool>| pool.releases;
        #[cfg(feature = "mutants")]
        let releases =
            |pool: &Arc<Pool>| releases(pool) || self.is_mutant(crate::Mutant::RefundsExpired);
        let ended = |drawn: &Drawn| Ended {
            pool: Arc::clone(&drawn.pool),
            key: Arc::clone(&drawn.key),
            amount: drawn.amount,
            released: self.pool_near(&drawn.pool, drawn.hint).is_none_or(releases),
        };
        Some(ExpiredHold {
            intent_id,
            agent_id: Arc::clone(&hold.agent),
            identity_id: Arc::clone(&hold.identity),
            workload_id: Arc::clone(&hold.workload),
            pools: hold.pools.iter().map(ended).collect(),
        })
    }

    /// What an intent draws on, while it is known.
    pub fn drawn_by(&self, intent: IntentId) -> Option<(&[Drawn], i64)> {
        self.holds.get(&intent).map(|hold| (hold.pools.as_slice(), hold.from))
    }

    /// Takes what a provider said of some pools, each with its key and with what the reporting request itself
    /// took of it, which the provider has counted already. Somebody who is not trusted can only say that
    /// there is less than we thought, unless the pool says otherwise.
    pub fn observe(
        &mut self,
        pools: &[(Arc<str>, Arc<str>, u64)],
        seen: &[Observation],
        began_at: i64,
        is_trusted: bool,
        now: i64,
    ) -> Vec<Event> {
        let now = self.advance(now);
        let mut events = Vec::new();
        for (id, key, own) in pools {
            let Some(pool) = self.setup.by_id(id).cloned() else { continue };
            if !pool.window.learns_resets() {
                continue;
            }
            let is_meant = |seen: &&Observation| match (&pool.reported_as, &seen.name) {
                (Some(wanted), Some(name)) => wanted == name,
                (Some(_), None) => seen.closed_until.is_some(),
                (None, _) => true,
            };
            for one in seen.iter().filter(is_meant) {
                let believed = is_trusted || pool.trust_usage;
                events.extend(self.hear(&pool, key, *own, one, began_at, believed, now));
            }
        }
        events
    }

    #[expect(clippy::too_many_arguments, reason = "one report, and all that is known of it")]
    fn hear(
        &mut self,
        pool: &Arc<Pool>,
        key: &Arc<str>,
        own: u64,
        seen: &Observation,
        began_at: i64,
        believed: bool,
        now: i64,
    ) -> Vec<Event> {
        let place = self.setup.place_of(&pool.id);
        let meter = place
            .and_then(|place| self.meters.get_mut(place))
            .and_then(|meters| meters.get_mut(key));
        let (mut taken, mut open, mut settled, mut known) = (0, 0, 0, None);
        let mut beyond = 0;
        let mut limit = pool.limit;
        if let Some(meter) = meter {
            meter.advance(now);
            // Requests overtake each other; an older report says nothing new.
            if meter.learned().is_some_and(|learned| learned.began_at > began_at) {
                return Vec::new();
            }
            (taken, open) = (meter.taken(pool, now), meter.open());
            settled = meter.settled_since(began_at);
            known = meter.reset_at();
            beyond = known.map_or(0, |end| meter.taken_later(end.max(now)));
            limit = meter.limit(pool);
        }
        let provides = matches!(pool.window, Window::Provider { .. });
        let length = match pool.window {
            Window::Provider { length } | Window::Fixed { length, .. } => length,
            _ => 0,
        };
        let told = |effect: fn(Told) -> Effect, ours: i64, theirs: i64| {
            let told = Told { pool: Arc::clone(&pool.id), key: Arc::clone(key), ours, theirs };
            Event { ts: now, about: About::default(), effect: effect(told) }
        };
        let mut events = Vec::with_capacity(2);
        // No window is longer than the pool says. An earlier end of it, or another limit, would give something
        // back, or take it for good.
        let is_later = |reset: &i64| believed || known.is_some_and(|known| *reset > known);
        let latest = now.saturating_add(length);
        let reset_at = seen.reset_at.filter(|reset| *reset > now).map(|reset| reset.min(latest));
        let reset_at = reset_at.filter(is_later);
        let said_limit = seen.limit.filter(|said| believed && provides && *said > 0);
        if let Some(reset) = reset_at
            && known.is_none_or(|known| reset > known.saturating_add(SAME_RESET))
        {
            events.push(told(Effect::Reset, known.unwrap_or(0), reset));
        }
        let limit = said_limit.or(limit);
        let remaining = seen.remaining.filter(|_| provides);
        let (mut correction, mut used) = (None, None);
        if let (Some(limit), Some(remaining)) = (limit, remaining) {
            // What is on its way, and what the provider may not have seen when it answered.
            let unseen = open.saturating_add(settled).saturating_sub(own);
            let theirs = remaining.saturating_sub(unseen);
            let ours = limit.saturating_sub(taken);
            correction = Some(ours.saturating_sub(theirs)).filter(|missing| *missing > 0);
            used = Some(limit.saturating_sub(theirs));
            let tolerance = (limit / 100).max(10);
            if ours.abs_diff(theirs) > tolerance && known.is_some() {
                let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                events.push(told(Effect::Drift, signed(ours), signed(theirs)));
            }
        }
        #[cfg(feature = "mutants")]
        let correction = correction.filter(|_| !self.is_mutant(crate::Mutant::IgnoresCorrections));
        let corrected_to = correction.map(|_| {
            let end = reset_at.or(known).filter(|end| *end > now);
            end.unwrap_or_else(|| pool.window.forgotten_at(now, None))
        });
        let ends = known.filter(|end| now < *end && reset_at.is_some_and(|reset| *end < reset));
        let carried = ends.and_then(|from| {
            // What the provider has counted in its window, or else all that we have. Shortly before the end of
            // ours, one that ends much later is the next one.
            let is_same =
                from - now > SAME_RESET || reset_at.is_some_and(|reset| reset - from <= SAME_RESET);
            let counted = used.or_else(|| is_same.then_some(taken))?;
            let already = beyond.saturating_add(correction.unwrap_or(0));
            Some(Carried { from, amount: counted.saturating_sub(already) })
        });
        #[cfg(feature = "mutants")]
        let seen = &match self.is_mutant(crate::Mutant::IgnoresClosure) {
            true => Observation { closed_until: None, ..seen.clone() },
            false => seen.clone(),
        };
        let heard = Heard {
            pool: Arc::clone(&pool.id),
            key: Arc::clone(key),
            began_at,
            limit: said_limit,
            remaining,
            reset_at,
            // However long it wants to be left alone, another look is taken after one of its windows.
            closed_until: seen.closed_until.map(|until| until.min(now.saturating_add(length))),
            correction,
            corrected_to,
            carried: carried.filter(|carried| carried.amount > 0),
        };
        let event = Event { ts: now, about: About::default(), effect: Effect::Heard(heard) };
        self.apply(&event);
        events.insert(0, event);
        events
    }

    /// Stops something, or lets it go on.
    pub fn halt(&mut self, halt: Halt, resumes: bool, now: i64) -> Option<Event> {
        let now = self.advance(now);
        let is_known = self.halts.iter().any(|known| known.target == halt.target);
        if resumes != is_known {
            return None;
        }
        let effect = if resumes { Effect::Resumed(halt) } else { Effect::Halted(halt) };
        let event = Event { ts: now, about: About::default(), effect };
        self.apply(&event);
        Some(event)
    }

    /// Forgets a credential: what it was called, not what was done with it.
    pub fn delete_identity(
        &mut self,
        name: &str,
        by: &Arc<str>,
        now: i64,
    ) -> Option<(Event, Arc<Named>)> {
        let now = self.advance(now);
        let named = Arc::clone(self.identities.by_name(name)?);
        let pseudonym = Arc::clone(&named.pseudonym);
        let about = About { identity: Some(Arc::clone(&pseudonym)), ..About::default() };
        let effect = Effect::Deleted(Deleted { pseudonym, by: Arc::clone(by) });
        let event = Event { ts: now, about, effect };
        self.apply(&event);
        Some((event, named))
    }
}

/// An amount of priced units as money, rounded up.
pub(crate) fn in_dollars(priced: u128) -> u64 {
    u64::try_from(priced.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What a report says of a pool.
fn reported(report: &Report<'_>, drawn: &Drawn, pool: &Pool, is_first: bool) -> Option<u64> {
    if report.nothing {
        return Some(0);
    }
    let by_pool = report.by_pool.iter().find(|(id, _)| **id == *drawn.pool);
    by_pool.map(|(_, amount)| *amount).or_else(|| report.actual.of(&pool.unit, is_first))
}

/// Is it believed that less was used than was held?
fn believes(report: &Report<'_>, pool: &Pool) -> bool {
    report.is_trusted || pool.trust_usage || !pool.hard
}

/// What is counted: what was reported, where that is believed; never less than was held where it is not.
fn counted(
    report: &Report<'_>,
    pool: &Pool,
    held: u64,
    reported: Option<u64>,
    is_over: bool,
) -> u64 {
    if pool.window == Window::Concurrency && !is_over {
        return 0;
    }
    match reported {
        Some(reported) if believes(report, pool) => reported,
        Some(reported) => reported.max(held),
        None => held,
    }
}
