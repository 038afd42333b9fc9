//! One limit and what is counted against it: holds, bookings, what was spent.

use crate::{
    bucket::Bucket,
    profile::{NoRoom, Profile},
    span::Span,
};

/// A limit that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    limit: u64,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Windows(Span, Profile),
    Bucket(Bucket),
}

/// Room that is held for somebody, from a moment on. It is given back by settling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// From when on its holder may act.
    pub from: i64,
    /// Until when.
    pub until: i64,
    /// How much is held.
    pub amount: u64,
}

impl Meter {
    /// A limit over windows.
    pub fn windows(limit: u64, span: Span) -> Self {
        Self { limit, kind: Kind::Windows(span, Profile::default()) }
    }

    /// A limit that refills steadily: `refill` every `per` milliseconds, up to `limit`.
    pub fn bucket(limit: u64, refill: u64, per: i64, now: i64) -> Self {
        Self { limit, kind: Kind::Bucket(Bucket::new(limit, refill, per, now)) }
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: i64) {
        match &mut self.kind {
            Kind::Windows(_, profile) => profile.advance(now),
            Kind::Bucket(bucket) => bucket.advance(now),
        }
    }

    /// The first moment from `from` to `latest` at which `amount` fits, if its holder may act for `validity`,
    /// and if `kept_free` of the limit is left to others.
    pub fn earliest(
        &self,
        from: i64,
        latest: i64,
        amount: u64,
        validity: i64,
        kept_free: u64,
    ) -> Result<i64, NoRoom> {
        if amount > self.limit {
            return Err(NoRoom::Never);
        }
        let within = |at: Option<i64>| match at {
            Some(at) if at <= latest => Ok(at.max(from)),
            _ => Err(NoRoom::WithinReach),
        };
        match &self.kind {
            Kind::Windows(span, profile) => {
                let limit = self.limit.saturating_sub(kept_free);
                let until = |begins: i64| span.counts_until(begins.saturating_add(validity));
                match profile.earliest(from, latest, amount, limit, until) {
                    // It fits the limit, and only what is kept free is in the way.
                    Err(NoRoom::Never) => Err(NoRoom::WithinReach),
                    found => found,
                }
            }
            Kind::Bucket(bucket) => within(bucket.earliest(amount.saturating_add(kept_free))),
        }
    }

    /// Holds room. Whoever calls this has found out that it fits.
    pub fn hold(&mut self, hold: Hold) {
        match &mut self.kind {
            Kind::Windows(span, profile) => {
                profile.take(hold.from, span.counts_until(hold.until), hold.amount);
            }
            Kind::Bucket(bucket) => bucket.hold(hold.amount),
        }
    }

    /// Settles a hold at `now` with what was really used, which may be more than was held: then it counts all
    /// the same, and the meter may be over.
    pub fn settle(&mut self, hold: Hold, used: u64, now: i64) {
        match &mut self.kind {
            Kind::Windows(span, profile) => {
                profile.give_back(hold.from, span.counts_until(hold.until), hold.amount);
                if *span != Span::Concurrency {
                    // It happened by now, and at the latest now.
                    profile.take(now, span.forgotten_at(now), used);
                }
            }
            Kind::Bucket(bucket) => bucket.settle(hold.amount, used),
        }
    }

    /// What is taken at `now`: spent, held and not yet forgotten.
    pub fn taken(&self, now: i64) -> u64 {
        match &self.kind {
            Kind::Windows(_, profile) => profile.taken(now),
            Kind::Bucket(bucket) => self.limit.saturating_sub(bucket.left()),
        }
    }
}

/// What is asked of one meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// How much.
    pub amount: u64,
    /// How much is left to others.
    pub kept_free: u64,
}

/// The first moment from `now` to `latest` at which every draw fits its meter, all of them together. All or
/// nothing: nothing is held here.
pub fn earliest_for_all(
    draws: &[(&Meter, Draw)],
    now: i64,
    latest: i64,
    validity: i64,
) -> Result<i64, NoRoom> {
    let mut at = now;
    loop {
        let mut moved = at;
        for (meter, draw) in draws {
            moved = meter.earliest(moved, latest, draw.amount, validity, draw.kept_free)?;
        }
        if moved == at {
            return Ok(at);
        }
        at = moved;
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
