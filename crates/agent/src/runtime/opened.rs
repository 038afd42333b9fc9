//! A session that is opened for a turn or a note: its checkpoint is loaded, what a crash cut off is closed, and its trace
//! is ready to be written.

use std::{io, sync::Arc};

use serde_json::{Value, json};
use tollgate_contract::{
    Error,
    error::{Conflict, Internal},
    text::Clean,
};
use tollgate_protocol::Checkpoint;

use super::{
    again::{rebuilt, sha256},
    checkpoint_file::SaveError,
    hand::noted,
    journal::{Event, Sink, kinds, seconds},
    recover::{is_cut_off, mend},
    run::{AgentEvent, Listener},
    session::{SessionFolder, last_step, note_of},
    settings::SessionSettings,
    trace_file::{TraceLimits, TraceWriter},
};

/// A session that is ready for a turn.
pub(super) struct Opened {
    pub(super) checkpoint: Checkpoint,
    pub(super) settings: SessionSettings,
    pub(super) writer: TraceWriter,
    /// Has the file of the trace no head yet?
    pub(super) is_new: bool,
    pub(super) tail: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Opens a session. `saved` is the revision that this process has saved last.
pub(super) fn open(
    folder: &SessionFolder,
    limits: &TraceLimits,
    now: i64,
    saved: Option<u64>,
) -> Result<Opened, Error> {
    let failed = |what: &str, problem: &dyn std::fmt::Display| {
        Error::from(Internal::new(format!("the session {} {what}: {problem}", folder.session())))
    };
    let unwritable = |error: io::Error| failed("has a trace that cannot be written", &error);
    folder.make().map_err(|error| failed("cannot be made", &error))?;
    let settings = folder.settings().map_err(|problem| Error::from(Internal::new(problem)))?;
    let (checkpoint, mut warnings) = match folder.load() {
        Ok(loaded) => loaded,
        // Neither can be read. The trace may tell all of it; the files are kept aside for whoever wants to look.
        Err(error @ SaveError::Damaged { .. }) if folder.checkpoint().is_damaged() => {
            let problem = error.to_string();
            if tokio::runtime::Handle::current().block_on(rebuilt(folder)).is_none() {
                return Err(unreadable(error));
            }
            folder.checkpoint().set_aside().map_err(unreadable)?;
            folder.load().map(|(checkpoint, _)| (checkpoint, vec![problem])).map_err(unreadable)?
        }
        Err(error) => return Err(unreadable(error)),
    };
    let traces = folder.traces();
    // To read a long trace takes a while; a session that was saved here needs no mending.
    let read =
        if saved == Some(checkpoint.revision) { Ok(Vec::new()) } else { folder.last_events() };
    let (events, last) = match read {
        Ok(events) => (events, traces.append_to_last().map_err(unwritable)?),
        Err(problem) => {
            // The checkpoint is sound. What the trace would tell of a turn behind it is lost, and said to be.
            warnings.push(format!(
                "the trace cannot be read ({problem}); a new one is begun, and if the last turn was cut off, what it had come to is not known"
            ));
            if checkpoint.revision == 0 {
                let lost = "and there is no checkpoint: goals, constraints and what was said before are lost";
                warnings.push(lost.to_owned());
            }
            (Vec::new(), None)
        }
    };
    let writer = match last {
        Some(writer) => writer,
        None => traces.begin(limits).map_err(unwritable)?,
    };
    let is_new = writer.is_empty();
    let mut opened = Opened { checkpoint, settings, writer, is_new, tail: Vec::new(), warnings };
    opened.make_again(folder, &events)?;
    if let Some(step) = last_step(&events) {
        opened.close(folder, step, now)?;
        // A replay goes from one event to the next: where they do not lead to the checkpoint, a new head does.
        if !opened.is_new && !opened.is_result_of(step) {
            opened.writer = traces.begin(limits).map_err(unwritable)?;
            opened.is_new = true;
        }
    }
    Ok(opened)
}

impl Opened {
    /// Is the checkpoint what this turn or note came to?
    fn is_result_of(&self, step: &[Event]) -> bool {
        let from = step.first().and_then(|start| start.number("revision"));
        from.is_some_and(|from| self.checkpoint.revision == from.saturating_add(1))
    }

    /// Makes a checkpoint again that the trace says was saved, and that is gone or cannot be read: the trace tells all of it.
    fn make_again(&mut self, folder: &SessionFolder, events: &[Event]) -> Result<(), Error> {
        let saved = events.iter().rfind(|event| event.kind == kinds::CHECKPOINT);
        let saved = saved.and_then(|event| event.number("revision")).unwrap_or(0);
        let expected = self.checkpoint.revision;
        // An older one that is sound was brought back by somebody, who will have wanted it.
        if saved <= expected || matches!(folder.checkpoint().load(), Ok(Some((_, None)))) {
            return Ok(());
        }
        // What is run again waits for nothing.
        let again = tokio::runtime::Handle::current().block_on(rebuilt(folder));
        if let Some(again) = again.filter(|again| again.revision == saved) {
            folder.checkpoint().save(&again, expected).map_err(unreadable)?;
            self.checkpoint = again;
            let told = format!("the checkpoint of revision {saved} was made again from the trace");
            self.warnings.push(told);
        }
        Ok(())
    }

