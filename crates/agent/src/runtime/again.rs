//! Running a recorded turn again, offline: the same code, with the trace as its world.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{Capability, text::hex};
use tollgate_protocol::{Checkpoint, Segment, ToolText, rebuild};

use super::{
    hand::noted,
    journal::{Event, Sink, kinds},
    kept::Native,
    recover::mend,
    session::{SessionFolder, start_number},
    trace_file::TraceFiles,
    turn::{Over, Setup, Turn},
    world::{
        Embedding, ModelAsk, ModelEnded, ModelFailed, ModelSaid, Recalled, Remember, Stop, ToolAsk,
        ToolEnded, ToolProblem, World,
    },
};

/// A turn that was run again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replayed {
    /// The turn.
    pub turn: u64,
    /// What the person had asked, as it was kept.
    pub input: String,
    /// What the person sees, as it was kept.
    pub visible: String,
    /// Its events, as they came again.
    pub events: Vec<Event>,
    /// The first difference from what was recorded, if there is one.
    pub divergence: Option<Divergence>,
    /// SHA-256 of the checkpoint that came of it.
    pub checkpoint_sha256: String,
    /// SHA-256 of the checkpoint that was recorded; empty where the turn was not saved.
    pub recorded_sha256: String,
    /// Was it cut off by a crash, and mended?
    pub recovered: bool,
    /// The checkpoint that came of it.
    #[serde(skip)]
    pub checkpoint: Checkpoint,
}

impl Replayed {
    /// Is it the same, byte for byte?
    pub fn is_same(&self) -> bool {
        self.divergence.is_none() && self.checkpoint_sha256 == self.recorded_sha256
    }
}

/// Where a replay went another way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// Which event of the turn, from 1.
    pub event: usize,
    /// What was recorded.
    pub recorded: Option<Event>,
    /// What came instead.
    pub came: Option<Event>,
}

/// Runs the turns of a session again, from the last snapshot before `turn` up to it. Gives the turns that were run; the
/// last is the wanted one.
pub async fn replay_turn(folder: &SessionFolder, turn: u64) -> Result<Vec<Replayed>, String> {
    let session = folder.session();
    let files = folder.events().map_err(|error| format!("the trace cannot be read: {error}"))?;
    let is_wanted = |events: &[Event]| {
        events.iter().any(|e| e.kind == kinds::TURN_START && e.number("turn") == Some(turn))
    };
    let Some((name, events)) = files.iter().find(|(_, events)| is_wanted(events)) else {
        let turns: Vec<u64> = files
            .iter()
            .flat_map(|(_, events)| events)
            .filter(|event| event.kind == kinds::TURN_START)
            .filter_map(|event| event.number("turn"))
            .collect();
        let is_note = |event: &Event| {
            event.kind == kinds::PERSON_NOTE
                && event.data.pointer("/checkpoint/revision").and_then(Value::as_u64) == Some(turn)
        };
        if files.iter().flat_map(|(_, events)| events).any(is_note) {
            return Err(format!("revision {turn} of {session} is a person's note, not a turn"));
        }
        return Err(match (turns.first(), turns.last()) {
            (Some(first), Some(last)) => {
                format!("the traces of {session} hold turns {first} to {last}, and no turn {turn}")
            }
            _ => format!("there is no trace of {session}"),
        });
    };
    walk(name, events, Some(turn)).await.map(|(replayed, _)| replayed)
}

/// The checkpoint that the last file of a trace leads to, if all of it comes again as it was.
pub(crate) async fn rebuilt(folder: &SessionFolder) -> Option<Checkpoint> {
    let traces = folder.traces();
    let number = *traces.numbers().ok()?.last()?;
    let events = traces.read(number).ok()?;
    let (replayed, checkpoint) = walk(&TraceFiles::name(number), &events, None).await.ok()?;
    replayed.iter().all(Replayed::is_same).then_some(checkpoint)
}

