//! The governor's state: a fold over events. Nothing is decided here.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tollgate_contract::{Urgency, id::IntentId};

use crate::{
    conduct::Conduct,
    config::{GovernorConfig, PoolConfig},
    costs::{Costs, LearnedCost},
    effect::{
        About, Decided, Drawn, Effect, Ended, Event, Expired, Halt, Heard, Hint, Registered, Spent,
        Target, Used,
    },
    forecast::{ConePoint, Forecast},
    identity::Identities,
    meter::{Hold, Meter, Reading},
    setup::{Pool, Setup},
    watch::Watched,
};

/// How long a hold that has expired is remembered, so that a late report still finds it.
const REMEMBERED: i64 = 60 * 60 * 1000;

/// How often meters are looked through for those that are as if never used.
const SWEEP: i64 = 60_000;

/// How many of them at most.
const MOST_REMEMBERED: usize = 20_000;

/// How many answers to asks with a `request_id` are remembered.
const MOST_REQUESTS: usize = 100_000;

/// How long the answer to an ask with a `request_id` is remembered.
pub const REQUEST_REMEMBERED: i64 = 10 * 60 * 1000;

/// What the governor knows.
#[derive(Debug, Clone)]
pub struct Governor {
    pub(crate) config: GovernorConfig,
    pub(crate) setup: Arc<Setup>,
    /// The pools' meters, in the order of the configuration.
    pub(crate) meters: Vec<Meters>,
    /// Meters of pools that are configured no more, while something is held in them.
    retired: HashMap<Arc<str>, Retired>,
    /// Shared, so that a snapshot of very many costs little.
    pub(crate) holds: HashMap<IntentId, Arc<OpenHold>, ByRandom>,
    /// When holds expire.
    due: BTreeSet<(i64, IntentId)>,
    /// When those that have expired are forgotten.
    memories: BTreeSet<(i64, IntentId)>,
    pub(crate) requests: HashMap<Arc<str>, Remembered>,
    requests_due: BTreeSet<(i64, Arc<str>)>,
    pub(crate) identities: Identities,
    pub(crate) conduct: HashMap<u64, Conduct>,
    pub(crate) halts: Vec<Halt>,
    /// What work really takes.
    pub(crate) costs: Costs,
    /// Whose forecast is worth a look.
    pub(crate) watched: Watched,
    /// The last moment that is known. Time does not go back.
    now: i64,
    swept: i64,
    /// How many events were applied.
    applied: u64,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<crate::mutant::Mutant>,
}

/// A pool that is configured no more.
#[derive(Debug, Clone)]
struct Retired {
    config: PoolConfig,
    pool: Arc<Pool>,
    meters: Meters,
}

/// Finds intents by what is random in their names. They are made here: nobody can choose names that meet.
pub(crate) type ByRandom = BuildHasherDefault<LastEight>;

/// The last eight bytes of what is hashed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LastEight(u64);

impl Hasher for LastEight {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            // Two bits of a name of this kind are always the same; they must not decide where it goes.
            self.0 = u64::from_be_bytes(*last).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The meters of one pool, by key.
pub(crate) type Meters = HashMap<Arc<str>, Meter>;

/// In how many steps it is told what will be left.
const CONE_STEPS: u32 = 24;

/// What is to be expected of one meter.
#[derive(Debug, Clone)]
pub struct Forecasted {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The key within it.
    pub key: Option<Arc<str>>,
    /// As it is now.
    pub reading: Reading,
    /// What is to be expected; `None` where there is nothing to run out of, or too little is known.
    pub forecast: Option<Forecast>,
    /// What will be left, step by step.
    pub cone: Vec<ConePoint>,
}

/// A hold that is not settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenHold {
    /// The account that asked, and the key.
    pub(crate) account: Arc<str>,
    pub(crate) agent: Arc<str>,
    pub(crate) identity: Arc<str>,
    pub(crate) workload: Arc<str>,
    pub(crate) scope: Arc<str>,
    pub(crate) from: i64,
    pub(crate) until: i64,
    pub(crate) pools: Vec<Drawn>,
    /// It has expired; what is left of it is a memory.
    #[serde(default)]
    pub(crate) is_over: bool,
    /// Who holds it. Worked out anew by whoever reads it.
    #[serde(skip)]
    pub(crate) who: u64,
}

