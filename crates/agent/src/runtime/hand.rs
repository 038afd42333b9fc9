//! A person's hand on a session: what an agent noted is corrected between two turns, and the trace tells of it, so that
//! a replay of the turns behind it still agrees.
//!
//! First the trace has the note with the state that it comes to, then the checkpoint is saved, then the trace says that
//! it was. A crash behind the first of these loses nothing: whoever opens the session next does the rest. A crash
//! before it is a note that nobody was told had been taken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Error, KeyScope,
    error::{Conflict, Internal, NotFound},
    redact::redact,
    text::Clean,
};
use tollgate_gate::Principal;
use tollgate_protocol::{
    Checkpoint, Limits, NoteEntry, Noted, PersonNote, PersonNoteError, SessionName, State,
};

use super::{
    checkpoint_file::SaveError,
    journal::{Event, kinds, seconds},
    opened::{Opened, open, saved_event, unreadable},
    run::{Doing, Inner, Place, Runtime, invalid, not_found},
    session::SessionFolder,
};

/// What a person's note came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NoteReport {
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionName,
    /// Where it stands now. A note that changes nothing leaves it as it was.
    pub revision: u64,
    /// Its state.
    pub state: State,
    /// What was added. What was there before is not among it.
    pub added: Vec<NoteEntry>,
    /// What was taken away.
    pub removed: Vec<NoteEntry>,
    /// Is the summary another one?
    pub summary_changed: bool,
    /// What a reader should know: a turn before this that was cut off, a copy that was used.
    pub warnings: Vec<String>,
}

impl Runtime {
    /// Notes something in a session, in place of its agent. Only an operator does, and only between two turns; with
    /// a `revision`, only if the session is still there.
    pub async fn note(
        &self,
        by: &Principal,
        session: &SessionName,
        note: PersonNote,
        revision: Option<u64>,
    ) -> Result<NoteReport, Error> {
        by.require(KeyScope::Admin)?;
        let place = self.enter_to_note(session).await?;
        let (inner, by) = (Arc::clone(&self.inner), by.clone());
        // Whoever goes away meanwhile does not leave it half done.
        let work = move || {
            let done = inner.note(&by, &place.session, &note, revision);
            drop(place);
            done
        };
        let done = self.inner.tasks.spawn_blocking(work).await;
        done.unwrap_or_else(|_| Err(Internal::new("noting ended early").into()))
    }
}

/// How long a note waits for others, which take a moment each, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Runtime {
    /// Notes stand in line; a turn is not waited for.
    async fn enter_to_note(&self, session: &SessionName) -> Result<Place, Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            let entered = self.inner.enter(session, &CancellationToken::new(), Doing::Note);
            let is_turn = self.inner.runs_turn(session);
            match entered {
                Err(_) if !is_turn && Instant::now() < end => tokio::time::sleep(LOOK_AGAIN).await,
                entered => return entered,
            }
        }
    }
}

impl Inner {
    fn note(
        &self,
        by: &Principal,
        session: &SessionName,
        note: &PersonNote,
        revision: Option<u64>,
    ) -> Result<NoteReport, Error> {
        let folder = SessionFolder::new(&self.folder, session.clone());
        if !folder.exists() {
            return Err(not_found(session));
        }
        let (limits, now) = (self.config().trace_limits(), self.gate.clock().now_ms());
        let saved = self.known().get(session).and_then(|known| known.revision);
        let mut opened = open(&folder, &limits, now, saved)?;
        let found = opened.checkpoint.revision;
        if let Some(expected) = revision.filter(|expected| *expected != found) {
            let problem = format!(
                "the session {session} has gone on: it is at revision {found}, and this is meant for {expected}; look at it again"
            );
            return Err(Conflict::new(Clean::already(problem)).into());
        }
        let noted = note
            .apply(&opened.checkpoint.state, &Limits::default())
            .map_err(|problem| refused(session, problem))?;
        if noted.is_change() {
            self.keep(&mut opened, &folder, by, &noted, now)?;
        }
        Ok(NoteReport {
            session_id: session.clone(),
            revision: opened.checkpoint.revision,
            state: noted.state,
            added: noted.added,
            removed: noted.removed,
            summary_changed: noted.summary.is_some(),
            warnings: opened.warnings,
        })
    }