    /// Sees to it that the last turn or note is in the checkpoint, and the trace says so.
    fn close(&mut self, folder: &SessionFolder, step: &[Event], now: i64) -> Result<(), Error> {
        if is_cut_off(step, &self.checkpoint) {
            return match note_of(step) {
                Some(note) => self.take_note(folder, note, now),
                None => self.mend(folder, step, now),
            };
        }
        let is_told = step.iter().any(|event| event.kind == kinds::CHECKPOINT);
        if !is_told && self.is_result_of(step) {
            // It was saved, and its process died before it could say so.
            self.tell_saved(now).map_err(unwritable)?;
        }
        Ok(())
    }

    /// Takes a person's note that was written down, and not saved any more. The trace counts: it says all of it.
    fn take_note(&mut self, folder: &SessionFolder, note: &Event, now: i64) -> Result<(), Error> {
        let expected = self.checkpoint.revision;
        let Some(next) = noted(note, &self.checkpoint).filter(|_| {
            // A note goes on from one state. Behind another, such as a copy that somebody brought back, it does not.
            note.number("revision") == Some(expected)
        }) else {
            let problem = "a person's note in the trace does not go on from the checkpoint, and is left out; note it again";
            self.warnings.push(problem.to_owned());
            return Ok(());
        };
        folder.checkpoint().save(&next, expected).map_err(unreadable)?;
        self.checkpoint = next;
        self.tell_saved(now).map_err(unwritable)?;
        self.warnings.push("a person's note that was cut off is kept".to_owned());
        Ok(())
    }

    fn tell_saved(&mut self, now: i64) -> io::Result<()> {
        let data = saved_event(&self.checkpoint);
        self.writer.write(&Event::new(now, kinds::CHECKPOINT, data))
    }

    /// Closes a turn that was cut off.
    fn mend(&mut self, folder: &SessionFolder, turn: &[Event], now: i64) -> Result<(), Error> {
        let Some(mut mended) = mend(turn, &self.checkpoint) else {
            let problem = "the last turn was cut off, and its trace cannot be understood; what it had come to is not known";
            self.warnings.push(problem.to_owned());
            return Ok(());
        };
        let from = turn.first().and_then(|start| start.number("revision"));
        let is_lost = from != Some(self.checkpoint.revision);
        if is_lost {
            self.warnings.push(format!(
                "the checkpoint that turn {} went on from is gone: of what came before it, nothing is left but revision {}",
                mended.turn, self.checkpoint.revision
            ));
        }
        mended.checkpoint.updated_ts = seconds(now);
        let data = json!({"turn": mended.turn, "unknown_calls": mended.unknown});
        self.writer.write(&Event::new(now, kinds::RECOVERED, data)).map_err(unwritable)?;
        let expected = self.checkpoint.revision;
        folder.checkpoint().save(&mended.checkpoint, expected).map_err(unreadable)?;
        self.checkpoint = mended.checkpoint;
        self.tell_saved(now).map_err(unwritable)?;
        self.warnings.push(match mended.unknown.as_slice() {
            [] if is_lost => {
                format!("turn {} is kept as far as its trace tells of it", mended.turn)
            }
            [] => format!("turn {} was cut off; what it had come to is kept", mended.turn),
            calls => format!(
                "turn {} was cut off while {} ran, and nobody knows whether it took effect; look before it is called again",
                mended.turn,
                calls.join(", ")
            ),
        });
        Ok(())
    }
}

fn unwritable(error: io::Error) -> Error {
    Internal::new(format!("a trace cannot be written: {error}")).into()
}

pub(super) fn saved_event(checkpoint: &Checkpoint) -> Value {
    json!({
        "revision": checkpoint.revision, "updated_ts": checkpoint.updated_ts,
        "sha256": sha256(checkpoint),
    })
}

pub(super) fn unreadable(error: SaveError) -> Error {
    match error {
        error @ SaveError::Conflict { .. } => Conflict::new(Clean::new(&error.to_string())).into(),
        error @ SaveError::Damaged { .. } => {
            let told = format!("{error}; put a copy of it back, or begin another session");
            Conflict::new(Clean::new(&told)).into()
        }
        error => Internal::new(error.to_string()).into(),
    }
}

/// Where a live turn's events go: to the file, and to whoever listens.
pub(super) struct LiveSink {
    pub(super) writer: TraceWriter,
    pub(super) clock: Arc<dyn tollgate_gate::Clock>,
    pub(super) listener: Listener,
    /// Does the ledger's record? The trace keeps up with it.
    pub(super) survives_power_loss: bool,
}

impl Sink for LiveSink {
    fn write(&mut self, kind: &str, data: Value) -> Result<(), String> {
        let event = Event::new(self.clock.now_ms(), kind, data);
        let mut written = self.writer.write(&event);
        // What a person said survives also the loss of power. So does that a call began, where the ledger promises
        // that of its own record: the next start must not take it for one that was never made.
        let must_last =
            kind == kinds::TURN_START || (kind == kinds::TOOL_START && self.survives_power_loss);
        if must_last {
            written = written.and_then(|()| self.writer.sync());
        }
        written.map_err(|error| error.to_string())?;
        (self.listener)(AgentEvent::Step(event));
        Ok(())
    }
}
