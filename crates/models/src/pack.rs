//! The tools: `model.chat` and `model.embed`. Calling a model is a call like any other, with a key, a policy, a budget
//! and a record.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Error, Permission, SideEffect, ToolName, Violations,
    error::{Internal, InvalidInput},
    schema::InputProblem,
};
use tollgate_gate::{Context, Packs, ToolFailure};

use crate::{
    chat::{
        ChatRequest, ChatResponse, Delta, Finish, MOST_CALLS, MOST_MESSAGES, Message, NativeCall,
        ToolSpec, Usage,
    },
    collect::Collector,
    embed::MOST_TEXTS,
    error::ModelError,
    models::{Model, Models, UnknownModel},
};

/// The units that a call uses up.
pub const TOKENS: &str = "tokens";
/// See [`TOKENS`].
pub const USD_MICROS: &str = "usd_micros";

/// How much longer than an answer a call may take.
const AROUND_AN_ANSWER: Duration = Duration::from_secs(10);

/// What is counted at once; a longer request is counted where it stops nobody.
const SHORT: usize = 16 * 1024;

/// What `model.chat` takes.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatInput {
    /// The model, by its name here; the default without.
    #[serde(default)]
    pub model: Option<String>,
    /// What was said so far.
    #[schemars(length(min = 1, max = MOST_MESSAGES))]
    pub messages: Vec<Message>,
    /// What the model may call, by its server's own function calling.
    #[serde(default)]
    #[schemars(length(max = MOST_CALLS))]
    pub tools: Vec<ToolSpec>,
    /// The most tokens of the answer; what the model may give without.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// How freely the model chooses its words.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
}

/// `5.0` is a whole number to a schema, and must be one to whoever asks what a call costs.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
        return Err(D::Error::custom("expected a whole number from 0 to 4294967295"));
    }
    Ok(Some(number as u32))
}

/// What `model.chat` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ModelAnswer")]
pub struct ChatOutput {
    /// The text of the answer.
    pub content: String,
    /// What the model thought before.
    pub reasoning: String,
    /// What it calls.
    pub tool_calls: Vec<NativeCall>,
    /// Why it ended.
    pub finish: Finish,
    /// What it used.
    pub usage: Usage,
    /// Was that counted here, because the server did not say?
    pub usage_estimated: bool,
    /// What the server calls the model, or its name here.
    pub model: String,
    /// What it cost, in millionths of a dollar, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

/// What `model.embed` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbedInput {
    /// The model, by its name here; one that makes embeddings without.
    #[serde(default)]
    pub model: Option<String>,
    /// The texts.
    #[schemars(length(min = 1, max = MOST_TEXTS))]
    pub input: Vec<String>,
}