impl Retired {
    fn read((config, meters): (PoolConfig, Meters)) -> Option<(Arc<str>, Self)> {
        let pool = Arc::new(Pool::build(&config, 0, 0).ok()?);
        Some((Arc::clone(&pool.id), Self { config, pool, meters }))
    }
}

impl OpenHold {
    /// What is held in a pool.
    fn part(&self, drawn: &Drawn) -> Hold {
        Hold {
            from: self.from,
            to: drawn.to.unwrap_or(self.until),
            amount: drawn.amount,
            principal: self.who,
        }
    }
}

/// An answer that is given again to whoever asks again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) intent: IntentId,
    pub(crate) ts: i64,
    pub(crate) decided: Arc<Decided>,
    /// The credential that it is held for.
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) expires: i64,
}

/// Whoever shares a pool with others: an agent of an account.
pub(crate) fn principal(account: &str, agent: &str) -> u64 {
    // The same in every process: it is kept in snapshots.
    let mut hasher = DefaultHasher::new();
    (account, agent).hash(&mut hasher);
    hasher.finish()
}

/// Somebody whom nobody is.
const PROBE: &str = "probe";

/// Everything that is known, for a quick start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    config: GovernorConfig,
    now: i64,
    meters: Vec<(Arc<str>, Meters)>,
    #[serde(default)]
    retired: Vec<(PoolConfig, Meters)>,
    holds: Vec<(IntentId, Arc<OpenHold>)>,
    requests: Vec<(Arc<str>, Remembered)>,
    identities: Vec<Registered>,
    conduct: Vec<(u64, Conduct)>,
    halts: Vec<Halt>,
    #[serde(default)]
    costs: Costs,
    /// What a certain principal is called, to tell whether all are called so still.
    #[serde(default)]
    probe: u64,
}

