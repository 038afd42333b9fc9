//! What a session's trace says of what went wrong, and what it came to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tollgate_contract::text::hex;
use tollgate_protocol::{SessionName, bounded, one_line};

use super::{
    journal::{Event, kinds},
    session::{SessionFolder, text_of},
    turn::{Totals, dollars},
};

/// A turn in one line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnLine {
    /// Its number.
    pub turn: u64,
    /// When it began, in seconds since 1970.
    pub ts: f64,
    /// What was asked, shortened.
    pub input: String,
    /// What was answered, shortened.
    pub answer: String,
    /// Did it do what it was asked?
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it took.
    pub totals: Totals,
}

/// What went wrong in a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Autopsy {
    /// The session.
    pub session_id: SessionName,
    /// How many turns the traces hold.
    pub turns: usize,
    /// How many of them did not do what they were asked.
    pub failed_turns: usize,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What it took in all.
    pub totals: Totals,
    /// The slowest calls: what, and milliseconds.
    pub slowest: Vec<(String, u64)>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The turn.
    pub turn: u64,
    /// What happened.
    pub what: String,
    /// How often.
    pub times: usize,
}

/// How bad a finding is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Somebody must look.
    Look,
    /// The turn failed for it.
    Failure,
    /// The model was refused, or made mistakes.
    Trouble,
    /// Worth knowing.
    Note,
}

/// What a session came to, with fingerprints of the traces that say so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReceipt {
    /// The session.
    pub session_id: SessionName,
    /// The turns that the traces hold.
    pub turns: usize,
    /// What they took.
    pub totals: Totals,
    /// Calls by tool: how many, and how many did not work.
    pub tools: BTreeMap<String, (usize, usize)>,
    /// How many calls are in the gate's ledger.
    pub ledger_calls: usize,
    /// The first and the last event, in seconds since 1970.
    pub from_ts: f64,
    /// The last event.
    pub to_ts: f64,
    /// The files, with SHA-256.
    pub files: Vec<(String, String)>,
}

/// The turns of a list of events, each from its start.
pub(crate) fn turns(events: &[Event]) -> Vec<&[Event]> {
    let begins = |event: &Event| event.kind == kinds::TURN_START;
    let first = events.iter().position(begins).unwrap_or(events.len());
    let rest = events.get(first..).unwrap_or_default();
    rest.chunk_by(|_, next| !begins(next)).collect()
}

impl TurnLine {
    pub(crate) fn of(turn: &[Event]) -> Option<Self> {
        let start = turn.first()?;
        let done = turn.iter().find(|event| event.kind == kinds::TURN_DONE);
        let of = |name: &str| done.map_or(Value::Null, |done| done.part(name).clone());
        let error = match (done, of("stop").as_str()) {
            (None, _) => Some("interrupted".to_owned()),
            (_, Some(stop)) => Some(stop.to_owned()),
            _ => done.and_then(|done| done.data.pointer("/error/message")).map(text_of),
        };
        Some(Self {
            turn: start.number("turn").unwrap_or(0),
            ts: start.ts,
            input: one_line(&bounded(start.text("input"), 200)),
            answer: one_line(&bounded(&text_of(&of("visible")), 300)),
            ok: of("ok") == true,
            error,
            totals: match done {
                Some(done) => {
                    serde_json::from_value(done.part("totals").clone()).unwrap_or_default()
                }
                None => counted(turn),
            },
        })
    }
}

/// What a turn that was cut off had taken.
fn counted(turn: &[Event]) -> Totals {
    let mut totals = Totals::default();
    let number = |event: &Event, path: &str| {
        event.data.pointer(path).and_then(Value::as_u64).unwrap_or_default()
    };
    for event in turn {
        match event.kind.as_str() {
            kinds::LLM_DONE => {
                let round = u32::try_from(number(event, "/round")).unwrap_or_default();
                let one = Totals {
                    model_calls: 1,
                    input_tokens: number(event, "/usage/input_tokens"),
                    output_tokens: number(event, "/usage/output_tokens"),
                    usd_micros: number(event, "/cost_usd_micros"),
                    ..Totals::default()
                };
                add(&mut totals, &one);
                totals.rounds = totals.rounds.max(round);
            }
            kinds::TOOL_START => totals.tool_calls += 1,
            kinds::TOOL_DONE if *event.part("ok") != true => totals.failed_calls += 1,
            kinds::RETRIEVAL | kinds::MEMORY_WRITE => {
                let one = Totals {
                    model_calls: u32::try_from(number(event, "/embedding/calls")).unwrap_or(0),
                    input_tokens: number(event, "/embedding/tokens"),
                    usd_micros: number(event, "/embedding/usd_micros"),
                    ..Totals::default()
                };
                add(&mut totals, &one);
            }
            _ => {}
        }
    }
    totals
}

