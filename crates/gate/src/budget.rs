//! The gate's budget step: a tool call is an intent like any other. It is asked for, waited for inside its
//! caller's patience, and settled with what it really used.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use tollgate_contract::{
    CostEffect, Error, Facts, Layer, Reason, ToolName,
    error::{BudgetDenied, Halted, PermissionDenied},
    id::IntentId,
    text::Clean,
};
use tollgate_governor::{Asker, Decision, Expected, Intent, Learned, Observation, from_headers};

use crate::{
    admit::Arrived,
    allowance::{Allowance, NotAllowed, Taken},
    approval::Given,
    governing::{Asked, UsageReport},
    keys::Principal,
    registry::Tool,
};

/// Where a call happens that does not say where.
pub(crate) const SOMEWHERE: &str = "gate";

/// What is held for a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    /// The intent that was approved, where a pool applies.
    pub(crate) intent: Option<IntentId>,
    asker: Option<Arc<Asker>>,
    /// What the executor says it used.
    pub(crate) usage: Arc<Usage>,
}

/// What an executor says of what it used, and what the provider said along with it.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    amounts: Vec<(String, u64)>,
    seen: Vec<Observation>,
}

impl Usage {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much was used, in this unit.
    pub(crate) fn used(&self, unit: &str, amount: u64) {
        let mut told = self.told();
        match told.amounts.iter_mut().find(|(known, _)| known == unit) {
            Some((_, sum)) => *sum = sum.saturating_add(amount),
            None => told.amounts.push((unit.to_owned(), amount)),
        }
    }

    /// What was used, so far as it was said.
    pub(crate) fn amounts(&self) -> Vec<(String, u64)> {
        self.told().amounts.clone()
    }

    /// A provider answered with these headers.
    pub(crate) fn heard<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        now: i64,
    ) {
        self.told().seen.extend(observations(&from_headers(headers, now)));
    }
}

/// What headers say, as the governor takes it.
pub fn observations(learned: &Learned) -> Vec<Observation> {
    let mut seen: Vec<Observation> = learned
        .reports
        .iter()
        .map(|report| Observation {
            name: report.name.clone(),
            limit: report.limit,
            remaining: report
                .remaining
                .or_else(|| Some(report.limit?.saturating_sub(report.used?))),
            reset_at: report.reset_at_ms,
            closed_until: None,
        })
        .collect();
    if let Some(until) = learned.retry_at_ms {
        seen.push(Observation { closed_until: Some(until), ..Observation::default() });
    }
    seen
}

/// A no, as whoever called a tool is told it.
fn denied(tool: &ToolName, decision: &Decision, now: i64) -> Error {
    let reason = decision.reason.unwrap_or(Reason::PolicyViolation);
    if reason == Reason::Halted {
        let what = decision.why.split(" is halted").next().unwrap_or_default();
        let what =
            decision.pool.as_ref().map_or(what.to_owned(), |pool| format!("the pool {pool}"));
        return Halted::new(what, false, Clean::new(&decision.why)).into();
    }
    let seconds = |at: i64| u64::try_from(at - now).unwrap_or(0).div_ceil(1000).max(1);
    let retry = decision.retry_at.map(seconds);
    let pool = decision.pool.as_deref().map(str::to_owned);
    let why = (!decision.why.is_empty()).then(|| Clean::new(&decision.why));
    BudgetDenied::new(tool.clone(), reason, pool, retry, why).into()
}

impl Arrived {
    /// The most that the call can use up, where its tool knows.
    fn costs(&self, tool: &Tool) -> Vec<(String, u64)> {
        let costs = tool.costs.as_ref();
        costs.map(|costs| costs(&self.call.input, self.call.session.as_deref())).unwrap_or_default()
    }

    /// Sets aside what the call can use up of its run's allowance.
    pub(crate) fn allowed(&mut self, tool: &Tool) -> Result<Option<Taken>, Error> {
        let Some(allowance) = &self.options.allowance else { return Ok(None) };
        let must_say = tool.contract.cost_effect == CostEffect::LlmCost;
        match Allowance::take(allowance, &self.costs(tool), must_say) {
            Ok(taken) => Ok(Some(taken)),
            Err(NotAllowed { unit, why }) => {
                let pool = format!("run:{unit}");
                let facts =
                    Facts::BudgetHold { pools: vec![pool.clone()], hold: None, wait_ms: None };
                self.explain.refuse(None, facts);
                let name = tool.contract.name.clone();
                let why = Some(Clean::already(why));
                Err(BudgetDenied::new(name, Reason::HardLimitReached, Some(pool), None, why).into())
            }
        }
    }

