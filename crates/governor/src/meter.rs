//! One limit for one key, and what is counted against it: holds, bookings, what was spent, what the provider
//! says, and who is at it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    bucket::Bucket,
    forecast::{self, Burn, ConePoint, Forecast},
    profile::{NoRoom, Profile},
    setup::Pool,
    window::Window,
};

/// How long somebody counts as active after having asked.
const ACTIVE: i64 = 10_000;

/// How often those who are not are taken out.
const LOOK_AGAIN: i64 = 1000;

/// How many settlements are remembered for comparing with a provider's report.
const MOST_SETTLED: usize = 256;

/// What is counted against one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    counted: Counted,
    /// What is held and not settled.
    open: u64,
    /// What of it begins later, and when.
    booked: BTreeMap<i64, u64>,
    /// What is counted as spent because nobody said what was used.
    estimated: Profile,
    shares: Shares,
    learned: Option<Learned>,
    /// Until when the provider wants nobody to come.
    closed_until: i64,
    /// How fast it is used up.
    #[serde(default)]
    burn: Burn,
    /// It was told that it will probably be exhausted.
    #[serde(default)]
    pub(crate) is_alerted: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Counted {
    Windows(Profile),
    Bucket(Bucket),
}

/// Who is at a meter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Shares {
    by: HashMap<u64, Share>,
    checked: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Share {
    open: u64,
    seen: i64,
}

/// What a provider has said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Learned {
    pub(crate) limit: Option<u64>,
    pub(crate) reset_at: Option<i64>,
    /// When the last report came, and when the request began that it came with.
    pub(crate) reported_at: Option<i64>,
    pub(crate) began_at: i64,
    /// What was settled lately.
    settled: VecDeque<(i64, u64)>,
}

/// How long it is remembered what a provider said of a key that nobody uses any more.
const LEARNED_FOR: i64 = 2 * 60 * 60 * 1000;

impl Learned {
    fn is_over(&self, now: i64) -> bool {
        let last = self.reported_at.unwrap_or(self.began_at);
        now.saturating_sub(last) > LEARNED_FOR && self.reset_at.is_none_or(|reset| reset <= now)
    }
}

/// Room that is held for somebody, from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// From when on its holder may act.
    pub from: i64,
    /// Until when it counts.
    pub to: i64,
    /// How much is held.
    pub amount: u64,
    /// Whose it is.
    pub principal: u64,
}

/// What is asked of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// How much.
    pub amount: u64,
    /// For how long its holder may act.
    pub validity: i64,
    /// How much is left to others.
    pub kept_free: u64,
}

/// A meter as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The limit, where it is known.
    pub limit: Option<u64>,
    /// What was spent and still counts.
    pub used: u64,
    /// What is held now.
    pub held: u64,
    /// What is held for later.
    pub booked: u64,
    /// What is left.
    pub left: Option<u64>,
    /// What of `used` nobody has confirmed.
    pub estimated: u64,
    /// When the window ends; for a bucket, when it is full.
    pub reset_at: Option<i64>,
    /// When the provider has last reported.
    pub reported_at: Option<i64>,
}

/// How much can be taken until a moment that is so many milliseconds ahead.
type RoomAt<'a> = Box<dyn FnMut(i64) -> f64 + 'a>;

