//! A gate with tools that leave marks, a runtime, and a model that follows a script.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_agent::runtime::{
    AgentConfig, AgentEvent, Event, Listener, Runtime, SessionFolder, SessionSettings, TurnReport,
    TurnRequest,
};
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Error, Mutation, Permission, Secret, SideEffect,
    error::ToolFailed, text::Clean,
};
use tollgate_gate::{
    Gate, Packs, Parts, Principal, Settings,
    keys::{KeySpec, PolicyRef, Role},
};
use tollgate_ledger::{Ledger, Sync};
use tollgate_memory::Memory;
use tollgate_models::{
    ModelConfig, Models,
    fake::{FakeModel, Script},
};
use tollgate_policy::Policy;
use tollgate_protocol::{Checkpoint, SessionName};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    text: String,
}

/// Names that redaction knows, with values that it lets stand.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Confirm {
    confirm: bool,
    #[serde(default)]
    token: Option<String>,
}

/// How a stage is set up.
pub(crate) struct Setting {
    pub(crate) script: Value,
    pub(crate) model: Box<dyn Fn(&mut ModelConfig) + Send + std::marker::Sync>,
    pub(crate) config: AgentConfig,
    pub(crate) settings: SessionSettings,
}

impl Setting {
    pub(crate) fn new(script: Value) -> Self {
        Self {
            script,
            model: Box::new(|_| {}),
            config: AgentConfig::default(),
            settings: SessionSettings::default(),
        }
    }
}

/// What a turn lives in.
pub(crate) struct Stage {
    pub(crate) gate: Gate,
    pub(crate) runtime: Runtime,
    pub(crate) by: Principal,
    pub(crate) admin: Principal,
    folder: PathBuf,
}

/// A folder that outlives the gate in it.
pub(crate) struct Place {
    folder: PathBuf,
    key: Mutex<Option<String>>,
    _kept: Option<TempDir>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder: folder.path().to_owned(), key: Mutex::default(), _kept: Some(folder) }
    }

    /// A place in memory, for what is not about the disk.
    pub(crate) fn in_memory() -> Self {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let folder = folder.unwrap();
        Self { folder: folder.path().to_owned(), key: Mutex::default(), _kept: Some(folder) }
    }

    /// A place that another process has made.
    pub(crate) fn of(folder: PathBuf, key: String) -> Self {
        Self { folder, key: Mutex::new(Some(key)), _kept: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn key(&self) -> String {
        self.key.lock().unwrap().clone().unwrap()
    }

    /// Opens the gate in this folder, with a model at this address.
    pub(crate) async fn open(&self, url: &str, setting: &Setting) -> Stage {
        let folder = self.folder.clone();
        let mut model = ModelConfig::at(url);
        model.timeout_seconds = 60;
        (setting.model)(&mut model);
        let configs = BTreeMap::from([("fake".to_owned(), model)]);
        let models = Models::new(configs, Some("fake".to_owned())).unwrap();
        let registry = tollgate_models::pack(tools(&folder), models.clone()).unwrap();
        let ledger = Ledger::open(&folder, Sync::Process).unwrap();
        let parts = Parts::new(ledger, registry.build().unwrap(), Settings::new(&folder));
        let gate = Gate::open(parts).unwrap();
        let kept = self.key.lock().unwrap().clone();
        let key = match kept {
            Some(key) => Secret::new(key),
            None => {
                let policy = PolicyRef::Inline(Box::new(Policy::operator()));
                let spec = KeySpec { policy, ..KeySpec::for_role("runner", Role::Agent) };
                gate.create_key(None, spec).await.unwrap().1
            }
        };
        *self.key.lock().unwrap() = Some(key.expose().to_owned());
        let by = gate.identify(Some(&key));
        let spec = KeySpec::for_role("person", Role::Admin);
        let admin = gate.create_key(None, spec).await.unwrap().1;
        let admin = gate.identify(Some(&admin));
        let memory = Memory::open(&folder.join("memory.db")).unwrap();
        let runtime = Runtime::new(
            gate.clone(),
            models,
            memory,
            folder.join("sessions"),
            setting.config.clone(),
            Arc::new(|_, _| Ok(())),
        );
        Stage { gate, runtime, by, admin, folder }
    }
}

/// A stage with its model, for tests that need one of each.
pub(crate) struct Play {
    pub(crate) stage: Stage,
    pub(crate) model: FakeModel,
    pub(crate) place: Place,
}

pub(crate) async fn model(script: &Value) -> FakeModel {
    let script = Script::parse(&script.to_string()).unwrap();
    FakeModel::start(script, "127.0.0.1:0".parse().unwrap()).await.unwrap().1
}

impl Play {
    pub(crate) async fn new(script: Value) -> Self {
        Self::with(Setting::new(script)).await
    }

    pub(crate) async fn with(setting: Setting) -> Self {
        Self::at(Place::new(), setting).await
    }

    pub(crate) async fn at(place: Place, setting: Setting) -> Self {
        let model = model(&setting.script).await;
        let stage = place.open(&model.url(), &setting).await;
        if setting.settings != SessionSettings::default() {
            let folder = stage.session();
            fs::create_dir_all(place.path().join("sessions/notes")).unwrap();
            let text = serde_json::to_vec(&setting.settings).unwrap();
            fs::write(place.path().join("sessions/notes/settings.json"), text).unwrap();
            assert_eq!(folder.settings().unwrap(), setting.settings);
        }
        Self { stage, model, place }
    }

    /// Runs a turn.
    pub(crate) async fn say(&self, text: &str) -> TurnReport {
        self.stage.say(text).await
    }

    /// What the model was asked, newest last: the messages.
    pub(crate) fn asked(&self) -> Vec<Vec<Value>> {
        let requests = self.model.requests();
        let messages =
            requests.iter().map(|seen| seen.body["messages"].as_array().unwrap().clone());
        messages.collect()
    }

    /// The last message of the last question.
    pub(crate) fn last_asked(&self) -> Value {
        self.asked().pop().unwrap().pop().unwrap()
    }
}

pub(crate) fn name() -> SessionName {
    SessionName::parse("notes").unwrap()
}

impl Stage {
    pub(crate) async fn say(&self, text: &str) -> TurnReport {
        self.ask(TurnRequest::new(text)).await.unwrap()
    }

    pub(crate) async fn ask(&self, request: TurnRequest) -> Result<TurnReport, Error> {
        self.runtime.run(&self.by, &name(), request, Arc::new(|_| {})).await
    }

    /// Runs a turn, and gives what was heard of it.
    pub(crate) async fn hear(&self, text: &str) -> (TurnReport, Vec<AgentEvent>) {
        let heard: Arc<Mutex<Vec<AgentEvent>>> = Arc::default();
        let list = Arc::clone(&heard);
        let listener: Listener = Arc::new(move |event| list.lock().unwrap().push(event));
        let report = self.runtime.run(&self.by, &name(), TurnRequest::new(text), listener).await;
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        (report.unwrap(), heard)
    }

    pub(crate) fn session(&self) -> SessionFolder {
        self.runtime.folder(&name())
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.session().checkpoint().load().unwrap().unwrap().0
    }

    /// All events of the traces.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.session().events().unwrap().into_iter().flat_map(|(_, events)| events).collect()
    }

    pub(crate) fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|e| e.kind == kind).map(|e| e.data).collect()
    }

    /// What `note.append` has written.
    pub(crate) fn marks(&self) -> Vec<String> {
        marks(&self.folder)
    }
}

