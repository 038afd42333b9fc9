//! The end of a turn: notes are applied, actions run, history is folded, and the next checkpoint is made.

use serde_json::{Value, json};
use tollgate_contract::id::MemoryId;
use tollgate_protocol::{
    Action, ChatMessage, Checkpoint, Folded, NotesPatch, Role, bound_exchange, bounded, fold,
};

use super::{
    journal::{kinds, seconds},
    question::Instruction,
    roles::PipelineRole,
    turn::{Over, Turn},
    world::{Remember, World},
};

/// What a model is told that is to sum up what leaves the history.
const CONDENSE: &str = "You keep the memory of an agent. Sum up what follows, together with the summary so far, in at most 200 words: what was asked, done, decided and found out, with names and numbers. Write only the summary.";

/// How much of what leaves is shown to it at most, in bytes.
const SHOWN: usize = 24 * 1024;
/// How much of that for every two tokens that it has room for: half of the room, where a token has three bytes, and less
/// where it has more.
const SHOWN_PER_TWO_TOKENS: usize = 3;

/// A turn whose talking is over.
pub(crate) struct Finish<'a, W: World> {
    turn: Turn<'a, W>,
    next: Checkpoint,
    /// What belongs into memory.
    records: Vec<Remember>,
    tags: Vec<String>,
    done: Vec<Value>,
    /// The history and the summary before anything was folded.
    unfolded: Option<(Vec<ChatMessage>, String)>,
}

impl<'a, W: World> Finish<'a, W> {
    pub(crate) fn of(turn: Turn<'a, W>) -> Self {
        let next = turn.checkpoint.clone();
        Self { turn, next, records: Vec::new(), tags: Vec::new(), done: Vec::new(), unfolded: None }
    }

    pub(crate) async fn run(mut self) -> Result<Over, String> {
        self.keep_messages();
        let actions = self.notes()?;
        for action in actions {
            self.action(action).await?;
        }
        if !self.done.is_empty() {
            let data = json!({"actions": std::mem::take(&mut self.done)});
            self.turn.write(kinds::ACTIONS, data)?;
        }
        if self.turn.setup.bounds().are_exceeded(&self.next.recent_messages) {
            let folded = self.fold(true);
            let data =
                json!({"problem": "the history was full and was folded", "messages": folded});
            self.turn.write(kinds::WARNING, data)?;
        }
        self.remember().await?;
        self.cite()?;
        self.close()
    }

    /// What was said in this turn joins the history, as it is kept.
    fn keep_messages(&mut self) {
        let most = self.turn.setup.bounds().message_bytes;
        let mut said: Vec<ChatMessage> = self
            .turn
            .said
            .iter()
            .map(|said| ChatMessage::new(said.kept.role, bounded(&said.kept.content, most)))
            .collect();
        if let Some(why) = self.turn.outcome() {
            // Whoever reads the history must know that an answer is missing.
            let is_missing = said.last().is_none_or(|last| last.role != Role::Assistant);
            if is_missing {
                said.push(ChatMessage::new(Role::Assistant, format!("(no answer: {why})")));
            }
        }
        bound_exchange(&mut said, &self.turn.setup.bounds());
        self.next.recent_messages.extend(said);
    }

    fn notes(&mut self) -> Result<Vec<Action>, String> {
        let limits = self.turn.limits;
        let mut actions = Vec::new();
        for payload in std::mem::take(&mut self.turn.notes) {
            let (patch, mut warnings) = NotesPatch::read(&payload, &limits);
            let applied = patch.apply(&mut self.next.state, &limits);
            warnings.extend(applied.warnings);
            let evicted = applied.evicted.into_iter().map(|text| format!("decision: {text}"));
            self.records.extend(evicted.map(|text| Remember { text, tags: Vec::new() }));
            self.tags.extend(applied.tags);
            actions.extend(patch.actions());
            let data = json!({"patch": payload, "changed": applied.changed, "warnings": warnings});
            self.turn.write(kinds::NOTES_PATCH, data)?;
        }
        Ok(actions)
    }