/// Goes through a file of a trace from its head, up to a turn or to what was saved last. Gives the turns that were run
/// again, and the checkpoint behind them.
async fn walk(
    name: &str,
    events: &[Event],
    until: Option<u64>,
) -> Result<(Vec<Replayed>, Checkpoint), String> {
    let head = events.first().filter(|event| event.kind == kinds::SESSION);
    let checkpoint = head.and_then(|head| Checkpoint::deserialize(head.part("checkpoint")).ok());
    let mut checkpoint =
        checkpoint.ok_or_else(|| format!("{name} does not begin with the session as it was"))?;
    let mut tools: Vec<ToolText> = Vec::new();
    let mut replayed = Vec::new();
    for part in events.chunk_by(|_, next| !begins(next)) {
        let Some(first) = part.first() else { continue };
        let is_saved = part.iter().any(|event| event.kind == kinds::CHECKPOINT);
        match first.kind.as_str() {
            kinds::TOOLS => {
                tools = Vec::deserialize(first.part("tools"))
                    .map_err(|error| format!("the tools of {name} cannot be read: {error}"))?;
            }
            kinds::TURN_START => {
                let turn = start_number(part, "turn");
                let is_wanted = turn.is_some() && turn == until;
                if let Some(turn) = turn.filter(|_| is_wanted && !is_saved) {
                    return Err(format!(
                        "turn {turn} runs, or was cut off and is not closed yet: the next turn or note closes it, and then it can be replayed"
                    ));
                }
                // Only the last can be open, and what comes behind it is not wanted then.
                if !is_saved && until.is_none() {
                    break;
                }
                let one = again(part, &checkpoint, &tools).await?;
                checkpoint = one.checkpoint.clone();
                replayed.push(one);
                if is_wanted {
                    break;
                }
            }
            // One that was not saved was left out, and the session went on without it.
            kinds::PERSON_NOTE if is_saved => {
                checkpoint = noted(first, &checkpoint)
                    .ok_or_else(|| format!("a person's note in {name} cannot be read"))?;
            }
            _ => {}
        }
    }
    Ok((replayed, checkpoint))
}

/// Does something begin here that a replay takes as a whole?
fn begins(event: &Event) -> bool {
    [kinds::TURN_START, kinds::TOOLS, kinds::PERSON_NOTE].contains(&event.kind.as_str())
}

/// Kinds that tell how something came in or was kept, not what was done.
const NOT_COMPARED: [&str; 5] =
    [kinds::LLM_STREAM, kinds::TOOL_WAIT, kinds::SESSION, kinds::TOOLS, kinds::CHECKPOINT];

async fn again(
    recorded: &[Event],
    before: &Checkpoint,
    tools: &[ToolText],
) -> Result<Replayed, String> {
    let start = recorded.first().ok_or("there is no such turn")?;
    let setup = Setup::deserialize(&start.data)
        .map_err(|error| format!("the start of a turn cannot be read: {error}"))?;
    // The last one: a turn that was mended has two.
    let saved = recorded.iter().rfind(|event| event.kind == kinds::CHECKPOINT);
    let recorded_sha256 = saved.map(|event| event.text("sha256").to_owned()).unwrap_or_default();
    let updated_ts = saved.and_then(|event| event.part("updated_ts").as_f64()).unwrap_or_default();
    let input = start.text("input").to_owned();
    let recovered = recorded.iter().any(|event| event.kind == kinds::RECOVERED);
    let mut list = List::default();
    let (mut checkpoint, visible, divergence) = if recovered || saved.is_none() {
        let mended = mend(recorded, before).ok_or("a turn that was cut off cannot be read")?;
        (mended.checkpoint, String::new(), None)
    } else {
        let world = TraceWorld::of(recorded);
        let over: Over = Turn::new(&world, &mut list, &setup, tools, before).run(&input).await?;
        let compared: Vec<&Event> =
            recorded.iter().filter(|e| !NOT_COMPARED.contains(&e.kind.as_str())).collect();
        (over.checkpoint, over.kept_visible, first_difference(&compared, &list.0))
    };
    checkpoint.updated_ts = updated_ts;
    let checkpoint_sha256 = sha256(&checkpoint);
    Ok(Replayed {
        turn: setup.turn,
        input,
        visible,
        events: list.0,
        divergence,
        checkpoint_sha256,
        recorded_sha256,
        recovered,
        checkpoint,
    })
}

/// The fingerprint of a checkpoint as it is written.
pub(crate) fn sha256(checkpoint: &Checkpoint) -> String {
    hex(&Sha256::digest(checkpoint.written().as_bytes())).to_string()
}