fn add(all: &mut Totals, more: &Totals) {
    all.rounds += more.rounds;
    all.model_calls += more.model_calls;
    all.tool_calls += more.tool_calls;
    all.failed_calls += more.failed_calls;
    all.input_tokens = all.input_tokens.saturating_add(more.input_tokens);
    all.output_tokens = all.output_tokens.saturating_add(more.output_tokens);
    all.usd_micros = all.usd_micros.saturating_add(more.usd_micros);
}

/// How many slow calls are told.
const SLOWEST: usize = 5;
/// So many equal calls in one turn are a circle.
const CIRCLE: usize = 3;

impl Autopsy {
    /// Reads the traces of a session.
    pub fn of(folder: &SessionFolder) -> Result<Self, String> {
        let files =
            folder.events().map_err(|error| format!("the trace cannot be read: {error}"))?;
        let events: Vec<Event> = files.into_iter().flat_map(|(_, events)| events).collect();
        let turns = turns(&events);
        if turns.is_empty() {
            return Err(format!("there is no trace of a turn of {}", folder.session()));
        }
        let mut autopsy = Self {
            session_id: folder.session().clone(),
            turns: turns.len(),
            failed_turns: 0,
            findings: Vec::new(),
            totals: Totals::default(),
            slowest: Vec::new(),
        };
        for turn in turns {
            autopsy.examine(turn);
        }
        autopsy.findings.sort();
        autopsy.slowest.sort_by_key(|(_, ms)| std::cmp::Reverse(*ms));
        autopsy.slowest.truncate(SLOWEST);
        Ok(autopsy)
    }

    fn examine(&mut self, events: &[Event]) {
        let Some(line) = TurnLine::of(events) else { return };
        let turn = line.turn;
        add(&mut self.totals, &line.totals);
        if !line.ok {
            self.failed_turns += 1;
            let why = line.error.unwrap_or_default();
            self.find(Severity::Failure, turn, format!("the turn failed: {why}"));
        }
        let (mut seen, mut rounds): (BTreeMap<String, usize>, u32) = (BTreeMap::new(), 0);
        let mut running: Option<&Event> = None;
        for event in events {
            match event.kind.as_str() {
                kinds::TOOL_START => {
                    running = Some(event);
                    let call = format!("{} {}", event.text("tool"), event.text("input_hash"));
                    *seen.entry(call).or_default() += 1;
                }
                kinds::TOOL_DONE => {
                    running = None;
                    let ms = event.number("duration_ms").unwrap_or(0);
                    self.slowest.push((format!("turn {turn}: {}", event.text("tool")), ms));
                    if *event.part("ok") != true {
                        let error = one_line(&bounded(event.text("error"), 200));
                        let is_unknown = error.contains("OUTCOME_UNKNOWN");
                        let severity = if is_unknown { Severity::Look } else { Severity::Trouble };
                        self.find(severity, turn, format!("{}: {error}", event.text("tool")));
                    }
                }
                kinds::LLM_DONE => self.model(turn, event),
                kinds::LLM_REQ => {
                    rounds =
                        rounds.max(u32::try_from(event.number("round").unwrap_or(0)).unwrap_or(0));
                    let is_some = |name| event.number(name).unwrap_or(0) > 0;
                    if is_some("left") || event.number("answer_bytes").is_some() {
                        let what =
                            "the prompt was full: rounds of this turn were left out or shortened";
                        self.find(Severity::Trouble, turn, what.to_owned());
                    }
                    if ["skipped", "cut"].into_iter().any(is_some) {
                        let what = "the prompt was full: old messages were left out".to_owned();
                        self.find(Severity::Note, turn, what);
                    }
                    if let Some(bytes) = event.number("result_bytes") {
                        let what = format!(
                            "the prompt was full: the model saw {bytes} bytes of each result at most"
                        );
                        self.find(Severity::Trouble, turn, what);
                    }
                }
                kinds::TOOL_PLAN => {
                    for call in event.part("calls").as_array().into_iter().flatten() {
                        if let Some(problem) = call.get("problem") {
                            let what = format!("a call could not be read: {}", text_of(problem));
                            self.find(Severity::Trouble, turn, what);
                        }
                    }
                }
                kinds::WARNING => {
                    self.find(Severity::Note, turn, event.text("problem").to_owned());
                }
                kinds::NOTES_PATCH => {
                    for warning in event.part("warnings").as_array().into_iter().flatten() {
                        self.find(Severity::Note, turn, format!("notes: {}", text_of(warning)));
                    }
                }
                kinds::RETRIEVAL | kinds::MEMORY_WRITE if event.part("error").is_string() => {
                    let what = format!("memory: {}", event.text("error"));
                    self.find(Severity::Trouble, turn, what);
                }
                kinds::RECOVERED => {
                    let what = "the gate stopped during this turn; it was closed later".to_owned();
                    self.find(Severity::Look, turn, what);
                }
                _ => {}
            }
        }
        if let Some(call) = running {
            let what = format!(
                "{} was running when the gate stopped; nobody knows what came of it",
                call.text("tool")
            );
            self.find(Severity::Look, turn, what);
        }
        for (call, times) in seen.into_iter().filter(|(_, times)| *times >= CIRCLE) {
            let tool = call.split(' ').next().unwrap_or_default();
            self.find(
                Severity::Trouble,
                turn,
                format!("the model went in circles: {tool} {times} times with the same input"),
            );
        }
    }

