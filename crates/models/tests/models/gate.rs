//! The tools behind a real gate, with a real ledger and pools.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Call, Caller, CostEffect, ErrorCode, Mode, Secret, SideEffect, Surface, Urgency,
};
use tollgate_gate::{
    Allowance, CallFailure, CallOptions, Gate, Packs, Parts, Settings, ToolCallResult, Unfinished,
    keys::{KeySpec, PolicyRef, Role as KeyRole},
};
use tollgate_governor::GovernorConfig;
use tollgate_ledger::{Ledger, Sync};
use tollgate_models::{
    ChatOutput, EmbedOutput, Failure, ModelConfig, Models, Price, Tokenizer, Usage,
    fake::{Ended, FakeModel},
    pack,
};
use tollgate_policy::Policy;

use crate::support::{Raw, events, fake, models, openai, reply, until};

/// A gate with the tools in a folder of its own, and who may call them.
struct Fixture {
    _folder: TempDir,
    gate: Gate,
    key: Secret,
    models: Models,
}

/// Pools for tokens, for money, and what a provider says of its requests.
fn pools(tokens: u64, usd_micros: u64) -> GovernorConfig {
    let hour = json!({"kind": "fixed", "every": "1h"});
    serde_json::from_value(json!({
        "pools": [
            {"id": "llm:tokens", "unit": "tokens", "limit": tokens, "window": hour},
            {"id": "llm:spend", "unit": "usd_micros", "limit": usd_micros, "window": hour},
            {"id": "llm:requests", "window": {"kind": "provider", "every": "1m"}},
        ],
        "routes": [{"workload": "model.*", "pools":
            [{"id": "llm:tokens", "worst": 40}, {"id": "llm:spend", "worst": 40},
                {"id": "llm:requests"}]}],
    }))
    .unwrap()
}

impl Fixture {
    async fn new(config: ModelConfig, governor: GovernorConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let models = models(config);
        let ledger = Ledger::open(folder.path(), Sync::Process).unwrap();
        let registry = pack(Packs::new(), models.clone()).unwrap().build().unwrap();
        let parts = Parts::new(ledger, registry, Settings::new(folder.path()));
        let gate = Gate::open(Parts { governor, ..parts }).unwrap();
        let policy = Policy {
            max_side_effect: Some(SideEffect::None),
            max_cost_effect: Some(CostEffect::LlmCost),
            ..Policy::default()
        };
        let policy = PolicyRef::Inline(Box::new(policy));
        let spec = KeySpec { policy, ..KeySpec::for_role("agent", KeyRole::Agent) };
        let (_, key) = gate.create_key(None, spec).await.unwrap();
        Self { _folder: folder, gate, key, models }
    }

    /// A gate with room for everything.
    async fn wide(config: ModelConfig) -> Self {
        Self::new(config, pools(1_000_000, 1_000_000)).await
    }

    async fn call_with(
        &self,
        tool: &str,
        input: Value,
        session: Option<&str>,
        options: CallOptions,
    ) -> Result<ToolCallResult, Box<Unfinished>> {
        let identity = self.gate.identify(Some(&self.key)).identity();
        let call = Call {
            caller: Caller { surface: Surface::Agent, mode: Mode::Live, identity },
            tool: tool.to_owned(),
            input,
            scope: None,
            urgency: Urgency::Normal,
            session: session.map(str::to_owned),
            idempotency_key: None,
        };
        self.gate.call(call, options).await
    }

    async fn call(&self, tool: &str, input: Value) -> Result<Value, CallFailure> {
        let done = self.call_with(tool, input, None, CallOptions::default()).await;
        done.map(|result| result.output).map_err(|error| error.failure().unwrap().clone())
    }

    async fn chat(&self, input: Value) -> Result<ChatOutput, CallFailure> {
        let output = self.call("model.chat", input).await?;
        Ok(serde_json::from_value(output).unwrap())
    }

    /// What is used of a pool.
    fn used(&self, pool: &str) -> u64 {
        self.reading(pool).used
    }

