//! What a model is asked: the system message, as much of the history as there is room for, and how long the answer may be.

use serde_json::{Value, json};
use tollgate_contract::id::MemoryId;
use tollgate_memory::{By, Found};
use tollgate_protocol::{History, Prompt, Share, System};

use super::{
    kept::{PER_MESSAGE, Said, wires},
    roles::PipelineRole,
    turn::{Turn, TurnError, dollars, merge},
    world::World,
};

/// An answer shorter than this is not worth asking for.
const LEAST_ANSWER: u64 = 64;

/// What a model is told before a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// To act: tools, notes, everything.
    Act,
    /// To think for others.
    Think,
    /// This, and nothing of the session.
    Plain(&'static str),
}

/// A question as it goes to `model.chat`.
pub(super) struct Question {
    pub(super) input: Value,
    /// As it is kept.
    pub(super) kept: Value,
    /// What the trace tells of it.
    pub(super) about: Value,
    pub(super) hidden_constraints: usize,
}

impl<W: World> Turn<'_, W> {
    /// The seed's block of what is remembered: the best of it, as much as there is room for.
    fn memory_block(&self, share: Share) -> String {
        let found = self.recalled.iter().filter_map(|one| {
            Some(Found {
                id: MemoryId::parse(&one.id).ok()?,
                score: one.score,
                excerpt: one.excerpt.clone(),
                text: String::new(),
                tags: Vec::new(),
                session: String::new(),
                turn: 0,
                at_ms: 0,
                by: By::Words,
            })
        });
        let mut found = found.collect::<Vec<_>>();
        while !found.is_empty() {
            let block = tollgate_memory::block(&found);
            if block.len() <= Prompt::memory_room(share) {
                return block;
            }
            found.pop();
        }
        String::new()
    }

    /// The system message of a question.
    fn system(&self, role: PipelineRole, instruction: Instruction, share: Share) -> System {
        let memory = self.memory_block(share);
        let common = Prompt {
            state: Some(&self.checkpoint.state),
            memory: &memory,
            upstream: &self.upstream,
            share,
            ..Prompt::default()
        };
        match instruction {
            Instruction::Act => Prompt {
                role: PipelineRole::acts(),
                tools: self.tools,
                native_tools: self.setup.model.native_tools,
                notes: true,
                ..common
            }
            .system(),
            Instruction::Think => Prompt { role: role.thinks(), ..common }.system(),
            Instruction::Plain(text) => System { text: text.to_owned(), hidden_constraints: 0 },
        }
    }

    /// A question: as much of the state as leaves room for it, and of the history as leaves room for both.
    pub(super) fn question(
        &self,
        role: PipelineRole,
        instruction: Instruction,
    ) -> Result<Question, TurnError> {
        let model = &self.setup.model;
        let is_acting = instruction == Instruction::Act;
        let specs: Vec<Value> = if is_acting && model.native_tools {
            self.tools
                .iter()
                .map(|tool| {
                    json!({"name": tool.name, "description": tool.description, "parameters": tool.schema})
                })
                .collect()
        } else {
            Vec::new()
        };
        let count = |text: &str| model.tokenizer.count(text);
        let told = specs.iter().map(|s| count(&s.to_string())).sum::<u64>() + PER_MESSAGE;
        let weighed = |said: &[Said]| said.iter().map(|one| one.weighed(count)).collect::<Vec<_>>();
        let (history, turn) = (weighed(&self.history), weighed(&self.said));
        let short =
            |place: usize, most| self.said.get(place).map_or(0, |one| one.shortened(most, count));
        let mut least = None;
        for share in Share::all() {
            let system = self.system(role, instruction, share);
            let fixed = told + count(&system.text);
            // A quarter at least is for what is said, as long as there is something to leave out instead.
            let is_modest = fixed <= model.room() / 4 * 3;
            match History::fit(fixed, &history, &turn, model.room(), short) {
                Ok(fit) if is_modest => return self.fitted(&system, fixed, fit, &specs),
                Ok(fit) => least = Some(Ok((system, fixed, fit))),
                Err(error) => least = Some(Err(error.to_string())),
            }
        }
        match least.unwrap_or_else(|| Err("there is no room for a question".to_owned())) {
            Ok((system, fixed, fit)) => self.fitted(&system, fixed, fit, &specs),
            Err(problem) => Err(TurnError::new("CONTEXT_TOO_SMALL", problem)),
        }
    }

    /// The input of `model.chat`, as it is and as it is kept, and what is told of it.
    fn fitted(
        &self,
        system: &System,
        fixed: u64,
        fit: History,
        specs: &[Value],
    ) -> Result<Question, TurnError> {
        let model = &self.setup.model;
        let prompt_tokens = fixed + fit.tokens;
        // A byte is a token at most, so that this much more fits in any case.
        let spare = usize::try_from(model.room().saturating_sub(prompt_tokens)).unwrap_or(0);
        let (raw, kept) = wires(&system.text, &self.history, &self.said, fit, spare);
        let max_tokens = self.answer_room(prompt_tokens)?;
        let body = |messages: Vec<Value>| {
            let mut body =
                json!({"model": model.name, "messages": messages, "max_tokens": max_tokens});
            if !specs.is_empty() {
                merge(&mut body, json!({"tools": specs}));
            }
            body
        };
        let about = json!({
            "messages": raw.len(), "prompt_tokens": prompt_tokens, "max_tokens": max_tokens,
            "skipped": fit.skipped, "cut": fit.cut,
            "left": fit.left, "result_bytes": fit.result_bytes,
            "answer_bytes": fit.answer_bytes,
        });
        let hidden_constraints = system.hidden_constraints;
        Ok(Question { input: body(raw), kept: body(kept), about, hidden_constraints })
    }

    /// How long an answer may be, so that it stays inside what the turn may still take.
    fn answer_room(&self, prompt_tokens: u64) -> Result<u64, TurnError> {
        let (budget, totals) = (&self.setup.budget, &self.totals);
        // Servers count otherwise than we do; what is held is counted by them.
        let prompt = prompt_tokens + prompt_tokens / 8 + 64;
        let mut room = self.setup.model.max_output_tokens;
        if let Some(most) = budget.tokens {
            let used = totals.input_tokens.saturating_add(totals.output_tokens);
            room = room.min(most.saturating_sub(used).saturating_sub(prompt));
        }
        if let (Some(most), Some(price)) = (budget.usd_micros, &self.setup.model.price) {
            let left = most.saturating_sub(totals.usd_micros);
            // The longest answer that is paid for, by halving.
            let (mut low, mut high) = (0, room);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if price.most(prompt, middle) <= left { low = middle } else { high = middle - 1 }
            }
            room = low;
        }
        if room >= LEAST_ANSWER.min(self.setup.model.max_output_tokens) {
            return Ok(room);
        }
        let used = totals.input_tokens.saturating_add(totals.output_tokens);
        if used == 0 {
            let message = format!(
                "the turn's budget is too small: the first question needs {prompt_tokens} tokens before it is answered"
            );
            return Err(TurnError::new("BUDGET_DENIED", message));
        }
        let message = format!(
            "the turn's budget is used up: {used} tokens and {} so far, and the next question needs {prompt_tokens} tokens before it is answered",
            dollars(totals.usd_micros)
        );
        Err(TurnError::new("BUDGET_DENIED", message))
    }
}
