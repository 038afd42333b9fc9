//! A session that is opened for a turn: its checkpoint is loaded, a turn that a crash cut off is closed, and its trace
//! is ready to be written.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_contract::{
    Error,
    error::{Conflict, Internal},
    text::Clean,
};
use tollgate_protocol::Checkpoint;

use super::{
    again::sha256,
    checkpoint_file::SaveError,
    journal::{Event, Sink, kinds, seconds},
    recover::{is_cut_off, mend},
    run::{AgentEvent, Listener},
    session::{SessionFolder, last_turn},
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
    folder.make().map_err(|error| failed("cannot be made", &error))?;
    let settings = folder.settings().map_err(|problem| Error::from(Internal::new(problem)))?;
    let (mut checkpoint, mut warnings) = folder.load().map_err(unreadable)?;
    // To read a long trace takes a while; a session that was saved here needs no mending.
    let events = if saved == Some(checkpoint.revision) {
        Vec::new()
    } else {
        folder.last_events().map_err(|error| failed("has a trace that cannot be read", &error))?
    };
    let traces = folder.traces();
    let writer = traces
        .append_to_last()
        .map_err(|error| failed("has a trace that cannot be written", &error))?;
    let mut writer = match writer {
        Some(writer) => writer,
        None => traces
            .begin(limits)
            .map_err(|error| failed("has a trace that cannot be written", &error))?,
    };
    if let Some(turn) = last_turn(&events).filter(|turn| is_cut_off(turn, &checkpoint)) {
        let mut mended = mend(turn, &checkpoint).ok_or_else(|| {
            failed("has a turn that was cut off and", &"its trace cannot be read")
        })?;
        mended.checkpoint.updated_ts = seconds(now);
        let unwritable =
            |error: std::io::Error| failed("has a trace that cannot be written", &error);
        let data = json!({"turn": mended.turn, "unknown_calls": mended.unknown});
        writer.write(&Event::new(now, kinds::RECOVERED, data)).map_err(unwritable)?;
        let expected = checkpoint.revision;
        folder.checkpoint().save(&mended.checkpoint, expected).map_err(unreadable)?;
        let saved = Event::new(now, kinds::CHECKPOINT, saved_event(&mended.checkpoint));
        writer.write(&saved).map_err(unwritable)?;
        checkpoint = mended.checkpoint;
        warnings.push(match mended.unknown.as_slice() {
            [] => format!("turn {} was cut off; what it had come to is kept", mended.turn),
            calls => format!(
                "turn {} was cut off while {} ran, and nobody knows whether it took effect; look before it is called again",
                mended.turn,
                calls.join(", ")
            ),
        });
    }
    let is_new = writer.is_empty();
    Ok(Opened { checkpoint, settings, writer, is_new, tail: Vec::new(), warnings })
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
        error => Internal::new(error.to_string()).into(),
    }
}

/// Where a live turn's events go: to the file, and to whoever listens.
pub(super) struct LiveSink {
    pub(super) writer: TraceWriter,
    pub(super) clock: Arc<dyn tollgate_gate::Clock>,
    pub(super) listener: Listener,
}

impl Sink for LiveSink {
    fn write(&mut self, kind: &str, data: Value) -> Result<(), String> {
        let event = Event::new(self.clock.now_ms(), kind, data);
        self.writer.write(&event).map_err(|error| error.to_string())?;
        (self.listener)(AgentEvent::Step(event));
        Ok(())
    }
}
