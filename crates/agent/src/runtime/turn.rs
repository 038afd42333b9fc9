//! One turn: ask the model, run what it wants called, feed the results back, until it is done or the budget is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{input_hash, redact::redact_text, text::hex};
use tollgate_models::{Price, Tokenizer};
use tollgate_protocol::{
    BlockKind, Bounds, Checkpoint, Limits, Rejected, Segment, SessionName, ToolResult, ToolText,
    bounded,
};

use super::{
    finish::Finish,
    journal::{Sink, kinds},
    kept::{Answer, Native, Said, kept_output, shown},
    question::{Instruction, Question},
    roles::PipelineRole,
    settings::Budget,
    wanted::{Wanted, wanted},
    world::{Embedding, ModelAsk, ModelEnded, Recalled, Stop, ToolAsk, World},
};

/// How often a model is asked again that could not answer.
const ATTEMPTS: u32 = 4;
/// How long the first pause before that is.
const FIRST_PAUSE_MS: u64 = 500;
/// The longest pause.
const LONGEST_PAUSE_MS: u64 = 30_000;
/// How much reasoning a trace keeps.
const KEPT_REASONING: usize = 16 * 1024;

/// The model of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelInfo {
    /// Its name for the gate.
    pub(crate) name: String,
    pub(crate) native_tools: bool,
    pub(crate) context_tokens: u64,
    pub(crate) max_output_tokens: u64,
    pub(crate) tokenizer: Tokenizer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<Price>,
}

impl ModelInfo {
    /// How many tokens it has room for, besides its answer.
    pub(crate) fn room(&self) -> u64 {
        let room = self.context_tokens.saturating_sub(self.max_output_tokens);
        // What is counted here is an estimate of what the server counts.
        room - room / 20
    }
}

/// Everything that a turn starts with, besides the checkpoint and the tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) session: SessionName,
    pub(crate) turn: u64,
    pub(crate) run_id: String,
    pub(crate) model: ModelInfo,
    pub(crate) budget: Budget,
    pub(crate) roles: Vec<PipelineRole>,
    pub(crate) keep_messages: usize,
    pub(crate) trace_tail: Vec<String>,
    pub(crate) tools_sha256: String,
    /// The session's policy, for whoever reads the trace.
    pub(crate) policy: Value,
    /// Where the checkpoint stands that the turn goes on from.
    pub(crate) revision: u64,
}

impl Setup {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { messages: self.keep_messages, ..Bounds::default() }
    }
}

/// Why a turn did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnError {
    /// A code, as the gate's errors have.
    pub code: String,
    /// What happened, for the person.
    pub message: String,
}

impl TurnError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// What a turn came to, besides the checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnTotals")]
pub struct Totals {
    /// How often the acting role was asked.
    pub rounds: u32,
    /// How often any model was asked, for embeddings too.
    pub model_calls: u32,
    /// How many tools were called.
    pub tool_calls: u32,
    /// How many of these did not work.
    pub failed_calls: u32,
    /// Tokens that models read.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// What models cost, in millionths of a dollar, so far as it is known.
    pub usd_micros: u64,
}

/// A turn under way.
pub(crate) struct Turn<'a, W: World> {
    pub(crate) world: &'a W,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) setup: &'a Setup,
    pub(crate) tools: &'a [ToolText],
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) limits: Limits,
    pub(crate) history: Vec<Said>,
    /// What was said in this turn.
    pub(crate) said: Vec<Said>,
    pub(crate) recalled: Vec<Recalled>,
    pub(super) upstream: Vec<(String, String)>,
    /// The payload of each answer's NOTES block that counts.
    pub(crate) notes: Vec<Value>,
    visible: String,
    pub(crate) kept_visible: String,
    pub(crate) totals: Totals,
    pub(crate) error: Option<TurnError>,
    pub(crate) stop: Option<Stop>,
    checks: u64,
    told_of_hidden: bool,
}

/// A turn that is over, and not saved yet.
pub(crate) struct Over {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) totals: Totals,
    pub(crate) error: Option<TurnError>,
    pub(crate) stop: Option<Stop>,
    /// What the person sees, as it is and as it is kept.
    pub(crate) visible: String,
    pub(crate) kept_visible: String,
}

