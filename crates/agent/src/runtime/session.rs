//! The folder of a session: its checkpoint, its settings and its traces.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tollgate_gate::secret_file;
use tollgate_protocol::{Checkpoint, SessionName};

use super::{
    autopsy::{TurnLine, turns},
    checkpoint_file::{CheckpointFile, SaveError},
    journal::{Event, EventError, kinds},
    recover::is_cut_off,
    settings::SessionSettings,
    trace_file::TraceFiles,
};

const SETTINGS: &str = "settings.json";
/// How many turns are shown of a session.
const SHOWN_TURNS: usize = 10;
/// What is told of a turn that was cut off.
pub(crate) const CUT_OFF: &str = "the last turn was cut off; it is closed when the next one begins";
/// What is told of a person's note that was cut off.
pub(crate) const NOTE_CUT_OFF: &str =
    "the gate stopped while a person's note was written; it counts with the next turn or note";
/// How many files are looked through for the last turn: notes behind it may have filled some.
const LOOKED_THROUGH: usize = 8;

/// Where a session is kept.
#[derive(Debug, Clone)]
pub struct SessionFolder {
    path: PathBuf,
    session: SessionName,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionSummary {
    /// Its name.
    #[schemars(with = "String")]
    pub session_id: SessionName,
    /// How often it was written: by each turn, and by each note of a person.
    pub revision: u64,
    /// When that was last, in seconds since 1970.
    pub updated_ts: f64,
    /// What it is after.
    pub goals: Vec<String>,
    /// How much is not finished.
    pub open_loops: usize,
    /// Does a turn run now?
    pub running: bool,
    /// Why it cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A session, to look at.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionView {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// What was decided for it.
    pub settings: SessionSettings,
    /// The last turns, oldest first.
    pub turns: Vec<TurnLine>,
    /// How many memories it has.
    pub memories: u64,
    /// Does a turn run now?
    pub running: bool,
    /// What a reader should know: a turn that was cut off, a copy that was used.
    pub warnings: Vec<String>,
}

impl SessionFolder {
    /// The folder of a session in the folder of all.
    pub fn new(all: &Path, session: SessionName) -> Self {
        Self { path: all.join(session.as_str()), session }
    }

