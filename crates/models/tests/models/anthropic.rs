//! What Anthropic's server is asked, and how its answers are read.

use serde_json::{Value, json};
use tollgate_models::{ChatRequest, Finish, Message, ModelConfig, NativeCall, Role, Usage};

use crate::support::{KEY, Raw, anthropic, ask, events, fake, model, reply, says, streamed, tool};

fn call(id: &str, name: &str, arguments: &str) -> NativeCall {
    NativeCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

#[tokio::test]
async fn text_reasoning_calls_and_usage_come_in_pieces_and_at_once() {
    let server = fake(json!([{
        "times": 0, "chunk": 4, "content": "I look.", "reasoning": "which file?",
        "tool_calls": [
            {"id": "t1", "name": "fs.read_text", "arguments": {"path": "a.txt"}},
            {"id": "t2", "name": "fs.read_text", "arguments": {}}
        ],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2, "output_tokens": 33}
    }]))
    .await;
    let model = model(anthropic(&server.url()));
    let request = ChatRequest { tools: vec![tool("fs.read_text")], ..says("hello") };
    let at_once = model.backend().chat(request.clone()).await.unwrap();
    let (_, in_pieces) = streamed(&model, request).await;
    let response = in_pieces.unwrap();
    assert_eq!(response, at_once);
    assert_eq!(response.content, "I look.");
    assert_eq!(response.reasoning, "which file?");
    assert_eq!(
        response.tool_calls,
        [call("t1", "fs.read_text", r#"{"path":"a.txt"}"#), call("t2", "fs.read_text", "{}"),]
    );
    assert_eq!(response.finish, Finish::ToolCalls);
    assert_eq!(response.model, "fake");
    let usage = Usage { input_tokens: 17, output_tokens: 33, cached_tokens: 5 };
    assert_eq!(response.usage, Some(usage));
    let expected = json!({
        "model": "fake",
        "max_tokens": 100,
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "tools": [{"name": "fs__read_text", "description": "reads",
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
        "stream": true,
    });
    let seen = server.requests();
    assert_eq!(seen[1].path, "/v1/messages");
    assert_eq!(seen[1].body, expected);
}

#[tokio::test]
async fn roles_take_turns_and_results_stand_behind_their_calls() {
    let server = fake(json!([{"content": "done"}])).await;
    let calls = vec![call("t.1", "fs.read_text", "{\"path\":\"a\"}"), call("t2", "x", "{broken")];
    let result = |id: &str, text: &str| Message {
        tool_call_id: Some(id.to_owned()),
        ..Message::new(Role::Tool, text)
    };
    let messages = vec![
        Message::new(Role::Assistant, "before all"),
        Message::new(Role::System, "one"),
        Message::new(Role::User, "first"),
        Message::new(Role::User, "second"),
        Message::new(Role::System, "two"),
        Message { tool_calls: calls, ..Message::new(Role::Assistant, "I look. \n") },
        result("t.1", "found"),
        Message::new(Role::Tool, "by text"),
        result("t2", "broken"),
        Message::new(Role::User, ""),
        Message::new(Role::User, "go on"),
    ];
    let tools = vec![tool("fs.read_text")];
    let request = ChatRequest { messages, tools, max_tokens: 5, temperature: Some(1.5) };
    streamed(&model(anthropic(&server.url())), request).await.1.unwrap();
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        {"role": "user", "content": [text("Go on.")]},
        {"role": "assistant", "content": [text("before all")]},
        {"role": "user", "content": [text("first"), text("second")]},
        {"role": "assistant", "content": [text("I look."),
            {"type": "tool_use", "id": "t_1", "name": "fs__read_text", "input": {"path": "a"}},
            {"type": "tool_use", "id": "t2", "name": "x", "input": {"invalid_json": "{broken"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t_1", "content": "found"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "broken"},
            text("TOOL RESULT\nby text"), text("go on")]},
    ]);
    let body = &server.requests()[0].body;
    assert_eq!(body["messages"], expected);
    assert_eq!((&body["system"], &body["temperature"]), (&json!("one\n\ntwo"), &json!(1.0)));
}

#[tokio::test]
async fn the_key_and_the_version_go_along() {
    let raw = Raw::start(events("data: {\"type\":\"message_stop\"}\n\n")).await;
    for url in [raw.url(), format!("http://{}", raw.address)] {
        let config = ModelConfig { api_key_env: Some("TEST_KEY".to_owned()), ..anthropic(&url) };
        ask(config, "x").await.unwrap();
    }
    for request in raw.requests() {
        assert!(request.starts_with("POST /v1/messages "), "{request}");
        assert!(request.contains(&format!("x-api-key: {KEY}\r\n")), "{request}");
        assert!(request.contains("anthropic-version: 2023-06-01\r\n"), "{request}");
        assert!(!request.contains("authorization"), "{request}");
    }
}

#[tokio::test]
async fn errors_within_the_stream_say_what_they_are() {
    let begins = json!({"type": "message_start", "message": {"usage": {"input_tokens": 3}}});
    for (kind, expected, retryable) in [
        ("overloaded_error", "overloaded", true),
        ("api_error", "overloaded", true),
        ("rate_limit_error", "rate_limited", true),
        ("invalid_request_error", "refused", false),
        ("authentication_error", "refused", false),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": "so it is"}});
        let body = format!("data: {begins}\n\nevent: error\ndata: {error}\n\n");
        let raw = Raw::start(events(body)).await;
        let error = ask(anthropic(&raw.url()), "x").await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (expected, retryable), "{kind}");
        assert!(error.to_string().contains("so it is"), "{error}");
    }
}

#[tokio::test]
async fn strange_events_do_no_harm() {
    let cases: Vec<(Vec<Value>, Result<&str, &str>)> = vec![
        // A piece of a call that never began; a block of a kind that nobody knows.
        (
            vec![
                json!({"type": "content_block_delta", "index": 7,
                    "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
                json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "telepathy"}}),
                json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": "still"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": "many"}}),
            ],
            Ok("still"),
        ),
        (vec![json!({"type": "ping"}), json!([]), json!(null)], Err("dropped")),
        (vec![json!({"type": "message_start"})], Err("dropped")),
        (
            (0..300)
                .map(|at| {
                    json!({"type": "content_block_start", "index": at,
                    "content_block": {"type": "tool_use", "id": "x", "name": "f"}})
                })
                .collect(),
            Err("too_large"),
        ),
    ];
    for (lines, expected) in cases {
        let body: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
        let raw = Raw::start(events(body)).await;
        let response = ask(anthropic(&raw.url()), "x").await;
        match expected {
            Ok(text) => {
                let response = response.unwrap();
                assert_eq!((response.content.as_str(), response.usage), (text, None));
            }
            Err(kind) => assert_eq!(response.unwrap_err().kind(), kind),
        }
    }
    let json = "content-type: application/json\r\n";
    let raw = Raw::start(reply(200, json, "{\"choices\": []}")).await;
    assert_eq!(ask(anthropic(&raw.url()), "x").await.unwrap_err().kind(), "malformed");
}
