//! The folder of a session: its checkpoint, its settings and its traces.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use tollgate_gate::secret_file;
use tollgate_protocol::{Checkpoint, SessionName};

use super::{
    autopsy::TurnLine,
    checkpoint_file::{CheckpointFile, SaveError},
    journal::{Event, EventError, kinds},
    settings::SessionSettings,
    trace_file::TraceFiles,
};

const SETTINGS: &str = "settings.json";

/// Where a session is kept.
#[derive(Debug, Clone)]
pub struct SessionFolder {
    path: PathBuf,
    session: SessionName,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionSummary {
    /// Its name.
    pub session_id: SessionName,
    /// How many turns it has had.
    pub revision: u64,
    /// When the last one ended, in seconds since 1970.
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(self.traces().folder())
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

    /// The events of the last file, and of the one before it where the last has no whole turn.
    pub(crate) fn last_events(&self) -> Result<Vec<Event>, EventError> {
        let traces = self.traces();
        let numbers = traces.numbers().map_err(|error| EventError {
            file: self.session.to_string(),
            line: 0,
            problem: error.to_string(),
        })?;
        let mut events: Vec<Event> = Vec::new();
        for number in numbers.iter().rev().take(2) {
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
        let numbers = traces.numbers().map_err(|error| EventError {
            file: self.session.to_string(),
            line: 0,
            problem: error.to_string(),
        })?;
        numbers
            .into_iter()
            .map(|number| Ok((TraceFiles::name(number), traces.read(number)?)))
            .collect()
    }
}

/// The turn that the last events are of, if they are of one: from its start on.
pub(crate) fn last_turn(events: &[Event]) -> Option<&[Event]> {
    let start = events.iter().rposition(|event| event.kind == kinds::TURN_START)?;
    events.get(start..)
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
