//! The first stage: who calls, what, may it be called, is there room. The order is the contract's, and
//! the first refusal ends it.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Call, Caller, Decision, Error, Explain, Facts, Identity, InputHash, Mode, Outcome, Quoted,
    Retry, Step, Verdict,
    error::{
        ApprovalDenied, Cancelled, Conflict, Internal, InvalidApiKey, InvalidRequest,
        OutcomeUnknown, Timeout, ToolNotCallable, UnknownTool,
    },
    event::Event,
    id::{ApprovalId, CallId, KeyId, RunId},
    text::{Clean, is_plain},
};
use tollgate_policy::{Layers, Request, check_approval, check_input, check_policy, check_trade};

use crate::{
    budget::Held,
    clock::{self, rfc3339},
    event::RunEvent,
    gate::{CallOptions, Inner},
    idempotency::{self, Claim, Ended, Memory, Turn},
    keys::Principal,
    outcome::{CallFailure, ToolCallResult, WrittenVerdict},
    record::About,
    registry::Tool,
    repeat::Repeat,
};

/// A call that has arrived, and what is known of it so far.
pub(crate) struct Arrived {
    pub(crate) gate: Arc<Inner>,
    pub(crate) call: Call,
    pub(crate) options: CallOptions,
    pub(crate) about: About,
    pub(crate) explain: Explain,
    pub(crate) input_hash: Option<InputHash>,
    pub(crate) cancelled: CancellationToken,
}

/// A call that may run.
pub(crate) struct Ready {
    pub(crate) caller: Principal,
    pub(crate) tool: Arc<Tool>,
    pub(crate) input_hash: InputHash,
    pub(crate) verdict: WrittenVerdict,
    pub(crate) held: Held,
    pub(crate) claim: Option<(Claim, Arc<Turn>)>,
}

/// What admission came to, where it did not refuse.
enum Admission {
    Ready(Box<Ready>),
    /// The call has run before.
    Known(Box<Repeat>),
}

impl Arrived {
    pub(crate) fn new(
        gate: Arc<Inner>,
        call: Call,
        options: CallOptions,
        (call_id, run_id): (CallId, RunId),
        cancelled: CancellationToken,
    ) -> Self {
        let about = About {
            call_id,
            run_id,
            tool: None,
            key: None,
            agent: None,
            scope: call.scope.clone(),
            session: call.session.clone(),
            surface: call.caller.surface,
        };
        let explain = Explain::new();
        Self { gate, call, options, about, explain, input_hash: None, cancelled }
    }

    /// The whole path.
    pub(crate) async fn go(mut self) -> Result<ToolCallResult, Box<CallFailure>> {
        let mode = self.call.caller.mode.as_str();
        self.tell(Event::RunStarted, || json!({"mode": mode}));
        match self.admit().await {
            Err(error) => Err(self.refuse(&error).await),
            Ok(Admission::Known(repeat)) => self.repeat(*repeat).await,
            Ok(Admission::Ready(ready)) => match self.start(&ready).await {
                Err(error) => {
                    self.give_back(&ready.held).await;
                    Err(self.refuse(&error).await)
                }
                Ok(()) => {
                    let ran = self.run(*ready).await;
                    self.settle(ran).await
                }
            },
        }
    }