impl Meter {
    /// A meter of this pool that was never used.
    pub fn new(pool: &Pool, now: i64) -> Self {
        let counted = match pool.window {
            Window::Bucket { refill, per } => {
                Counted::Bucket(Bucket::new(pool.limit.unwrap_or(0), refill, per, now))
            }
            _ => Counted::Windows(Profile::default()),
        };
        Self {
            counted,
            open: 0,
            booked: BTreeMap::new(),
            estimated: Profile::default(),
            shares: Shares::default(),
            learned: None,
            closed_until: i64::MIN,
            burn: Burn::default(),
            is_alerted: false,
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: i64) {
        match &mut self.counted {
            Counted::Windows(profile) => profile.advance(now),
            Counted::Bucket(bucket) => bucket.advance(now),
        }
        while let Some(entry) = self.booked.first_entry().filter(|entry| *entry.key() <= now) {
            entry.remove();
        }
        self.estimated.advance(now);
        self.shares.advance(now);
    }

    /// The limit: what the provider says, else what is configured.
    pub fn limit(&self, pool: &Pool) -> Option<u64> {
        let learned = self.learned.as_ref().and_then(|learned| learned.limit);
        learned.filter(|_| matches!(pool.window, Window::Provider { .. })).or(pool.limit)
    }

    pub(crate) fn reset_at(&self) -> Option<i64> {
        self.learned.as_ref().and_then(|learned| learned.reset_at)
    }

    pub(crate) fn learned(&self) -> Option<&Learned> {
        self.learned.as_ref()
    }

    /// What is held and not settled.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Until when a hold counts that may act until `acts_until`.
    pub fn counts_until(&self, pool: &Pool, acts_until: i64) -> i64 {
        pool.window.counts_until(acts_until, self.reset_at())
    }

    /// When what is spent at `now` is forgotten.
    pub fn forgotten_at(&self, pool: &Pool, now: i64) -> i64 {
        pool.window.forgotten_at(now, self.reset_at())
    }

    /// The first moment from `from` to `latest` at which there is room.
    pub fn earliest(
        &self,
        pool: &Pool,
        from: i64,
        latest: i64,
        asked: &Asked,
    ) -> Result<i64, NoRoom> {
        let from = from.max(self.closed_until);
        let Some(limit) = self.limit(pool) else {
            // Nothing is known yet: one probe at a time.
            return if self.open == 0 { Ok(from) } else { Err(NoRoom::WithinReach) };
        };
        if asked.amount > limit.saturating_sub(asked.kept_free) {
            return Err(NoRoom::Never);
        }
        match &self.counted {
            Counted::Windows(profile) => {
                let until =
                    |from: i64| self.counts_until(pool, from.saturating_add(asked.validity));
                let limit = limit - asked.kept_free;
                profile.earliest(from, latest, asked.amount, limit, until)
            }
            Counted::Bucket(bucket) => bucket
                .earliest(from, asked.amount, asked.kept_free)
                .filter(|at| *at <= latest)
                .ok_or(NoRoom::WithinReach),
        }
    }

    /// How much more this principal may hold while others are active: its share of the limit. Alone, or
    /// with nothing held yet, it may hold whatever fits.
    pub fn is_within_share(&self, pool: &Pool, principal: u64, amount: u64) -> bool {
        let own = self.shares.by.get(&principal).copied().unwrap_or_default();
        let known = self.shares.by.contains_key(&principal);
        let active = self.shares.by.len() + usize::from(!known);
        let Some(limit) = self.limit(pool).filter(|_| active > 1 && own.open > 0) else {
            return true;
        };
        let share = limit.div_ceil(u64::try_from(active).unwrap_or(u64::MAX));
        own.open.saturating_add(amount) <= share
    }

    /// When the last booking begins.
    pub(crate) fn last_booked(&self) -> Option<i64> {
        self.booked.last_key_value().map(|(at, _)| *at)
    }

    /// What somebody holds.
    pub(crate) fn open_of(&self, principal: u64) -> u64 {
        self.shares.by.get(&principal).map_or(0, |share| share.open)
    }

    /// Notes that somebody asks.
    pub fn note(&mut self, principal: u64, now: i64) {
        self.shares.by.entry(principal).or_default().seen = now;
    }

    /// Holds room. Whoever calls this has found out that it fits.
    pub fn hold(&mut self, hold: Hold, now: i64) {
        match &mut self.counted {
            Counted::Windows(profile) => profile.take(hold.from, hold.to, hold.amount),
            Counted::Bucket(bucket) => bucket.hold(hold.from, hold.amount),
        }
        self.burn.note(now, hold.amount as f64);
        self.open = self.open.saturating_add(hold.amount);
        if hold.from > now {
            *self.booked.entry(hold.from).or_default() += hold.amount;
        }
        self.share(hold);
        self.note(hold.principal, now);
    }

    /// Counts a hold as its holder's.
    pub(crate) fn share(&mut self, hold: Hold) {
        let share = self.shares.by.entry(hold.principal).or_default();
        share.open = share.open.saturating_add(hold.amount);
    }

    pub(crate) fn forget_shares(&mut self) {
        self.shares = Shares::default();
    }

    /// Takes a hold out, as if it had never been there.
    pub(crate) fn lift(&mut self, hold: Hold, now: i64) {
        match &mut self.counted {
            Counted::Windows(profile) => profile.give_back(hold.from, hold.to, hold.amount),
            Counted::Bucket(bucket) => bucket.settle(hold.from, hold.amount, 0),
        }
        self.burn.note(now, -(hold.amount as f64));
        self.close(hold, now);
    }

    /// Settles a hold at `now` with what was really used, which counts until `used_to`. It may be more than
    /// was held: then it counts all the same, and the meter may be over.
    pub fn settle(&mut self, hold: Hold, used: u64, used_to: i64, now: i64) {
        match &mut self.counted {
            Counted::Windows(profile) => {
                profile.give_back(hold.from, hold.to, hold.amount);
                profile.take(now, used_to, used);
            }
            Counted::Bucket(bucket) => bucket.settle(hold.from, hold.amount, used),
        }
        self.burn.note(now, used as f64 - hold.amount as f64);
        self.close(hold, now);
        if let Some(learned) = &mut self.learned {
            learned.settled.push_back((now, used));
            if learned.settled.len() > MOST_SETTLED {
                learned.settled.pop_front();
            }
        }
    }

    /// Counts a hold that nobody settled as spent.
    pub fn expire(&mut self, hold: Hold, now: i64) {
        match &mut self.counted {
            // It counts already, for as long as what was done at its very end would.
            Counted::Windows(_) => {}
            Counted::Bucket(bucket) => bucket.settle(hold.from, hold.amount, hold.amount),
        }
        self.estimated.take(now, hold.to, hold.amount);
        self.close(hold, now);
    }

    /// Says what was used of a hold that has expired: more is charged, and less is given back where that is
    /// wanted.
    pub fn correct(&mut self, hold: Hold, used: u64, used_to: i64, now: i64) {
        self.estimated.give_back(now, hold.to, hold.amount);
        match &mut self.counted {
            Counted::Windows(profile) => {
                profile.give_back(now, hold.to, hold.amount);
                profile.take(now, used_to.max(hold.to), used);
            }
            Counted::Bucket(bucket) => {
                bucket.give(hold.amount);
                bucket.charge(used);
            }
        }
        self.burn.note(now, used as f64 - hold.amount as f64);
    }

    /// Counts what was spent without a hold.
    pub fn charge(&mut self, amount: u64, to: i64, now: i64) {
        match &mut self.counted {
            Counted::Windows(profile) => profile.take(now, to, amount),
            Counted::Bucket(bucket) => bucket.charge(amount),
        }
        self.burn.note(now, amount as f64);
    }

    fn close(&mut self, hold: Hold, now: i64) {
        self.open = self.open.saturating_sub(hold.amount);
        if hold.from > now
            && let Some(booked) = self.booked.get_mut(&hold.from)
        {
            *booked = booked.saturating_sub(hold.amount);
            if *booked == 0 {
                self.booked.remove(&hold.from);
            }
        }
        if let Some(share) = self.shares.by.get_mut(&hold.principal) {
            share.open = share.open.saturating_sub(hold.amount);
        }
    }

    /// What was settled since a moment.
    pub(crate) fn settled_since(&self, moment: i64) -> u64 {
        let settled = self.learned.iter().flat_map(|learned| &learned.settled);
        settled.filter(|(at, _)| *at >= moment).map(|(_, used)| *used).sum()
    }

    /// Remembers what a provider said.
    pub(crate) fn learn(&mut self, heard: &crate::effect::Heard, now: i64) {
        let learned = self.learned.get_or_insert_default();
        learned.limit = heard.limit.or(learned.limit);
        learned.reset_at = heard.reset_at.or(learned.reset_at);
        if heard.limit.is_some() || heard.remaining.is_some() {
            learned.reported_at = Some(now);
        }
        learned.began_at = learned.began_at.max(heard.began_at);
        if let Some(until) = heard.closed_until {
            self.closed_until = self.closed_until.max(until);
        }
        if let (Some(correction), Counted::Windows(profile)) = (heard.correction, &mut self.counted)
        {
            profile.take(now, heard.corrected_to.unwrap_or(now), correction);
            self.burn.note(now, correction as f64);
        }
        if let (Some(carried), Some(until), Counted::Windows(profile)) =
            (heard.carried, heard.reset_at, &mut self.counted)
        {
            profile.take(carried.from, until, carried.amount);
        }
    }

    /// What is to be expected, with `asked` and without; `None` where there is nothing to run out of, or
    /// nothing is known of when it is full again.
    pub fn forecast(&self, pool: &Pool, now: i64, asked: u64) -> Option<Forecast> {
        let (ahead, room) = self.ahead(pool, now)?;
        Some(Forecast::of(&self.burn, now, ahead, asked, room))
    }

    /// What will be left, from now on in equal steps: with 95, 50 and 5 percent it is more than this.
    pub fn cone(&self, pool: &Pool, now: i64, steps: u32) -> Vec<ConePoint> {
        match self.ahead(pool, now) {
            Some((ahead, room)) => forecast::cone(&self.burn, now, ahead, steps, room),
            None => Vec::new(),
        }
    }

    /// How far can be looked ahead, in milliseconds, and how much can be taken until a moment of that time.
    fn ahead<'a>(&'a self, pool: &Pool, now: i64) -> Option<(i64, RoomAt<'a>)> {
        let limit = self.limit(pool)? as f64;
        match &self.counted {
            Counted::Windows(profile) => {
                let ahead = match pool.window {
                    Window::Concurrency => return None,
                    Window::Sliding { length } => length,
                    _ => pool.window.reset_after(now, self.reset_at())?.saturating_sub(now),
                };
                let mut levels = profile.levels(now).peekable();
                let mut taken = 0;
                let room = move |at: i64| {
                    // At its very end everything is there again.
                    let moment = now.saturating_add(at.min(ahead.saturating_sub(1)));
                    while let Some((_, level)) = levels.next_if(|(from, _)| *from <= moment) {
                        taken = level;
                    }
                    limit - taken as f64
                };
                Some((ahead, Box::new(room)))
            }
            Counted::Bucket(bucket) => {
                let Window::Bucket { refill, per } = pool.window else { return None };
                let each = refill as f64 / per as f64;
                let ahead = (limit / each).min(i64::MAX as f64) as i64;
                let left = bucket.left() as f64;
                Some((ahead, Box::new(move |at| left + each * at as f64)))
            }
        }
    }