    /// Writes a note down, saves what it comes to, and says so.
    fn keep(
        &self,
        opened: &mut Opened,
        folder: &SessionFolder,
        by: &Principal,
        noted: &Noted,
        now: i64,
    ) -> Result<(), Error> {
        let session = folder.session();
        self.write_head(opened, folder, &self.config(), by)?;
        let before = &opened.checkpoint;
        let kept = Kept {
            revision: before.revision + 1,
            updated_ts: seconds(now),
            state: noted.state.clone(),
            trace_tail: opened.tail.clone(),
            messages: noted.struck(&before.recent_messages),
        };
        let event = Event::as_is(now, kinds::PERSON_NOTE, told(by, before, &kept, noted));
        let lost = || Internal::new("a note does not fit the session that it was made for");
        let next = kept.in_place_of(before).ok_or_else(lost)?;
        // On the disk before the checkpoint is: what a replay knows of the state stands in it.
        let written = opened.writer.write(&event).and_then(|()| opened.writer.sync());
        written.map_err(|error| {
            Internal::new(format!("the trace of {session} cannot be written: {error}"))
        })?;
        folder.checkpoint().save(&next, before.revision).map_err(|error| match error {
            error @ SaveError::Io { .. } => {
                let rest =
                    "the note is in the trace, and counts as soon as the session can be saved";
                Internal::new(format!("{error}; {rest}")).into()
            }
            error => unreadable(error),
        })?;
        let event = Event::new(now, kinds::CHECKPOINT, saved_event(&next));
        match opened.writer.write(&event) {
            Ok(()) => self.know_saved(session, next.revision),
            // It is saved. That the trace does not say so is made good when the session is opened again.
            Err(error) => {
                tracing::warn!(%session, %error, "the end of a note is missing in its trace")
            }
        }
        opened.checkpoint = next;
        Ok(())
    }
}

/// What the trace has of a note.
fn told(by: &Principal, before: &Checkpoint, kept: &Kept, noted: &Noted) -> Value {
    let mut data = json!({
        "by": by.account(), "revision": before.revision, "added": noted.added,
        "removed": noted.removed, "episode_summary": noted.summary,
    });
    redact(&mut data);
    // As it is saved: what is in it was redacted when it came in, and once more might make it another.
    if let Some(members) = data.as_object_mut() {
        members.insert("checkpoint".to_owned(), serde_json::to_value(kept).unwrap_or_default());
    }
    data
}

/// What a note changes of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    revision: u64,
    updated_ts: f64,
    state: State,
    trace_tail: Vec<String>,
    /// The messages that read otherwise now, by their place. All others stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<(usize, String)>,
}

impl Kept {
    /// The checkpoint that this makes of the one before; nothing where that lacks a message which is to be another.
    fn in_place_of(self, before: &Checkpoint) -> Option<Checkpoint> {
        let Self { revision, updated_ts, state, trace_tail, messages } = self;
        let mut next = Checkpoint { revision, updated_ts, state, trace_tail, ..before.clone() };
        for (place, content) in messages {
            next.recent_messages.get_mut(place)?.content = content;
        }
        Some(next)
    }
}

/// The checkpoint that a recorded note made of the one before it; nothing where the event is no such note.
pub(super) fn noted(event: &Event, before: &Checkpoint) -> Option<Checkpoint> {
    Kept::deserialize(event.part("checkpoint")).ok()?.in_place_of(before)
}

fn refused(session: &SessionName, problem: PersonNoteError) -> Error {
    match problem {
        PersonNoteError::Unknown(text) => {
            let what = format!(
                "entry of {session} with exactly these words (`tollgate agent show {session}` lists them):"
            );
            NotFound::new(what, text.as_str()).into()
        }
        problem => invalid(problem.to_string()),
    }
}