    async fn admit(&mut self) -> Result<Admission, Error> {
        check_call(&self.call)?;
        let principal = self.principal();
        self.about.key = principal.key().cloned();
        if self.about.key.is_none() {
            // What somebody unknown sends is not kept.
            (self.about.scope, self.about.session) = (None, None);
        }
        self.about.agent = principal.record().map(|record| record.name.clone());
        let caller = Caller { identity: principal.identity(), ..self.call.caller.clone() };
        let layers = self.layers(&principal);
        let tool = self.policy(&caller, &layers)?;
        let input_hash = check_input(
            &tool.contract,
            tool.input_schema.as_ref(),
            &self.call.input,
            &mut self.explain,
        )?;
        self.input_hash = Some(input_hash);
        let account = principal.record().map(|record| record.parent.unwrap_or(record.key_id));
        let claim = match self.claim(&tool, account).await? {
            Claimed::Nothing => None,
            Claimed::Turn(claim, turn) => Some((*claim, Arc::new(turn))),
            Claimed::Known(memory, ended) => {
                let tool = tool.contract.name.clone();
                let repeat = Repeat { tool, input_hash, memory, ended: *ended };
                return Ok(Admission::Known(Box::new(repeat)));
            }
        };
        check_trade(&tool.contract, &self.call.input, &layers, &mut self.explain)?;
        let draws = self.feasible(&principal, &tool)?;
        if check_approval(&tool.contract, &self.call.input, &layers, &mut self.explain) {
            return Err(self.no_approver(&tool)?);
        }
        let held = if draws {
            self.hold(&principal, &tool).await?
        } else {
            let pools = Vec::new();
            self.explain.pass(Facts::BudgetHold { pools, hold: None, wait_ms: None });
            Held::default()
        };
        let explain = std::mem::take(&mut self.explain);
        let verdict = Verdict { hold: held.intent.map(Into::into), ..Verdict::approve(explain) };
        let verdict = WrittenVerdict::from(&verdict);
        let ready = Ready { caller: principal.clone(), tool, input_hash, verdict, held, claim };
        Ok(Admission::Ready(Box::new(ready)))
    }

    /// Who calls, looked up again: a key that was withdrawn a moment ago does not count.
    fn principal(&self) -> Principal {
        let keys = self.gate.keys();
        match &self.call.caller.identity {
            Identity::Anonymous => Principal::ANONYMOUS,
            Identity::Invalid(why) => Principal::invalid(*why),
            Identity::Key(facts) => {
                keys.by_id(facts.id, facts.generation, self.gate.clock.now_ms())
            }
        }
    }