/// What `model.embed` gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ModelEmbeddings")]
pub struct EmbedOutput {
    /// What the server calls the model.
    pub model: String,
    /// One for each text, all of the same length.
    pub vectors: Vec<Vec<f32>>,
    /// What it used.
    pub usage: Usage,
    /// Was that counted here, because the server did not say?
    pub usage_estimated: bool,
    /// What it cost, in millionths of a dollar, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

/// Declares `model.chat`.
pub fn chat_declaration() -> Result<Declaration<ChatInput, ChatOutput>, Violations> {
    let behaviours = Behaviours { paid_upstream: true, llm: true, ..Behaviours::NONE };
    Declaration::new("model.chat", "What a language model answers to a conversation.")
        .permissions([Permission::MODEL])
        .behaviours(behaviours)
        .effects(SideEffect::None, CostEffect::LlmCost)
        .build()
}

/// Declares `model.embed`.
pub fn embed_declaration() -> Result<Declaration<EmbedInput, EmbedOutput>, Violations> {
    let behaviours = Behaviours { paid_upstream: true, llm: true, ..Behaviours::NONE };
    Declaration::new("model.embed", "Texts as vectors: near where they mean the same.")
        .permissions([Permission::MODEL])
        .behaviours(behaviours)
        .effects(SideEffect::None, CostEffect::LlmCost)
        .build()
}

/// Adds the tools that talk to models.
pub fn pack(packs: Packs, models: Models) -> Result<Packs, Violations> {
    let (chat_tool, embed_tool) = (chat_declaration()?, embed_declaration()?);
    let (chat_name, embed_name) = (chat_tool.tool().name.clone(), embed_tool.tool().name.clone());
    let (chats, embeds) = (models.clone(), models.clone());
    let (chat_costs, embed_costs) = (models.clone(), models.clone());
    let (chat_takes, embed_takes) = (models.clone(), models);
    Ok(packs
        .add(chat_tool, move |input: ChatInput, context: Context| {
            let models = chats.clone();
            async move { chat(&models, input, &context).await }
        })
        .costing(chat_name.clone(), move |input, session| chat_cost(&chat_costs, input, session))
        .taking(chat_name, move |input, session| longest(&chat_takes, input, session))
        .add(embed_tool, move |input: EmbedInput, context: Context| {
            let models = embeds.clone();
            async move { embed(&models, input, &context).await }
        })
        .costing(embed_name.clone(), move |input, session| embed_cost(&embed_costs, input, session))
        .taking(embed_name, move |input, session| longest(&embed_takes, input, session)))
}

/// The most that a call of `model.chat` can use up.
fn chat_cost(models: &Models, input: &Value, session: Option<&str>) -> Vec<(String, u64)> {
    let Ok(input) = ChatInput::deserialize(input) else { return Vec::new() };
    let Ok(model) = models.get(input.model.as_deref(), session) else { return Vec::new() };
    let mut request = request(input, 0);
    let prompt = models.count(model.tokenizer(), &request.asked);
    request.asked.max_tokens = request.most_tokens(&model, prompt);
    amounts(&model, prompt, u64::from(request.asked.max_tokens))
}

fn embed_cost(models: &Models, input: &Value, session: Option<&str>) -> Vec<(String, u64)> {
    let Ok(input) = EmbedInput::deserialize(input) else { return Vec::new() };
    let Ok(model) = models.embedding(input.model.as_deref(), session) else { return Vec::new() };
    amounts(&model, texts_tokens(&model, &input.input), 0)
}

fn longest(models: &Models, input: &Value, session: Option<&str>) -> Option<Duration> {
    let name = input.get("model").and_then(Value::as_str);
    let (named, embeds) = (models.get(name, session).ok(), models.embedding(name, session).ok());
    let longest = named.iter().chain(&embeds).map(|model| model.timeout()).max();
    longest.map(|longest| longest + AROUND_AN_ANSWER)
}

/// What so many tokens are, in the units of pools. Without a price nobody knows the money.
fn amounts(model: &Model, input: u64, output: u64) -> Vec<(String, u64)> {
    let mut amounts = vec![(TOKENS.to_owned(), input.saturating_add(output))];
    let price = model.price().map(|price| price.most(input, output));
    amounts.extend(price.map(|most| (USD_MICROS.to_owned(), most)));
    amounts
}

/// A request, and whether its caller said how long the answer may be.
struct Wanted {
    asked: ChatRequest,
    said: Option<u32>,
}

fn request(input: ChatInput, max_tokens: u32) -> Wanted {
    let ChatInput { messages, tools, temperature, max_tokens: said, .. } = input;
    Wanted { asked: ChatRequest { messages, tools, max_tokens, temperature }, said }
}

impl Wanted {
    /// The most tokens of the answer: what the caller said, or what the model may give and has room for.
    fn most_tokens(&self, model: &Model, prompt: u64) -> u32 {
        let config = model.config();
        let left = u64::from(config.context_tokens).saturating_sub(prompt);
        let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        self.said.unwrap_or_else(|| config.max_output_tokens.min(left))
    }

