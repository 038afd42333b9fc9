//! The governor as the world meets it: asked, told, killed and made again, by its own clock.

use std::sync::Arc;

use tollgate_contract::id::IntentId;
use tollgate_governor::{
    About, Ask, Configured, Decision, Effect, Event, Expected, Governor, GovernorConfig, Halt,
    Observation, Report, Snapshot, Target,
};

use crate::{agent::Agent, clock::Clock, file_world::Source};

/// How often a snapshot is written, where a crash needs one.
const SNAPSHOT_EVERY: i64 = 30_000;

/// The governor, its clock, and what it has written down.
pub(crate) struct Governed<'a> {
    governor: Governor,
    clock: Clock,
    /// What is done to every governor before it is used.
    prepare: &'a dyn Fn(&mut Governor),
    /// The configuration that it starts with.
    config: GovernorConfig,
    starts_at: i64,
    /// Does anything crash, so that events must be kept?
    keeps: bool,
    events: Vec<Event>,
    snapshot: Option<(Snapshot, usize)>,
    /// Nobody answers.
    pub(crate) is_away: bool,
    asked: u64,
}

impl<'a> Governed<'a> {
    pub(crate) fn new(
        config: &GovernorConfig,
        starts_at: i64,
        keeps: bool,
        prepare: &'a dyn Fn(&mut Governor),
    ) -> Option<Self> {
        let setup = config.build(starts_at).ok()?;
        let mut governor = Governor::new(config.clone(), setup, starts_at);
        prepare(&mut governor);
        Some(Self {
            governor,
            clock: Clock::new(starts_at),
            prepare,
            config: config.clone(),
            starts_at,
            keeps,
            events: Vec::new(),
            snapshot: None,
            is_away: false,
            asked: 0,
        })
    }

    /// How many decisions were made.
    pub(crate) fn decisions(&self) -> u64 {
        self.asked
    }

    fn keep(&mut self, events: impl IntoIterator<Item = Event>) {
        if self.keeps {
            self.events.extend(events);
        }
    }

    /// An agent asks. Gives nothing while nobody answers. The second is what the governor takes for now.
    pub(crate) fn ask(&mut self, agent: &Agent, now: i64) -> Option<(Decision, i64)> {
        if self.is_away {
            return None;
        }
        let at = self.clock.read(now);
        self.asked += 1;
        let mut random = [0; 10];
        if let Some(last) = random.last_chunk_mut() {
            *last = self.asked.to_be_bytes();
        }
        let ask = Ask {
            asker: &agent.asker,
            intent: &agent.intent,
            id: IntentId::from_parts(u64::try_from(at).unwrap_or(0), random),
            fresh: &agent.fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let outcome = self.governor.decide(&ask, at).ok()?;
        self.keep(outcome.events);
        Some((outcome.decision, at))
    }

    /// An agent says what it took.
    pub(crate) fn report(
        &mut self,
        agent: &Agent,
        intent: IntentId,
        used: Option<Vec<(String, u64)>>,
        now: i64,
    ) {
        if self.is_away {
            return;
        }
        let report = Report {
            asker: &agent.asker,
            is_trusted: false,
            intent: Some(intent),
            work: None,
            nothing: used.is_none(),
            by_pool: used.unwrap_or_default(),
            actual: Expected::UNKNOWN,
        };
        let at = self.clock.read(now);
        // Whoever reports what is not known any more changes nothing, and is not told apart here.
        if let Ok(event) = self.governor.report(&report, at) {
            self.keep([event]);
        }
    }

    /// A provider says what is left.
    pub(crate) fn observe(
        &mut self,
        (pool, key, own): (&Arc<str>, &Arc<str>, u64),
        said: Observation,
        began_at: i64,
        now: i64,
    ) {
        if self.is_away {
            return;
        }
        let at = self.clock.read(now);
        let pools = [(Arc::clone(pool), Arc::clone(key), own)];
        let events = self.governor.observe(&pools, &[said], began_at, true, at);
        self.keep(events);
    }

    /// What the governor takes for the time.
    pub(crate) fn time(&mut self, now: i64) -> i64 {
        self.clock.read(now)
    }

    /// The wall clock jumps.
    pub(crate) fn jump(&mut self, by: i64) {
        self.clock.jump(by);
    }

    /// Ends what has run out, and says when something runs out next.
    pub(crate) fn expire(&mut self, now: i64) -> i64 {
        let at = self.clock.read(now);
        if !self.is_away {
            while let Some(event) = self.governor.expire(at) {
                self.keep([event]);
            }
        }
        self.due(now)
    }

    /// When something runs out next, in the time that really passes.
    pub(crate) fn due(&mut self, now: i64) -> i64 {
        let at = self.clock.read(now);
        now.saturating_add(self.governor.next_due().saturating_sub(at).max(1))
    }

    /// A person stops something, or lets it go on.
    pub(crate) fn halt(&mut self, targets: &[Target], resumes: bool, now: i64) {
        let at = self.clock.read(now);
        for target in targets {
            let halt = Halt { target: target.clone(), by: "operator".into(), why: None };
            let event = self.governor.halt(halt, resumes, at);
            self.keep(event);
        }
    }

    /// The configuration is read again, with another limit for a pool.
    pub(crate) fn reload(&mut self, pool: usize, limit: u64, now: i64) {
        let mut config = self.governor.config().clone();
        if let Some(pool) = config.pools.get_mut(pool) {
            pool.limit = Some(limit);
        }
        let configured = Configured { governor: Some(config), about: serde_json::Map::new() };
        let ts = self.clock.read(now);
        let effect = Effect::Configured(Box::new(configured));
        let event = Event { ts, about: About::default(), effect };
        self.governor.apply(&event);
        self.keep([event]);
    }

    /// Writes a snapshot, and says when the next is due; `None` where nobody needs one.
    pub(crate) fn save(&mut self, now: i64) -> Option<i64> {
        if !self.keeps {
            return None;
        }
        if !self.is_away {
            self.snapshot = Some((self.governor.snapshot(), self.events.len()));
        }
        Some(now.saturating_add(SNAPSHOT_EVERY))
    }

    /// The process is gone, and its state is made again from what was written: through text, as on a disk.
    pub(crate) fn restart(&mut self, from: Source, now: i64) {
        let Ok(setup) = self.config.build(self.starts_at) else { return };
        let mut fresh = Governor::new(self.config.clone(), setup, self.starts_at);
        (self.prepare)(&mut fresh);
        for named in self.governor.identities().named() {
            fresh.identities_mut().put((**named).clone());
        }
        let snapshot = self.snapshot.as_ref().filter(|_| from == Source::Snapshot);
        let mut after = 0;
        if let Some((snapshot, length)) = snapshot
            && let Some(read) = reread(snapshot)
        {
            fresh.restore(read);
            after = *length;
        }
        for event in self.events.iter().skip(after) {
            if let Some(read) = reread_event(event) {
                fresh.apply(&read);
            }
        }
        self.clock.restart(now, fresh.now());
        self.governor = fresh;
    }
}

fn reread(snapshot: &Snapshot) -> Option<Snapshot> {
    serde_json::from_str(&serde_json::to_string(snapshot).ok()?).ok()
}

fn reread_event(event: &Event) -> Option<Event> {
    let kind = event.effect.kind().ledger_kind()?;
    let effect = Effect::read(kind, &event.effect.payload().ok()?)?.ok()?;
    Some(Event { ts: event.ts, about: event.about.clone(), effect })
}