    fn layers<'a>(&self, principal: &'a Principal) -> Cow<'a, Layers> {
        let layers = match principal.layers() {
            Some(layers) => Cow::Borrowed(layers),
            None => Cow::Owned(Layers::of_server(self.gate.policies().server.clone())),
        };
        match &self.options.policy {
            Some(policy) => Cow::Owned(layers.into_owned().with_call(policy.clone())),
            None => layers,
        }
    }

    /// The ten steps of the policy, and the two events that tell of them.
    fn policy(&mut self, caller: &Caller, layers: &Layers) -> Result<Arc<Tool>, Error> {
        let gate = Arc::clone(&self.gate);
        let manifest = gate.registry.manifest();
        let request = Request { manifest, tool: &self.call.tool, caller, layers };
        let checked = check_policy(&request, &mut self.explain).map(|tool| tool.name.clone());
        // The registry is made from the manifest: what one does not know, the other does not either.
        let Some(tool) = gate.registry.tool(&self.call.tool) else {
            let unknown = || UnknownTool::new(self.call.tool.as_str(), None).into();
            return Err(checked.err().unwrap_or_else(unknown));
        };
        self.about.tool = Some(Arc::clone(&tool.contract));
        let replayable = tool.contract.replay.replayable;
        self.tell(Event::ToolResolved, || json!({"replayable": replayable}));
        if self.explain.steps().iter().any(|record| record.step() >= Step::ForbiddenRisk) {
            let decision = if checked.is_ok() { Decision::Approve } else { Decision::Deny };
            let code = checked.as_ref().err().map(Error::code);
            self.tell(Event::PolicyChecked, || json!({"decision": decision, "code": code}));
        }
        checked?;
        if caller.mode != Mode::Live || tool.executor.is_none() {
            return Err(ToolNotCallable::new(tool.contract.name.clone()).into());
        }
        Ok(Arc::clone(tool))
    }

    /// Asks everything again that was asked before a wait: a key may have been withdrawn meanwhile, work
    /// halted, a policy changed. A refusal is explained as any other; otherwise the first explanation stands.
    pub(crate) fn still_may(&mut self) -> Result<(), Error> {
        let before = std::mem::take(&mut self.explain);
        let gate = Arc::clone(&self.gate);
        let principal = self.principal();
        let caller = Caller { identity: principal.identity(), ..self.call.caller.clone() };
        let layers = self.layers(&principal);
        let manifest = gate.registry.manifest();
        let request = Request { manifest, tool: &self.call.tool, caller: &caller, layers: &layers };
        check_policy(&request, &mut self.explain)?;
        let unknown = || UnknownTool::new(self.call.tool.as_str(), None);
        let tool = gate.registry.tool(&self.call.tool).ok_or_else(unknown)?;
        let (contract, schema) = (&tool.contract, tool.input_schema.as_ref());
        check_input(contract, schema, &self.call.input, &mut self.explain)?;
        check_trade(contract, &self.call.input, &layers, &mut self.explain)?;
        self.feasible(&principal, tool)?;
        if check_approval(contract, &self.call.input, &layers, &mut self.explain) {
            return Err(self.no_approver(tool)?);
        }
        self.explain = before;
        Ok(())
    }

    /// Makes sure that a call with an Idempotency-Key is the only one of its name.
    async fn claim(&self, tool: &Arc<Tool>, caller: Option<KeyId>) -> Result<Claimed, Error> {
        let Some(text) = &self.call.idempotency_key else { return Ok(Claimed::Nothing) };
        // A token is its key: whoever renews a token and asks again is the same caller.
        let name = &tool.contract.name;
        let claim = Claim::new(&self.gate.seal, caller, name, text, &self.call.input)?;
        let turn = self.turn(tool, claim.name).await?;
        // It may have taken its time, and the key may have been withdrawn.
        if let Identity::Invalid(why) = self.principal().identity() {
            return Err(InvalidApiKey::new(why).into());
        }
        let now = self.gate.clock.now_ms();
        let kept = self
            .gate
            .read(|reader| reader.kept(idempotency::SPACE, claim.name.as_bytes()))?
            .filter(|kept| kept.expires_ms.is_none_or(|end| end > now));
        let Some(kept) = kept else { return Ok(Claimed::Turn(Box::new(claim), turn)) };
        // What cannot be read any more may have happened.
        let memory = Memory::read(&kept.value)
            .ok_or_else(|| Internal::new("what is remembered of an Idempotency-Key is damaged"))?;
        if !claim.is_same_input(&memory) {
            let problem = "the Idempotency-Key was used before with another input; use a new key for a new call";
            return Err(Conflict::new(Clean::already(problem.to_owned())).into());
        }
        match (memory.outcome(&self.gate.seal, claim.name), tool.contract.retry()) {
            (Some(ended), _) => Ok(Claimed::Known(memory, Box::new(ended))),
            (None, Retry::Idempotent | Retry::Keyed) => Ok(Claimed::Turn(Box::new(claim), turn)),
            (None, Retry::Never | Retry::Reconcile) => {
                Err(OutcomeUnknown::new(name.clone(), memory.call).into())
            }
        }
    }

    /// How long the call may take.
    pub(crate) fn timeout(&self) -> Duration {
        let most = self.gate.settings.call_timeout;
        self.options.timeout.unwrap_or(most).min(most)
    }

    /// Waits until no other call of this name runs.
    async fn turn(&self, tool: &Tool, name: idempotency::Name) -> Result<Turn, Error> {
        let patience = self.timeout();
        let end = tokio::time::Instant::now() + patience;
        loop {
            let mut holder: watch::Receiver<()> = match self.gate.same_key.take(name) {
                Ok(turn) => return Ok(turn),
                Err(holder) => holder,
            };
            tokio::select! {
                // The channel closes when the holder is done.
                _ = holder.changed() => {}
                () = self.cancelled.cancelled() => return Err(Cancelled::new(None).into()),
                () = tokio::time::sleep_until(end) => {
                    let after = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
                    return Err(Timeout::new(tool.contract.name.clone(), after).into());
                }
            }
        }
    }

    /// A person would have to answer, and there is no way to ask one here.
    fn no_approver(&self, tool: &Tool) -> Result<Error, Error> {
        let at = u64::try_from(self.gate.clock.now_ms()).unwrap_or_default();
        let id = ApprovalId::from_parts(at, clock::random()?);
        let problem = "a person must answer, and this gate cannot ask one yet".to_owned();
        Ok(ApprovalDenied::new(tool.contract.name.clone(), id, Clean::already(problem)).into())
    }

    /// Records a refusal and answers with it.
    pub(crate) async fn refuse(&mut self, error: &Error) -> Box<CallFailure> {
        let explain = std::mem::take(&mut self.explain);
        // Only what a step decided has a verdict; a request that cannot be read has none.
        let decided = explain.decided_by().is_some_and(|last| last.outcome() != Outcome::Pass);
        let verdict = decided.then(|| WrittenVerdict::from(&Verdict::deny(error, explain)));
        let failure = CallFailure {
            input_hash: self.input_hash,
            verdict,
            ..CallFailure::new(self.about.run_id, self.about.call_id, error)
        };
        let now = self.gate.clock.now_ms();
        // What somebody unknown sends is not kept: anyone could fill the disk with it.
        let input = self.about.key.as_ref().map(|_| &self.call.input);
        let (hash, verdict) = (self.input_hash, failure.verdict.as_ref());
        let event = self.about.refused(now, input, hash, &failure.error, verdict);
        let recorded = match event {
            Ok(event) => self.gate.append(vec![event]).await.is_ok(),
            Err(_) => false,
        };
        if !recorded {
            self.gate.metrics.unrecorded_refusals.inc();
        }
        let tool = self.about.tool.as_ref().map(|tool| tool.name.as_str());
        self.gate.metrics.count(tool, "denied", failure.code().as_str());
        tracing::debug!(call = %self.about.call_id, code = %failure.code(), operator = %failure.operator, "refused");
        self.tell(Event::RunFailed, || json!({"error": failure.error, "verdict": failure.verdict}));
        Box::new(failure)
    }

    /// Tells the observer, if there is one.
    pub(crate) fn tell(&self, event: Event, more: impl FnOnce() -> Value) {
        let Some(observer) = &self.options.observer else { return };
        let tool = self.about.tool.as_ref();
        let more = match more() {
            Value::Object(more) => more.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        };
        observer(RunEvent {
            name: RunEvent::stream_name(event),
            run_id: self.about.run_id,
            call_id: self.about.call_id,
            ts: rfc3339(self.gate.clock.now_ms()),
            tool: tool.map_or_else(|| Quoted::new(&self.call.tool), |tool| (&tool.name).into()),
            side_effect: tool.map(|tool| tool.side_effect),
            cost_effect: tool.map(|tool| tool.cost_effect),
            more,
        });
    }
}

/// Passes if what a caller wrote beside the input can be read: it is short and plain. Doors ask this before
/// they promise anything; the gate asks again.
pub fn check_call(call: &Call) -> Result<(), Error> {
    for (what, text) in [("scope", &call.scope), ("session", &call.session)] {
        let Some(text) = text else { continue };
        let length = text.chars().count();
        if !(1..=LONGEST_LABEL).contains(&length) || !text.chars().all(is_plain) {
            let problem = format!(
                "`{what}` has 1 to {LONGEST_LABEL} characters, none that a terminal would act on"
            );
            return Err(InvalidRequest::new(Clean::already(problem), Vec::new()).into());
        }
    }
    call.idempotency_key.as_deref().map_or(Ok(()), idempotency::check_key)
}

/// The longest scope or session.
const LONGEST_LABEL: usize = 200;

enum Claimed {
    Nothing,
    Turn(Box<Claim>, Turn),
    Known(Memory, Box<Ended>),
}