    /// Is there room for it?
    fn check(&self, model: &Model, prompt: u64, tool: &ToolName) -> Result<(), Error> {
        let config = model.config();
        let name = model.name();
        if let Some(said) = self.said.filter(|said| *said > config.max_output_tokens) {
            let most = config.max_output_tokens;
            let problem = format!("is {said}, and the model `{name}` answers with at most {most}");
            return Err(invalid(tool, "/max_tokens", problem));
        }
        let (answer, room) = (self.said.unwrap_or(1), config.context_tokens);
        if prompt.saturating_add(u64::from(answer)) > u64::from(room) {
            let problem = format!(
                "are about {prompt} tokens, and the model `{name}` has room for {room}, {answer} of them for its answer; send less, or raise its `context_tokens` if it can take more"
            );
            return Err(invalid(tool, "/messages", problem));
        }
        Ok(())
    }
}

fn invalid(tool: &ToolName, pointer: &str, message: String) -> Error {
    let problem = InputProblem { pointer: pointer.to_owned(), message };
    InvalidInput::new(tool.clone(), vec![problem]).into()
}

fn unknown(tool: &ToolName, error: &UnknownModel) -> Error {
    invalid(tool, "/model", error.to_string())
}

async fn chat(
    models: &Models,
    input: ChatInput,
    context: &Context,
) -> Result<ChatOutput, ToolFailure> {
    let (model, request, prompt) = match prepared(models, input, context).await {
        Ok(prepared) => prepared,
        Err(error) => return Err(unsent(error, context)),
    };
    let (mut collector, most) = (Collector::default(), u64::from(request.max_tokens));
    let ended = stream(&model, request, context, &mut collector).await;
    let (mut usage, usage_estimated) =
        used(&model, (prompt, most), collector.so_far(), ended.as_ref().err());
    // What is left out was written all the same.
    let dropped = u64::try_from(collector.dropped() / 4).unwrap_or(u64::MAX);
    usage.output_tokens = usage.output_tokens.saturating_add(dropped);
    let cost_usd_micros = report(&model, &usage, context);
    if let Err(error) = ended {
        return Err(failed(&error, context));
    }
    let ChatResponse { content, reasoning, tool_calls, finish, model: named, .. } =
        collector.finish();
    let model = if named.is_empty() { model.name().to_owned() } else { named };
    Ok(ChatOutput {
        content,
        reasoning,
        tool_calls,
        finish,
        usage,
        usage_estimated,
        model,
        cost_usd_micros,
    })
}

/// The model, what it is asked, and how many tokens that is, if there is room for it.
async fn prepared(
    models: &Models,
    input: ChatInput,
    context: &Context,
) -> Result<(Arc<Model>, ChatRequest, u64), Error> {
    let tool = &context.tool().name;
    let model = models.get(input.model.as_deref(), context.session());
    let model = model.map_err(|error| unknown(tool, &error))?;
    let (mut wanted, prompt) = counted(models, &model, request(input, 0)).await?;
    wanted.check(&model, prompt, tool)?;
    wanted.asked.max_tokens = wanted.most_tokens(&model, prompt);
    Ok((model, wanted.asked, prompt))
}

/// Nothing was sent, so nothing was used.
fn unsent(error: Error, context: &Context) -> ToolFailure {
    context.used(TOKENS, 0);
    context.used(USD_MICROS, 0);
    error.into()
}

/// Counts a request, a long one where it stops nobody.
async fn counted(models: &Models, model: &Model, wanted: Wanted) -> Result<(Wanted, u64), Error> {
    let tokenizer = model.tokenizer();
    let length: usize = wanted.asked.messages.iter().map(|message| message.content.len()).sum();
    if length <= SHORT {
        let count = models.count(tokenizer, &wanted.asked);
        return Ok((wanted, count));
    }
    let models = models.clone();
    let counting = tokio::task::spawn_blocking(move || {
        let count = models.count(tokenizer, &wanted.asked);
        (wanted, count)
    });
    counting.await.map_err(|_| Internal::new("counting tokens ended early").into())
}

/// How many bytes a token has at most in a text, on average, and how much longer an answer may be than that. What goes
/// beyond is no answer to a question that said how long it may be.
const BYTES_PER_TOKEN: usize = 8;
const SLACK: usize = 2 * 1024;

/// Lets the answer come, and hands on each piece of it.
async fn stream(
    model: &Model,
    request: ChatRequest,
    context: &Context,
    collector: &mut Collector,
) -> Result<(), ModelError> {
    let most = usize::try_from(request.max_tokens).unwrap_or(usize::MAX);
    let most = most.saturating_mul(BYTES_PER_TOKEN).saturating_add(SLACK);
    let mut deltas = model.backend().stream_chat(request, context.cancelled().clone());
    while let Some(delta) = deltas.next().await {
        let (delta, dropped) = within(delta?, most.saturating_sub(collector.bytes()));
        collector.push(&delta)?;
        match delta {
            Delta::Headers(headers) => heard(context, &headers),
            Delta::Text(text) => context.emit(json!({"text": text})),
            Delta::Reasoning(text) => context.emit(json!({"reasoning": text})),
            Delta::Call { index, id, name, arguments } => {
                let mut call = json!({"index": index, "arguments": arguments});
                for (member, word) in [("id", id), ("name", name)] {
                    if let (Some(members), Some(word)) = (call.as_object_mut(), word) {
                        members.insert(member.to_owned(), word.into());
                    }
                }
                context.emit(json!({"call": call}));
            }
            Delta::Model(_) | Delta::Usage(_) | Delta::Finish(_) => {}
        }
        if dropped > 0 || collector.bytes() > most {
            // The server does not keep to what it was asked for, and what it writes is paid for.
            collector.cut(dropped);
            return Ok(());
        }
    }
    Ok(())
}

/// As much of a piece of text as there is room for, and how many bytes are left out.
fn within(delta: Delta, room: usize) -> (Delta, usize) {
    let cut = |mut text: String| {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(room));
        let dropped = whole - text.len();
        (text, dropped)
    };
    match delta {
        Delta::Text(text) if text.len() > room => {
            let (text, dropped) = cut(text);
            (Delta::Text(text), dropped)
        }
        Delta::Reasoning(text) if text.len() > room => {
            let (text, dropped) = cut(text);
            (Delta::Reasoning(text), dropped)
        }
        delta => (delta, 0),
    }
}