    fn reading(&self, pool: &str) -> tollgate_governor::Reading {
        let pools = self.gate.governing().pools();
        pools.into_iter().find(|reading| reading.pool.id.to_string() == pool).unwrap().reading
    }
}

fn priced(server: &FakeModel) -> ModelConfig {
    let price = Price { input: 2.5, output: 10.0, cached_input: Some(1.25) };
    ModelConfig { price: Some(price), ..openai(&server.url()) }
}

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50})
}

fn heard() -> (Arc<Mutex<Vec<Value>>>, CallOptions) {
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&pieces);
    let deltas = Arc::new(move |piece: Value| into.lock().unwrap().push(piece));
    (pieces, CallOptions { deltas: Some(deltas), ..CallOptions::default() })
}

#[tokio::test]
async fn a_call_gives_the_answer_and_pools_know_what_it_cost() {
    let server = fake(json!([{
        "content": "hi there", "chunk": 3, "reasoning": "hm",
        "tool_calls": [{"id": "c", "name": "a.b", "arguments": {"x": 1}}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 10}},
        "headers": {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "321",
            "x-ratelimit-reset-requests": "60s"}
    }]))
    .await;
    let fixture = Fixture::wide(priced(&server)).await;
    let (pieces, options) = heard();
    let mut input = hello();
    input["tools"] = json!([{"name": "a.b", "description": "", "parameters": {"type": "object"}}]);
    let result = fixture.call_with("model.chat", input, None, options).await.unwrap();
    // 30 tokens at 2.5, 10 at 1.25 and 9 at 10 millionths: 177.5.
    let expected = json!({
        "content": "hi there", "reasoning": "hm",
        "tool_calls": [{"id": "c", "name": "a.b", "arguments": "{\"x\":1}"}],
        "finish": "tool_calls",
        "usage": {"input_tokens": 40, "output_tokens": 9, "cached_tokens": 10},
        "usage_estimated": false, "model": "fake", "cost_usd_micros": 178,
    });
    assert_eq!(result.output, expected);
    assert_eq!((fixture.used("llm:tokens"), fixture.used("llm:spend")), (49, 178));
    assert_eq!(fixture.reading("llm:requests").left, Some(321));
    let expected = [
        json!({"reasoning": "hm"}),
        json!({"text": "hi "}),
        json!({"text": "the"}),
        json!({"text": "re"}),
        json!({"call": {"index": 0, "id": "c", "name": "a.b", "arguments": ""}}),
        json!({"call": {"index": 0, "arguments": "{\"x"}}),
        json!({"call": {"index": 0, "arguments": "\":1"}}),
        json!({"call": {"index": 0, "arguments": "}"}}),
    ];
    assert_eq!(*pieces.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_has_no_room_is_refused_before_anything_is_sent() {
    let server = fake(json!([{"content": "hi"}])).await;
    // The answer alone may cost 500 millionths.
    for (tokens, usd_micros, pool) in [(1_000_000, 499, "llm:spend"), (50, 1_000_000, "llm:tokens")]
    {
        let fixture = Fixture::new(priced(&server), pools(tokens, usd_micros)).await;
        let refused = fixture.chat(hello()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::BudgetDenied);
        assert_eq!(refused.error.details["pool"], pool);
    }
    let fixture = Fixture::wide(priced(&server)).await;
    let allowance = Allowance::new([("usd_micros".to_owned(), 499, 0)]);
    let options = CallOptions { allowance: Some(allowance), ..CallOptions::default() };
    let refused = fixture.call_with("model.chat", hello(), None, options).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::BudgetDenied));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_whole_number_with_a_point_holds_as_much() {
    let server = fake(json!([{"content": "hi"}])).await;
    let fixture = Fixture::new(priced(&server), pools(1_000_000, 499)).await;
    let mut input = hello();
    input["max_tokens"] = json!(50.0);
    let refused = fixture.chat(input).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BudgetDenied);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn without_a_price_nothing_is_said_of_money() {
    let server = fake(json!([{"content": "hi"}])).await;
    let fixture = Fixture::wide(openai(&server.url())).await;
    assert_eq!(fixture.chat(hello()).await.unwrap().cost_usd_micros, None);
    let allowance = Allowance::new([("usd_micros".to_owned(), 1_000_000, 0)]);
    let options = CallOptions { allowance: Some(allowance), ..CallOptions::default() };
    let refused = fixture.call_with("model.chat", hello(), None, options).await.unwrap_err();
    let why = refused.failure().unwrap().error.details["why"].to_string();
    assert!(why.contains("nobody knows what this call costs"), "{why}");
}

