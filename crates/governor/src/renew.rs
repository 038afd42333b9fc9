//! Renewals: whoever holds something goes on with it for longer, or with more of it.

use std::sync::Arc;

use tollgate_contract::{Reason, id::IntentId};

use crate::{
    decide::{Deciding, Line, No, Room},
    effect::Decided,
    intent::Expected,
    judge::{RuleVerdict, Ruled},
    meter::Asked,
    setup::{Pool, Work},
    state::{Governor, OpenHold},
    usage::in_dollars,
};

impl Governor {
    /// Goes on with an earlier hold: what is added is held in addition, and all of it is valid for longer.
    pub(crate) fn renew(
        &mut self,
        deciding: &mut Deciding<'_>,
        earlier: IntentId,
    ) -> (Decided, String) {
        let asker = deciding.ask.asker;
        let is_own = |hold: &&Arc<OpenHold>| {
            hold.account == asker.account && *hold.agent == *deciding.agent && !hold.is_over
        };
        let Some(hold) = self.holds.get(&earlier).filter(is_own).cloned() else {
            let why = "there is no open hold of this caller under that name; ask anew";
            let no = No::new(Reason::PolicyViolation, why);
            return self.refused(deciding, no, Vec::new());
        };
        let intent = deciding.ask.intent;
        let own = self.identities.by_name(&intent.identity_id).map(|named| &*named.pseudonym);
        if own != Some(&*hold.identity)
            || intent.workload_id != *hold.workload
            || intent.scope_id != *hold.scope
        {
            let why = "a renewal names the same identity, workload and scope as the intent that it renews";
            let no = No::new(Reason::PolicyViolation, why);
            return self.refused(deciding, no, Vec::new());
        }
        if hold.from > deciding.now {
            let why = "its slot has not begun; renew it while you act";
            let no = No::new(Reason::PolicyViolation, why);
            return self.refused(deciding, no, Vec::new());
        }
        let setup = Arc::clone(&self.setup);
        let placed: Option<Vec<(usize, Arc<Pool>)>> = hold
            .pools
            .iter()
            .map(|drawn| {
                let place = setup.place_of(&drawn.pool)?;
                Some((place, Arc::clone(setup.pool(place)?)))
            })
            .collect();
        let Some(placed) = placed else {
            let no = No::new(Reason::PolicyViolation, "a pool that it draws on is gone; ask anew");
            return self.refused(deciding, no, Vec::new());
        };
        let first = placed.first().map(|(_, pool)| Arc::clone(&pool.unit));
        let mut lines = Vec::with_capacity(hold.pools.len());
        let mut money = 0_u128;
        for (drawn, (place, pool)) in hold.pools.iter().zip(placed) {
            let is_first = first.as_ref() == Some(&pool.unit);
            let mut added = added(&intent.expected, &pool, is_first);
            if pool.is_money() {
                added = added.max(in_dollars(money));
            }
            money += u128::from(added) * u128::from(pool.price);
            let amount = drawn.amount.saturating_add(added);
            let asked = Asked { amount, validity: 0, kept_free: 0 };
            lines.push(Line { place, pool, key: Arc::clone(&drawn.key), asked });
        }
        self.also_drawn(deciding, &hold, &mut lines);
        let mut lines = self.prepared(lines, deciding);
        // What was promised before stays promised.
        for line in &mut lines {
            line.asked.validity = line.asked.validity.max(hold.until.saturating_sub(deciding.now));
        }
        let Ruled { matches, warnings, verdict } =
            self.ruled(deciding, &lines, &intent.identity_id);
        deciding.rules = matches;
        deciding.warnings = warnings;
        // What already runs cannot wait, so that nothing can be added where a rule wants a wait.
        let refusal = match verdict {
            RuleVerdict::No(no) => Some(no),
            RuleVerdict::NotBefore(_, no) if !intent.expected.is_unknown() => Some(no),
            _ => None,
        };
        if let Some(no) = refusal {
            let drawn = lines.iter().map(|line| line.drawn(None)).collect();
            return self.refused(deciding, No { retry_at: None, ..no }, drawn);
        }
        // Whether it fits is asked as if the earlier hold were not there.
        self.lift(earlier);
        let found = self.find(deciding, &lines, deciding.now, true);
        self.put_back(&hold);
        let no = match found {
            Ok(Room::Now) => {
                let (mut effect, why) = self.approved(deciding, &lines, deciding.now);
                effect.renews = true;
                return (effect, why);
            }
            Ok(Room::At(_)) => No::new(Reason::HardLimitReached, STOP),
            // What already runs cannot wait for room.
            Err(no) if no.retry_at.is_some() => {
                No { reason: Reason::HardLimitReached, retry_at: None, why: STOP.to_owned(), ..no }
            }
            Err(no) => no,
        };
        let drawn = lines.iter().map(|line| line.drawn(None)).collect();
        self.refused(deciding, no, drawn)
    }

    /// Adds what the work draws on by the routes that hold now, and did not when it was first asked for.
    fn also_drawn(&self, deciding: &Deciding<'_>, hold: &OpenHold, lines: &mut Vec<Line>) {
        let intent = deciding.ask.intent;
        let work = Work {
            agent: &intent.agent_id,
            identity: &intent.identity_id,
            workload: &intent.workload_id,
            scope: &intent.scope_id,
        };
        for draw in self.setup().draws_of(&work, &intent.expected, intent.named_only) {
            let Some(pool) = self.setup().pool(draw.pool) else { continue };
            let key = deciding.key(pool, &hold.identity);
            if !lines.iter().any(|line| line.place == draw.pool && line.key == key) {
                let amount = self.cost_of(&draw, pool, &intent.workload_id);
                let asked = Asked { amount, validity: 0, kept_free: 0 };
                lines.push(Line { place: draw.pool, pool: Arc::clone(pool), key, asked });
            }
        }
    }
}

/// What somebody is told who cannot go on.
const STOP: &str = "there is no room to go on; stop now";

/// What a renewal adds: only what it says.
fn added(expected: &Expected, pool: &Pool, is_first: bool) -> u64 {
    if expected.is_unknown() { 0 } else { expected.of(&pool.unit, is_first).unwrap_or(0) }
}
