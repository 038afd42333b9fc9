//! What doors hand to the governor: asks, and reports of usage.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{Error, id::IntentId, redact::redacted, text::hex};
use tollgate_governor::{
    Ask, Asker, Decision, Effect, Event, Expected, Fresh, GhostWork, Intent, Observation, Report,
    Work,
};
use tollgate_ledger::Beside;

use super::{
    CONTEXT_KEPT_MS, CONTEXTS, Made, another_request,
    live::{self, Live},
    report_refused,
};

/// An ask, as a door understood it.
#[derive(Debug)]
pub struct Asked {
    /// Who asks.
    pub asker: Arc<Asker>,
    /// For what.
    pub intent: Intent,
    /// The caller's own name for this ask.
    pub request_id: Option<String>,
    /// Free text that came along.
    pub context: Option<Value>,
    /// Every step is wanted.
    pub wants_trace: bool,
}

impl Asked {
    pub(super) fn decide(self, live: &mut Live, now: i64) -> Result<Made<Decision>, Error> {
        let id = live.intent_id(now)?;
        let is_known = live.governor.identities().by_name(&self.intent.identity_id).is_some();
        let fresh = if is_known {
            Fresh {
                pseudonym: Arc::clone(&self.asker.key),
                salt: String::new(),
                name_hash: "".into(),
            }
        } else {
            live.fresh(&self.intent.identity_id)?
        };
        let request =
            self.request_id.as_ref().map(|request| self.request(request, live.hash_key()));
        let context = match self.context.as_ref() {
            Some(context) => {
                let salt: [u8; 16] = live.random()?;
                let salt = hex(&salt).to_string();
                let text = redacted(context).to_string();
                Some((live::salted(&salt, &text), salt, text))
            }
            None => None,
        };
        let ask = Ask {
            asker: &self.asker,
            intent: &self.intent,
            id,
            fresh: &fresh,
            request: request.as_ref().map(|(name, content)| (name.as_str(), content.as_str())),
            context_hash: context.as_ref().map(|(hash, _, _)| &**hash),
            wants_trace: self.wants_trace,
        };
        let outcome = live.governor.decide(&ask, now).map_err(|_| another_request())?;
        let mut beside = Vec::new();
        if let Some(named) = &outcome.named {
            beside.push(live::keep_name(named)?);
        }
        if let (Some((_, salt, text)), Some(event)) = (context, outcome.events.last()) {
            let identity = event.about.identity.as_deref().unwrap_or_default();
            let value = json!({"salt": salt, "context": text}).to_string().into_bytes();
            beside.push(Beside::Put {
                space: CONTEXTS,
                key: format!("{identity}/{}", outcome.decision.intent).into_bytes(),
                value,
                expires_ms: Some(now.saturating_add(CONTEXT_KEPT_MS)),
            });
        }
        Ok(Made { events: outcome.events, beside, gives: outcome.decision })
    }

    /// The name of the ask among all callers, and a hash of what is asked.
    fn request(&self, request: &str, key: &[u8; 32]) -> (String, String) {
        // With the gate's own secret: nobody else can find a name by trying.
        let hash = |parts: &[&str]| {
            let mut hasher = Sha256::new_with_prefix(key);
            for part in parts {
                hasher.update(part.len().to_le_bytes());
                hasher.update(part);
            }
            let digest: [u8; 32] = hasher.finalize().into();
            hex(&digest).to_string()
        };
        let intent = &self.intent;
        let rest = format!(
            "{:?} {:?} {:?} {:?}",
            intent.urgency, intent.expected, intent.duration_ms, intent.renew
        );
        let content = hash(&[
            &intent.agent_id,
            &intent.identity_id,
            &intent.workload_id,
            &intent.scope_id,
            &rest,
        ]);
        (hash(&[&self.asker.account, request]), content)
    }
}

/// A report of usage, as a door understood it.
#[derive(Debug)]
pub struct UsageReport {
    /// Who reports.
    pub asker: Arc<Asker>,
    /// Is it the gate itself, about a call of its own?
    pub is_trusted: bool,
    /// The intent that was acted on.
    pub intent: Option<IntentId>,
    /// Whose work it was, where nobody had asked: agent, identity, workload, scope.
    pub work: Option<[String; 4]>,
    /// What was used, by pool.
    pub by_pool: Vec<(String, u64)>,
    /// What was used, by unit.
    pub actual: Expected,
    /// Nothing was done.
    pub nothing: bool,
    /// What the provider said along with it.
    pub seen: Vec<Observation>,
    /// When the request began, if that is known.
    pub began_at: Option<i64>,
}

impl UsageReport {
    /// Settles, or says why not. A credential that was named on the way stays named.
    pub(super) fn settle(
        self,
        live: &mut Live,
        now: i64,
    ) -> Result<Made<Result<Event, Error>>, Error> {
        let mut events = Vec::new();
        let mut beside = Vec::new();
        let mut identity: Arc<str> = "".into();
        if let Some([_, name, ..]) = &self.work {
            let (pseudonym, put, event) = live.known_or_named(name, self.asker.is_keyless, now)?;
            identity = pseudonym;
            beside.extend(put);
            events.extend(event);
        }
        let work = self.work.as_ref().map(|[agent, identity, workload, scope]| Work {
            agent,
            identity,
            workload,
            scope,
        });
        let report = Report {
            asker: &self.asker,
            is_trusted: self.is_trusted,
            intent: self.intent,
            work: work.map(|work| GhostWork { work, identity: &identity }),
            by_pool: self.by_pool,
            actual: self.actual,
            nothing: self.nothing,
        };
        let began_at = self
            .began_at
            .or_else(|| {
                let (_, from) = live.governor.drawn_by(self.intent?)?;
                Some(from)
            })
            .unwrap_or(now)
            .min(now);
        let event = match live.governor.report(&report, now) {
            Ok(event) => event,
            Err(refused) => {
                let gives = Err(report_refused(refused, self.intent));
                return Ok(Made { events, beside, gives });
            }
        };
        if let Effect::Used(used) = &event.effect {
            let pools: Vec<_> = used
                .pools
                .iter()
                .map(|spent| (Arc::clone(&spent.pool), Arc::clone(&spent.key), spent.used))
                .collect();
            events.push(event.clone());
            events.extend(live.governor.observe(
                &pools,
                &self.seen,
                began_at,
                self.is_trusted,
                now,
            ));
        }
        Ok(Made { events, beside, gives: Ok(event) })
    }
}