#[tokio::test]
async fn nonsense_of_usage_is_counted_here_instead() {
    let nonsense = [
        json!(null),
        json!("many"),
        json!([1, 2]),
        json!({}),
        json!({"prompt_tokens": -5, "completion_tokens": 3}),
        json!({"prompt_tokens": "12", "completion_tokens": 3}),
        json!({"prompt_tokens": 12, "completion_tokens": 1e30}),
        json!({"prompt_tokens": 100_000_001, "completion_tokens": 3}),
        json!({"prompt_tokens": 0, "completion_tokens": 0}),
        json!({"prompt_tokens": 1.5, "completion_tokens": 3}),
    ];
    let replies: Vec<Value> =
        nonsense.iter().map(|usage| json!({"content": "hi there", "usage": usage})).collect();
    let server = fake(json!(replies)).await;
    let fixture = Fixture::wide(priced(&server)).await;
    let expected = Usage { input_tokens: 12, output_tokens: 3, cached_tokens: 0 };
    for usage in nonsense {
        let answer = fixture.chat(hello()).await.unwrap();
        assert_eq!((answer.usage, answer.usage_estimated), (expected, true), "{usage}");
        assert_eq!(answer.cost_usd_micros, Some(60));
    }
    assert_eq!(fixture.used("llm:tokens"), 150);
    assert_eq!(fixture.used("llm:spend"), 600);
}

#[tokio::test]
async fn what_breaks_off_half_way_costs_what_it_used() {
    let server = fake(json!([{"content": "0123456789", "chunk": 2, "drop_after": 3}])).await;
    let fixture = Fixture::wide(priced(&server)).await;
    let (pieces, options) = heard();
    let failed = fixture.call_with("model.chat", hello(), None, options).await.unwrap_err();
    let failed = failed.failure().unwrap();
    assert_eq!(failed.code(), ErrorCode::ToolFailed);
    assert!(failed.error.message.contains("ended before it was finished"), "{failed:?}");
    // The prompt, and the six characters that came.
    let output = Tokenizer::Estimate.count("012345");
    assert_eq!(fixture.used("llm:tokens"), 12 + output);
    assert_eq!(fixture.used("llm:spend"), 30 + 10 * output);
    let last = pieces.lock().unwrap().last().unwrap()["failure"].clone();
    let failure: Failure = serde_json::from_value(last).unwrap();
    let expected = Failure { kind: "dropped".to_owned(), retryable: true, retry_after_ms: None };
    assert_eq!(failure, expected);
}