    /// What is taken at `now`: spent, held and not yet forgotten.
    pub fn taken(&self, pool: &Pool, now: i64) -> u64 {
        match &self.counted {
            Counted::Windows(profile) => profile.taken(now),
            Counted::Bucket(bucket) => pool.limit.unwrap_or(0).saturating_sub(bucket.left()),
        }
    }

    /// The most that is taken at any moment of the window that goes on now: what is booked in it is not left.
    fn most_taken(&self, pool: &Pool, now: i64) -> u64 {
        let Counted::Windows(profile) = &self.counted else { return self.taken(pool, now) };
        let end = match pool.window {
            Window::Sliding { length } => Some(now.saturating_add(length)),
            _ => pool.window.reset_after(now, self.reset_at()),
        };
        profile.peak(now, end.unwrap_or(now))
    }

    /// What of it still counts at a later moment.
    pub(crate) fn taken_later(&self, at: i64) -> u64 {
        match &self.counted {
            Counted::Windows(profile) => profile.taken(at),
            Counted::Bucket(_) => 0,
        }
    }

    /// As it is shown. Time was let pass before.
    pub fn read(&self, pool: &Pool, now: i64) -> Reading {
        let limit = self.limit(pool);
        let taken = self.taken(pool, now);
        let most = self.most_taken(pool, now);
        let booked: u64 = self.booked.values().sum();
        let held = self.open.saturating_sub(booked);
        let reset_at = match &self.counted {
            Counted::Windows(_) => pool.window.reset_after(now, self.reset_at()),
            Counted::Bucket(bucket) => Some(bucket.full_at()),
        };
        Reading {
            limit,
            used: taken.saturating_sub(held),
            held,
            booked,
            left: limit.map(|limit| limit.saturating_sub(most)),
            estimated: self.estimated.taken(now).min(taken.saturating_sub(held)),
            reset_at,
            reported_at: self.learned.as_ref().and_then(|learned| learned.reported_at),
        }
    }