    /// The sessions that have a folder.
    pub fn list(all: &Path) -> io::Result<Vec<SessionName>> {
        let entries = match fs::read_dir(all) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| SessionName::parse(name).ok());
            if entry.file_type()?.is_dir() {
                names.extend(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Makes it.
    pub(crate) fn make(&self) -> io::Result<()> {
        let traces = self.traces();
        if traces.folder().is_dir() {
            return Ok(());
        }
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(traces.folder())?;
        // So that what is synced in it can be found after a loss of power.
        for folder in traces.folder().ancestors().take(3) {
            fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Is it there?
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The session.
    pub fn session(&self) -> &SessionName {
        &self.session
    }

    /// Its checkpoint.
    pub fn checkpoint(&self) -> CheckpointFile {
        CheckpointFile::new(&self.path, self.session.clone())
    }

    /// Its traces.
    pub fn traces(&self) -> TraceFiles {
        TraceFiles::new(self.path.join("trace"))
    }

    /// The checkpoint, or that of a session which has not begun; and what was odd.
    pub(crate) fn load(&self) -> Result<(Checkpoint, Vec<String>), SaveError> {
        Ok(match self.checkpoint().load()? {
            None => (Checkpoint::new(self.session.clone()), Vec::new()),
            Some((checkpoint, None)) => (checkpoint, Vec::new()),
            Some((checkpoint, Some(problem))) => {
                let warning = format!(
                    "the checkpoint cannot be read ({problem}); the copy of revision {} is used",
                    checkpoint.revision
                );
                (checkpoint, vec![warning])
            }
        })
    }

    /// How it stands, as far as its own files say: what is granted is as old as the last turn, and whether a turn runs
    /// and what is remembered is not in them.
    pub fn view(&self) -> Result<SessionView, SaveError> {
        let (checkpoint, mut warnings) = self.load()?;
        let events = self.last_events().unwrap_or_else(|error| {
            warnings.push(format!("the trace cannot be read: {error}"));
            Vec::new()
        });
        let saved = events.iter().rfind(|event| event.kind == kinds::CHECKPOINT);
        let saved = saved.and_then(|event| event.number("revision")).unwrap_or(0);
        let is_gone = checkpoint.revision == 0 && saved > 0;
        if is_gone {
            warnings.push(format!(
                "the checkpoint is gone; the next turn or note makes that of revision {saved} again from the trace"
            ));
        }
        let cut_off = last_step(&events).filter(|step| is_cut_off(step, &checkpoint));
        if let Some(step) = cut_off.filter(|_| !is_gone) {
            let is_note = note_of(step).is_some();
            warnings.push(if is_note { NOTE_CUT_OFF } else { CUT_OFF }.to_owned());
        }
        let settings = self.settings().unwrap_or_else(|problem| {
            warnings.push(problem);
            SessionSettings::default()
        });
        let lines: Vec<TurnLine> = turns(&events).into_iter().filter_map(TurnLine::of).collect();
        let skipped = lines.len().saturating_sub(SHOWN_TURNS);
        let turns = lines.into_iter().skip(skipped).collect();
        Ok(SessionView { checkpoint, settings, turns, memories: 0, running: false, warnings })
    }

    /// The same in short.
    pub fn summary(&self) -> SessionSummary {
        let (checkpoint, problem) = match self.load() {
            Ok((checkpoint, _)) => (checkpoint, None),
            Err(error) => (Checkpoint::new(self.session.clone()), Some(error.to_string())),
        };
        SessionSummary {
            session_id: self.session.clone(),
            revision: checkpoint.revision,
            updated_ts: checkpoint.updated_ts,
            goals: checkpoint.state.goals,
            open_loops: checkpoint.state.open_loops.len(),
            running: false,
            problem,
        }
    }

    /// What was decided for it.
    pub fn settings(&self) -> Result<SessionSettings, String> {
        match fs::read(self.path.join(SETTINGS)) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| format!("{SETTINGS} of {} cannot be read: {error}", self.session)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SessionSettings::default()),
            Err(error) => Err(format!("{SETTINGS} of {} cannot be read: {error}", self.session)),
        }
    }

    /// Decides something for it.
    pub(crate) fn set(&self, settings: &SessionSettings) -> io::Result<()> {
        self.make()?;
        let text = serde_json::to_vec_pretty(settings).map_err(io::Error::other)?;
        secret_file::write(&self.path.join(SETTINGS), &text)
    }

    fn trace_numbers(&self) -> Result<Vec<u32>, EventError> {
        self.traces().numbers().map_err(|error| EventError {
            file: self.session.to_string(),
            line: 0,
            problem: error.to_string(),
        })
    }

    /// The events of the last file, and of those before it where the last has no turn.
    pub(crate) fn last_events(&self) -> Result<Vec<Event>, EventError> {
        let (traces, numbers) = (self.traces(), self.trace_numbers()?);
        let mut events: Vec<Event> = Vec::new();
        for number in numbers.iter().rev().take(LOOKED_THROUGH) {
            let mut before = traces.read(*number)?;
            before.append(&mut events);
            events = before;
            if events.iter().any(|event| event.kind == kinds::TURN_START) {
                break;
            }
        }
        Ok(events)
    }

    /// Every event that is kept, file by file.
    pub fn events(&self) -> Result<Vec<(String, Vec<Event>)>, EventError> {
        let traces = self.traces();
        self.trace_numbers()?
            .into_iter()
            .map(|number| Ok((TraceFiles::name(number), traces.read(number)?)))
            .collect()
    }
}

/// What the last events are of, from its start on: a turn, or a note of a person.
pub(crate) fn last_step(events: &[Event]) -> Option<&[Event]> {
    let begins =
        |event: &Event| event.kind == kinds::TURN_START || event.kind == kinds::PERSON_NOTE;
    let start = events.iter().rposition(begins)?;
    events.get(start..)
}

/// The note of a person that a step is, if it is one.
pub(crate) fn note_of(step: &[Event]) -> Option<&Event> {
    step.first().filter(|event| event.kind == kinds::PERSON_NOTE)
}

/// A number in the data of a turn's start.
pub(crate) fn start_number(turn: &[Event], name: &str) -> Option<u64> {
    turn.first().and_then(|start| start.part(name).as_u64())
}

/// A value of an event as text.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
