//! What servers that speak as OpenAI's does are asked, and how their answers are read.

use serde_json::{Value, json};
use tollgate_models::{
    ChatRequest, Delta, Finish, MaxTokensField, Message, ModelConfig, NativeCall, Role, Usage,
};

use crate::support::{
    KEY, Raw, Sends, ask, events, fake, head, model, openai, reply, says, script, streamed, tool,
};

fn texts(pieces: &[Delta]) -> Vec<&str> {
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Delta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn text_comes_in_pieces_and_reasoning_apart() {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8}});
    let server = fake(json!([
        {"content": "grüße aus Köln", "reasoning": "a greeting", "chunk": 4, "usage": usage}
    ]))
    .await;
    let (pieces, response) = streamed(&model(openai(&server.url())), says("hello")).await;
    assert_eq!(texts(&pieces), ["grüß", "e au", "s Kö", "ln"]);
    let response = response.unwrap();
    assert_eq!(response.content, "grüße aus Köln");
    assert_eq!(response.reasoning, "a greeting");
    assert_eq!(response.finish, Finish::Stop);
    assert_eq!(response.model, "fake");
    let usage = Usage { input_tokens: 20, output_tokens: 5, cached_tokens: 8 };
    assert_eq!(response.usage, Some(usage));
    let seen = server.requests();
    assert_eq!(seen.len(), 1);
    let expected = json!({
        "model": "fake",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "max_tokens": 100,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(seen[0].body, expected);
    assert!(!seen[0].key);
}

#[tokio::test]
async fn an_answer_at_once_is_the_same() {
    let replies = json!([{"content": "yes", "reasoning": "hm", "times": 0,
        "tool_calls": [{"id": "c1", "name": "fs.read_text", "arguments": {"path": "a"}}]}]);
    let server = fake(replies).await;
    let model = model(openai(&server.url()));
    let request = ChatRequest { tools: vec![tool("fs.read_text")], ..says("x") };
    let at_once = model.backend().chat(request.clone()).await.unwrap();
    let (_, in_pieces) = streamed(&model, request).await;
    let in_pieces = in_pieces.unwrap();
    assert_eq!(at_once.tool_calls, in_pieces.tool_calls);
    assert_eq!(at_once.content, in_pieces.content);
    assert_eq!(at_once.reasoning, in_pieces.reasoning);
    assert_eq!(at_once.finish, Finish::ToolCalls);
    assert_eq!(server.requests()[0].body["stream"], false);
}

#[tokio::test]
async fn native_calls_come_in_pieces_and_by_our_names() {
    let server = fake(json!([{"chunk": 3, "tool_calls": [
        {"id": "c1", "name": "fs.read_text", "arguments": {"path": "a.txt"}},
        {"id": "c2", "name": "not_offered", "arguments": "{broken"}
    ]}]))
    .await;
    let request = ChatRequest { tools: vec![tool("fs.read_text")], ..says("x") };
    let (_, response) = streamed(&model(openai(&server.url())), request).await;
    let response = response.unwrap();
    let call = |id: &str, name: &str, arguments: &str| NativeCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    assert_eq!(
        response.tool_calls,
        [call("c1", "fs.read_text", r#"{"path":"a.txt"}"#), call("c2", "not_offered", "{broken"),]
    );
    assert_eq!(response.finish, Finish::ToolCalls);
    let body = &server.requests()[0].body;
    assert_eq!(body["tools"][0]["function"]["name"], "fs__read_text");
    assert_eq!(body["tools"][0]["type"], "function");
}

#[tokio::test]
async fn results_go_back_as_the_server_wants_them() {
    let server = fake(json!([{"content": "done"}])).await;
    let calls = vec![NativeCall {
        id: "c1".to_owned(),
        name: "fs.read_text".to_owned(),
        arguments: "{\"path\":\"a\"}".to_owned(),
    }];
    let messages = vec![
        Message::new(Role::User, "read"),
        Message { tool_calls: calls, ..Message::new(Role::Assistant, "") },
        Message { tool_call_id: Some("c1".to_owned()), ..Message::new(Role::Tool, "native") },
        Message::new(Role::Tool, "by text"),
    ];
    let request = ChatRequest { messages, max_tokens: 5, ..ChatRequest::default() };
    streamed(&model(openai(&server.url())), request).await.1.unwrap();
    let expected = json!([
        {"role": "user", "content": "read"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "fs__read_text", "arguments": "{\"path\":\"a\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "native"},
        {"role": "user", "content": "TOOL RESULT\nby text"},
    ]);
    assert_eq!(server.requests()[0].body["messages"], expected);
}

#[tokio::test]
async fn the_first_model_of_a_server_is_asked_for_once() {
    let server = fake(json!([{"content": "a", "times": 0}])).await;
    let config = ModelConfig { model: None, ..openai(&server.url()) };
    let model = model(config);
    for _ in 0..2 {
        streamed(&model, says("x")).await.1.unwrap();
    }
    for seen in server.requests() {
        assert_eq!(seen.body["model"], "fake");
    }
    // One that has no list is asked by a name that means nothing.
    let raw = Raw::start(events("data: [DONE]\n\n")).await;
    ask(ModelConfig { model: None, ..openai(&raw.url()) }, "x").await.unwrap();
    let requests = raw.requests();
    assert!(requests[0].starts_with("GET /v1/models "), "{}", requests[0]);
    assert!(requests[1].contains(r#""model":"default""#), "{}", requests[1]);
}

#[tokio::test]
async fn a_server_that_does_not_know_stream_options_is_asked_without() {
    let refusal = json!({"error": {"message": "Unrecognized request argument: stream_options"}});
    let server = fake(json!([
        {"status": 400, "body": refusal.to_string()},
        {"content": "ok", "times": 2}
    ]))
    .await;
    let model = model(openai(&server.url()));
    let (pieces, response) = streamed(&model, says("x")).await;
    assert_eq!(response.unwrap().content, "ok");
    let answers = pieces.iter().filter(|piece| matches!(piece, Delta::Headers(_))).count();
    assert_eq!(answers, 2, "each answer is heard");
    streamed(&model, says("x")).await.1.unwrap();
    let asked = server.requests().into_iter().map(|seen| seen.body.get("stream_options").is_some());
    let asked: Vec<bool> = asked.collect();
    assert_eq!(asked, [true, false, false], "it is remembered");
}

#[tokio::test]
async fn the_bound_of_an_answer_goes_by_the_name_that_the_server_wants() {
    let refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.";
    let server =
        fake(json!([{"status": 400, "body": refusal}, {"content": "ok", "times": 0}])).await;
    ask(openai(&server.url()), "x").await.unwrap();
    let config = ModelConfig {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        ..openai(&server.url())
    };
    ask(config, "x").await.unwrap();
    let seen = server.requests();
    assert_eq!(seen[0].body["max_tokens"], 100);
    for seen in &seen[1..] {
        assert_eq!(seen.body["max_completion_tokens"], 100);
        assert_eq!(seen.body.get("max_tokens"), None);
    }
}

#[tokio::test]
async fn a_refusal_is_not_repeated_for_ever() {
    let server =
        fake(json!([{"status": 400, "times": 0, "body": "stream_options max_completion_tokens"}]))
            .await;
    let error = ask(openai(&server.url()), "x").await.unwrap_err();
    assert_eq!(error.kind(), "refused");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn the_key_and_the_headers_go_along() {
    let raw = Raw::start(events("data: [DONE]\n\n")).await;
    let config = ModelConfig {
        api_key_env: Some("TEST_KEY".to_owned()),
        headers: [("X-Title".to_owned(), "test".to_owned())].into(),
        ..openai(&raw.url())
    };
    ask(config, "x").await.unwrap();
    let request = raw.requests().remove(0);
    assert!(request.starts_with("POST /v1/chat/completions "), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
    assert!(request.contains("x-title: test\r\n"), "{request}");
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named_and_nothing_is_sent() {
    let server = fake(json!([{"content": "a"}])).await;
    let config =
        ModelConfig { api_key_env: Some("NO_SUCH_KEY".to_owned()), ..openai(&server.url()) };
    let error = ask(config, "x").await.unwrap_err();
    assert_eq!(error.kind(), "unusable");
    assert!(error.to_string().contains("`NO_SUCH_KEY`"), "{error}");
    assert!(server.requests().is_empty());
}

/// What real servers do differently from one another.
#[tokio::test]
async fn details_of_servers_are_tolerated() {
    let chunk = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]}).to_string();
    let finish = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
    let text = chunk(json!({"role": "assistant", "content": "hi"}));
    let call = |call: Value| chunk(json!({"tool_calls": [call]}));
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let called = |id: &str, arguments: &str| NativeCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
    };
    let whole = |id: &str, index: Value, arguments: Value| {
        let mut whole = json!({"id": id, "function": {"name": "f", "arguments": arguments}});
        whole["index"] = index;
        whole
    };
    let cases: Vec<(&str, Vec<String>, &str, Vec<NativeCall>)> = vec![
        ("no [DONE]", vec![text.clone(), finish.clone()], "hi", vec![]),
        ("no reason to stop", vec![text.clone(), "[DONE]".to_owned()], "hi", vec![]),
        ("usage alone", vec![text.clone(), finish.clone(), usage.to_owned()], "hi", vec![]),
        (
            "no index: each name begins a call",
            vec![
                call(json!({"id": "a", "function": {"name": "f", "arguments": "{\"x\""}})),
                call(json!({"function": {"arguments": ":1}"}})),
                call(json!({"id": "b", "function": {"name": "f", "arguments": "{}"}})),
                finish.clone(),
            ],
            "",
            vec![called("a", "{\"x\":1}"), called("b", "{}")],
        ),
        (
            "one index for all, and arguments that are objects",
            vec![
                call(whole("a", json!(0), json!({"x": 1}))),
                call(whole("b", json!(0), json!({"x": 2}))),
                finish.clone(),
            ],
            "",
            vec![called("a", "{\"x\":1}"), called("b", "{\"x\":2}")],
        ),
        (
            "the id and the name with every piece",
            vec![
                call(whole("a", json!(0), json!("{\"x\""))),
                call(whole("a", json!(0), json!(":1}"))),
                finish.clone(),
            ],
            "",
            vec![called("a", "{\"x\":1}")],
        ),
        (
            "no id at all",
            vec![
                call(json!({"index": 0, "function": {"name": "f"}})),
                call(json!({"index": 1, "function": {"name": "f", "arguments": null}})),
                call(json!({"index": 1, "function": {"arguments": "{\"y\":2}"}})),
                finish.clone(),
            ],
            "",
            vec![called("call_0", "{}"), called("call_1", "{\"y\":2}")],
        ),
        (
            "parts",
            vec![chunk(json!({"content": [{"type": "text", "text": "hi"}]})), finish.clone()],
            "hi",
            vec![],
        ),
        (
            "nulls",
            vec![chunk(json!({"content": null, "tool_calls": null})), text.clone(), finish.clone()],
            "hi",
            vec![],
        ),
        (
            "what nobody knows",
            vec![json!({"x": 1}).to_string(), "3".to_owned(), text.clone(), finish],
            "hi",
            vec![],
        ),
    ];
    for (what, lines, content, calls) in cases {
        let body: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
        let raw = Raw::start(events(body)).await;
        let response = ask(openai(&raw.url()), "x").await.expect(what);
        assert_eq!(response.content, content, "{what}");
        assert_eq!(response.tool_calls, calls, "{what}");
        let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        assert_eq!(response.finish, finish, "{what}");
        assert_eq!(response.usage.is_some(), what == "usage alone", "{what}");
    }
}

#[tokio::test]
async fn a_server_that_answers_at_once_when_it_should_stream_is_understood() {
    let body = json!({"model": "m", "choices": [{"message": {"content": "whole"},
        "finish_reason": "length"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let json = "content-type: application/json; charset=utf-8\r\n";
    let raw = Raw::start(reply(200, json, body.to_string())).await;
    let response = ask(openai(&raw.url()), "x").await.unwrap();
    assert_eq!((response.content.as_str(), response.finish), ("whole", Finish::Length));
    assert_eq!(response.model, "m");
}

#[tokio::test]
async fn a_server_that_stays_after_its_answer_does_not_hold_it_up() {
    let text = r#"data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    let body = [head(200, "text/event-stream"), format!("{text}\n\n").into_bytes()].concat();
    let raw = Raw::start(Sends::Silent(body)).await;
    let config = ModelConfig { idle_timeout_seconds: 1, ..openai(&raw.url()) };
    assert_eq!(ask(config, "x").await.unwrap().content, "a");
}

#[test]
fn a_script_says_what_is_wrong_with_it() {
    use tollgate_models::fake::Script;
    for (text, problem) in [
        ("{", "cannot be understood"),
        (r#"{"replies": [{"contents": "x"}]}"#, "unknown field `contents`"),
        (r#"{"replies": [{}, {"chunk": 0}]}"#, "reply 2 of the script: `chunk` is at least 1"),
        (r#"{"replies": [{"raw_base64": "***"}]}"#, "is no base64"),
        (r#"{"replies": [{"status": 99}]}"#, "`status` is from 200 to 599"),
    ] {
        let error = Script::parse(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(script(json!([])).model, "fake");
}