pub(crate) fn marks(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("marks.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A tool that changes nothing.
fn reading<I: JsonSchema>(name: &'static str, about: &'static str) -> Declaration<I, Value> {
    Declaration::new(name, about)
        .permissions(vec![Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
        .unwrap()
}

/// Tools that can be told apart by what they leave.
fn tools(folder: &Path) -> Packs {
    let packs = tollgate_tools::plain_pack(Packs::new()).unwrap();
    let marks = folder.join("marks.txt");
    let none = Behaviours::NONE;
    let append = Declaration::<Text, Value>::new("note.append", "Adds a line to the notes.")
        .permissions(vec![Permission::WRITE])
        .behaviours(Behaviours { mutation: Mutation::UserState, ..none })
        .effects(SideEffect::UserWrite, CostEffect::None)
        .build()
        .unwrap();
    let give = reading::<Text>("text.give", "Gives the text back.");
    let fail = reading::<Text>("text.fail", "Does not work.");
    let deep = reading::<Text>("text.deep", "Gives something nested.");
    let long = reading::<Text>("text.long", "Gives the text, and much more.");
    let secret = reading::<Text>("text.secret", "Gives a file with a key in it.");
    let confirm = reading::<Confirm>("text.confirm", "Gives what it was given.");
    let hang = reading::<Text>("text.hang", "Never ends by itself.");
    packs
        .add(append, move |input: Text, _| {
            let file = marks.clone();
            async move {
                use std::io::Write;
                let mut file = fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
                writeln!(file, "{}", input.text).unwrap();
                if std::env::var("CRASH_AT").is_ok_and(|at| at == "tool") {
                    std::process::abort();
                }
                Ok(json!({"appended": input.text}))
            }
        })
        .add(deep, |_: Text, _| async move {
            Ok((0..200).fold(json!({"number": 1e300}), |inner, _| json!([inner])))
        })
        .add(confirm, |input: Confirm, _| async move {
            Ok(json!({"confirm": input.confirm, "token": input.token, "pin": 7}))
        })
        .add(long, |input: Text, _| async move {
            Ok(json!({"text": format!("{} {}", input.text, "a word or two. ".repeat(400))}))
        })
        .add(secret, |input: Text, _| async move {
            let lines = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0MTIzNDU2Nzg5MDEyMzQ1Njc4OTAx\n";
            let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
            Ok(json!({"text": format!("{}\n{begin}\n{}{end}\n", input.text, lines.repeat(300))}))
        })
        .add(give, |input: Text, _| async move { Ok(json!({"text": input.text})) })
        .add(fail, |input: Text, context| async move {
            let name = context.tool().name.clone();
            Err(Error::from(ToolFailed::new(name, Clean::new(&input.text))).into())
        })
        .add(hang, |_: Text, context| async move {
            context.cancelled().cancelled().await;
            Ok(json!({"text": "stopped"}))
        })
}

/// A TOOL_CALLS block.
pub(crate) fn calls(list: &Value) -> String {
    format!("<<<TOOL_CALLS_JSON>>>\n{list}\n<<<END_TOOL_CALLS_JSON>>>")
}

/// A NOTES block.
pub(crate) fn notes(patch: &Value) -> String {
    format!("<<<NOTES_JSON>>>\n{patch}\n<<<END_NOTES_JSON>>>")
}

/// One call.
pub(crate) fn call(tool: &str, text: &str) -> String {
    calls(&json!([{"id": "t1", "tool": tool, "args": {"text": text}}]))
}

/// A script that answers with these texts.
pub(crate) fn says(texts: &[&str]) -> Value {
    json!({"replies": texts.iter().map(|text| json!({"content": text})).collect::<Vec<_>>()})
}