/// How a round ended.
enum Round {
    /// The model wants nothing more.
    Done,
    /// It was told results.
    Again,
    /// It cannot go on.
    Failed,
}

impl<'a, W: World> Turn<'a, W> {
    pub(crate) fn new(
        world: &'a W,
        sink: &'a mut dyn Sink,
        setup: &'a Setup,
        tools: &'a [ToolText],
        checkpoint: &'a Checkpoint,
    ) -> Self {
        Self {
            world,
            sink,
            setup,
            tools,
            checkpoint,
            limits: Limits::default(),
            history: checkpoint.recent_messages.iter().map(Said::before).collect(),
            said: Vec::new(),
            recalled: Vec::new(),
            upstream: Vec::new(),
            notes: Vec::new(),
            visible: String::new(),
            kept_visible: String::new(),
            totals: Totals::default(),
            error: None,
            stop: None,
            checks: 0,
            told_of_hidden: false,
        }
    }

    /// Runs the turn. An error means that it could not be recorded; what was recorded so far is mended from later.
    pub(crate) async fn run(mut self, input: &str) -> Result<Over, String> {
        let said = Said::by_user(input);
        let mut start = serde_json::to_value(self.setup).unwrap_or_default();
        if let Some(members) = start.as_object_mut() {
            members.insert("input".to_owned(), said.kept.content.clone().into());
        }
        self.write(kinds::TURN_START, start)?;
        self.said.push(said);
        self.recall().await?;
        let (last, before) = match self.setup.roles.split_last() {
            Some((last, before)) => (*last, before.to_vec()),
            None => (PipelineRole::Governor, Vec::new()),
        };
        for role in before {
            if self.must_stop()? || self.error.is_some() || self.overdrawn().is_some() {
                break;
            }
            self.think(role).await?;
        }
        if self.error.is_none() && self.stop.is_none() && self.overdrawn().is_none() {
            self.act(last).await?;
        }
        self.error = self.error.take().or_else(|| self.overdrawn());
        self.finish().await
    }

    pub(crate) fn write(&mut self, kind: &str, mut data: Value) -> Result<(), String> {
        if let Some(members) = data.as_object_mut() {
            members.entry("turn").or_insert_with(|| self.setup.turn.into());
        }
        self.sink.write(kind, data)
    }

    /// Is it time to stop? Asked between any two steps.
    pub(crate) fn must_stop(&mut self) -> Result<bool, String> {
        if self.stop.is_some() {
            return Ok(true);
        }
        self.checks += 1;
        let Some(stop) = self.world.stop() else { return Ok(false) };
        self.stop = Some(stop);
        self.write(kinds::STOP, json!({"reason": stop, "check": self.checks}))?;
        Ok(true)
    }

