//! The fake model itself, and the same script without a server.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_models::{
    ChatRequest, Message, Model, ModelConfig, Models, NativeCall, Role, fake::Ended,
};

use crate::support::{anthropic, fake, model, openai, says, script, streamed, until};

async fn content(model: &Model, request: ChatRequest) -> String {
    streamed(model, request).await.1.map_or_else(|error| error.to_string(), |it| it.content)
}

fn replies() -> Value {
    json!([
        {"when": {"last_contains": "weather", "role": "user"}, "content": "rain", "times": 2},
        {"when": {"system_contains": "brief", "last_contains": "why"}, "content": "so"},
        {"content": "one"},
        {"content": "request {{n}} said {{last}}", "times": 2},
    ])
}

/// What such a script says, whoever plays it.
async fn plays(model: &Model) {
    let long = "é".repeat(300);
    for (said, expected) in [
        ("hello", "one".to_owned()),
        ("the weather?", "rain".to_owned()),
        ("why?", "so".to_owned()),
        (&long, format!("request 4 said {}", "é".repeat(200))),
        ("why?", "request 5 said why?".to_owned()),
        ("the weather!", "rain".to_owned()),
    ] {
        assert_eq!(content(model, says(said)).await, expected, "{said}");
    }
    let end = content(model, says("the weather")).await;
    assert!(end.contains("the script is at its end"), "{end}");
}

#[tokio::test]
async fn replies_that_fit_come_first_and_the_others_in_order() {
    let server = fake(replies()).await;
    plays(&model(openai(&server.url()))).await;
    let server = fake(replies()).await;
    plays(&model(anthropic(&server.url()))).await;
}

#[tokio::test]
async fn a_script_is_played_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.json");
    std::fs::write(&path, json!({"replies": replies()}).to_string()).unwrap();
    plays(&model(ModelConfig::scripted(&path))).await;
    // With everything that a server does.
    let trouble = json!({"loop": true, "model": "actor", "replies": [
        {"content": "abc", "chunk": 1, "reasoning": "hm",
            "tool_calls": [{"name": "a.b", "arguments": {"x": 1}}]},
        {"status": 429, "headers": {"Retry-After": "9"}},
        {"content": "abc", "drop_after": 0},
        {"content": "abc", "hang_after": 0},
        {"raw": "data: {\"choices\":[{\"delta\":{\"content\":\"raw\"}}]}\n\ndata: [DONE]\n\n", "chunk": 5},
        {"raw_base64": "ZGF0YTogW0RPTkVdCgo="},
    ]});
    std::fs::write(&path, trouble.to_string()).unwrap();
    let config = ModelConfig {
        first_timeout_seconds: Some(1),
        idle_timeout_seconds: 1,
        ..ModelConfig::scripted(&path)
    };
    let model = model(config);
    let first = streamed(&model, says("x")).await.1.unwrap();
    assert_eq!((first.content.as_str(), first.reasoning.as_str()), ("abc", "hm"));
    assert_eq!(first.model, "actor");
    let call = NativeCall {
        id: "call_1_0".to_owned(),
        name: "a__b".to_owned(),
        arguments: "{\"x\":1}".to_owned(),
    };
    assert_eq!(first.tool_calls, [call]);
    let error = streamed(&model, says("x")).await.1.unwrap_err();
    assert_eq!(error.kind(), "rate_limited");
    assert_eq!(error.retry_after().unwrap().as_secs_f64().round(), 9.0);
    for kind in ["dropped", "idle"] {
        assert_eq!(streamed(&model, says("x")).await.1.unwrap_err().kind(), kind);
    }
    assert_eq!(content(&model, says("x")).await, "raw");
    assert_eq!(content(&model, says("x")).await, "");
    assert_eq!(content(&model, says("x")).await, "abc", "it begins again");
}

#[tokio::test]
async fn what_came_is_shown_over_http_with_what_became_of_it() {
    let server = fake(json!([{"content": "a"}, {"content": "b", "drop_after": 1}])).await;
    let model = model(openai(&server.url()));
    content(&model, says("one")).await;
    content(&model, says("two")).await;
    until(|| server.requests()[1].ended == Ended::Cut).await;
    let address = server.url().replace("http://", "").replace("/v1", "");
    let shown = get(&address, "/requests").await;
    assert_eq!(shown.as_array().unwrap().len(), 2);
    assert_eq!(shown[0]["n"], 1);
    assert_eq!(shown[0]["path"], "/v1/chat/completions");
    assert_eq!(shown[0]["body"]["messages"][1]["content"], "one");
    assert_eq!((&shown[0]["ended"], &shown[1]["ended"]), (&json!("complete"), &json!("cut")));
    assert_eq!(get(&address, "/v1/models").await["data"][0]["id"], "fake");
    server.stop().await;
    assert!(tokio::net::TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let played = script(json!([{"content": "served", "hang_after": 0, "times": 1}]));
    let served = tokio::spawn(tollgate_models::fake::serve(played, listener, shutdown.clone()));
    let model = model(openai(&format!("http://{address}/v1")));
    let asked = tokio::spawn(async move { streamed(&model, says("x")).await.1 });
    let shown = async || get(&address.to_string(), "/requests").await;
    while shown().await.as_array().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    shutdown.cancel();
    served.await.unwrap().unwrap();
    // What hung is cut.
    assert_eq!(asked.await.unwrap().unwrap_err().kind(), "dropped");
}

async fn get(address: &str, path: &str) -> Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_script_that_cannot_be_read_is_named() {
    let config = ModelConfig::scripted("/nowhere/script.json");
    let bad = Models::new([("play".to_owned(), config)].into(), None).err().unwrap();
    assert_eq!(bad.setting, "script");
    assert!(bad.to_string().contains("/nowhere/script.json"), "{bad}");
}

#[tokio::test]
async fn what_the_tool_said_can_be_waited_for() {
    let server = fake(json!([
        {"when": {"role": "user", "last_contains": "TOOL RESULT"}, "content": "by text"},
        {"when": {"role": "tool"}, "content": "native"},
    ]))
    .await;
    let model = model(openai(&server.url()));
    let request = |messages| ChatRequest { messages, max_tokens: 9, ..ChatRequest::default() };
    let by_text = vec![Message::new(Role::Tool, "42")];
    assert_eq!(content(&model, request(by_text)).await, "by text");
    let calls = vec![NativeCall { id: "c".to_owned(), ..NativeCall::default() }];
    let native = vec![
        Message { tool_calls: calls, ..Message::new(Role::Assistant, "") },
        Message { tool_call_id: Some("c".to_owned()), ..Message::new(Role::Tool, "42") },
    ];
    assert_eq!(content(&model, request(native)).await, "native");
}
