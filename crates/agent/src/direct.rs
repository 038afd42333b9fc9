//! The governed direct runner.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tollgate_consent::What;
use tollgate_contract::{
    Call, Caller, ContractTool, Error, Identity, Manifest, Mode, Secret, Surface, Urgency,
    error::{
        ApprovalDenied, ErrorObject, InvalidApiKey, InvalidRequest, MissingApiKey, UnknownTool,
    },
    text::Clean,
};
use tollgate_gate::{CallOptions, Gate, RunEvent, ToolCallResult, Unfinished, Waits};
use tollgate_policy::Policy;
use tollgate_trace::{Entry, Trace};

use crate::{record::Recorder, replay::Replayer};

/// Where a runner's answers come from. The mode follows from it.
pub enum Source {
    /// The gate: calls are live, and need a key.
    Gate(Gate),
    /// A manifest: contracts can be looked at, nothing is called.
    Manifest(Arc<Manifest>),
    /// A trace: calls are answered from it, and nothing else happens.
    Trace(Trace),
}

/// What a call gives: its result, or the error that a caller sees.
pub type Answer = Result<ToolCallResult, Box<ErrorObject>>;

/// A governed direct runner.
pub struct Agent {
    backend: Backend,
    policy: Option<Policy>,
    recorder: Option<Mutex<Recorder>>,
}

enum Backend {
    Live { gate: Gate, identity: Identity },
    Inspect(Arc<Manifest>),
    Replay(Mutex<Replayer>),
}

impl Agent {
    /// A runner over this source. A live one without a key is refused here, before anything can be called.
    pub fn new(source: Source, key: Option<&Secret>) -> Result<Self, Error> {
        let backend = match source {
            Source::Gate(gate) => {
                let key = key.ok_or_else(|| MissingApiKey::new(None))?;
                match gate.identify(Some(key)).identity() {
                    Identity::Invalid(why) => return Err(InvalidApiKey::new(why).into()),
                    identity => Backend::Live { gate, identity },
                }
            }
            Source::Manifest(manifest) => Backend::Inspect(manifest),
            Source::Trace(trace) => Backend::Replay(Mutex::new(Replayer::new(&trace))),
        };
        Ok(Self { backend, policy: None, recorder: None })
    }

    /// Adds a policy of the runner's own. It can only narrow what its key may do.
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Records every call.
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(Mutex::new(recorder));
        self
    }

    /// What this runner may do.
    pub fn mode(&self) -> Mode {
        match self.backend {
            Backend::Live { .. } => Mode::Live,
            Backend::Inspect(_) => Mode::InspectOnly,
            Backend::Replay(_) => Mode::ReplayOnly,
        }
    }

    /// The contract of a tool, by its canonical name.
    pub fn describe(&self, name: &str) -> Result<ContractTool, Error> {
        let manifest = match &self.backend {
            Backend::Live { gate, .. } => gate.manifest(),
            Backend::Inspect(manifest) => manifest,
            // A trace holds calls, not contracts.
            Backend::Replay(_) => return Err(UnknownTool::new(name, None).into()),
        };
        Ok(manifest.resolve(name)?.clone())
    }

    /// Calls a tool and waits for what comes of it.
    pub async fn call(&self, name: &str, input: Value) -> Answer {
        self.stream(name, input, |_| {}).await
    }

    /// Calls a tool and passes every event of the run on, in order, as it happens.
    pub async fn stream(
        &self,
        name: &str,
        input: Value,
        hear: impl Fn(Value) + Send + Sync + 'static,
    ) -> Answer {
        match &self.backend {
            Backend::Live { gate, identity } => {
                self.live(gate, identity, name, input, Arc::new(hear)).await
            }
            Backend::Inspect(_) => {
                let problem =
                    "this runner only inspects; nothing is called in the mode inspectOnly";
                let error = InvalidRequest::new(Clean::already(problem.to_owned()), Vec::new());
                Err(Box::new(Error::from(error).object(None)))
            }
            Backend::Replay(replayer) => {
                let mut replayer = replayer.lock().unwrap_or_else(PoisonError::into_inner);
                replayer.call(name, &input, hear)
            }
        }
    }

    async fn live(
        &self,
        gate: &Gate,
        identity: &Identity,
        name: &str,
        input: Value,
        hear: Arc<dyn Fn(Value) + Send + Sync>,
    ) -> Answer {
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let recording = self
            .recorder
            .as_ref()
            .map(|recorder| recorder.lock().unwrap_or_else(PoisonError::into_inner).begin(&input));
        let is_recorded = recording.is_some();
        let (heard, passed_on) = (Arc::clone(&events), Arc::clone(&hear));
        let observer = move |event: RunEvent| {
            let event = serde_json::to_value(event).unwrap_or_default();
            // What ends a call waits until the trace is written.
            let waits = is_recorded && Recorder::waits_for_trace(&event);
            if is_recorded {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
            }
            if !waits {
                passed_on(event);
            }
        };
        let call = Call {
            caller: Caller {
                surface: Surface::Agent,
                mode: Mode::Live,
                identity: identity.clone(),
            },
            tool: name.to_owned(),
            input,
            scope: None,
            urgency: Urgency::Normal,
            session: None,
            idempotency_key: None,
        };
        let options = CallOptions {
            policy: self.policy.clone(),
            observer: Some(Arc::new(observer)),
            ..CallOptions::default()
        };
        let ended = gate.call(call, options).await;
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(recorder), Some(recording)) = (&self.recorder, recording) {
            let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            recorder
                .finish(recording, &events)
                .map_err(|error| Box::new(Error::from(error).object(None)))?;
            events.into_iter().filter(Recorder::waits_for_trace).for_each(|event| hear(event));
        }
        ended.map_err(|unfinished| match *unfinished {
            Unfinished::Failed(failure) => Box::new(failure.error),
            Unfinished::Waits(waits) => Box::new(waiting(&waits)),
        })
    }

    /// What was recorded and never asked for. Empty unless this runner replays.
    pub fn unused(&self) -> Vec<Entry> {
        match &self.backend {
            Backend::Replay(replayer) => {
                replayer.lock().unwrap_or_else(PoisonError::into_inner).unused()
            }
            _ => Vec::new(),
        }
    }
}

/// A call that waits, for a runner that does not: whoever calls again finds the answer.
fn waiting(waits: &Waits) -> ErrorObject {
    let asked = &waits.item.asked;
    let problem = "a person was asked and has not answered yet; make the same call again later";
    let problem = Clean::already(problem.to_owned());
    match &asked.what {
        What::Call { tool, .. } => {
            Error::from(ApprovalDenied::new(tool.clone(), asked.id, problem)).object(None)
        }
        What::Capability { .. } => {
            Error::from(InvalidRequest::new(problem, Vec::new())).object(None)
        }
    }
}
