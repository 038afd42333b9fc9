//! Deciding: halt, claims, routes, capacity, hard limits; then wait, switch or deny. The decision is worked
//! out first, and only then applied, by the very event that records it.

use std::sync::{Arc, LazyLock};

use tollgate_contract::{Reason, Urgency, id::IntentId};

use crate::{
    decision::{Decision, PoolShown, TraceStep},
    effect::{About, Answer, AskedMore, Decided, Drawn, Effect, Event, Hint, Registered, Target},
    identity::Named,
    intent::{Asker, Intent, UNKNOWN},
    judge::{RuleMatch, RuleVerdict, Ruled},
    meter::{Asked, Meter},
    profile::NoRoom,
    setup::{Draw, Pool, Work},
    state::{Governor, Meters, principal},
};

/// The key of a pool that is not counted for each.
static EVERYONE: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// How many other credentials are tried.
const MOST_SWITCHES: usize = 16;

/// For how many keys one pool is counted at a time: whoever makes up names must not fill the memory.
const MOST_KEYS: usize = 100_000;

/// How often a slot is moved to a rounder time before it is given up.
const MOST_ROUNDS: usize = 8;

/// An ask with all that the governor cannot make by itself.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Who asks.
    pub asker: &'a Asker,
    /// For what.
    pub intent: &'a Intent,
    /// The name of this intent.
    pub id: IntentId,
    /// The name that its credential gets if it was never named before, and the salt for its hash.
    pub fresh: &'a Fresh,
    /// The caller's own name for this ask, hashed, and a hash of what is asked.
    pub request: Option<(&'a str, &'a str)>,
    /// The hash of the free text that came along.
    pub context_hash: Option<&'a str>,
    /// Does the caller want to see every step?
    pub wants_trace: bool,
}

/// What a credential is called from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// In events.
    pub pseudonym: Arc<str>,
    /// For its hash.
    pub salt: String,
    /// SHA-256 of the salt and the name.
    pub name_hash: Box<str>,
}

/// A decision and what it leads to.
#[derive(Debug)]
pub struct Outcome {
    /// The answer.
    pub decision: Decision,
    /// What happened, in order. It has been applied.
    pub events: Vec<Event>,
    /// A credential that was named for the first time: to be kept beside the chain.
    pub named: Option<Arc<Named>>,
}

/// The same `request_id` was used for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnotherRequest;

/// What is asked of one meter.
pub(crate) struct Line {
    pub(crate) place: usize,
    pub(crate) pool: Arc<Pool>,
    pub(crate) key: Arc<str>,
    pub(crate) asked: Asked,
}

impl Line {
    /// How much of the pool is kept for others, in words.
    fn kept(&self) -> String {
        match self.asked.kept_free {
            0 => String::new(),
            kept => format!(" ({kept} {} are kept free for what is more urgent)", self.pool.unit),
        }
    }

    pub(crate) fn drawn(&self, to: Option<i64>) -> Drawn {
        let pool = Arc::clone(&self.pool.id);
        let hint = Hint(self.place);
        Drawn { pool, key: Arc::clone(&self.key), amount: self.asked.amount, to, hint }
    }
}

/// A no, and why.
#[derive(Debug, Clone)]
pub(crate) struct No {
    pub(crate) reason: Reason,
    pub(crate) pool: Option<Arc<str>>,
    pub(crate) retry_at: Option<i64>,
    pub(crate) why: String,
}

impl No {
    pub(crate) fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, pool: None, retry_at: None, why: why.into() }
    }

    pub(crate) fn by(
        pool: &Pool,
        reason: Reason,
        retry_at: Option<i64>,
        why: impl Into<String>,
    ) -> Self {
        Self { reason, pool: Some(Arc::clone(&pool.id)), retry_at, why: why.into() }
    }
}

/// What was found: the effect, why in words, and the credential to use instead.
type Found = ((Decided, String), Option<Arc<Named>>);

/// Where there is room.
pub(crate) enum Room {
    Now,
    At(i64),
}

/// What is known of an ask while it is decided.
pub(crate) struct Deciding<'a> {
    pub(crate) ask: &'a Ask<'a>,
    pub(crate) now: i64,
    pub(crate) agent: Arc<str>,
    /// Who asks, among those who share a pool.
    pub(crate) who: u64,
    pub(crate) urgency: Urgency,
    trace: Vec<TraceStep>,
    /// Why its urgency is not what it claims.
    pub(crate) demotion: Option<String>,
    /// The rules that matched, and what those say that only warn.
    pub(crate) rules: Vec<RuleMatch>,
    pub(crate) warnings: Vec<String>,
}