    async fn recall(&mut self) -> Result<(), String> {
        let query = self.said.first().map(|said| said.kept.content.clone()).unwrap_or_default();
        let (found, embedding) =
            self.world.recall(&query, &self.checkpoint.state.memory_tags).await;
        self.count(&embedding);
        let (items, problem) = match found {
            // What is shown is what is kept: an excerpt may have put together what looks like a secret.
            Ok(mut items) => {
                for item in &mut items {
                    item.excerpt = redact_text(&item.excerpt).into_owned();
                }
                (items, None)
            }
            // What is remembered helps; a turn goes on without it.
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let query = bounded(&query, 500);
        let data = json!({
            "query": query, "items": items, "error": problem, "embedding": embedding.written(),
        });
        self.write(kinds::RETRIEVAL, data)?;
        self.warn_of(&embedding)?;
        self.recalled = items;
        Ok(())
    }

    /// Counts what making texts comparable took.
    pub(crate) fn count(&mut self, embedding: &Embedding) {
        let totals = &mut self.totals;
        totals.model_calls = totals.model_calls.saturating_add(embedding.calls);
        totals.input_tokens = totals.input_tokens.saturating_add(embedding.tokens);
        totals.usd_micros = totals.usd_micros.saturating_add(embedding.usd_micros);
    }

    /// Says that something will be found by its words alone.
    pub(crate) fn warn_of(&mut self, embedding: &Embedding) -> Result<(), String> {
        let Some(problem) = &embedding.problem else { return Ok(()) };
        let problem = format!("some memories are found by their words alone: {problem}");
        self.write(kinds::WARNING, json!({"problem": problem}))
    }

    /// A role that others come behind: it says something, and only that counts.
    async fn think(&mut self, role: PipelineRole) -> Result<(), String> {
        let Some(answer) = self.ask(role, 0, Instruction::Think).await? else { return Ok(()) };
        let ignored: Vec<&str> = answer
            .kept
            .segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Json { kind, .. } => Some(kind.name()),
                _ => None,
            })
            .collect();
        if !ignored.is_empty() || !answer.calls.is_empty() {
            let problem = "only the last role writes notes and calls tools";
            self.write(
                kinds::WARNING,
                json!({"role": role, "problem": problem, "ignored": ignored}),
            )?;
        }
        // What is kept, so that a replay builds the same prompt.
        self.upstream.push((role.as_str().to_owned(), answer.kept.visible()));
        Ok(())
    }

    async fn act(&mut self, role: PipelineRole) -> Result<(), String> {
        let most = self.setup.budget.rounds.unwrap_or(Budget::MOST_ROUNDS);
        for round in 1.. {
            if self.must_stop()? {
                return Ok(());
            }
            if round > most {
                let message =
                    format!("the turn's {most} rounds are used up, and the model wants more");
                self.error = Some(TurnError::new("BUDGET_DENIED", message));
                return Ok(());
            }
            let before = self.totals.model_calls;
            let ended = self.round(role, round).await?;
            // A question that there was no room for was not asked.
            if self.totals.model_calls > before {
                self.totals.rounds = round;
            }
            match ended {
                Round::Again => {}
                Round::Done | Round::Failed => return Ok(()),
            }
        }
        Ok(())
    }

    async fn round(&mut self, role: PipelineRole, round: u32) -> Result<Round, String> {
        let Some(answer) = self.ask(role, round, Instruction::Act).await? else {
            return Ok(Round::Failed);
        };
        self.take_notes(round, &answer)?;
        self.show(&answer);
        let is_overdrawn = self.overdrawn().is_some();
        let was_cut_off = self.stop.is_some() || self.error.is_some() || is_overdrawn;
        let plan = if was_cut_off { Vec::new() } else { wanted(&answer) };
        self.said.push(Said::by_model(&answer));
        if was_cut_off {
            return Ok(Round::Failed);
        }
        if plan.is_empty() {
            return Ok(Round::Done);
        }
        let listed: Vec<Value> = plan.iter().map(Wanted::listed).collect();
        self.write(kinds::TOOL_PLAN, json!({"round": round, "calls": listed}))?;
        for (index, item) in plan.into_iter().enumerate() {
            self.call(round, index, item).await?;
        }
        Ok(Round::Again)
    }

    /// Adds to what the person sees.
    fn show(&mut self, answer: &Answer) {
        for (all, text) in [
            (&mut self.visible, answer.raw.visible()),
            (&mut self.kept_visible, answer.kept.visible()),
        ] {
            let text = text.trim();
            if !text.is_empty() {
                if !all.is_empty() {
                    all.push_str("\n\n");
                }
                all.push_str(text);
            }
        }
    }

    /// Each answer's first NOTES block that is an object counts.
    fn take_notes(&mut self, round: u32, answer: &Answer) -> Result<(), String> {
        let blocks = answer.kept.segments.iter().filter_map(|segment| match segment {
            Segment::Json { kind: BlockKind::Notes, payload } => Some(payload),
            _ => None,
        });
        let (mut first, mut more) = (None, 0usize);
        for payload in blocks {
            match payload {
                Value::Object(_) if first.is_none() => first = Some(payload.clone()),
                _ => more += 1,
            }
        }
        if more > 0 {
            let problem = "only the first NOTES block of an answer that is an object counts";
            self.write(
                kinds::WARNING,
                json!({"round": round, "problem": problem, "ignored": more}),
            )?;
        }
        self.notes.extend(first);
        Ok(())
    }

    async fn call(&mut self, round: u32, index: usize, item: Wanted) -> Result<(), String> {
        let is_native = item.is_native;
        let (call, args) = match item.call {
            Ok(call) => call,
            Err(Rejected { id, tool, problem }) => {
                let result = ToolResult::failed(&id, &tool, problem);
                let kept = ToolResult {
                    error: result.error.as_deref().map(|text| redact_text(text).into_owned()),
                    ..result.clone()
                };
                self.totals.failed_calls += 1;
                self.said.push(Said::by_tool(&result, &kept, is_native));
                return Ok(());
            }
        };
        if self.must_stop()? {
            let why = "it was not called: the turn was stopped";
            let result = ToolResult::failed(&call.id, &call.tool, why);
            self.said.push(Said::by_tool(&result, &result, is_native));
            return Ok(());
        }
        let setup = self.setup;
        let call_key = format!("{}/{}/{}/{round}/{index}", setup.session, setup.run_id, setup.turn);
        let hash = input_hash(&Value::Object(call.args.clone())).ok();
        let place = json!({
            "round": round, "index": index, "id": call.id, "tool": call.tool,
            "input_hash": hash, "call_key": call_key, "native": is_native,
        });
        self.write(kinds::TOOL_START, place.clone())?;
        self.totals.tool_calls += 1;
        let ask = ToolAsk { tool: call.tool.clone(), args, call_key };
        let ended = self.world.tool(ask).await;
        let (raw, kept) = match ended.output {
            Ok(output) => {
                let kept = if ended.is_kept { output.clone() } else { kept_output(&output) };
                let done = |output| ToolResult::done(&call.id, &call.tool, output);
                (done(shown(output)), done(kept))
            }
            Err(problem) => {
                self.totals.failed_calls += 1;
                let failed = |text: &str| ToolResult::failed(&call.id, &call.tool, text);
                let text = format!("{}: {}", problem.code, problem.message);
                let text = text.strip_prefix(": ").unwrap_or(&text).to_owned();
                (failed(&text), failed(&redact_text(&text)))
            }
        };
        let mut done = place;
        if let (Some(done), Some(more)) = (
            done.as_object_mut(),
            json!({
                "ok": kept.ok, "output": kept.output, "error": kept.error,
                "call_id": ended.call_id, "duration_ms": ended.duration_ms,
            })
            .as_object(),
        ) {
            done.extend(more.clone());
        }
        self.write(kinds::TOOL_DONE, done)?;
        self.said.push(Said::by_tool(&raw, &kept, is_native));
        Ok(())
    }

    /// Asks the model, several times if it must. None where there is no answer; then the turn has an error or a stop.
    pub(crate) async fn ask(
        &mut self,
        role: PipelineRole,
        round: u32,
        instruction: Instruction,
    ) -> Result<Option<Answer>, String> {
        let is_acting = instruction == Instruction::Act;
        let Question { input, kept, about, hidden_constraints } =
            match self.question(role, instruction) {
                Ok(question) => question,
                Err(error) => {
                    self.error = Some(error);
                    return Ok(None);
                }
            };
        if hidden_constraints > 0 && !std::mem::replace(&mut self.told_of_hidden, true) {
            let problem = format!(
                "the model has too little room: {hidden_constraints} of the session's constraints are not shown to it"
            );
            self.write(kinds::WARNING, json!({"problem": problem}))?;
        }
        let written = serde_json::to_vec(&kept).unwrap_or_default();
        let request_sha256 = hex(&Sha256::digest(&written)).to_string();
        for attempt in 1..=ATTEMPTS {
            let mut req = json!({
                "role": role, "round": round, "attempt": attempt, "model": self.setup.model.name,
                "request_sha256": request_sha256,
            });
            merge(&mut req, about.clone());
            self.write(kinds::LLM_REQ, req)?;
            let ask = ModelAsk { input: input.clone(), is_shown: is_acting };
            let ended = self.world.chat(ask).await;
            let answer = self.told(role, round, attempt, &ended)?;
            let Some(failed) = ended.failed else { return Ok(Some(answer)) };
            if self.must_stop()? {
                // What had come before it was stopped counts, but for its calls.
                let has_said = !answer.kept.segments.is_empty();
                return Ok(has_said.then_some(answer));
            }
            // Who is to come back much later is not waited for.
            let is_long = failed.retry_after_ms.is_some_and(|ms| ms > LONGEST_PAUSE_MS);
            if !failed.retryable || is_long || attempt == ATTEMPTS {
                self.error = Some(TurnError::new(&failed.code, redact_text(&failed.message)));
                return Ok(None);
            }
            let pause = FIRST_PAUSE_MS << (attempt - 1);
            let pause = failed.retry_after_ms.unwrap_or(pause).clamp(50, LONGEST_PAUSE_MS);
            let again = json!({
                "role": role, "round": round, "attempt": attempt + 1, "of": ATTEMPTS, "in_ms": pause,
            });
            self.write(kinds::LLM_RETRY, again)?;
            self.world.pause(pause).await;
            if self.must_stop()? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Records how a question ended, and counts what it used.
    fn told(
        &mut self,
        role: PipelineRole,
        round: u32,
        attempt: u32,
        ended: &ModelEnded,
    ) -> Result<Answer, String> {
        let said = &ended.said;
        let answer = Answer::read(&said.content, said.calls.clone(), ended.is_kept);
        if let Some((pieces, bytes, first_ms)) = ended.stream {
            let data = json!({
                "role": role, "round": round, "attempt": attempt,
                "pieces": pieces, "bytes": bytes, "first_ms": first_ms,
            });
            self.write(kinds::LLM_STREAM, data)?;
        }
        let warnings: Vec<Value> = answer
            .kept
            .warnings
            .iter()
            .map(|(kind, block)| json!({"kind": kind, "block": block}))
            .collect();
        let reasoning = if ended.is_kept {
            said.reasoning.clone()
        } else {
            redact_text(&bounded(&said.reasoning, KEPT_REASONING)).into_owned()
        };
        let native_calls: Vec<Value> = answer.kept_calls.iter().map(Native::written).collect();
        let done = json!({
            "role": role, "round": round, "attempt": attempt,
            "call_id": ended.call_id, "ok": ended.failed.is_none(),
            "segments": answer.kept.segments, "native_calls": native_calls,
            "reasoning": reasoning, "finish": said.finish,
            "usage": {
                "input_tokens": said.input_tokens, "output_tokens": said.output_tokens,
                "estimated": said.usage_estimated,
            },
            "cost_usd_micros": said.cost_usd_micros, "duration_ms": ended.duration_ms,
            "error": ended.failed, "warnings": warnings,
        });
        self.write(kinds::LLM_DONE, done)?;
        if said.finish == "length" && ended.failed.is_none() {
            let most = self.setup.model.max_output_tokens;
            let problem = format!(
                "the model's answer was cut off: it may have {most} tokens, or what is left of the turn's budget"
            );
            self.write(kinds::WARNING, json!({"round": round, "problem": problem}))?;
        }
        self.totals.model_calls += 1;
        self.totals.input_tokens = self.totals.input_tokens.saturating_add(said.input_tokens);
        self.totals.output_tokens = self.totals.output_tokens.saturating_add(said.output_tokens);
        let cost = said.cost_usd_micros.unwrap_or(0);
        self.totals.usd_micros = self.totals.usd_micros.saturating_add(cost);
        Ok(answer)
    }

    /// What to say of a turn that took clearly more than it might: what it can cost is held before each question, so that
    /// a server must have done more than it was asked for.
    pub(crate) fn overdrawn(&self) -> Option<TurnError> {
        let (budget, totals) = (&self.setup.budget, &self.totals);
        let clearly = |most: u64, slack: u64| most.saturating_add(most / 4).saturating_add(slack);
        let tokens = totals.input_tokens.saturating_add(totals.output_tokens);
        let by_tokens = budget.tokens.is_some_and(|most| tokens > clearly(most, 1_000));
        let by_money =
            budget.usd_micros.is_some_and(|most| totals.usd_micros > clearly(most, 10_000));
        (by_tokens || by_money).then(|| {
            let message = format!(
                "the turn's budget is overdrawn: it took {tokens} tokens and {}; the model's server does more than it is asked for",
                dollars(totals.usd_micros)
            );
            TurnError::new("BUDGET_DENIED", message)
        })
    }

    async fn finish(self) -> Result<Over, String> {
        let visible = self.visible.clone();
        let over = Finish::of(self).run().await?;
        Ok(Over { visible, ..over })
    }
}

/// Money as people write it.
pub(crate) fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

pub(super) fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