    fn model(&mut self, turn: u64, event: &Event) {
        let ms = event.number("duration_ms").unwrap_or(0);
        self.slowest.push((format!("turn {turn}: model"), ms));
        if let Some(message) = event.data.pointer("/error/message") {
            let what = format!("the model failed: {}", one_line(&bounded(&text_of(message), 200)));
            self.find(Severity::Trouble, turn, what);
        }
        if event.text("finish") == "length" {
            self.find(Severity::Trouble, turn, "an answer was cut off at its longest".to_owned());
        }
        for warning in event.part("warnings").as_array().into_iter().flatten() {
            let text = |name: &str| text_of(warning.get(name).unwrap_or(&Value::Null));
            let block = text("block").to_uppercase();
            let what = format!("an answer had an odd {block} block: {}", text("kind"));
            self.find(Severity::Trouble, turn, what.replace("odd  block", "oddity"));
        }
    }

    fn find(&mut self, severity: Severity, turn: u64, what: String) {
        let same = |one: &&mut Finding| one.turn == turn && one.what == what;
        match self.findings.iter_mut().find(same) {
            Some(known) => known.times += 1,
            None => self.findings.push(Finding { severity, turn, what, times: 1 }),
        }
    }
}

impl RunReceipt {
    /// Sums the traces of a session up.
    pub fn of(folder: &SessionFolder) -> Result<Self, String> {
        let broken = |error: &dyn std::fmt::Display| format!("the trace cannot be read: {error}");
        let traces = folder.traces();
        let mut receipt = Self {
            session_id: folder.session().clone(),
            turns: 0,
            totals: Totals::default(),
            tools: BTreeMap::new(),
            ledger_calls: 0,
            from_ts: 0.0,
            to_ts: 0.0,
            files: Vec::new(),
        };
        for (name, events) in folder.events().map_err(|error| broken(&error))? {
            let bytes =
                std::fs::read(traces.folder().join(&name)).map_err(|error| broken(&error))?;
            receipt.files.push((name, hex(&Sha256::digest(&bytes)).to_string()));
            for turn in turns(&events) {
                receipt.turns += 1;
                if let Some(line) = TurnLine::of(turn) {
                    add(&mut receipt.totals, &line.totals);
                }
            }
            receipt.count(&events);
        }
        Ok(receipt)
    }

    fn count(&mut self, events: &[Event]) {
        for event in events {
            if self.from_ts == 0.0 {
                self.from_ts = event.ts;
            }
            self.to_ts = self.to_ts.max(event.ts);
            let is_call = matches!(event.kind.as_str(), kinds::TOOL_DONE | kinds::LLM_DONE);
            self.ledger_calls += usize::from(is_call && event.part("call_id").is_string());
            if event.kind == kinds::TOOL_DONE {
                let (calls, failed) = self.tools.entry(event.text("tool").to_owned()).or_default();
                *calls += 1;
                *failed += usize::from(*event.part("ok") != true);
            }
        }
    }

    /// What it cost, for people.
    pub fn cost(&self) -> String {
        dollars(self.totals.usd_micros)
    }
}