#[tokio::test]
async fn a_refusal_costs_nothing_and_its_headers_are_heard() {
    let server = fake(json!([{"status": 429, "headers": {"retry-after": "7",
        "x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60s"}}]))
    .await;
    let fixture = Fixture::wide(priced(&server)).await;
    let (pieces, options) = heard();
    let failed = fixture.call_with("model.chat", hello(), None, options).await.unwrap_err();
    let failed = failed.failure().unwrap();
    assert_eq!(failed.code(), ErrorCode::ToolFailed);
    assert!(failed.error.message.ends_with("try again in 7 s"), "{failed:?}");
    assert_eq!((fixture.used("llm:tokens"), fixture.used("llm:spend")), (0, 0));
    assert_eq!(fixture.reading("llm:requests").left, Some(0));
    let last = pieces.lock().unwrap().last().unwrap()["failure"].clone();
    assert_eq!(last["kind"], "rate_limited");
    assert_eq!(last["retryable"], true);
    assert!((6_000..=7_000).contains(&last["retry_after_ms"].as_u64().unwrap()), "{last}");
    // The provider's word holds for the next call, which does not reach it.
    let refused = fixture.chat(hello()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BudgetDenied);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_call_that_is_cancelled_leaves_its_server_and_costs_what_it_used() {
    let server = fake(json!([{"content": "0123456789", "chunk": 2, "hang_after": 3}])).await;
    let fixture = Fixture::wide(priced(&server)).await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let count = Arc::new(Mutex::new(0));
    let deltas = Arc::new(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        if *count == 3 {
            stop.cancel();
        }
    });
    let options =
        CallOptions { deltas: Some(deltas), cancel: Some(cancel), ..CallOptions::default() };
    let failed = fixture.call_with("model.chat", hello(), None, options).await.unwrap_err();
    assert_eq!(failed.code(), Some(ErrorCode::Cancelled));
    until(|| server.requests()[0].ended == Ended::Left).await;
    assert_eq!(fixture.used("llm:tokens"), 12 + Tokenizer::Estimate.count("012345"));
}