impl Governor {
    /// A governor that knows nothing but its configuration.
    pub fn new(config: GovernorConfig, setup: Setup, now: i64) -> Self {
        let meters = setup.pools().iter().map(|_| Meters::new()).collect();
        Self {
            config,
            setup: Arc::new(setup),
            meters,
            retired: HashMap::new(),
            holds: HashMap::default(),
            due: BTreeSet::new(),
            memories: BTreeSet::new(),
            requests: HashMap::new(),
            requests_due: BTreeSet::new(),
            identities: Identities::default(),
            conduct: HashMap::new(),
            halts: Vec::new(),
            costs: Costs::default(),
            watched: Watched::default(),
            now,
            swept: now,
            applied: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The pools, routes and settings.
    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// The configuration as it was written.
    pub fn config(&self) -> &GovernorConfig {
        &self.config
    }

    /// The pool of this name, also one that is configured no more and still has something in it.
    pub(crate) fn pool_of(&self, id: &str) -> Option<&Arc<Pool>> {
        self.setup.by_id(id).or_else(|| self.retired.get(id).map(|retired| &retired.pool))
    }

    /// The same, where it probably is.
    pub(crate) fn pool_near(&self, id: &Arc<str>, hint: Hint) -> Option<&Arc<Pool>> {
        match self.setup.place_near(id, hint) {
            Some(place) => self.setup.pool(place),
            None => self.retired.get(id).map(|retired| &retired.pool),
        }
    }

    /// The last moment that is known.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// The credentials.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// The names of credentials, which are kept beside the chain.
    pub fn identities_mut(&mut self) -> &mut Identities {
        &mut self.identities
    }

    /// What is stopped.
    pub fn halts(&self) -> &[Halt] {
        &self.halts
    }

    /// Is everything stopped?
    pub fn is_halted(&self) -> bool {
        self.halts.iter().any(|halt| halt.target == Target::All)
    }

    /// What was learned of what work takes.
    pub fn learned_costs(&self) -> Vec<LearnedCost> {
        self.costs.shown()
    }

    /// How many events were applied. Whoever records them can tell that none is missing.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// How many holds are known, those that have expired included.
    pub fn known_holds(&self) -> usize {
        self.holds.len()
    }

    /// How many holds are open.
    pub fn open_holds(&self) -> usize {
        self.holds.len().saturating_sub(self.memories.len())
    }

    /// Lets time pass. It does not go back.
    pub(crate) fn advance(&mut self, now: i64) -> i64 {
        self.now = self.now.max(now);
        // At full minutes, whenever it is noticed that one is over: so it is the same for whoever reads the events.
        let minute = self.now - self.now.rem_euclid(SWEEP);
        if self.swept < minute {
            self.swept = minute;
            self.sweep(minute);
        }
        self.now
    }

    /// The pool of this name and the meter of this key in it, which is made if it is not there.
    pub(crate) fn meter(
        &mut self,
        pool: &Arc<str>,
        key: &Arc<str>,
        hint: Hint,
    ) -> Option<(&Arc<Pool>, &mut Meter)> {
        let now = self.now;
        let (pool, meters) = match self.setup.place_near(pool, hint) {
            Some(place) => (self.setup.pool(place)?, self.meters.get_mut(place)?),
            None => {
                let retired = self.retired.get_mut(pool)?;
                (&retired.pool, &mut retired.meters)
            }
        };
        let meter = match meters.contains_key(key) {
            true => meters.get_mut(key)?,
            false => meters.entry(Arc::clone(key)).or_insert_with(|| Meter::new(pool, now)),
        };
        meter.advance(now);
        Some((pool, meter))
    }

    /// Applies what happened. What cannot be applied, because it speaks of what is not known, changes nothing.
    pub fn apply(&mut self, event: &Event) {
        self.advance(event.ts);
        self.applied += 1;
        match &event.effect {
            Effect::Decided(decided) => self.decided(&event.about, decided),
            Effect::Used(used) => self.used(&event.about, used),
            Effect::Expired(expired) => {
                self.expired(expired);
                self.forget();
            }
            Effect::Heard(heard) => self.heard(heard),
            Effect::Registered(registered) => self.identities.register(registered),
            Effect::Deleted(deleted) => {
                self.identities.forget(&deleted.pseudonym);
                let gone = Target::Identity(Arc::clone(&deleted.pseudonym));
                self.halts.retain(|halt| halt.target != gone);
            }
            #[cfg(feature = "mutants")]
            Effect::Halted(_) if self.is_mutant(crate::Mutant::IgnoresHalts) => {}
            Effect::Halted(halt) => {
                self.halts.retain(|known| known.target != halt.target);
                self.halts.push(halt.clone());
            }
            Effect::Resumed(halt) => self.halts.retain(|known| known.target != halt.target),
            #[cfg(feature = "mutants")]
            Effect::Configured(_) if self.is_mutant(crate::Mutant::IgnoresReload) => {}
            Effect::Configured(configured) => {
                if let Some(config) = &configured.governor
                    && let Ok(setup) = config.build(self.now)
                {
                    self.reconfigure(config.clone(), setup);
                }
            }
            Effect::Crossed(crossed) => self.crossed(crossed),
            Effect::Reset(_) | Effect::Drift(_) => {}
        }
    }

    fn decided(&mut self, about: &About, decided: &Decided) {
        let (Some(agent), Some(intent)) = (&about.agent, about.intent) else { return };
        let now = self.now;
        let who = principal(&decided.account, agent);
        let claims_high = decided.claimed.unwrap_or(decided.urgency) == Urgency::High;
        let rule = &self.setup.settings().sin_bin;
        let conduct = self.conduct.entry(who).or_default();
        conduct.asked(now, claims_high, decided.demoted_until, rule);
        if decided.renews && decided.decision.is_approval() {
            self.give_up(intent);
        }
        if let (true, Some(from), Some(until)) =
            (decided.decision.is_approval(), decided.from, decided.until)
        {
            let hold = OpenHold {
                account: Arc::clone(&decided.account),
                agent: Arc::clone(agent),
                identity: about.identity.clone().unwrap_or_else(|| "".into()),
                workload: about.workload.clone().unwrap_or_else(|| "".into()),
                scope: about.scope.clone().unwrap_or_else(|| "".into()),
                from,
                until,
                pools: decided.pools.clone(),
                is_over: false,
                who,
            };
            self.take(&hold);
            self.due.insert((until, intent));
            self.holds.insert(intent, Arc::new(hold));
        } else if decided.retry_at.is_some() {
            // Whoever asks for what never fits takes no share from anybody.
            for drawn in &decided.pools {
                if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                    meter.note(who, now);
                    self.watched.touch(&drawn.pool, &drawn.key);
                }
            }
        }
        // The name of the ask, and behind it what was asked.
        let name = decided.request.as_deref().and_then(|request| request.split_once('.'));
        if let Some(request) = name.map(|(name, _)| Arc::<str>::from(name)) {
            let expires = now.saturating_add(REQUEST_REMEMBERED);
            let identity = about.identity.clone();
            let decided = Arc::new(decided.clone());
            let remembered = Remembered { intent, ts: now, decided, identity, expires };
            while self.requests.len() >= MOST_REQUESTS
                && let Some((_, oldest)) = self.requests_due.pop_first()
            {
                self.requests.remove(&oldest);
            }
            self.requests_due.insert((expires, Arc::clone(&request)));
            self.requests.insert(request, remembered);
        }
    }

    /// Holds in every pool what a hold holds.
    fn take(&mut self, hold: &OpenHold) {
        let now = self.now;
        #[cfg(feature = "mutants")]
        if self.is_mutant(crate::Mutant::HoldsNothing)
            || (hold.from > now && self.is_mutant(crate::Mutant::MovesBookings))
        {
            return;
        }
        for drawn in &hold.pools {
            let part = hold.part(drawn);
            if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                meter.hold(part, now);
                self.watched.touch(&drawn.pool, &drawn.key);
            }
        }
    }

