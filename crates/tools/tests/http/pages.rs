//! What an agent gets.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_contract::{ErrorCode, schema::Schema};
use tollgate_tools::http::{Get, GetInput, Host, HttpConfig, HttpProblem, Reach, get_declaration};

use crate::support::{
    Answer, Fixture, NOW, Server, again, is_role, number, passes, redirect, reply, text, until,
};

#[tokio::test]
async fn a_page_is_given_as_text() {
    let html =
        "<html><head><title>Hi</title></head><body><h1>Hello</h1><a href='/x'>x</a></body></html>";
    let server = Server::start(move |_| {
        reply(
            200,
            &[("content-type", "text/html; charset=utf-8"), ("x-ratelimit-remaining", "7")],
            html,
        )
    })
    .await;
    let fixture = Fixture::new();
    let fetched = fixture.get(&server.url("/a#frag")).await.unwrap();
    let output = serde_json::to_value(&fetched.page).unwrap();
    let expected = json!({
        "url": server.url("/a"), "status": 200, "contentType": "text/html; charset=utf-8", "title": "Hi",
        "text": format!("# Hello\n\nx ({})", server.url("/x")), "truncated": false, "bytes": html.len(),
        "redirects": [],
        "metadata": {"cache_hit": false, "fetched_at": "2023-11-14T22:13:20.000Z", "age_s": 0},
    });
    assert_eq!(output, expected);
    let schema = get_declaration().unwrap().tool().output_schema.clone().unwrap();
    assert_eq!(Schema::compile(&schema).unwrap().problems(&output), []);
    let limit = ("x-ratelimit-remaining".to_owned(), "7".to_owned());
    assert!(fetched.headers.contains(&limit), "{:?}", fetched.headers);
}

#[test]
fn what_is_left_out_is_what_the_wire_format_says() {
    let input: GetInput = serde_json::from_value(json!({"url": "https://example.com"})).unwrap();
    assert!(input.use_cache);
    let schema = get_declaration().unwrap().tool().input_schema.clone().unwrap();
    assert_eq!(schema["properties"]["use_cache"]["default"], json!(true));
    assert_eq!(schema["required"], json!(["url"]));
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[tokio::test]
async fn a_status_that_is_no_success_is_an_answer() {
    let server = Server::start(|path| reply(number(path) as u16, &[], "what is wrong")).await;
    let fixture = Fixture::new();
    for status in [201, 304, 400, 401, 404, 429, 500, 503] {
        let page = fixture.get(&server.url(&format!("/{status}"))).await.unwrap().page;
        assert_eq!(page.status, status);
        let text = if status == 304 { "" } else { "what is wrong" };
        assert_eq!(page.text, text);
    }
}

#[tokio::test]
async fn we_say_who_we_are_and_nothing_else() {
    let server = Server::start(|path| if path == "/" { redirect("/next") } else { text("") }).await;
    Fixture::new().get(&server.url("/")).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let mut headers: Vec<String> = request
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name.to_lowercase())
            .collect();
        headers.sort();
        assert_eq!(headers, ["accept", "accept-encoding", "host", "user-agent"]);
        assert!(request.contains("tollgate/"), "{request}");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_told() {
    let server = Server::start(|path| match path {
        "/0" | "/1" | "/2" | "/3" | "/4" => redirect(&format!("{}", number(path) + 1)),
        "/5" => text("there"),
        "/circle" => redirect("/back"),
        "/back" => redirect("/circle#again"),
        "/self" => redirect(""),
        "/none" => reply(302, &[], "no location"),
        _ => redirect(&format!("{path}x")),
    })
    .await;
    let fixture = Fixture::new();
    let page = fixture.get(&server.url("/0")).await.unwrap().page;
    assert_eq!((page.text.as_str(), page.url), ("there", server.url("/5")));
    let way: Vec<String> = (0..5).map(|number| server.url(&format!("/{number}"))).collect();
    assert_eq!(page.redirects, way);
    let problem = fixture.get(&server.url("/forever")).await.unwrap_err();
    assert_eq!(problem, HttpProblem::TooManyRedirects(5));
    for path in ["/circle", "/self"] {
        let problem = fixture.get(&server.url(path)).await.unwrap_err();
        assert!(problem.to_string().contains("in a circle"), "{problem}");
    }
    assert_eq!(fixture.get(&server.url("/none")).await.unwrap().page.text, "no location");
}

#[tokio::test]
async fn a_long_body_is_cut_and_says_so() {
    let server = Server::start(|path| {
        if path == "/endless" {
            let head = b"HTTP/1.1 200 X\r\ncontent-type: text/plain\r\n\r\n".to_vec();
            Answer::Endless(head, vec![b'x'; 10_000], Duration::ZERO)
        } else {
            text(&"é".repeat(1_000))
        }
    })
    .await;
    let config = HttpConfig { most_bytes: 50_000, most_characters: 999, ..HttpConfig::default() };
    let fixture = Fixture::with(config);
    let page = fixture.get(&server.url("/")).await.unwrap().page;
    assert_eq!((page.text, page.truncated, page.bytes), ("é".repeat(999), true, 2_000));
    let page = fixture.get(&server.url("/endless")).await.unwrap().page;
    assert_eq!((page.text.len(), page.truncated, page.bytes), (999, true, 50_000));
    server.until_left(1).await;
}

#[tokio::test]
async fn a_cancelled_fetch_ends_its_connection() {
    let server = Server::start(|_| {
        let head = b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n".to_vec();
        Answer::Endless(head, b"x".to_vec(), Duration::from_millis(5))
    })
    .await;
    let fixture = Fixture::new();
    let cancel = CancellationToken::new();
    let url = server.url("/");
    let reach = |_: &Host| Reach::Named;
    let deadline = Instant::now() + Duration::from_secs(15);
    let get =
        Get { url: &url, use_cache: true, now_ms: NOW, deadline, cancel: &cancel, reach: &reach };
    let give_up = async {
        until(|| server.requests().len() == 1).await;
        cancel.cancel();
    };
    let (problem, ()) = tokio::join!(fixture.fetcher.fetch(get), give_up);
    let problem = problem.unwrap_err();
    assert_eq!(problem, HttpProblem::Cancelled);
    assert_eq!(problem.error().code(), ErrorCode::Cancelled);
    server.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_at_once_are_fine() {
    let server = Server::start(text).await;
    let fixture = std::sync::Arc::new(Fixture::new());
    let mut tasks = Vec::new();
    for number in 0..32 {
        let (fixture, path) = (std::sync::Arc::clone(&fixture), format!("/{}", number % 4));
        let url = server.url(&path);
        tasks.push(tokio::spawn(async move {
            let fetched = fixture.get_as(&url, true, NOW, &|_| Reach::Named).await.unwrap();
            assert_eq!(fetched.page.text, path);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!((4..=32).contains(&server.connections()));
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    if is_role("proxied") {
        let url = std::env::var("PAGE").unwrap();
        assert_eq!(Fixture::new().get(&url).await.unwrap().page.text, "direct");
        return;
    }
    let server = Server::start(|_| text("direct")).await;
    let proxy = Server::start(|_| text("by the proxy")).await;
    let mut child = again("pages::proxies_of_the_environment_are_not_used", "proxied");
    child.env("PAGE", server.url("/")).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
    {
        child.env(name, proxy.url(""));
    }
    passes(child).await;
    assert_eq!((server.connections(), proxy.connections()), (1, 0));
}
