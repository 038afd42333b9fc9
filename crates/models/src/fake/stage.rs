//! Where a script is played: which reply comes next, and who asked what.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream::unfold};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    ask::Asked,
    frames::{Line, Speaks},
    script::{Reply, Script},
    vectors,
};

/// How many requests are remembered, and how many bytes of them.
const MOST_SEEN: usize = 1_000;
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// A request that came, as `GET /requests` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Its number, from 1.
    pub n: u64,
    /// What it asked for.
    pub path: String,
    /// What it said.
    pub body: Value,
    /// Did a key come along?
    pub key: bool,
    /// What became of the answer.
    pub ended: Ended,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It is being sent.
    Sending,
    /// All of it was sent.
    Complete,
    /// Whoever asked went away before.
    Left,
    /// The script cut it.
    Cut,
}

/// A script that is being played. Clones play the same one.
#[derive(Clone)]
pub(crate) struct Stage {
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    state: Mutex<State>,
    /// The end of everything that waits.
    over: CancellationToken,
}

#[derive(Default)]
struct State {
    asked: u64,
    /// How often each reply was given.
    given: Vec<u32>,
    seen: VecDeque<(usize, Seen)>,
    bytes: usize,
}

/// What is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Chat,
    Messages,
    Embeddings,
}

/// An answer, as it is played.
pub(crate) struct Performance {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content_type: &'static str,
    pub(crate) delay: Duration,
    pub(crate) body: Played,
}

/// A connection that was cut.
#[derive(Debug, thiserror::Error)]
#[error("the script cuts the connection here")]
pub(crate) struct Cut;

/// The pieces of an answer, with what happens in between.
pub(crate) struct Played {
    pieces: VecDeque<Bytes>,
    given: usize,
    pause: Duration,
    hang_after: Option<usize>,
    drop_after: Option<usize>,
    note: Note,
}

impl Stage {
    pub(crate) fn new(script: Script, over: CancellationToken) -> Self {
        let state = State { given: vec![0; script.replies.len()], ..State::default() };
        Self { shared: Arc::new(Shared { script, state: Mutex::new(state), over }) }
    }

    pub(crate) fn model(&self) -> &str {
        &self.shared.script.model
    }

    pub(crate) fn over(&self) -> &CancellationToken {
        &self.shared.over
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.iter().map(|(_, seen)| seen.clone()).collect()
    }