fn first_difference(recorded: &[&Event], came: &[Event]) -> Option<Divergence> {
    let came: Vec<&Event> =
        came.iter().filter(|event| !NOT_COMPARED.contains(&event.kind.as_str())).collect();
    let same = |one: &Event, other: &Event| one.kind == other.kind && one.data == other.data;
    (0..recorded.len().max(came.len())).find_map(|at| {
        let (one, other) = (recorded.get(at), came.get(at));
        match (one, other) {
            (Some(one), Some(other)) if same(one, other) => None,
            (one, other) => Some(Divergence {
                event: at + 1,
                recorded: one.map(|event| (*event).clone()),
                came: other.map(|event| (*event).clone()),
            }),
        }
    })
}

/// A list of events.
#[derive(Default)]
struct List(Vec<Event>);

impl Sink for List {
    fn write(&mut self, kind: &str, data: Value) -> Result<(), String> {
        self.0.push(Event::new(0, kind, data));
        Ok(())
    }
}

/// A world that says what it said before.
struct TraceWorld {
    models: Mutex<VecDeque<Event>>,
    tools: Mutex<VecDeque<Event>>,
    recalled: Mutex<VecDeque<Event>>,
    remembered: Mutex<VecDeque<Event>>,
    requests: Mutex<VecDeque<String>>,
    stop: Option<(u64, Stop)>,
    checks: AtomicU64,
    leisure: Mutex<VecDeque<bool>>,
    capabilities: (Vec<String>, Vec<String>),
}

/// What is said before the outcome of a request that was meant as a grant.
const TAKEN_AS: &str = "only a person grants; taken as a request: ";

impl TraceWorld {
    fn of(recorded: &[Event]) -> Self {
        let all = |kind: &str| {
            let events = recorded.iter().filter(|event| event.kind == kind);
            Mutex::new(events.cloned().collect::<VecDeque<Event>>())
        };
        let actions = recorded.iter().find(|event| event.kind == kinds::ACTIONS);
        let actions: Vec<(String, String)> = actions
            .and_then(|event| event.part("actions").as_array())
            .into_iter()
            .flatten()
            .map(|one| {
                let text = |name: &str| one.get(name).and_then(Value::as_str).unwrap_or_default();
                (text("action").to_owned(), text("outcome").to_owned())
            })
            .collect();
        let is_request = |action: &str| {
            action.starts_with("request_permission:") || action.starts_with("grant_permission:")
        };
        let requests = actions
            .iter()
            .filter(|(action, _)| is_request(action))
            .map(|(_, outcome)| outcome.strip_prefix(TAKEN_AS).unwrap_or(outcome).to_owned());
        // Asked once for each summary that was not too late.
        let leisure = actions
            .iter()
            .filter(|(action, outcome)| {
                action == "condense_smart" && !outcome.contains("turn was over")
            })
            .map(|(_, outcome)| !outcome.starts_with("put off"));
        let stop = recorded.iter().find(|event| event.kind == kinds::STOP).and_then(|event| {
            let reason = Stop::deserialize(event.part("reason")).ok()?;
            Some((event.number("check")?, reason))
        });
        let done = recorded.iter().find(|event| event.kind == kinds::TURN_DONE);
        let list = |name: &str| {
            let found = done.and_then(|event| event.data.pointer(&format!("/capabilities/{name}")));
            found.and_then(|list| Vec::<String>::deserialize(list).ok()).unwrap_or_default()
        };
        Self {
            models: all(kinds::LLM_DONE),
            tools: all(kinds::TOOL_DONE),
            recalled: all(kinds::RETRIEVAL),
            remembered: all(kinds::MEMORY_WRITE),
            requests: Mutex::new(requests.collect()),
            stop,
            checks: AtomicU64::new(0),
            leisure: Mutex::new(leisure.collect()),
            capabilities: (list("granted"), list("pending")),
        }
    }
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// What the memory had said.
fn from_memory<T: DeserializeOwned>(
    queue: &Mutex<VecDeque<Event>>,
    list: &str,
) -> (Result<Vec<T>, String>, Embedding) {
    let Some(event) = next(queue) else { return (Err(MISSING.to_owned()), Embedding::default()) };
    let embedding = Option::deserialize(event.part("embedding")).ok().flatten();
    let said = match event.part("error").as_str() {
        Some(problem) => Err(problem.to_owned()),
        None => Vec::deserialize(event.part(list)).map_err(|error| error.to_string()),
    };
    (said, embedding.unwrap_or_default())
}

/// What a world says that has nothing more to say: never a live call.
const MISSING: &str = "the trace holds nothing for this; nothing was called";

impl World for TraceWorld {
    fn stop(&self) -> Option<Stop> {
        let check = self.checks.fetch_add(1, Ordering::Relaxed) + 1;
        self.stop.filter(|(at, _)| *at == check).map(|(_, stop)| stop)
    }