#[tokio::test]
async fn what_does_not_fit_the_model_is_refused_before_anything_is_sent() {
    let server = fake(json!([{"content": "hi", "times": 0}])).await;
    let config =
        ModelConfig { context_tokens: 300, max_output_tokens: 200, ..openai(&server.url()) };
    let fixture = Fixture::wide(config).await;
    let said = |text: &str, more: Value| {
        let mut input = json!({"messages": [{"role": "user", "content": text}]});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let (long, half) = ("word ".repeat(200), "word ".repeat(100));
    for (input, pointer) in [
        (said(&long, json!({})), "/messages"),
        (said(&half, json!({"max_tokens": 200})), "/messages"),
        (said("hi", json!({"max_tokens": 201})), "/max_tokens"),
        (said("hi", json!({"max_tokens": 0})), "/max_tokens"),
        (said("hi", json!({"temperature": 9})), "/temperature"),
        (said("hi", json!({"model": "mian"})), "/model"),
        (json!({"messages": []}), "/messages"),
        (json!({"messages": [{"role": "boss", "content": "x"}]}), "/messages/0/role"),
        (said("hi", json!({"tools": [{"name": "x", "parameters": 3}]})), "/tools/0/parameters"),
    ] {
        let failed = fixture.chat(input).await.unwrap_err();
        assert_eq!(failed.code(), ErrorCode::InvalidInput, "{pointer}");
        assert_eq!(failed.error.details["problems"][0]["pointer"], pointer, "{failed:?}");
    }
    let failed = fixture.chat(said("hi", json!({"model": "mian"}))).await.unwrap_err();
    assert!(failed.error.message.contains("did you mean `main`?"), "{failed:?}");
    assert!(server.requests().is_empty());
    assert_eq!((fixture.used("llm:tokens"), fixture.used("llm:spend")), (0, 0));
    // What was not said is what there is room for.
    fixture.chat(said(&half, json!({}))).await.unwrap();
    assert_eq!(server.requests()[0].body["max_tokens"], 300 - 177);
}

#[tokio::test]
async fn a_model_of_a_session_is_for_that_session_alone() {
    let (server, own) = (
        fake(json!([{"content": "all", "times": 0}])).await,
        fake(json!([{"content": "own"}])).await,
    );
    let fixture = Fixture::wide(openai(&server.url())).await;
    fixture.models.set_for_session("mine", "local", priced(&own)).unwrap();
    let input = json!({"model": "local", "messages": [{"role": "user", "content": "hello"}]});
    let mine = fixture.call_with("model.chat", input.clone(), Some("mine"), CallOptions::default());
    assert_eq!(mine.await.unwrap().output["content"], "own");
    for session in [None, Some("other")] {
        let other = fixture.call_with("model.chat", input.clone(), session, CallOptions::default());
        let failed = other.await.unwrap_err();
        assert_eq!(failed.code(), Some(ErrorCode::InvalidInput));
    }
    // Where none is named, the default holds, also in that session.
    let input = hello();
    let default = fixture.call_with("model.chat", input, Some("mine"), CallOptions::default());
    assert_eq!(default.await.unwrap().output["content"], "all");
    fixture.models.forget_session("mine");
    assert!(fixture.models.get(Some("local"), Some("mine")).is_err());
}

#[tokio::test]
async fn texts_become_vectors_that_are_near_where_the_words_are() {
    let server = fake(json!([])).await;
    let config = ModelConfig { embedding_model: Some("words".to_owned()), ..priced(&server) };
    let fixture = Fixture::wide(config).await;
    let texts = ["the cat sat on the mat", "a cat on a mat", "interest rates rise", ""];
    let output = fixture.call("model.embed", json!({"input": texts})).await.unwrap();
    let output: EmbedOutput = serde_json::from_value(output).unwrap();
    assert_eq!(output.vectors.len(), 4);
    let near = |a: usize, b: usize| -> f32 {
        output.vectors[a].iter().zip(&output.vectors[b]).map(|(a, b)| a * b).sum()
    };
    assert!((near(0, 0) - 1.0).abs() < 1e-5);
    assert!(near(0, 1) > 0.4 && near(0, 1) > near(0, 2) + 0.3, "{} {}", near(0, 1), near(0, 2));
    assert_eq!((output.usage.input_tokens, output.usage_estimated), (15, false));
    assert_eq!(fixture.used("llm:tokens"), 15);
    assert_eq!(output.cost_usd_micros, Some(38));
    assert_eq!(fixture.used("llm:spend"), 38);
    assert_eq!(server.requests()[0].body["model"], "words");
}

#[tokio::test]
async fn nonsense_of_what_embeddings_used_is_counted_here_instead() {
    let vectors = json!([{"index": 0, "embedding": [1.0, 0.0]}]);
    let answer = json!({"data": vectors, "usage": {"prompt_tokens": 50_000_000}}).to_string();
    let server = Raw::start(reply(200, "Content-Type: application/json\r\n", answer)).await;
    let config = ModelConfig { embedding_model: Some("words".to_owned()), ..openai(&server.url()) };
    let fixture = Fixture::wide(config).await;
    let output = fixture.call("model.embed", json!({"input": ["a few words"]})).await.unwrap();
    let output: EmbedOutput = serde_json::from_value(output).unwrap();
    assert!(output.usage_estimated);
    assert_eq!(output.usage.input_tokens, Tokenizer::Estimate.count("a few words"));
}

#[tokio::test]
async fn a_model_without_embeddings_says_so() {
    let server = fake(json!([])).await;
    let fixture = Fixture::wide(openai(&server.url())).await;
    for input in [json!({"input": ["x"]}), json!({"input": ["x"], "model": "main"})] {
        let failed = fixture.call("model.embed", input).await.unwrap_err();
        assert_eq!(failed.code(), ErrorCode::InvalidInput);
        assert!(failed.error.message.contains("set `embedding_model`"), "{failed:?}");
    }
    for input in [json!([]), json!(vec!["x"; 257])] {
        let failed = fixture.call("model.embed", json!({"input": input})).await.unwrap_err();
        assert_eq!(failed.error.details["problems"][0]["pointer"], "/input");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_stream_without_an_end_is_an_error_with_what_to_do() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\ndata: {\"cho";
    let raw = Raw::start(events(half)).await;
    let fixture = Fixture::wide(openai(&raw.url())).await;
    let failed = fixture.chat(hello()).await.unwrap_err();
    let message = "`model.chat` failed: the model's answer ended before it was finished (in the middle of an event); try again";
    assert_eq!(failed.error.message, message);
}
