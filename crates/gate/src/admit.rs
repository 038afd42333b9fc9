//! The first stage: who calls, what, may it be called, is there room. The order is the contract's, and
//! the first refusal ends it.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate_consent::Item;
use tollgate_contract::{
    Call, Caller, Capability, Decision, Error, Explain, Facts, Identity, InputHash, Mode, Outcome,
    Quoted, Retry, Step, ToolName, Verdict,
    error::{
        ApprovalDenied, Cancelled, CapabilityMissing, Conflict, Internal, InvalidApiKey,
        InvalidInput, InvalidRequest, OutcomeUnknown, Timeout, ToolNotCallable, UnknownTool,
    },
    event::Event,
    id::{CallId, KeyId, RunId},
    text::{Clean, is_plain},
};
use tollgate_policy::{Layers, Request, asks, check_input, check_policy, check_trade};

use crate::{
    allowance::Taken,
    approval::{Approval, Given},
    budget::Held,
    clock::rfc3339,
    consent::account,
    event::RunEvent,
    gate::{CallOptions, Inner},
    idempotency::{self, Claim, Ended, Memory, Turn},
    keys::Principal,
    outcome::{CallFailure, ToolCallResult, Unfinished, Waits, WrittenVerdict},
    record::About,
    registry::Tool,
    repeat::Repeat,
    running::{Place, UnderWay},
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
    /// Has it waited, so that everything must be asked again?
    pub(crate) has_waited: bool,
    /// Its place among the calls under way.
    pub(crate) place: Option<Arc<Place>>,
}

/// A call that may run.
pub(crate) struct Ready {
    pub(crate) caller: Principal,
    pub(crate) tool: Arc<Tool>,
    pub(crate) input_hash: InputHash,
    pub(crate) verdict: WrittenVerdict,
    pub(crate) held: Held,
    /// What is set aside of the run's allowance; it goes back unless the call runs.
    pub(crate) taken: Option<Taken>,
    pub(crate) claim: Option<(Claim, Arc<Turn>)>,
    /// A person's yes, which is used up by the start.
    pub(crate) approval: Option<Given>,
}

