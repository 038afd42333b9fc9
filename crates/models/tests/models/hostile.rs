//! Servers that hang, break off, lie and send too much.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tollgate_models::{ChatRequest, Delta, ModelConfig, ModelError, fake::Ended};

use crate::support::{
    KEY, Raw, Sends, anthropic, ask, events, fake, head, model, openai, reply, says, streamed,
    until,
};

fn text(text: &str) -> String {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    format!("data: {chunk}\n\n")
}

const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn silence_is_given_up() {
    for replies in [
        json!([{"content": "abcdef", "chunk": 1, "hang_after": 3}]),
        json!([{"content": "abcdef", "hang_after": 0}]),
        json!([{"content": "late", "delay_ms": 600_000}]),
    ] {
        let server = fake(replies.clone()).await;
        for config in [openai(&server.url()), anthropic(&server.url())] {
            let config =
                ModelConfig { idle_timeout_seconds: 1, first_timeout_seconds: Some(1), ..config };
            let error = ask(config, "x").await;
            // The second one finds the script at its end.
            let Err(error @ ModelError::Idle { .. }) = error else {
                assert!(error.unwrap_err().to_string().contains("at its end"));
                continue;
            };
            assert!(error.is_retryable());
            assert!(error.to_string().contains("_timeout_seconds`"), "{error}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_is_given_up() {
    // Something comes all the time, so that it is never silent.
    let head = [head(200, "text/event-stream"), text("a").into_bytes()].concat();
    let raw = Raw::start(Sends::Endless(head, b": still here\n".to_vec())).await;
    let config =
        ModelConfig { timeout_seconds: 1, max_answer_bytes: 1 << 30, ..openai(&raw.url()) };
    let begun = Instant::now();
    let error = ask(config, "x").await.unwrap_err();
    assert_eq!(error, ModelError::Timeout(Duration::from_secs(1)));
    assert!(begun.elapsed() < Duration::from_secs(20));
    until(|| raw.left.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn what_breaks_off_is_an_error() {
    let half = text("half");
    let finish = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    for (what, sends) in [
        ("nothing", events("")),
        ("no end", events(&half)),
        ("half an event", events(format!("{half}data: {{\"choices\":[{{\"del"))),
        ("cut short", Sends::Bytes([&b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"[..], half.as_bytes()].concat())),
        ("cut in a chunk", Sends::Bytes([&b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nfff\r\n"[..], half.as_bytes()].concat())),
        ("no answer", Sends::Bytes(Vec::new())),
    ] {
        let raw = Raw::start(sends).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert!(matches!(error, ModelError::Dropped(_)), "{what}: {error}");
        assert!(error.is_retryable());
    }
    // An answer that is whole is whole, whatever becomes of the connection; and so is one without its last line.
    for body in
        [format!("{half}{finish}\n\n"), format!("{half}{finish}"), format!("{half}data: [DONE]")]
    {
        let raw = Raw::start(events(&body)).await;
        assert_eq!(ask(openai(&raw.url()), "x").await.unwrap().content, "half", "{body}");
    }
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(openai(&url), "x").await.unwrap_err();
    assert!(matches!(error, ModelError::Connect(_)), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_no_is_told_with_its_reason() {
    let message = |text: &str| json!({"error": {"message": text}}).to_string();
    let quota = json!({"error": {"message": "pay first", "code": "insufficient_quota"}});
    let cases = [
        (400, "", message("bad request"), "refused", None),
        (401, "", message("no key"), "refused", None),
        (404, "", "not here".to_owned(), "refused", None),
        (413, "", json!({"detail": "too long"}).to_string(), "refused", None),
        (429, "retry-after: 3\r\n", message("slow down"), "rate_limited", Some(3)),
        (429, "", quota.to_string(), "refused", None),
        (500, "", json!({"error": "plain words"}).to_string(), "overloaded", None),
        (503, "retry-after: 2\r\n", String::new(), "overloaded", Some(2)),
        (529, "", message("busy"), "overloaded", None),
        (302, "location: http://127.0.0.1:1/steal\r\n", String::new(), "refused", None),
        (
            502,
            "content-type: text/html\r\n",
            "<html><h1>Bad Gateway</h1>".repeat(9000),
            "overloaded",
            None,
        ),
    ];
    for (status, headers, body, kind, wait) in cases {
        let raw = Raw::start(reply(status, headers, &body)).await;
        for config in [openai(&raw.url()), anthropic(&raw.url())] {
            let model = model(config);
            for error in [
                streamed(&model, says("x")).await.1.unwrap_err(),
                model.backend().chat(says("x")).await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), kind, "{status}: {error}");
                assert_eq!(error.is_retryable(), kind != "refused", "{status}");
                let seconds = error.retry_after().map(|wait| wait.as_secs_f64().round() as u64);
                assert_eq!(seconds, wait, "{status}");
                let text = error.to_string();
                assert!(text.len() < 2_500 && !text.contains(['\n', '<']), "{text}");
                assert!(text.contains(&status.to_string()) || status == 429, "{text}");
            }
        }
    }
}

#[tokio::test]
async fn a_no_whose_words_never_come_is_still_a_no() {
    let head = b"HTTP/1.1 429 X\r\nretry-after: 4\r\ncontent-length: 100\r\n\r\nslow";
    let raw = Raw::start(Sends::Silent(head.to_vec())).await;
    let config = ModelConfig { idle_timeout_seconds: 1, ..openai(&raw.url()) };
    let error = ask(config, "x").await.unwrap_err();
    assert_eq!(error.kind(), "rate_limited");
    assert!(error.retry_after().is_some());
    assert!(error.to_string().contains("slow"), "{error}");
}

#[tokio::test]
async fn errors_within_the_stream_are_errors() {
    for (error, kind) in [
        (
            json!({"error": {"message": "out of memory", "code": 500, "type": "server_error"}}),
            "overloaded",
        ),
        (json!({"error": "out of memory"}), "overloaded"),
        (
            json!({"error": {"message": "out of memory", "type": "rate_limit_exceeded"}}),
            "rate_limited",
        ),
        (json!({"error": {"message": "out of memory", "code": "400"}}), "refused"),
        (
            json!({"error": {"message": "out of memory", "type": "invalid_request_error"}}),
            "refused",
        ),
    ] {
        let raw = Raw::start(events(format!("{}data: {error}\n\n{DONE}", text("a")))).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("out of memory"), "{error}");
    }
}

#[tokio::test]
async fn garbage_is_an_error() {
    let page = "<!doctype html><title>Hello</title>";
    let cases = [
        ("a page", reply(200, "content-type: text/html\r\n", page), "it is a web page"),
        ("no JSON", events("data: {nope}\n\n"), "is no JSON"),
        ("other JSON", reply(200, "content-type: application/json\r\n", "[1,2]"), "no `choices`"),
        ("half JSON", reply(200, "content-type: application/json\r\n", "{\"choices\":"), "no JSON"),
        ("empty JSON", reply(200, "content-type: application/json\r\n", ""), "no JSON"),
        ("deep JSON", events(format!("data: {}\n\n", "[".repeat(100_000))), "is no JSON"),
    ];
    for (what, sends, problem) in cases {
        let raw = Raw::start(sends).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert!(matches!(error, ModelError::Malformed(_)), "{what}: {error}");
        assert!(error.to_string().contains(problem), "{what}: {error}");
        assert!(!error.is_retryable());
    }
    // Bytes that are no stream at all, and no HTTP.
    let noise: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let raw = Raw::start(events(&noise)).await;
    assert_eq!(ask(openai(&raw.url()), "x").await.unwrap_err().kind(), "dropped");
    let raw = Raw::start(Sends::Bytes(noise)).await;
    assert_eq!(ask(openai(&raw.url()), "x").await.unwrap_err().kind(), "dropped");
}

#[tokio::test]
async fn what_is_no_utf8_is_replaced() {
    let mut body = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\xfeb\"}}]}\n\n".to_vec();
    body.extend_from_slice(DONE.as_bytes());
    let raw = Raw::start(events(&body)).await;
    assert_eq!(ask(openai(&raw.url()), "x").await.unwrap().content, "a\u{fffd}\u{fffd}b");
}

#[tokio::test]
async fn ten_thousand_calls_are_too_many() {
    let calls = |from: usize, to: usize| -> Vec<Value> {
        (from..to)
            .map(|at| json!({"index": at, "id": format!("c{at}"), "function": {"name": "f"}}))
            .collect()
    };
    let chunk = |calls: Vec<Value>| {
        let chunk = json!({"choices": [{"delta": {"tool_calls": calls}}]});
        format!("data: {chunk}\n\n")
    };
    let together = chunk(calls(0, 10_000));
    let apart: String = (0..10_000).map(|at| chunk(calls(at, at + 1))).collect();
    for body in [together, apart] {
        let raw = Raw::start(events(format!("{body}{DONE}"))).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert!(matches!(error, ModelError::TooLarge(_)), "{error}");
        assert!(error.to_string().contains("256 calls"), "{error}");
    }
    let most = format!("{}{DONE}", chunk(calls(0, 256)));
    let raw = Raw::start(events(most)).await;
    assert_eq!(ask(openai(&raw.url()), "x").await.unwrap().tool_calls.len(), 256);
}

#[tokio::test]
async fn large_answers_are_given_up_early() {
    let head = head(200, "text/event-stream");
    let piece = text(&"x".repeat(60_000)).into_bytes();
    let arguments = json!({"choices": [{"delta": {"tool_calls": [
        {"index": 0, "function": {"name": "f", "arguments": "y".repeat(60_000)}}]}}]});
    let arguments = format!("data: {arguments}\n\n").into_bytes();
    let comment = [&b": "[..], &b"z".repeat(60_000), b"\n"].concat();
    for (what, piece) in [
        ("text without end", piece),
        ("a call without end", arguments),
        ("a line without end", b"w".repeat(60_000)),
        ("an event without end", [&b"data: "[..], &b"v".repeat(60_000), b"\n"].concat()),
        ("comments without end", comment),
    ] {
        let raw = Raw::start(Sends::Endless(head.clone(), piece)).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert!(matches!(error, ModelError::TooLarge(_)), "{what}: {error}");
        assert!(!error.is_retryable());
        until(|| raw.left.load(Ordering::SeqCst) == 1).await;
    }
    // Also where it is no stream, and where it says how long it is.
    let body = format!("{{\"x\": \"{}\"}}", "u".repeat(100_000));
    let raw = Raw::start(reply(200, "content-type: application/json\r\n", body)).await;
    let config = ModelConfig { max_answer_bytes: 50_000, ..openai(&raw.url()) };
    let error = model(config).backend().chat(says("x")).await.unwrap_err();
    assert!(matches!(error, ModelError::TooLarge(_)), "{error}");
}

#[tokio::test]
async fn large_headers_are_given_up() {
    let many: String = (0..1_000).map(|at| format!("x-{at}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(70_000));
    for headers in [many, long] {
        let raw = Raw::start(reply(200, &headers, DONE)).await;
        let error = ask(openai(&raw.url()), "x").await.unwrap_err();
        assert!(matches!(error, ModelError::Dropped(_) | ModelError::TooLarge(_)), "{error}");
    }
}

#[tokio::test]
async fn cancelling_ends_the_stream_and_the_connection_at_once() {
    let server =
        fake(json!([{"content": "abcdef", "chunk": 1, "hang_after": 3, "times": 0}])).await;
    for config in [openai(&server.url()), anthropic(&server.url())] {
        let cancel = CancellationToken::new();
        let before = server.requests().len();
        let mut deltas = model(config).backend().stream_chat(says("x"), cancel.clone());
        let mut came = String::new();
        while came.len() < 3 {
            if let Delta::Text(text) = deltas.next().await.unwrap().unwrap() {
                came.push_str(&text);
            }
        }
        assert_eq!(server.requests()[before].ended, Ended::Sending);
        cancel.cancel();
        assert_eq!(deltas.next().await, Some(Err(ModelError::Cancelled)));
        assert_eq!(deltas.next().await, None);
        // The stream is still there, and its connection is not.
        until(|| server.requests()[before].ended == Ended::Left).await;
    }
    // Dropping it does the same.
    let model = model(openai(&server.url()));
    let mut deltas = model.backend().stream_chat(says("x"), CancellationToken::new());
    deltas.next().await.unwrap().unwrap();
    drop(deltas);
    until(|| server.requests()[2].ended == Ended::Left).await;
    // What is cancelled before it begins is not sent.
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut deltas = model.backend().stream_chat(says("x"), cancel);
    assert_eq!(deltas.next().await, Some(Err(ModelError::Cancelled)));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn the_key_is_in_no_error_whatever_the_server_says() {
    let echo = format!("the key {KEY} is wrong");
    let body = json!({"error": {"message": echo}}).to_string();
    let stream = format!("{}data: {body}\n\n", text("a"));
    let unreadable = format!("data: {{\"{KEY}\n\n");
    for sends in [
        reply(401, "", &body),
        reply(429, "", &echo),
        reply(500, "", &body),
        events(&stream),
        events(&unreadable),
        reply(200, "content-type: application/json\r\n", &echo),
    ] {
        let raw = Raw::start(sends).await;
        for config in [openai(&raw.url()), anthropic(&raw.url())] {
            let config = ModelConfig { api_key_env: Some("TEST_KEY".to_owned()), ..config };
            let model = model(config);
            let error = streamed(&model, says("x")).await.1.unwrap_err();
            let shown = format!("{error} {error:?} {model:?}");
            assert!(!shown.contains(KEY), "{shown}");
        }
        assert!(raw.requests().iter().all(|request| request.contains(KEY)));
    }
}

#[tokio::test]
async fn a_redirect_takes_neither_the_body_nor_the_key_along() {
    let inside = Raw::start(events(DONE)).await;
    let location = format!("location: {}/chat/completions\r\n", inside.url());
    let raw = Raw::start(reply(307, &location, "")).await;
    let config = ModelConfig { api_key_env: Some("TEST_KEY".to_owned()), ..openai(&raw.url()) };
    let error = ask(config, "x").await.unwrap_err();
    assert!(error.to_string().contains("set `url` to where it leads"), "{error}");
    assert!(inside.requests().is_empty());
}

#[tokio::test]
async fn names_and_ids_without_end_are_too_large() {
    for call in [
        json!({"id": "i".repeat(1_000), "function": {"name": "f"}}),
        json!({"id": "i", "function": {"name": "n".repeat(1_000)}}),
    ] {
        let chunk =
            json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]});
        let raw = Raw::start(events(format!("data: {chunk}\n\n"))).await;
        let request = ChatRequest { ..says("x") };
        let error = streamed(&model(openai(&raw.url())), request).await.1.unwrap_err();
        assert!(matches!(error, ModelError::TooLarge(_)), "{error}");
    }
}