impl Deciding<'_> {
    pub(crate) fn step(
        &mut self,
        policy: &str,
        result: &'static str,
        why: impl FnOnce() -> (String, String),
    ) {
        if self.ask.wants_trace {
            let (condition, reason) = why();
            let policy_id = policy.to_owned();
            self.trace.push(TraceStep { policy_id, rule_index: None, condition, result, reason });
        }
    }
}

impl<'a> Deciding<'a> {
    fn new(ask: &'a Ask<'a>, now: i64) -> Self {
        let agent: Arc<str> = ask.intent.agent_id.as_str().into();
        Self {
            ask,
            now,
            who: principal(&ask.asker.account, &agent),
            agent,
            urgency: ask.intent.urgency,
            trace: Vec::new(),
            demotion: None,
            rules: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A step that a rule took.
    pub(crate) fn rule_step(
        &mut self,
        place: usize,
        policy: &str,
        result: &'static str,
        why: impl FnOnce() -> (String, String),
    ) {
        self.step(policy, result, why);
        if let Some(last) = self.trace.last_mut().filter(|_| self.ask.wants_trace) {
            last.rule_index = Some(place);
        }
    }
}

impl Governor {
    /// Decides an intent, and applies what was decided.
    pub fn decide(&mut self, ask: &Ask<'_>, now: i64) -> Result<Outcome, AnotherRequest> {
        let now = self.advance(now);
        if let Some(known) = self.asked_before(ask, now)? {
            return Ok(Outcome { decision: known, events: Vec::new(), named: None });
        }
        let mut deciding = Deciding::new(ask, now);
        let mut events = Vec::with_capacity(2);
        let mut named = None;
        let found = self.identities.by_name(&ask.intent.identity_id).cloned();
        let mut identity = found.as_ref().map(|named| Arc::clone(&named.pseudonym));
        let mut decided = match self.may_ask(&mut deciding, identity.as_deref()) {
            Err(no) => {
                let halted = no.reason == Reason::Halted;
                let (mut effect, why) = self.refused(&mut deciding, no, Vec::new());
                effect.asked.claim_refused = !halted;
                (effect, why, None)
            }
            Ok(()) => {
                if identity.is_none() {
                    let new = self.name_identity(ask, now, &mut events);
                    identity = Some(Arc::clone(&new.pseudonym));
                    named = Some(new);
                }
                let own = identity.clone().unwrap_or_else(|| "".into());
                self.demote(&mut deciding);
                let (decided, switched) = match ask.intent.renew {
                    Some(earlier) => (self.renew(&mut deciding, earlier), None),
                    None => self.room(&mut deciding, &own),
                };
                let (mut effect, why) = decided;
                if let Some(other) = &switched {
                    effect.asked.asked_identity = identity.replace(Arc::clone(&other.pseudonym));
                }
                (effect, why, switched)
            }
        };
        let effect = &mut decided.0;
        if let Some(named) = &found {
            effect.asked.kind = named.kind.as_deref().map(Into::into);
            effect.asked.group = named.group.as_deref().map(Into::into);
        }
        effect.request = ask.request.map(|(name, content)| format!("{name}.{content}").into());
        effect.context_hash = ask.context_hash.map(Into::into);
        effect.demoted_until = self.judge(&deciding);
        effect.rules = std::mem::take(&mut deciding.rules);
        let about = About {
            agent: Some(Arc::clone(&deciding.agent)),
            identity,
            workload: Some(ask.intent.workload_id.as_str().into()),
            scope: Some(ask.intent.scope_id.as_str().into()),
            intent: Some(ask.intent.renew.filter(|_| effect.renews).unwrap_or(ask.id)),
        };
        let (effect, why, switched) = decided;
        let event = Event { ts: now, about, effect: Effect::Decided(Box::new(effect)) };
        self.apply(&event);
        let decision = self.told(&deciding, &event, why, switched.as_deref());
        events.push(event);
        Ok(Outcome { decision, events, named })
    }

    /// Could there be room for this, as far as can be said without holding any? Gives the pools that it
    /// draws on: none for work that costs nothing and that no route names.
    pub fn could(
        &mut self,
        asker: &Asker,
        intent: &Intent,
        now: i64,
    ) -> Result<Vec<Arc<str>>, Box<Decision>> {
        let now = self.advance(now);
        let id = IntentId::from_parts(0, [0; 10]);
        let fresh = Fresh { pseudonym: "".into(), salt: String::new(), name_hash: "".into() };
        let ask = Ask {
            asker,
            intent,
            id,
            fresh: &fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let mut deciding = Deciding::new(&ask, now);
        let known = self.identities.by_name(&intent.identity_id);
        let identity = known.map_or_else(|| "".into(), |named| Arc::clone(&named.pseudonym));
        let open = self.may_ask(&mut deciding, Some(&identity)).and_then(|()| {
            let lines = self.lines(&deciding, &identity, &intent.identity_id);
            if lines.is_empty() && !intent.named_only {
                let why = "no route says which pools this work draws on";
                return Err(No::new(Reason::UnmappedWorkload, why));
            }
            for line in &lines {
                self.can_ever_fit(line)?;
            }
            // Where nothing is held, nobody asks the rules later.
            if lines.is_empty()
                && let RuleVerdict::No(no) =
                    self.ruled(&mut deciding, &lines, &intent.identity_id).verdict
            {
                return Err(no);
            }
            Ok(lines.iter().map(|line| Arc::clone(&line.pool.id)).collect())
        });
        open.map_err(|no| {
            let (effect, why) = self.refused(&mut deciding, no, Vec::new());
            Box::new(Decision { why, ..Decision::new(id, now, &effect) })
        })
    }

    /// The answer that was given to the same ask before.
    fn asked_before(&self, ask: &Ask<'_>, now: i64) -> Result<Option<Decision>, AnotherRequest> {
        let Some((name, content)) = ask.request else { return Ok(None) };
        let Some(known) = self.requests.get(name).filter(|known| known.expires > now) else {
            return Ok(None);
        };
        let is_same = known.decided.request.as_deref().and_then(|request| request.split_once('.'));
        if is_same.map(|(_, before)| before) != Some(content) {
            return Err(AnotherRequest);
        }
        // What was approved can be repeated only while it may be acted on.
        if known.decided.until.is_some_and(|until| until <= now) {
            return Ok(None);
        }
        // What is left of the wait, since it was told.
        let mut decision = Decision::new(known.intent, now, &known.decided);
        decision.as_of = known.ts;
        decision.pools = self.shown(&known.decided.pools, now);
        decision.why = "the same ask was answered before".to_owned();
        let own = self.identities.by_name(&ask.intent.identity_id).map(|named| &named.pseudonym);
        let other = known.identity.as_ref().filter(|held| own.is_some_and(|own| own != *held));
        let other = other.and_then(|held| self.identities.name_of(held));
        decision.identity_switch = other.map(str::to_owned);
        Ok(Some(decision))
    }

    /// Halt and claims.
    fn may_ask(&self, deciding: &mut Deciding<'_>, identity: Option<&str>) -> Result<(), No> {
        let (asker, intent) = (deciding.ask.asker, deciding.ask.intent);
        if let Some(halt) = self.halts.iter().find(|halt| match &halt.target {
            Target::All => true,
            Target::Agent(agent) => **agent == *intent.agent_id,
            Target::Key(key) => **key == *asker.key,
            Target::Identity(halted) => Some(&**halted) == identity,
            Target::Workload(workload) => **workload == *intent.workload_id,
            Target::Scope(scope) => **scope == *intent.scope_id,
            Target::Pool(_) => false,
        }) {
            let what = match &halt.target {
                // By the name that the caller knows.
                Target::Identity(_) => format!("the identity {}", intent.identity_id),
                target => target.to_string(),
            };
            let why = format!("{what} is halted; a person must resume it");
            deciding.step("halt", "deny", || ("nothing is halted".to_owned(), why.clone()));
            return Err(No::new(Reason::Halted, why));
        }
        deciding.step("halt", "pass", || ("nothing is halted".to_owned(), String::new()));
        let refuse = |what: &str| Err(No::new(Reason::PolicyViolation, what));
        let claimed = if !asker.may_be(&intent.agent_id) {
            refuse("the key may not speak for this agent")
        } else if !asker.may_use(&intent.identity_id) {
            refuse("the key may not use this identity")
        } else if intent.urgency > asker.max_urgency {
            refuse("the key may not claim this urgency")
        } else if identity.is_none()
            && asker.is_keyless
            && self.identities.keyless() >= self.keyless_identities()
        {
            refuse(
                "callers without a key have named too many identities; use a key, or register it",
            )
        } else {
            Ok(())
        };
        let (result, why) = match &claimed {
            Ok(()) => ("pass", String::new()),
            Err(no) => ("deny", no.why.clone()),
        };
        deciding.step("claims", result, || ("the caller may claim this".to_owned(), why));
        claimed
    }

    fn keyless_identities(&self) -> usize {
        usize::try_from(self.setup.settings().keyless_identities).unwrap_or(usize::MAX)
    }

    /// A credential is named for the first time.
    fn name_identity(&mut self, ask: &Ask<'_>, now: i64, events: &mut Vec<Event>) -> Arc<Named> {
        let named = Named {
            name: ask.intent.identity_id.clone(),
            pseudonym: Arc::clone(&ask.fresh.pseudonym),
            salt: ask.fresh.salt.clone(),
            kind: None,
            group: None,
            metadata: None,
            since_ms: now,
        };
        events.push(self.register(named.clone(), ask.fresh, ask.asker.is_keyless, now));
        Arc::new(named)
    }

    /// Makes a credential known, and gives the event that says so.
    pub fn register(&mut self, named: Named, fresh: &Fresh, keyless: bool, now: i64) -> Event {
        let now = self.advance(now);
        let registered = Registered {
            pseudonym: Arc::clone(&named.pseudonym),
            keyless,
            name_hash: fresh.name_hash.clone(),
        };
        let about = About { identity: Some(Arc::clone(&named.pseudonym)), ..About::default() };
        let event = Event { ts: now, about, effect: Effect::Registered(registered) };
        self.apply(&event);
        self.identities.put(named);
        event
    }

    /// Whoever does not say who it is, or has cried wolf, is taken for background work.
    fn demote(&self, deciding: &mut Deciding<'_>) {
        #[cfg(feature = "mutants")]
        if self.is_mutant(crate::Mutant::BelievesEveryone) {
            return;
        }
        let intent = deciding.ask.intent;
        let binned = self.conduct.get(&deciding.who).and_then(|c| c.demoted_until(deciding.now));
        let why = if intent.identity_id == UNKNOWN || intent.scope_id == UNKNOWN {
            Some("who does not say who or where it is counts as background work".to_owned())
        } else {
            binned.map(|until| {
                let left = (until - deciding.now) / 1000 + 1;
                format!("the agent is demoted to background work for another {left} s: it claimed high urgency too often, or acted without asking")
            })
        };
        if why.is_some() {
            deciding.urgency = Urgency::Background;
            let said = why.clone().unwrap_or_default();
            deciding.step("conduct", "demote", || ("the agent is believed".to_owned(), said));
        }
        deciding.demotion = why;
    }

    /// Is the agent demoted from here on?
    fn judge(&self, deciding: &Deciding<'_>) -> Option<i64> {
        let (asker, intent) = (deciding.ask.asker, deciding.ask.intent);
        if asker.is_vouched || intent.urgency != Urgency::High {
            return None;
        }
        let conduct = self.conduct.get(&deciding.who)?;
        if conduct.demoted_until(deciding.now).is_some() {
            return None;
        }
        conduct.would_ask(deciding.now, true, &self.setup.settings().sin_bin)
    }

    /// Looks for room, now or later, or with another credential.
    fn room(&mut self, deciding: &mut Deciding<'_>, identity: &Arc<str>) -> Found {
        let intent = deciding.ask.intent;
        let lines = self.lines(deciding, identity, &intent.identity_id);
        if lines.is_empty() {
            let why = "no route says which pools this work draws on";
            deciding
                .step("routes", "deny", || ("a route maps the work".to_owned(), why.to_owned()));
            let no = No::new(Reason::UnmappedWorkload, why);
            return (self.refused(deciding, no, Vec::new()), None);
        }
        deciding.step("routes", "pass", || {
            let pools: Vec<&str> = lines.iter().map(|line| &*line.pool.id).collect();
            ("a route maps the work".to_owned(), pools.join(", "))
        });
        let Ruled { matches, warnings, verdict } =
            self.ruled(deciding, &lines, &intent.identity_id);
        deciding.rules = matches;
        deciding.warnings = warnings;
        if matches!(verdict, RuleVerdict::Switch)
            && let Some(switched) = self.switched(deciding)
        {
            return switched;
        }
        let no = match self.within_rules(deciding, &lines, verdict) {
            Ok(Room::Now) => return (self.approved(deciding, &lines, deciding.now), None),
            Ok(Room::At(at)) => return (self.approved(deciding, &lines, at), None),
            Err(no) => no,
        };
        if no.reason != Reason::Halted
            && let Some(switched) = self.switched(deciding)
        {
            return switched;
        }
        let drawn = lines.iter().map(|line| line.drawn(None)).collect();
        (self.refused(deciding, no, drawn), None)
    }

    /// The same with another credential.
    fn switched(&mut self, deciding: &mut Deciding<'_>) -> Option<Found> {
        let (lines, other) = self.switch(deciding)?;
        let (mut effect, why) = self.approved(deciding, &lines, deciding.now);
        effect.decision = Answer::ApproveWithModifications;
        Some(((effect, why), Some(other)))
    }

    /// When there is room, as far as rules and risk allow it.
    fn within_rules(
        &mut self,
        deciding: &mut Deciding<'_>,
        lines: &[Line],
        verdict: RuleVerdict,
    ) -> Result<Room, No> {
        let (mut not_before, mut ignores_risk) = (deciding.now, false);
        match verdict {
            RuleVerdict::Nothing | RuleVerdict::Switch => {}
            RuleVerdict::No(no) => {
                // What is not there to be had is a no of its own kind, and known before any rule is asked.
                for line in lines {
                    self.can_ever_fit(line)?;
                }
                return Err(no);
            }
            RuleVerdict::WithoutRisk => ignores_risk = true,
            RuleVerdict::NotBefore(at, no) => {
                if at > deciding.now.saturating_add(self.reach(deciding)) {
                    return Err(no);
                }
                not_before = at;
            }
        }
        let room = self.find(deciding, lines, not_before, false)?;
        if !ignores_risk {
            self.risk(deciding, lines)?;
        }
        Ok(room)
    }

    /// How far ahead may be booked, in milliseconds.
    fn reach(&self, deciding: &Deciding<'_>) -> i64 {
        let patience = deciding.ask.intent.patience_ms.unwrap_or(i64::MAX).max(0);
        self.setup.horizon(deciding.urgency).min(patience)
    }

    /// What the work draws on, meter by meter.
    pub(crate) fn lines(
        &mut self,
        deciding: &Deciding<'_>,
        identity: &Arc<str>,
        name: &str,
    ) -> Vec<Line> {
        let intent = deciding.ask.intent;
        let work = Work {
            agent: &intent.agent_id,
            identity: name,
            workload: &intent.workload_id,
            scope: &intent.scope_id,
        };
        let setup = Arc::clone(&self.setup);
        let draws = setup.draws_of(&work, &intent.expected, intent.named_only);
        let lines = draws.into_iter().filter_map(|draw| {
            let pool = Arc::clone(setup.pool(draw.pool)?);
            let key = deciding.key(&pool, identity);
            let amount = self.cost_of(&draw, &pool, &intent.workload_id);
            let asked = Asked { amount, validity: 0, kept_free: 0 };
            Some(Line { place: draw.pool, pool, key, asked })
        });
        let lines = lines.collect();
        self.prepared(lines, deciding)
    }

    /// What a draw costs: what was learned, where nobody says what to expect.
    pub(crate) fn cost_of(&self, draw: &Draw, pool: &Pool, workload: &str) -> u64 {
        let learned = draw.learnable.zip(self.costs.of(workload, &pool.id));
        learned.map_or(draw.amount, |((least, most), cost)| cost.min(most).max(least))
    }

    /// Lets the time pass for each line's meter, and works out for how long and beside what it must fit.
    pub(crate) fn prepared(&mut self, mut lines: Vec<Line>, deciding: &Deciding<'_>) -> Vec<Line> {
        let longest = self.setup.longest_validity();
        let usual = lines.iter().map(|line| line.pool.validity).min().unwrap_or(0);
        let hinted = deciding.ask.intent.duration_ms.unwrap_or(0).max(0);
        let validity = usual.max(hinted).min(longest.max(usual));
        let percent = self.setup.settings().headroom_percent.of(deciding.urgency);
        #[cfg(feature = "mutants")]
        let percent = if self.is_mutant(crate::Mutant::IgnoresHeadroom) { 0 } else { percent };
        for line in &mut lines {
            let Some(meters) = self.meters.get_mut(line.place) else { continue };
            let limit = match meters.get_mut(&line.key) {
                Some(meter) => {
                    meter.advance(deciding.now);
                    meter.limit(&line.pool)
                }
                None => line.pool.limit,
            };
            line.asked.validity = validity;
            line.asked.kept_free = limit.map_or(0, |limit| Pool::kept_free(limit, percent));
        }
        lines
    }

    /// The first moment within reach at which every line fits.
    pub(crate) fn find(
        &self,
        deciding: &mut Deciding<'_>,
        lines: &[Line],
        not_before: i64,
        renewing: bool,
    ) -> Result<Room, No> {
        let now = deciding.now;
        let reach = if renewing { 0 } else { self.reach(deciding) };
        #[cfg(feature = "mutants")]
        let reach =
            if self.is_mutant(crate::Mutant::BooksBeyondReach) { 86_400_000 } else { reach };
        for line in lines {
            self.is_open(deciding, line)?;
        }
        let mut at = now.max(not_before);
        for _ in 0..MOST_ROUNDS {
            let found = self.all_fit(deciding, lines, at)?;
            if found == now {
                return Ok(Room::Now);
            }
            // Far slots are at round times, so that there are not too many of them.
            let rounded = round(found, now);
            if found > now.saturating_add(reach) {
                return Err(self.too_late(deciding, lines, found));
            }
            if rounded == found || self.all_fit(deciding, lines, rounded)? == rounded {
                let slot = rounded.max(found);
                if slot > now.saturating_add(reach) {
                    return Err(self.too_late(deciding, lines, slot));
                }
                return Ok(Room::At(slot));
            }
            at = rounded;
        }
        Err(self.too_late(deciding, lines, at))
    }

    /// Halts and capacity: what never fits.
    fn can_ever_fit(&self, line: &Line) -> Result<(), No> {
        let pool = &line.pool;
        let deny = |reason, retry_at, why: String| Err(No::by(pool, reason, retry_at, why));
        if self.halts.iter().any(|halt| halt.target == Target::Pool(Arc::clone(&pool.id))) {
            return deny(
                Reason::Halted,
                None,
                "the pool is halted; a person must resume it".to_owned(),
            );
        }
        let meter = self.meters_of(line).and_then(|meters| meters.get(&line.key));
        let limit = meter.map_or(pool.limit, |meter| meter.limit(pool));
        if let Some(limit) = limit.filter(|_| pool.hard)
            && line.asked.amount > limit.saturating_sub(line.asked.kept_free)
        {
            let why = format!(
                "{} {} are asked for, and the pool never holds more than {}{}",
                line.asked.amount,
                pool.unit,
                limit.saturating_sub(line.asked.kept_free),
                line.kept()
            );
            return deny(Reason::HardLimitReached, None, why);
        }
        Ok(())
    }

    /// Reports that are too old, and shares: what no wait can mend.
    fn is_open(&self, deciding: &mut Deciding<'_>, line: &Line) -> Result<(), No> {
        self.can_ever_fit(line)?;
        let (pool, now) = (&line.pool, deciding.now);
        if !pool.hard {
            return Ok(());
        }
        let deny = |reason, retry_at, why: String| Err(No::by(pool, reason, retry_at, why));
        let meters = self.meters_of(line);
        let meter = meters.and_then(|meters| meters.get(&line.key));
        if meter.is_none() && meters.is_some_and(|meters| meters.len() >= MOST_KEYS) {
            let why = format!(
                "it is counted for {MOST_KEYS} of them already, and none more can be told apart now"
            );
            return deny(Reason::HardLimitReached, Some(now + 60_000), why);
        }
        let stale_after = pool.stale_after;
        #[cfg(feature = "mutants")]
        let stale_after = stale_after.filter(|_| !self.is_mutant(crate::Mutant::IgnoresSilence));
        if let (Some(stale_after), Some(learned)) = (stale_after, meter.and_then(|m| m.learned()))
            && let Some(reported) = learned.reported_at
            && now.saturating_sub(reported) > stale_after
            && deciding.urgency != Urgency::High
        {
            // Once the window is over that was reported, somebody must find out how the next one is.
            let ends = learned.reset_at.unwrap_or(reported.saturating_add(stale_after));
            let is_open = meter.is_some_and(|meter| meter.open() > 0);
            if deciding.urgency == Urgency::Background || ends > now || is_open {
                let why = "the provider has not reported for too long; high urgency passes, and one probe at a time once its window is over";
                return deny(Reason::HardLimitReached, Some(ends.max(now + 5000)), why.to_owned());
            }
        }
        #[cfg(feature = "mutants")]
        let meter = meter.filter(|_| !self.is_mutant(crate::Mutant::IgnoresShares));
        if let Some(meter) = meter
            && !meter.is_within_share(pool, deciding.who, line.asked.amount)
        {
            let why = "others are active in the pool, and this agent holds its share of it already";
            return deny(Reason::HardLimitReached, Some(now + 1000), why.to_owned());
        }
        Ok(())
    }

    pub(crate) fn meter_at(&self, line: &Line) -> Option<&Meter> {
        self.meters_of(line)?.get(&line.key)
    }

    fn meters_of(&self, line: &Line) -> Option<&Meters> {
        self.meters.get(line.place)
    }

    /// When a line fits, from a moment on.
    fn fits_at(&self, deciding: &Deciding<'_>, line: &Line, from: i64) -> Result<i64, NoRoom> {
        if !line.pool.hard && deciding.urgency != Urgency::Background {
            return Ok(from);
        }
        match self.meters_of(line).and_then(|meters| meters.get(&line.key)) {
            Some(meter) => meter.earliest(&line.pool, from, i64::MAX, &line.asked),
            // Nobody has used it yet.
            None => Ok(from),
        }
    }

    /// The first moment from `from` on at which all lines fit together.
    fn all_fit(&self, deciding: &Deciding<'_>, lines: &[Line], from: i64) -> Result<i64, No> {
        let mut at = from;
        loop {
            let mut moved = at;
            for line in lines {
                moved = self.fits_at(deciding, line, moved).map_err(|no_room| match no_room {
                    NoRoom::Never => No::by(
                        &line.pool,
                        Reason::HardLimitReached,
                        None,
                        "more is asked for than the pool ever holds",
                    ),
                    NoRoom::WithinReach => No::by(
                        &line.pool,
                        Reason::HardLimitReached,
                        Some(deciding.now + 1000),
                        "all of it is held; there is room when holds are settled or their time is over",
                    ),
                })?;
                if moved > deciding.now && moved > at && !line.pool.window.can_book() {
                    let why =
                        "the pool is full, and when there is room again is not ours to promise";
                    return Err(No::by(&line.pool, Reason::DeferUntilReset, Some(moved), why));
                }
            }
            if moved == at {
                return Ok(at);
            }
            at = moved;
        }
    }

    /// There is room, but later than this urgency may book.
    fn too_late(&self, deciding: &Deciding<'_>, lines: &[Line], at: i64) -> No {
        let decides = |line: &&Line| {
            self.fits_at(deciding, line, deciding.now).is_ok_and(|fits| fits > deciding.now)
        };
        let Some(line) = lines.iter().find(decides).or(lines.first()) else {
            return No::new(Reason::HardLimitReached, "there is no room");
        };
        let resets = matches!(
            line.pool.window,
            crate::window::Window::Fixed { .. } | crate::window::Window::Calendar(_)
        );
        let reason = if resets { Reason::DeferUntilReset } else { Reason::HardLimitReached };
        let why = format!(
            "the pool is full{}, and there is room later than may be booked ahead",
            line.kept()
        );
        No::by(&line.pool, reason, Some(at), why)
    }

    /// Another credential of the same group that has room now.
    fn switch(&mut self, deciding: &mut Deciding<'_>) -> Option<(Vec<Line>, Arc<Named>)> {
        let intent = deciding.ask.intent;
        if !intent.can_switch {
            return None;
        }
        let own = self.identities.by_name(&intent.identity_id)?;
        let others: Vec<Arc<Named>> = self
            .identities
            .group(own.group.as_deref()?)
            .iter()
            .filter(|named| named.name != intent.identity_id)
            .take(MOST_SWITCHES)
            .cloned()
            .collect();
        for other in others {
            let halted = Target::Identity(Arc::clone(&other.pseudonym));
            if !deciding.ask.asker.may_use(&other.name)
                || self.halts.iter().any(|halt| halt.target == halted)
            {
                continue;
            }
            let lines = self.lines(deciding, &other.pseudonym, &other.name);
            if lines.is_empty() {
                continue;
            }
            let verdict = self.ruled(deciding, &lines, &other.name).verdict;
            if matches!(self.within_rules(deciding, &lines, verdict), Ok(Room::Now)) {
                return Some((lines, other));
            }
        }
        None
    }

    fn base(deciding: &Deciding<'_>, decision: Answer, pools: Vec<Drawn>) -> Decided {
        let (asker, intent) = (deciding.ask.asker, deciding.ask.intent);
        Decided {
            caller: Arc::clone(&asker.key),
            account: Arc::clone(&asker.account),
            urgency: deciding.urgency,
            claimed: (deciding.urgency != intent.urgency).then_some(intent.urgency),
            expected_cost: intent.expected.clone(),
            decision,
            reason: None,
            pool: None,
            retry_at: None,
            from: None,
            until: None,
            pools,
            renews: false,
            request: None,
            context_hash: None,
            demoted_until: None,
            rules: Vec::new(),
            asked: AskedMore {
                duration_ms: intent.duration_ms,
                patience_ms: intent.patience_ms,
                can_switch: intent.can_switch,
                may_use: (intent.can_switch && !asker.may_use_any())
                    .then(|| Arc::clone(&asker.identities)),
                asked_identity: None,
                kind: None,
                group: None,
                named_only: intent.named_only,
                vouched: asker.is_vouched,
                renew: intent.renew,
                claim_refused: false,
            },
        }
    }

    pub(crate) fn approved(
        &self,
        deciding: &mut Deciding<'_>,
        lines: &[Line],
        from: i64,
    ) -> (Decided, String) {
        let validity = lines.first().map_or(0, |line| line.asked.validity);
        let until = from.saturating_add(validity);
        let acts_until = until;
        #[cfg(feature = "mutants")]
        let acts_until =
            if self.is_mutant(crate::Mutant::CountsOneWindow) { from + 1 } else { acts_until };
        let reset = |line: &Line| {
            self.meters_of(line).and_then(|meters| meters.get(&line.key)).and_then(|m| m.reset_at())
        };
        let drawn = lines
            .iter()
            .map(|line| line.drawn(Some(line.pool.window.counts_until(acts_until, reset(line)))))
            .collect();
        let waits = from > deciding.now;
        for line in lines {
            let result = if waits { "wait" } else { "pass" };
            deciding.step(&line.pool.id, result, || {
                let condition =
                    format!("there is room for {} {}", line.asked.amount, line.pool.unit);
                (condition, String::new())
            });
        }
        let answer = if waits { Answer::ApproveWithModifications } else { Answer::Approve };
        let effect =
            Decided { from: Some(from), until: Some(until), ..Self::base(deciding, answer, drawn) };
        (effect, String::new())
    }

    pub(crate) fn refused(
        &self,
        deciding: &mut Deciding<'_>,
        no: No,
        drawn: Vec<Drawn>,
    ) -> (Decided, String) {
        if let Some(pool) = &no.pool {
            deciding.step(pool, "deny", || ("there is room".to_owned(), no.why.clone()));
        }
        let effect = Decided {
            reason: Some(no.reason),
            pool: no.pool,
            retry_at: no.retry_at,
            ..Self::base(deciding, Answer::DenyWithReason, drawn)
        };
        (effect, no.why)
    }

    /// The decision as it is told.
    fn told(
        &mut self,
        deciding: &Deciding<'_>,
        event: &Event,
        why: String,
        switched: Option<&Named>,
    ) -> Decision {
        let Effect::Decided(decided) = &event.effect else {
            return Decision::nothing(deciding.ask.id, deciding.now);
        };
        let intent = event.about.intent.unwrap_or(deciding.ask.id);
        let mut decision = Decision::new(intent, deciding.now, decided);
        decision.why = why;
        decision.demotion.clone_from(&deciding.demotion);
        decision.warnings.clone_from(&deciding.warnings);
        decision.identity_switch = switched.map(|named| named.name.clone());
        decision.trace = deciding.ask.wants_trace.then(|| deciding.trace.clone());
        decision.pools = self.shown(&decided.pools, deciding.now);
        decision
    }

    fn shown(&self, drawn: &[Drawn], now: i64) -> Vec<PoolShown> {
        let shown = drawn.iter().filter_map(|drawn| {
            let place = self.setup.place_near(&drawn.pool, drawn.hint)?;
            let pool = self.setup.pool(place)?;
            let meter = self.meters.get(place)?.get(&drawn.key)?;
            let reading = meter.read(pool, now.max(self.now()));
            Some(PoolShown {
                id: Arc::clone(&drawn.pool),
                unit: Arc::clone(&pool.unit),
                amount: drawn.amount,
                limit: reading.limit,
                remaining: reading.left,
                reset_at: reading.reset_at,
            })
        });
        shown.collect()
    }
}

impl Deciding<'_> {
    /// The key within a pool.
    pub(crate) fn key(&self, pool: &Pool, identity: &Arc<str>) -> Arc<str> {
        use crate::config::Per;
        match pool.per {
            Per::Global => Arc::clone(&EVERYONE),
            Per::Identity => Arc::clone(identity),
            Per::Agent => Arc::clone(&self.agent),
            Per::Scope => self.ask.intent.scope_id.as_str().into(),
            Per::Account => Arc::clone(&self.ask.asker.account),
        }
    }
}

/// A time behind `at` by at most a sixteenth of the wait.
fn round(at: i64, now: i64) -> i64 {
    let grain = (at - now).max(1) / 16;
    if grain < 2 {
        return at;
    }
    let grain = 1_i64 << (63 - grain.leading_zeros());
    at.saturating_add(grain - 1).div_euclid(grain) * grain
}

#[cfg(test)]
#[path = "decide_tests.rs"]
pub(crate) mod tests;