    fn intent(&self, tool: &Tool, patience: Duration) -> Intent {
        let name = self.about.agent.clone().unwrap_or_else(|| tollgate_governor::LOCAL.to_owned());
        Intent {
            identity_id: format!("key:{name}"),
            agent_id: name,
            workload_id: tool.contract.name.to_string(),
            scope_id: self.call.scope.clone().unwrap_or_else(|| SOMEWHERE.to_owned()),
            urgency: self.call.urgency,
            expected: Expected::amounts(&self.costs(tool)),
            duration_ms: i64::try_from(self.timeout(tool).as_millis()).ok(),
            can_switch: false,
            renew: None,
            patience_ms: i64::try_from(patience.as_millis()).ok(),
            named_only: tool.contract.cost_effect == CostEffect::None,
        }
    }

    /// Could there be room, and may the caller claim this urgency? Says whether it draws on any pool.
    pub(crate) fn feasible(&mut self, principal: &Principal, tool: &Tool) -> Result<bool, Error> {
        let urgency = self.call.urgency;
        let max_urgency = principal.claims().map(|claims| claims.max_urgency);
        if max_urgency.is_some_and(|max| urgency > max) {
            let facts = Facts::BudgetFeasible { urgency, max_urgency, pools: Vec::new() };
            self.explain.refuse(Some(Layer::Key), facts);
            let entry = format!("urgency:{urgency}");
            let name = tool.contract.name.clone();
            return Err(PermissionDenied::new(name, Layer::Key, entry).into());
        }
        let intent = self.intent(tool, self.options.wait);
        match self.gate.governing.could(&principal.gate_asker(), &intent) {
            Ok(pools) => {
                let draws = !pools.is_empty();
                let pools = pools.iter().map(ToString::to_string).collect();
                self.explain.pass(Facts::BudgetFeasible { urgency, max_urgency, pools });
                Ok(draws)
            }
            Err(no) => {
                let pools = no.pool.iter().map(ToString::to_string).collect();
                let facts = Facts::BudgetFeasible { urgency, max_urgency: None, pools };
                self.explain.refuse(None, facts);
                Err(denied(&tool.contract.name, &no, no.as_of))
            }
        }
    }

    /// Holds room in every pool that the call draws on, and waits until it may act.
    pub(crate) async fn hold(
        &mut self,
        principal: &Principal,
        tool: &Tool,
        approval: Option<&Given>,
    ) -> Result<Held, Error> {
        let asker = principal.gate_asker();
        let asked = Asked {
            asker: Arc::clone(&asker),
            intent: self.intent(tool, self.options.wait),
            request_id: None,
            context: None,
            wants_trace: false,
        };
        let decision = self.gate.governing.ask(asked).await?;
        if !decision.answer.is_approval() {
            let pools = decision.pool.iter().map(ToString::to_string).collect();
            self.explain.refuse(None, Facts::BudgetHold { pools, hold: None, wait_ms: None });
            return Err(denied(&tool.contract.name, &decision, decision.as_of));
        }
        let held = Held { intent: Some(decision.intent), asker: Some(asker), ..Held::default() };
        let wait = u64::try_from(decision.wait_ms).unwrap_or_default();
        if wait > 0 {
            self.tell_waiting(|| json!({"waitsForRoom": {"ms": wait}}));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                () = self.cancelled.cancelled() => {
                    self.give_back(&held).await;
                    return Err(self.stopped(tool.contract.name.clone()));
                }
            }
            if let Err(error) = self.still_may(approval) {
                self.give_back(&held).await;
                return Err(error);
            }
        }
        let pools = decision.pools.iter().map(|pool| pool.id.to_string()).collect();
        let wait_ms = Some(wait).filter(|wait| *wait > 0);
        let hold = Some(decision.intent.into());
        self.explain.pass(Facts::BudgetHold { pools, hold, wait_ms });
        Ok(held)
    }

    /// Nothing was done.
    pub(crate) async fn give_back(&self, held: &Held) {
        self.report(held, true).await;
    }

    /// The call has ended, with what its executor says it used, or else with what was held.
    pub(crate) async fn spent(&self, held: &Held) {
        self.report(held, false).await;
    }

    async fn report(&self, held: &Held, nothing: bool) {
        let (Some(intent), Some(asker)) = (held.intent, &held.asker) else { return };
        let (actual, seen) = {
            let mut told = held.usage.told();
            (Expected::amounts(&told.amounts), std::mem::take(&mut told.seen))
        };
        let report = UsageReport {
            asker: Arc::clone(asker),
            is_trusted: true,
            intent: Some(intent),
            work: None,
            by_pool: Vec::new(),
            actual,
            nothing,
            seen,
            began_at: None,
        };
        // What cannot be settled now counts as spent when its time is over.
        if let Err(error) = self.gate.governing.report(report).await {
            tracing::warn!(%intent, problem = %error.operator(), "a hold could not be settled");
        }
    }
}