    async fn action(&mut self, action: Action) -> Result<(), String> {
        let name = action.to_string();
        let outcome = match action {
            Action::Unknown(_) => "ignored: there is no such action".to_owned(),
            Action::NoCapability(_) => "ignored: there is no such capability".to_owned(),
            Action::Request(capability) => self.turn.world.request(&capability).await,
            // A model grants itself nothing: its word is a request.
            Action::Grant(capability) => {
                let requested = self.turn.world.request(&capability).await;
                format!("only a person grants; taken as a request: {requested}")
            }
            Action::CondenseNow => format!("{} messages folded", self.fold(true)),
            Action::CondenseSmart => self.condense_smart().await?,
        };
        self.done.push(json!({"action": bounded(&name, 200), "outcome": outcome}));
        Ok(())
    }

    /// Folds the history. Says how many messages left.
    fn fold(&mut self, summarise: bool) -> usize {
        self.unfolded.get_or_insert_with(|| {
            (self.next.recent_messages.clone(), self.next.state.episode_summary.clone())
        });
        let (bounds, limits) = (self.turn.setup.bounds(), self.turn.limits);
        let (messages, state) = (&mut self.next.recent_messages, &mut self.next.state);
        let folded = fold(messages, state, &bounds, &limits, summarise);
        self.keep_folded(&folded);
        folded.messages
    }

    fn keep_folded(&mut self, folded: &Folded) {
        let tags = &self.next.state.memory_tags;
        let tags: Vec<String> = tags.iter().rev().take(8).cloned().collect();
        let records = folded.exchanges.iter();
        let records = records.map(|text| Remember { text: text.clone(), tags: tags.clone() });
        self.records.extend(records);
    }

    /// Folds the history, and the model sums up what leaves. Where it does not, lines of it stay instead.
    async fn condense_smart(&mut self) -> Result<String, String> {
        if self.turn.must_stop()? || self.turn.error.is_some() {
            return Ok(format!("{} messages folded; the turn was over", self.fold(true)));
        }
        if !self.turn.world.has_leisure() {
            return Ok("put off: the gate is in trouble".to_owned());
        }
        let (bounds, limits) = (self.turn.setup.bounds(), self.turn.limits);
        let (mut messages, mut state) =
            (self.next.recent_messages.clone(), self.next.state.clone());
        let folded = fold(&mut messages, &mut state, &bounds, &limits, false);
        if folded.messages == 0 {
            return Ok("there is nothing to fold".to_owned());
        }
        let room = usize::try_from(self.turn.setup.model.room()).unwrap_or(usize::MAX);
        let most = SHOWN.min(room.saturating_mul(SHOWN_PER_TWO_TOKENS) / 2);
        let text = bounded(&folded.exchanges.join("\n\n"), most);
        let before = bounded(&self.next.state.episode_summary, most / 2);
        let question = format!("Summary so far:\n{before}\n\nWhat follows:\n{text}");
        let answer = self.turn.ask_aside(CONDENSE, &question).await?;
        let Some(summary) = answer.filter(|summary| !summary.trim().is_empty()) else {
            return Ok(format!("the model gave no summary; {} messages folded", self.fold(true)));
        };
        self.unfolded.get_or_insert_with(|| {
            (self.next.recent_messages.clone(), self.next.state.episode_summary.clone())
        });
        self.next.recent_messages = messages;
        self.next.state.episode_summary =
            summary.trim().chars().take(limits.summary).collect::<String>();
        self.keep_folded(&folded);
        Ok(format!("{} messages folded into a summary", folded.messages))
    }