    /// Plays the answer to a request.
    pub(crate) fn play(&self, what: What, path: &str, body: Value, key: bool) -> Performance {
        let asked = Asked::read(&body);
        let made = match what {
            What::Embeddings => Some(vectors::answer(&body, self.model())),
            What::Chat | What::Messages => None,
        };
        let size = asked.length;
        let seen = Seen { n: 0, path: path.to_owned(), body, key, ended: Ended::Sending };
        let (number, reply) = {
            let mut state = self.shared.state();
            state.asked += 1;
            let number = state.asked;
            state.keep(size, Seen { n: number, ..seen });
            let chosen = made.is_none().then(|| state.choose(&self.shared.script, &asked));
            (number, chosen.flatten())
        };
        let note = Note { shared: Arc::clone(&self.shared), number, ended: false };
        match (made, reply) {
            (Some(made), _) => Performance::plain(200, made.to_string(), note),
            (None, None) => {
                let problem = "the script is at its end: no reply is left that fits this request";
                let body = json!({"error": {"message": problem, "type": "server_error"}});
                Performance::plain(500, body.to_string(), note)
            }
            (None, Some(reply)) => {
                let speaks = if what == What::Chat { Speaks::OpenAi } else { Speaks::Anthropic };
                let line = Line::new(&reply, &asked, speaks, self.model(), number);
                Performance::of(&reply, &line, speaks, asked.stream, note)
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, size: usize, seen: Seen) {
        self.bytes += size;
        self.seen.push_back((size, seen));
        while self.seen.len() > MOST_SEEN || (self.bytes > MOST_BYTES && self.seen.len() > 1) {
            if let Some((size, _)) = self.seen.pop_front() {
                self.bytes -= size;
            }
        }
    }

    fn choose(&mut self, script: &Script, asked: &Asked) -> Option<Reply> {
        if let Some(reply) = self.next(script, asked) {
            return Some(reply);
        }
        if script.repeats {
            self.given.fill(0);
            return self.next(script, asked);
        }
        None
    }

    fn next(&mut self, script: &Script, asked: &Asked) -> Option<Reply> {
        let left = |at: usize, reply: &Reply| match reply.times.unwrap_or(1) {
            0 => true,
            times => self.given.get(at).is_some_and(|given| *given < times),
        };
        let fits = |reply: &Reply| reply.when.as_ref().is_some_and(|when| asked.fits(when));
        let replies = || script.replies.iter().enumerate();
        let at = replies()
            .find(|(at, reply)| fits(reply) && left(*at, reply))
            .or_else(|| replies().find(|(at, reply)| reply.when.is_none() && left(*at, reply)));
        let (at, reply) = at?;
        if let Some(given) = self.given.get_mut(at) {
            *given = given.saturating_add(1);
        }
        Some(reply.clone())
    }
}

impl Performance {
    fn plain(status: u16, body: String, note: Note) -> Self {
        let pieces = VecDeque::from([Bytes::from(body)]);
        let body = Played {
            pieces,
            given: 0,
            pause: Duration::ZERO,
            hang_after: None,
            drop_after: None,
            note,
        };
        let content_type = "application/json";
        Self { status, headers: Vec::new(), content_type, delay: Duration::ZERO, body }
    }

    fn of(reply: &Reply, line: &Line, speaks: Speaks, stream: bool, note: Note) -> Self {
        let status = reply.status.unwrap_or(200);
        let (content_type, pieces) = pieces(reply, line, speaks, stream, status);
        let body = Played {
            pieces: pieces.into(),
            given: 0,
            pause: Duration::from_millis(reply.chunk_delay_ms),
            hang_after: reply.hang_after,
            drop_after: reply.drop_after,
            note,
        };
        let headers = reply.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        let headers = headers.collect();
        let delay = Duration::from_millis(reply.delay_ms);
        Self { status, headers, content_type, delay, body }
    }
}

fn pieces(
    reply: &Reply,
    line: &Line,
    speaks: Speaks,
    stream: bool,
    status: u16,
) -> (&'static str, Vec<Bytes>) {
    if let Some(raw) = reply.raw() {
        let content_type = if stream { "text/event-stream" } else { "application/json" };
        let size = reply.chunk.unwrap_or(raw.len()).max(1);
        return (content_type, raw.chunks(size).map(Bytes::copy_from_slice).collect());
    }
    if status != 200 || reply.body.is_some() {
        let usual = || json!({"error": {"message": "the script says so", "type": "scripted"}});
        let body = reply.body.clone().unwrap_or_else(|| usual().to_string());
        return ("application/json", vec![Bytes::from(body)]);
    }
    if stream {
        let (mut pieces, end) = line.streamed(speaks);
        pieces.extend(end);
        return ("text/event-stream", pieces);
    }
    // In two pieces, so that there is something in between to hang or to cut.
    let whole = Bytes::from(line.whole(speaks).to_string());
    let middle = whole.len() / 2;
    ("application/json", vec![whole.slice(..middle), whole.slice(middle..)])
}

impl Played {
    /// The pieces as they come. What hangs ends when the play is over.
    pub(crate) fn stream(self) -> impl Stream<Item = Result<Bytes, Cut>> + Send {
        unfold(Some(self), |played| async move {
            let mut played = played?;
            match played.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(played))),
                Ok(None) => None,
                Err(cut) => Some((Err(cut), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        // What was given before goes out first, in a piece of its own, also where the connection is cut now.
        tokio::task::yield_now().await;
        if self.hang_after == Some(self.given) {
            self.note.shared.over.cancelled().await;
            return Err(Cut);
        }
        if self.drop_after == Some(self.given) {
            self.note.write(Ended::Cut);
            return Err(Cut);
        }
        let Some(piece) = self.pieces.pop_front() else {
            self.note.write(Ended::Complete);
            return Ok(None);
        };
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        self.given += 1;
        Ok(Some(piece))
    }
}

/// Notes what becomes of an answer. One that is dropped before its end was left.
struct Note {
    shared: Arc<Shared>,
    number: u64,
    ended: bool,
}

impl Note {
    fn write(&mut self, ended: Ended) {
        self.ended = true;
        let mut state = self.shared.state();
        let seen = state.seen.iter_mut().rev().find(|(_, seen)| seen.n == self.number);
        if let Some((_, seen)) = seen {
            seen.ended = ended;
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if !self.ended {
            self.write(Ended::Left);
        }
    }
}