    fn now_ms(&self) -> i64 {
        0
    }

    async fn chat(&self, _ask: ModelAsk) -> ModelEnded {
        let Some(event) = next(&self.models) else {
            let failed = ModelFailed {
                code: "REPLAY_MISS".to_owned(),
                message: MISSING.to_owned(),
                ..ModelFailed::default()
            };
            return ModelEnded {
                said: ModelSaid::default(),
                failed: Some(failed),
                call_id: None,
                duration_ms: 0,
                stream: None,
                is_kept: true,
            };
        };
        let segments = Vec::<Segment>::deserialize(event.part("segments")).unwrap_or_default();
        let usage = |name: &str| event.data.pointer(&format!("/usage/{name}"));
        let said = ModelSaid {
            content: rebuild(&segments),
            reasoning: event.text("reasoning").to_owned(),
            calls: event
                .part("native_calls")
                .as_array()
                .map(|all| all.iter().map(Native::read).collect())
                .unwrap_or_default(),
            finish: event.text("finish").to_owned(),
            input_tokens: usage("input_tokens").and_then(Value::as_u64).unwrap_or(0),
            output_tokens: usage("output_tokens").and_then(Value::as_u64).unwrap_or(0),
            usage_estimated: usage("estimated").and_then(Value::as_bool).unwrap_or(false),
            cost_usd_micros: event.number("cost_usd_micros"),
        };
        ModelEnded {
            said,
            failed: Option::deserialize(event.part("error")).unwrap_or_default(),
            call_id: event.part("call_id").as_str().map(str::to_owned),
            duration_ms: event.number("duration_ms").unwrap_or(0),
            stream: None,
            is_kept: true,
        }
    }

    async fn pause(&self, _ms: u64) {}

    async fn tool(&self, ask: ToolAsk) -> ToolEnded {
        let event = next(&self.tools).filter(|event| event.text("call_key") == ask.call_key);
        let Some(event) = event else {
            let problem =
                ToolProblem { code: "REPLAY_MISS".to_owned(), message: MISSING.to_owned() };
            return ToolEnded {
                output: Err(problem),
                call_id: None,
                duration_ms: 0,
                is_kept: true,
            };
        };
        let output = match event.part("error").as_str() {
            None => Ok(event.part("output").clone()),
            // Code and words stand together in what was recorded.
            Some(error) => Err(ToolProblem { code: String::new(), message: error.to_owned() }),
        };
        ToolEnded {
            output,
            call_id: event.part("call_id").as_str().map(str::to_owned),
            duration_ms: event.number("duration_ms").unwrap_or(0),
            is_kept: true,
        }
    }

    async fn recall(
        &self,
        _query: &str,
        _tags: &[String],
    ) -> (Result<Vec<Recalled>, String>, Embedding) {
        from_memory(&self.recalled, "items")
    }

    async fn remember(&self, _records: Vec<Remember>) -> (Result<Vec<String>, String>, Embedding) {
        from_memory(&self.remembered, "ids")
    }

    fn has_leisure(&self) -> bool {
        next(&self.leisure).unwrap_or(true)
    }

    async fn request(&self, _capability: &Capability) -> String {
        next(&self.requests).unwrap_or_else(|| MISSING.to_owned())
    }

    fn capabilities(&self) -> (Vec<String>, Vec<String>) {
        self.capabilities.clone()
    }
}

/// What a divergence comes to, for people.
impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = |event: &Option<Event>| {
            event.as_ref().map_or("nothing".to_owned(), |event| {
                format!("{} {}", event.kind, json!(event.data))
            })
        };
        write!(
            f,
            "event {}: recorded {}; came {}",
            self.event,
            kind(&self.recorded),
            kind(&self.came)
        )
    }
}