    async fn remember(&mut self) -> Result<(), String> {
        if !self.tags.is_empty() && !self.turn.kept_visible.is_empty() {
            let asked = self.turn.said.first().map_or("", |said| said.kept.content.as_str());
            let (asked, answer) = (bounded(asked, 2000), bounded(&self.turn.kept_visible, 6000));
            let text = format!("user: {asked}\nassistant: {answer}");
            self.records.push(Remember { text, tags: std::mem::take(&mut self.tags) });
        }
        let records = std::mem::take(&mut self.records);
        if records.is_empty() {
            return Ok(());
        }
        let count = records.len();
        let (remembered, embedding) = self.turn.world.remember(records).await;
        self.turn.count(&embedding);
        let told = embedding.written();
        match remembered {
            Ok(ids) => {
                let data = json!({"records": count, "ids": ids, "embedding": told});
                self.turn.write(kinds::MEMORY_WRITE, data)?;
                self.turn.warn_of(&embedding)?;
                self.next.state.refer(ids, &self.turn.limits);
            }
            Err(problem) => {
                let data = json!({
                    "records": count, "ids": [], "error": problem, "embedding": told,
                });
                self.turn.write(kinds::MEMORY_WRITE, data)?;
                // What could not be moved into memory stays, unless that has failed for long.
                let most = self.turn.setup.bounds().messages.saturating_mul(4);
                if let Some((messages, summary)) = self.unfolded.take()
                    && messages.len() <= most
                {
                    self.next.recent_messages = messages;
                    self.next.state.episode_summary = summary;
                }
            }
        }
        Ok(())
    }

    /// Citations are checked against what was retrieved.
    fn cite(&mut self) -> Result<(), String> {
        let retrieved = self.turn.recalled.iter().filter_map(|one| MemoryId::parse(&one.id).ok());
        let retrieved: Vec<MemoryId> = retrieved.collect();
        let unknown = tollgate_memory::unknown_citations(&self.turn.kept_visible, &retrieved);
        if unknown.is_empty() {
            return Ok(());
        }
        let problem = "the answer cites memories that were not retrieved";
        self.turn.write(kinds::WARNING, json!({"problem": problem, "citations": unknown}))
    }

    fn close(mut self) -> Result<Over, String> {
        let (granted, pending) = self.turn.world.capabilities();
        self.next.state.project(granted, pending);
        self.next.trace_tail.clone_from(&self.turn.setup.trace_tail);
        self.next.revision = self.turn.setup.revision + 1;
        let (error, stop) = (self.turn.error.clone(), self.turn.stop);
        let data = json!({
            "ok": error.is_none() && stop.is_none(), "error": error, "stop": stop,
            "visible": self.turn.kept_visible, "totals": self.turn.totals,
            "capabilities": {
                "granted": self.next.state.capabilities_granted,
                "pending": self.next.state.capabilities_pending,
            },
        });
        self.turn.write(kinds::TURN_DONE, data)?;
        self.next.updated_ts = seconds(self.turn.world.now_ms());
        Ok(Over {
            checkpoint: self.next,
            totals: self.turn.totals,
            error,
            stop,
            visible: String::new(),
            kept_visible: self.turn.kept_visible,
        })
    }
}

impl<W: World> Turn<'_, W> {
    /// Why there is no answer, if there is none.
    fn outcome(&self) -> Option<String> {
        match (&self.error, self.stop) {
            (Some(error), _) => Some(error.message.clone()),
            (None, Some(super::world::Stop::Cancelled)) => {
                Some("the turn was cancelled".to_owned())
            }
            (None, Some(super::world::Stop::Time)) => Some("the turn's time was over".to_owned()),
            (None, None) => None,
        }
    }

    /// Asks the model something that is no part of the conversation.
    async fn ask_aside(
        &mut self,
        system: &'static str,
        question: &str,
    ) -> Result<Option<String>, String> {
        let said = std::mem::take(&mut self.said);
        let history = std::mem::take(&mut self.history);
        self.said.push(super::kept::Said::by_user(question));
        let answer = self.ask(PipelineRole::Reflection, 0, Instruction::Plain(system)).await;
        self.said = said;
        self.history = history;
        // That a summary could not be made is no failure of the turn.
        self.error = None;
        // Half a summary is none.
        Ok(answer?.filter(|_| self.stop.is_none()).map(|answer| answer.kept.visible()))
    }
}