    /// Is it as if it had never been used? Then it need not be kept.
    pub fn is_idle(&self, now: i64) -> bool {
        let nothing = match &self.counted {
            Counted::Windows(profile) => profile.is_empty(),
            Counted::Bucket(bucket) => bucket.is_idle(),
        };
        nothing
            && self.open == 0
            && self.learned.as_ref().is_none_or(|learned| learned.is_over(now))
            && self.closed_until <= now
            && self.estimated.is_empty()
            && self.shares.by.is_empty()
            && self.burn.is_over(now)
    }

    /// The same meter under another configuration, and whether what is held in it is still held. What was
    /// spent counts on; where the new one counts in another way, whoever keeps the holds holds them anew.
    pub fn reconfigured(mut self, old: &Pool, new: &Pool, now: i64) -> (Self, bool) {
        self.advance(now);
        match (&mut self.counted, &new.window) {
            (Counted::Bucket(bucket), Window::Bucket { refill, per }) => {
                bucket.resize(new.limit.unwrap_or(0), *refill, *per);
                (self, true)
            }
            (Counted::Windows(_), window) if !matches!(window, Window::Bucket { .. }) => {
                (self, true)
            }
            _ => {
                let booked: u64 = self.booked.values().sum();
                let held = self.open.saturating_sub(booked);
                let spent = self.taken(old, now).saturating_sub(held);
                let mut fresh = Self::new(new, now);
                fresh.charge(spent, fresh.forgotten_at(new, now), now);
                (fresh.learned, fresh.closed_until) = (self.learned, self.closed_until);
                (fresh, false)
            }
        }
    }
}

impl Shares {
    fn advance(&mut self, now: i64) {
        // As of a full second, whenever it is noticed that one is over: so that it does not depend on who looked when.
        let second = now - now.rem_euclid(LOOK_AGAIN);
        if self.checked < second {
            self.by.retain(|_, share| share.open > 0 || second.saturating_sub(share.seen) < ACTIVE);
            self.checked = second;
        }
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