    /// Gives back all that a hold holds.
    fn give_up(&mut self, intent: IntentId) {
        self.lift(intent);
        self.remove(intent);
    }

    /// Takes what a hold holds out of the pools for a moment, to see what fits without it.
    pub(crate) fn lift(&mut self, intent: IntentId) {
        let now = self.now;
        let Some(hold) = self.holds.get(&intent).cloned() else { return };
        for drawn in &hold.pools {
            let part = hold.part(drawn);
            if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                meter.lift(part, now);
            }
        }
    }

    /// Puts it back.
    pub(crate) fn put_back(&mut self, hold: &OpenHold) {
        self.take(hold);
    }

    fn remove(&mut self, intent: IntentId) -> Option<Arc<OpenHold>> {
        let hold = self.holds.remove(&intent)?;
        if hold.is_over {
            self.memories.remove(&(hold.until.saturating_add(REMEMBERED), intent));
        } else {
            self.due.remove(&(hold.until, intent));
        }
        Some(hold)
    }

    fn used(&mut self, about: &About, used: &Used) {
        let now = self.now;
        if let Some(agent) = about.agent.as_ref().filter(|_| used.ghost) {
            let who = principal(&used.account, agent);
            let rule = &self.setup.settings().sin_bin;
            self.conduct.entry(who).or_default().ghost(now, used.demoted_until, rule);
        }
        let hold = about.intent.and_then(|intent| self.remove(intent));
        for spent in &used.pools {
            self.spend(hold.as_deref(), spent);
            // What counts calls costs one, whatever was done; and whoever is not believed teaches nobody.
            let workload = about.workload.as_ref().or(hold.as_ref().map(|hold| &hold.workload));
            if let Some(workload) = workload
                && self
                    .pool_of(&spent.pool)
                    .is_some_and(|pool| pool.learns_costs() && (used.trusted || pool.trust_usage))
            {
                self.costs.note(workload, &spent.pool, spent.used);
            }
        }
    }

    fn spend(&mut self, hold: Option<&OpenHold>, spent: &Spent) {
        let now = self.now;
        let part = hold.and_then(|hold| {
            let drawn = hold.pools.iter().find(|d| d.pool == spent.pool && d.key == spent.key)?;
            Some((hold.part(drawn), hold.is_over))
        });
        #[cfg(feature = "mutants")]
        let spent = match self.is_mutant(crate::Mutant::ForgetsUsage) {
            true => &Spent { used: 0, ..spent.clone() },
            false => spent,
        };
        let Some((_, meter)) = self.meter(&spent.pool, &spent.key, Hint::default()) else { return };
        match part {
            Some((part, false)) => meter.settle(part, spent.used, spent.to, now),
            Some((part, true)) => meter.correct(part, spent.used, spent.to, now),
            None => meter.charge(spent.used, spent.to, now),
        }
    }

    fn expired(&mut self, expired: &Expired) {
        let now = self.now;
        for ended in &expired.holds {
            let intent = ended.intent_id;
            let Some(kept) = self.holds.get_mut(&intent).filter(|hold| !hold.is_over) else {
                continue;
            };
            // What is left of it is a memory, where it was. Only what was charged can be corrected later.
            let hold = Arc::make_mut(kept);
            hold.is_over = true;
            let (from, until, who) = (hold.from, hold.until, hold.who);
            let mut pools = std::mem::take(&mut hold.pools);
            self.due.remove(&(until, intent));
            pools.retain(|drawn| {
                let same = |end: &&Ended| end.pool == drawn.pool && end.key == drawn.key;
                let Some(end) = ended.pools.iter().find(same) else { return false };
                let part = Hold {
                    from,
                    to: drawn.to.unwrap_or(until),
                    amount: drawn.amount,
                    principal: who,
                };
                if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                    if end.released {
                        meter.settle(part, 0, now, now);
                    } else {
                        meter.expire(part, now);
                    }
                }
                drawn.amount > 0 && !end.released
            });
            if pools.is_empty() {
                self.holds.remove(&intent);
            } else if let Some(hold) = self.holds.get_mut(&intent).map(Arc::make_mut) {
                hold.pools = pools;
                self.memories.insert((until.saturating_add(REMEMBERED), intent));
            }
        }
    }

    /// Forgets expired holds whose time has come, and the oldest where there are too many.
    fn forget(&mut self) {
        while let Some((at, intent)) = self.memories.first().copied()
            && (at <= self.now || self.memories.len() > MOST_REMEMBERED)
        {
            self.memories.pop_first();
            self.holds.remove(&intent);
        }
    }

    fn heard(&mut self, heard: &Heard) {
        let now = self.now;
        if let Some((_, meter)) = self.meter(&heard.pool, &heard.key, Hint::default()) {
            meter.learn(heard, now);
        }
    }

    /// What runs out by `now`: at most `most` holds that expire. What is only remembered is forgotten.
    pub(crate) fn runs_out(&mut self, now: i64, most: usize) -> Vec<IntentId> {
        let now = self.advance(now);
        self.forget();
        let over: Vec<IntentId> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(most)
            .map(|(_, id)| *id)
            .collect();
        self.forget_requests(now);
        over
    }

    /// When something runs out next, or is looked through for what is over.
    pub fn next_due(&self) -> i64 {
        let hold = self.due.first().map(|(at, _)| *at);
        let request = self.requests_due.first().map(|(at, _)| *at);
        let sweep = self.swept.saturating_add(SWEEP);
        [hold, request].into_iter().flatten().fold(sweep, i64::min)
    }

    /// Forgets answers whose time is over.
    fn forget_requests(&mut self, now: i64) {
        while let Some((at, _)) = self.requests_due.first().filter(|(at, _)| *at <= now).cloned()
            && let Some((_, request)) = self.requests_due.pop_first()
        {
            if self.requests.get(&request).is_some_and(|known| known.expires <= at) {
                self.requests.remove(&request);
            }
        }
    }

    /// Forgets what is over: meters that are as if never used, agents that were not heard of.
    fn sweep(&mut self, now: i64) {
        let idle = |meters: &mut Meters| {
            meters.retain(|_, meter| {
                meter.advance(now);
                !meter.is_idle(now)
            });
        };
        self.meters.iter_mut().for_each(idle);
        self.retired.values_mut().for_each(|retired| idle(&mut retired.meters));
        self.retired.retain(|_, retired| !retired.meters.is_empty());
        let watched = i64::from(self.setup.settings().sin_bin.minutes) * 60_000;
        self.conduct.retain(|_, conduct| !conduct.is_over(now, watched));
    }

    /// Takes another configuration. What was spent and what is held counts on.
    fn reconfigure(&mut self, config: GovernorConfig, setup: Setup) {
        let now = self.now;
        if config == self.config {
            return;
        }
        let old = std::mem::replace(&mut self.setup, Arc::new(setup));
        let old_config = std::mem::replace(&mut self.config, config);
        let mut known = std::mem::take(&mut self.retired);
        let before = old_config.pools.into_iter().zip(old.pools());
        for ((config, pool), meters) in before.zip(std::mem::take(&mut self.meters)) {
            let id = Arc::clone(&pool.id);
            known.insert(id, Retired { config, pool: Arc::clone(pool), meters });
        }
        let mut anew: HashSet<(Arc<str>, Arc<str>)> = HashSet::new();
        for pool in self.setup.pools() {
            let mut meters = Meters::new();
            // Keys of another kind mean somebody else; what was counted for them does not carry over.
            if let Some(before) = known.remove(&pool.id)
                && before.pool.per == pool.per
            {
                for (key, meter) in before.meters {
                    let (meter, holds) = meter.reconfigured(&before.pool, pool, now);
                    if !holds {
                        anew.insert((Arc::clone(&pool.id), Arc::clone(&key)));
                    }
                    meters.insert(key, meter);
                }
            }
            self.meters.push(meters);
        }
        self.retired = known;
        self.retired.retain(|_, retired| !retired.meters.is_empty());
        self.hold_anew(&anew);
    }

    /// Holds again what was held in meters that count in another way now.
    fn hold_anew(&mut self, anew: &HashSet<(Arc<str>, Arc<str>)>) {
        if anew.is_empty() {
            return;
        }
        let now = self.now;
        let ids: Vec<IntentId> = self.holds.keys().copied().collect();
        for intent in ids {
            let Some(hold) = self.holds.remove(&intent) else { continue };
            let mut hold = OpenHold::clone(&hold);
            let (until, is_over) = (hold.until, hold.is_over);
            let mut again = Vec::new();
            let counts_anew = |d: &Drawn| anew.contains(&(Arc::clone(&d.pool), Arc::clone(&d.key)));
            if is_over {
                // What was spent was charged in one sum, and cannot be told apart any more.
                hold.pools.retain(|drawn| !counts_anew(drawn));
            }
            for drawn in &mut hold.pools {
                if counts_anew(drawn)
                    && let Some((pool, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint)
                {
                    drawn.to = Some(meter.counts_until(pool, until));
                    again.push(drawn.clone());
                }
            }
            for drawn in again.iter().filter(|_| !is_over) {
                let part = hold.part(drawn);
                if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                    meter.hold(part, now);
                }
            }
            self.holds.insert(intent, Arc::new(hold));
        }
    }

    /// Every meter as it is at `now`, in the order of the configuration and of the keys. A pool that nobody
    /// has used yet is shown once.
    pub fn readings(&mut self, now: i64) -> Vec<(Arc<Pool>, Option<Arc<str>>, Reading)> {
        let now = self.advance(now);
        let mut all = Vec::new();
        for (pool, meters) in self.setup.pools().iter().zip(&mut self.meters) {
            let mut keys: Vec<Arc<str>> = meters.keys().cloned().collect();
            keys.sort();
            if keys.is_empty() {
                all.push((Arc::clone(pool), None, Meter::new(pool, now).read(pool, now)));
            }
            for key in keys {
                if let Some(meter) = meters.get_mut(&key) {
                    meter.advance(now);
                    let shown = Some(Arc::clone(&key)).filter(|key| !key.is_empty());
                    all.push((Arc::clone(pool), shown, meter.read(pool, now)));
                }
            }
        }
        all
    }

    /// What is to be expected of meters, pool by pool, of so many at most. `wanted` says which pools.
    pub fn forecasts(
        &mut self,
        now: i64,
        wanted: impl Fn(&str) -> bool,
        most: usize,
    ) -> Vec<Forecasted> {
        let now = self.advance(now);
        let mut all = Vec::new();
        for (pool, meters) in self.setup.pools().iter().zip(&mut self.meters) {
            let left = most.saturating_sub(all.len());
            if !wanted(&pool.id) || left == 0 {
                continue;
            }
            let mut keys: Vec<Arc<str>> = meters.keys().take(left).cloned().collect();
            keys.sort();
            for key in keys {
                let Some(meter) = meters.get_mut(&key) else { continue };
                meter.advance(now);
                all.push(Forecasted {
                    pool: Arc::clone(pool),
                    key: Some(key).filter(|key| !key.is_empty()),
                    reading: meter.read(pool, now),
                    forecast: meter.forecast(pool, now, 0),
                    cone: meter.cone(pool, now, CONE_STEPS),
                });
            }
        }
        all
    }

    /// Everything that is known.
    pub fn snapshot(&self) -> Snapshot {
        let live = self.setup.pools().iter().map(|pool| Arc::clone(&pool.id));
        Snapshot {
            config: self.config.clone(),
            now: self.now,
            meters: live.zip(self.meters.iter().cloned()).collect(),
            retired: self
                .retired
                .values()
                .map(|retired| (retired.config.clone(), retired.meters.clone()))
                .collect(),
            holds: self.holds.iter().map(|(id, hold)| (*id, Arc::clone(hold))).collect(),
            requests: self
                .requests
                .iter()
                .map(|(id, known)| (Arc::clone(id), known.clone()))
                .collect(),
            identities: self.identities.registered(),
            conduct: self.conduct.iter().map(|(who, conduct)| (*who, conduct.clone())).collect(),
            halts: self.halts.clone(),
            costs: self.costs.clone(),
            probe: principal(PROBE, PROBE),
        }
    }

    /// Becomes what a snapshot says. Names of credentials stay.
    pub fn restore(&mut self, snapshot: Snapshot) {
        if let Ok(setup) = snapshot.config.build(snapshot.now) {
            self.setup = Arc::new(setup);
            self.config = snapshot.config;
        }
        self.now = self.now.max(snapshot.now);
        let mut meters: HashMap<Arc<str>, Meters> = snapshot.meters.into_iter().collect();
        let known = self.setup.pools().iter();
        self.meters = known.map(|pool| meters.remove(&pool.id).unwrap_or_default()).collect();
        self.retired = snapshot.retired.into_iter().filter_map(Retired::read).collect();
        self.due = snapshot
            .holds
            .iter()
            .filter(|(_, hold)| !hold.is_over)
            .map(|(id, hold)| (hold.until, *id))
            .collect();
        self.memories = snapshot
            .holds
            .iter()
            .filter(|(_, hold)| hold.is_over)
            .map(|(id, hold)| (hold.until.saturating_add(REMEMBERED), *id))
            .collect();
        let named = |(id, hold): (IntentId, Arc<OpenHold>)| {
            let who = principal(&hold.account, &hold.agent);
            (id, Arc::new(OpenHold { who, ..OpenHold::clone(&hold) }))
        };
        self.holds = snapshot.holds.into_iter().map(named).collect();
        self.requests_due =
            snapshot.requests.iter().map(|(id, known)| (known.expires, Arc::clone(id))).collect();
        self.requests = snapshot.requests.into_iter().collect();
        for registered in &snapshot.identities {
            self.identities.register(registered);
        }
        self.conduct = snapshot.conduct.into_iter().collect();
        self.halts = snapshot.halts;
        self.costs = snapshot.costs;
        self.watched = Watched::default();
        for (pool, meters) in self.setup.pools().iter().zip(&self.meters) {
            for (key, _) in meters.iter().filter(|(_, meter)| meter.is_alerted) {
                self.watched.alert(&pool.id, key, true);
            }
        }
        // A snapshot of another build may name principals otherwise.
        if snapshot.probe != principal(PROBE, PROBE) {
            self.share_anew();
        }
        #[cfg(feature = "mutants")]
        if self.is_mutant(crate::Mutant::ForgetsAtRestart) {
            self.meters.iter_mut().for_each(HashMap::clear);
        }
    }

    /// Works out anew who holds how much. A snapshot of another build may name principals otherwise.
    fn share_anew(&mut self) {
        self.meters.iter_mut().flat_map(HashMap::values_mut).for_each(Meter::forget_shares);
        let open = self.holds.values().filter(|hold| !hold.is_over);
        let holds: Vec<Arc<OpenHold>> = open.cloned().collect();
        for hold in holds {
            for drawn in &hold.pools {
                let part = hold.part(drawn);
                if let Some((_, meter)) = self.meter(&drawn.pool, &drawn.key, drawn.hint) {
                    meter.share(part);
                }
            }
        }
    }
}