/// What admission came to, where it did not refuse.
enum Admission {
    Ready(Box<Ready>),
    /// The call has run before.
    Known(Box<Repeat>),
    /// A person must answer first.
    Waits(Box<Item>),
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
        Self {
            gate,
            call,
            options,
            about,
            explain,
            input_hash: None,
            cancelled,
            has_waited: false,
            place: None,
        }
    }

    /// The whole path.
    pub(crate) async fn go(mut self) -> Result<ToolCallResult, Box<Unfinished>> {
        let mode = self.call.caller.mode.as_str();
        self.tell(Event::RunStarted, || json!({"mode": mode}));
        match self.admit().await {
            Err(error) => Err(self.refuse(&error).await.into()),
            Ok(Admission::Waits(item)) => Err(Box::new(Unfinished::Waits(self.waits(item)))),
            Ok(Admission::Known(repeat)) => self.repeat(*repeat).await.map_err(Into::into),
            Ok(Admission::Ready(ready)) => match self.start(&ready).await {
                Err(error) => {
                    self.give_back(&ready.held).await;
                    Err(self.refuse(&error).await.into())
                }
                Ok(()) => {
                    let ran = self.run(*ready).await;
                    self.settle(ran).await.map_err(Into::into)
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
        let named = account(&principal).ok();
        let scope = self.call.scope.as_deref();
        let place = UnderWay::enter(
            &self.gate,
            self.about.call_id,
            &self.call.tool,
            named,
            scope,
            &self.cancelled,
        );
        self.place = Some(Arc::new(place));
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
        if let Some(session) = self.call.session.as_deref().filter(|_| principal.key().is_some()) {
            self.gate.session(&principal, session).await?;
        }
        let account = principal.account();
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
        self.capabilities(&principal, &tool)?;
        let draws = self.feasible(&principal, &tool)?;
        let asks = asks(&tool.contract, &self.call.input, &layers);
        let approval = match self.approval(&principal, &tool, asks).await? {
            Approval::NotNeeded => None,
            Approval::Given(given) => Some(given),
            Approval::Waits(item) => return Ok(Admission::Waits(item)),
        };
        if self.has_waited {
            self.still_may(approval.as_ref())?;
        }
        let taken = self.allowed(&tool)?;
        let held = if draws {
            self.hold(&principal, &tool, approval.as_ref()).await?
        } else {
            let pools = Vec::new();
            self.explain.pass(Facts::BudgetHold { pools, hold: None, wait_ms: None });
            Held::default()
        };
        let explain = std::mem::take(&mut self.explain);
        let verdict = Verdict { hold: held.intent.map(Into::into), ..Verdict::approve(explain) };
        let verdict = WrittenVerdict::from(&verdict);
        let caller = principal.clone();
        let ready = Ready { caller, tool, input_hash, verdict, held, taken, claim, approval };
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
        let layers = match &self.options.session_policy {
            Some(policy) => Cow::Owned(layers.into_owned().with_session(policy.clone())),
            None => layers,
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
    pub(crate) fn still_may(&mut self, approval: Option<&Given>) -> Result<(), Error> {
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
        self.capabilities(&principal, tool)?;
        self.feasible(&principal, tool)?;
        let asks = asks(contract, &self.call.input, &layers);
        if !asks.is_empty() && !approval.is_some_and(|given| given.suffices(&asks)) {
            let id = match approval {
                Some(given) => given.id,
                None => self.gate.approval_id()?,
            };
            let layer = asks.first().map(|ask| ask.layer);
            self.explain.refuse(layer, Facts::Approval { matched: asks, approval: Some(id) });
            let problem = "what a person must answer has changed while it waited; call again";
            let problem = Clean::already(problem.to_owned());
            return Err(ApprovalDenied::new(contract.name.clone(), id, problem).into());
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
    pub(crate) fn timeout(&self, tool: &Tool) -> Duration {
        let usual = self.gate.settings.call_timeout;
        let longer = tool
            .takes
            .as_ref()
            .and_then(|takes| takes(&self.call.input, self.call.session.as_deref()));
        let most = longer.map_or(usual, |longer| longer.max(usual));
        self.options.timeout.unwrap_or(most).min(most)
    }

    /// Waits until no other call of this name runs.
    async fn turn(&self, tool: &Tool, name: idempotency::Name) -> Result<Turn, Error> {
        let patience = self.timeout(tool);
        let end = tokio::time::Instant::now() + patience;
        loop {
            let mut holder: watch::Receiver<()> = match self.gate.same_key.take(name) {
                Ok(turn) => return Ok(turn),
                Err(holder) => holder,
            };
            tokio::select! {
                // The channel closes when the holder is done.
                _ = holder.changed() => {}
                () = self.cancelled.cancelled() => {
                    return Err(self.stopped(tool.contract.name.clone()));
                }
                () = tokio::time::sleep_until(end) => {
                    let after = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
                    return Err(Timeout::new(tool.contract.name.clone(), after).into());
                }
            }
        }
    }

    /// Are the capabilities granted that the call needs?
    fn capabilities(&mut self, principal: &Principal, tool: &Tool) -> Result<(), Error> {
        let needed = match &tool.needs {
            Some(needs) => needs(&self.call.input).map_err(|problem| {
                Error::from(InvalidInput::new(tool.contract.name.clone(), vec![problem]))
            })?,
            None => Vec::new(),
        };
        if needed.is_empty() {
            self.explain.pass(Facts::Capability { needed, missing: None });
            return Ok(());
        }
        let (key, name) = account(principal)?;
        let session = self.call.session.as_deref();
        let now = self.gate.clock.now_ms();
        let missing = {
            let state = self.gate.consents.state();
            needed.iter().find(|one| !state.allows(one, key, session, now)).cloned()
        };
        let Some(missing) = missing else {
            self.explain.pass(Facts::Capability { needed, missing: None });
            return Ok(());
        };
        let error = missing_capability(&tool.contract.name, &missing, session, &name);
        self.explain.refuse(None, Facts::Capability { needed, missing: Some(missing) });
        Err(error)
    }

    /// Why the call was stopped: its caller gave up, or it was halted.
    pub(crate) fn stopped(&self, tool: ToolName) -> Error {
        match &self.place {
            Some(place) => place.stopped(tool),
            None => Cancelled::new(tool).into(),
        }
    }

    /// Answers that a person must answer first.
    fn waits(&mut self, item: Box<Item>) -> Waits {
        let explain = std::mem::take(&mut self.explain);
        let verdict = WrittenVerdict::from(&Verdict::pending(explain));
        let tool = self.about.tool.as_ref().map(|tool| tool.name.as_str());
        self.gate.metrics.count(tool, "pending", "");
        self.tell(Event::RunFailed, || json!({"verdict": verdict, "approval": told_item(&item)}));
        Waits {
            run_id: self.about.run_id,
            call_id: self.about.call_id,
            input_hash: self.input_hash,
            item,
            verdict,
        }
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

    /// Tells whoever hears the pieces of the answer that the call waits, and for what.
    pub(crate) fn tell_waiting(&self, what: impl FnOnce() -> Value) {
        if let Some(deltas) = &self.options.deltas {
            deltas(what());
        }
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

/// What is told of something that waits to whoever waits for it.
pub(crate) fn told_item(item: &Item) -> Value {
    json!({
        "id": item.asked.id,
        "state": "pending",
        "expiresAt": rfc3339(item.asked.until_ms),
        "approvers": item.asked.approvers,
        "approvals": item.approvals(),
    })
}

/// A capability that is missing, with the words that would give it.
pub(crate) fn missing_capability(
    tool: &ToolName,
    missing: &Capability,
    session: Option<&str>,
    key: &str,
) -> Error {
    let word = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        let shown = text.chars().all(is_plain) && !text.starts_with('-');
        if shown { text.to_owned() } else { "NAME".to_owned() }
    };
    let (to, own) = match session {
        Some(session) => {
            (format!("--session {0}", word(session)), format!(" --session {0}", word(session)))
        }
        None => (format!("--key {}", word(key)), String::new()),
    };
    let grant = Clean::already(format!("tollgate grant {missing} {to} --for 1h"));
    let request = Clean::already(format!("tollgate request {missing}{own}"));
    CapabilityMissing::new(tool.clone(), missing.to_string(), request, grant).into()
}

/// The longest scope or session.
pub(crate) const LONGEST_LABEL: usize = 200;

enum Claimed {
    Nothing,
    Turn(Box<Claim>, Turn),
    Known(Memory, Box<Ended>),
}