fn heard(context: &Context, headers: &[(String, String)]) {
    context.heard(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
}

/// What was used, and whether that was counted here. What broke off half-way was used as far as it came. What a server
/// says is believed if it can be: not less than a part of what it has plainly written, nor more than it was asked for.
fn used(
    model: &Model,
    (prompt, most): (u64, u64),
    answer: &ChatResponse,
    error: Option<&ModelError>,
) -> (Usage, bool) {
    let output = model.tokenizer().count_answer(answer);
    if let (Some(usage), None) = (answer.usage, error)
        && is_believable(&usage, (prompt, output), most)
    {
        return (usage, false);
    }
    if output == 0 && error.is_some_and(|error| !error.may_be_charged()) {
        return (Usage::default(), true);
    }
    let counted = Usage { input_tokens: prompt, output_tokens: output, cached_tokens: 0 };
    let said = answer.usage.filter(|said| is_bounded(said, (prompt, output), most));
    let said = said.unwrap_or(counted);
    (Usage { output_tokens: output.max(said.output_tokens), ..said }, true)
}

/// Is this no more than the question and the answer can have been? Pictures of the same text differ between counts, and
/// some servers add words of their own to a question.
fn is_bounded(said: &Usage, (prompt, output): (u64, u64), most: u64) -> bool {
    said.input_tokens <= prompt.saturating_mul(8).saturating_add(20_000)
        && said.output_tokens <= most.max(output).saturating_mul(2).saturating_add(1_000)
}

fn is_believable(said: &Usage, (prompt, output): (u64, u64), most: u64) -> bool {
    // Our count may be a few times too high, never so much.
    is_bounded(said, (prompt, output), most) && said.output_tokens >= output / 6
}

/// Tells the gate what was used, and gives what it cost.
fn report(model: &Model, usage: &Usage, context: &Context) -> Option<u64> {
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    context.used(TOKENS, tokens);
    let cost = model.cost(usage);
    // What was not used costs nothing, whatever the price.
    if let Some(cost) = cost.or((tokens == 0).then_some(0)) {
        context.used(USD_MICROS, cost);
    }
    cost
}

/// The error for the caller. Whether it may be tried again is the last piece of the answer.
fn failed(error: &ModelError, context: &Context) -> ToolFailure {
    context.emit(json!({"failure": error.failure()}));
    error.error(&context.tool().name).into()
}

fn texts_tokens(model: &Model, texts: &[String]) -> u64 {
    model.tokenizer().count_all(texts.iter().map(String::as_str))
}

async fn embed(
    models: &Models,
    input: EmbedInput,
    context: &Context,
) -> Result<EmbedOutput, ToolFailure> {
    let tool = &context.tool().name;
    let model = models.embedding(input.model.as_deref(), context.session());
    let model = model.map_err(|error| unsent(unknown(tool, &error), context))?;
    let Some(embedder) = model.embedder() else {
        let error = Internal::new("a model without embeddings was chosen").into();
        return Err(unsent(error, context));
    };
    let hears = |headers: &[(String, String)]| heard(context, headers);
    let done = embedder.embed(&input.input, context.cancelled(), hears).await;
    let counted = || texts_tokens(&model, &input.input);
    let said = match &done {
        // As for answers: a number that cannot be is not believed.
        Ok(embedded) => embedded.tokens.filter(|said| {
            let usage = Usage { input_tokens: *said, ..Usage::default() };
            is_bounded(&usage, (counted(), 0), 0)
        }),
        Err(error) if !error.may_be_charged() => Some(0),
        Err(_) => None,
    };
    let usage = Usage { input_tokens: said.unwrap_or_else(counted), ..Usage::default() };
    let cost_usd_micros = report(&model, &usage, context);
    let embedded = done.map_err(|error| failed(&error, context))?;
    Ok(EmbedOutput {
        model: embedded.model,
        vectors: embedded.vectors,
        usage,
        usage_estimated: said.is_none(),
        cost_usd_micros,
    })
}
