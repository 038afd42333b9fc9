//! Pollers against servers that answer well, badly, too much and not at all.

use std::{
    io::Write,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_governor::ProviderReport;
use tollgate_outbound::{Backoff, Pace, PollResult, PollSource, Poller};

use crate::support::{Answer, Seen, Server, reply, soon};

const NOW: i64 = 1_767_323_045_000;
const CANARY: &str = "canary-5f2b9d-do-not-show";

fn source(source: Value) -> PollSource {
    serde_json::from_value(source).unwrap()
}

fn fast() -> Pace {
    let retry = Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(5) };
    Pace { every: Duration::from_millis(1), retry, longest_pause: Duration::ZERO }
}

fn poller(of: Value) -> Poller {
    Poller::new("mine".to_owned(), source(of), Arc::new(|| NOW)).unwrap()
}

/// The results of the first polls.
async fn results(poller: Poller, count: usize) -> Vec<PollResult> {
    let (sender, mut results) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let sink = move |result| sender.send(result).unwrap_or_default();
    let running = tokio::spawn(poller.run(sink, stop.clone()));
    let mut first = Vec::new();
    while first.len() < count {
        first.push(soon(results.recv()).await.unwrap());
    }
    stop.cancel();
    soon(running).await.unwrap();
    first
}

fn problem(result: &PollResult) -> &str {
    assert_eq!(result.source, "mine");
    result.failed.as_ref().map_or("", |failed| &failed.problem)
}

fn report(name: &str, limit: u64, remaining: u64, used: u64, seconds: i64) -> ProviderReport {
    ProviderReport {
        name: Some(name.to_owned()),
        limit: Some(limit),
        remaining: Some(remaining),
        reset_at_ms: Some(NOW + seconds * 1000),
        used: Some(used),
        window_ms: None,
    }
}

#[tokio::test]
async fn github_is_asked_with_the_token_and_reports_each_resource() {
    let server = Server::start(|nth, _| {
        let core = json!({"limit": 5000, "remaining": 4999 - nth, "used": 1 + nth, "reset": NOW / 1000 + 60});
        let search = json!({"limit": 30, "remaining": 30, "used": 0, "reset": NOW / 1000 + 60});
        reply(200, &[], json!({"resources": {"core": core, "search": search}}).to_string())
    })
    .await;
    let mut token = tempfile::NamedTempFile::new().unwrap();
    writeln!(token, "{CANARY}").unwrap();
    let github =
        json!({"kind": "github", "url": server.url("/rate_limit"), "token_file": token.path()});
    let results = results(poller(github).with_pace(fast()), 2).await;
    for (nth, result) in results.iter().enumerate() {
        assert_eq!(result.failed, None);
        assert_eq!(result.began_at_ms, NOW);
        let nth = u64::try_from(nth).unwrap();
        let core = report("core", 5000, 4999 - nth, 1 + nth, 60);
        assert_eq!(result.reports, [core, report("search", 30, 30, 0, 60)]);
    }
    let asked = &server.seen()[0];
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/rate_limit"));
    assert_eq!(asked.header("authorization"), format!("Bearer {CANARY}"));
    assert!(asked.header("user-agent").starts_with("tollgate/"));
}

#[tokio::test]
async fn any_json_is_read_and_the_token_goes_where_it_is_wanted() {
    let answer = |_, _: &Seen| reply(200, &[], r#"{"quota": {"left": "12", "in": 30}}"#);
    let server = Server::start(answer).await;
    let source = json!({
        "kind": "json", "url": server.url("/q?a=b"), "name": "calls", "remaining": "/quota/left",
        "reset": "/quota/in", "reset_is": "seconds", "header": "x-api-key", "scheme": "",
        // One that is there in every test.
        "token_env": "CARGO_PKG_NAME",
    });
    let result = results(poller(source), 1).await.remove(0);
    let expected = ProviderReport {
        name: Some("calls".to_owned()),
        remaining: Some(12),
        reset_at_ms: Some(NOW + 30_000),
        ..ProviderReport::default()
    };
    assert_eq!((result.reports, result.failed), (vec![expected], None));
    assert_eq!(result.next_in, Duration::from_secs(60));
    let asked = &server.seen()[0];
    assert_eq!((asked.path.as_str(), asked.header("x-api-key")), ("/q?a=b", "tollgate-outbound"));
    assert_eq!(asked.header("authorization"), "");
}

/// What is answered, and the pause that follows, in seconds.
type Case = (u16, &'static [(&'static str, &'static str)], RangeInclusive<u64>);

#[tokio::test]
async fn a_provider_that_wants_to_be_left_alone_is() {
    let spent = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767323645")];
    let left = [("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1767323645")];
    let table: [Case; 6] = [
        (429, &[("retry-after", "700")], 700..=700),
        (429, &[("retry-after", "Fri, 02 Jan 2026 03:16:05 GMT")], 720..=720),
        (503, &[("retry-after", "99999999")], 3600..=3600),
        (200, &[("retry-after", "700")], 700..=700),
        (429, &[("retry-after", "0")], 2..=5),
        (500, &[], 2..=5),
    ];
    let cases = table.into_iter().map(|(status, headers, pause)| (status, headers.to_vec(), pause));
    let by_limit = [
        (403, spent.to_vec(), 600..=600),
        (429, spent.to_vec(), 600..=600),
        (403, left.to_vec(), 2..=5),
        (404, spent.to_vec(), 2..=5),
    ];
    for (status, headers, pause) in cases.chain(by_limit) {
        let sent = headers.clone();
        let server = Server::start(move |_, _| reply(status, &sent, r#"{"left": 1}"#)).await;
        let source = json!({"kind": "json", "url": server.url("/"), "remaining": "/left"});
        let result = results(poller(source), 1).await.remove(0);
        assert!(pause.contains(&result.next_in.as_secs()), "{status} {headers:?} {result:?}");
        assert_eq!(result.failed.is_none(), status == 200);
        // What a refusal says of limits is told, too.
        let told = result.reports.iter().any(|report| report.reset_at_ms == Some(NOW + 600_000));
        assert_eq!(told, headers.contains(&spent[1]), "{result:?}");
    }
}

#[tokio::test]
async fn whatever_comes_back_polling_goes_on() {
    let elsewhere = Server::start(|_, _| reply(200, &[], r#"{"left": 1}"#)).await;
    let to = elsewhere.url("/");
    let script = move |nth: usize, _: &Seen| -> Answer {
        match nth {
            0 => reply(200, &[], "<html>"),
            1 => reply(200, &[], "{}"),
            2 => reply(200, &[], vec![b'['; 1024 * 1024 + 1]),
            3 => reply(302, &[("location", &to)], ""),
            4 => None,
            5 => reply(500, &[], "oh"),
            6 => reply(401, &[], ""),
            7 => {
                let broken = axum::BoxError::from("broken");
                let pieces = [Ok("{"), Err(broken)];
                reply(200, &[], Body::from_stream(futures_util::stream::iter(pieces)))
            }
            _ => reply(200, &[], r#"{"left": 5}"#),
        }
    };
    let server = Server::start(script).await;
    let source = json!({
        "kind": "json", "url": server.url("/"), "remaining": "/left", "timeout_seconds": 1,
    });
    let results = results(poller(source).with_pace(fast()), 9).await;
    let expected = [
        "the answer is not JSON",
        "the answer has no count at `/left`",
        "the answer is larger than 1048576 bytes",
        "answered 302; redirects are not followed",
        "no answer came in time",
        "the provider answered 500",
        "the provider answered 401; check the token",
        "",
        "",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert!(problem(result).contains(expected), "{result:?}");
        let good = result.failed.is_none();
        assert_eq!(result.reports.len(), usize::from(good), "{result:?}");
    }
    assert!(results[7].failed.is_some() && results[8].failed.is_none());
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn nobody_there_and_no_encryption_there_are_said_as_such() {
    let server = Server::start(|_, _| reply(200, &[], "")).await;
    let source = |url: String| json!({"kind": "json", "url": url, "remaining": "/left"});
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    for (url, said) in [
        (format!("http://{closed}/?key={CANARY}"), "refused"),
        (format!("https://{}/?key={CANARY}", server.address), "error sending request"),
    ] {
        match Poller::new("mine".to_owned(), self::source(source(url)), Arc::new(|| NOW)) {
            Ok(poller) => {
                let result = results(poller, 1).await.remove(0);
                assert!(problem(&result).contains(said), "{result:?}");
                assert!(!format!("{result:?}").contains(CANARY), "{result:?}");
            }
            // Where a machine has no certificates.
            Err(bad) => assert!(bad.to_string().contains("ca-certificates"), "{bad}"),
        }
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_token_that_is_not_there_is_said_and_nothing_is_asked() {
    let server = Server::start(|_, _| reply(200, &[], r#"{"left": 5}"#)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    for (token, said) in [
        (
            json!({"token_env": "TOLLGATE_TEST_IS_NOT_SET"}),
            "`TOLLGATE_TEST_IS_NOT_SET` of `token_env` is not set",
        ),
        (json!({"token_file": folder.path().join("none")}), "cannot be read"),
        (json!({"token_file": folder.path()}), "it is not a file"),
        (json!({"token_file": file("empty", " \n")}), "is empty"),
        (
            json!({"token_file": file("lines", &format!("{CANARY}\n{CANARY}"))}),
            "a header cannot carry",
        ),
    ] {
        let mut source = json!({"kind": "json", "url": server.url("/"), "remaining": "/left"});
        source.as_object_mut().unwrap().extend(token.as_object().unwrap().clone());
        let result = results(poller(source), 1).await.remove(0);
        assert!(problem(&result).contains(said), "{result:?}");
        assert!(!format!("{result:?}").contains(CANARY), "{result:?}");
    }
    assert!(server.seen().is_empty());
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_token_is_in_no_log_line_and_no_result_even_if_the_provider_repeats_it() {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let echo = |nth: usize, seen: &Seen| {
        let sent = seen.header("authorization").to_owned();
        let status = [200, 401, 302, 500, 200][nth % 5];
        let body = if nth == 4 { sent.clone() } else { json!({ "left": sent }).to_string() };
        let headers = [
            ("location", sent.as_str()),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-resource", &sent),
            ("ratelimit", &format!("\"{sent}\";r=1")),
        ];
        reply(status, &headers, body)
    };
    let server = Server::start(echo).await;
    let mut token = tempfile::NamedTempFile::new().unwrap();
    write!(token, "{CANARY}").unwrap();
    let source = json!({
        "kind": "json", "url": server.url(&format!("/?key={CANARY}")), "remaining": "/left", "token_file": token.path(),
    });
    let results = results(poller(source).with_pace(fast()), 6).await;
    assert!(server.seen().iter().all(|seen| seen.header("authorization").contains(CANARY)));
    assert!(results.iter().all(|result| result.failed.is_some()));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("poll failed: the provider answered 401"), "{log}");
    for shown in [log, format!("{results:?}")] {
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

#[tokio::test]
async fn a_poll_that_hangs_is_stopped_at_once() {
    let server = Server::start(|_, _| None).await;
    let source = json!({"kind": "json", "url": server.url("/"), "remaining": "/left", "timeout_seconds": 300});
    let stop = CancellationToken::new();
    let running = tokio::spawn(poller(source).run(|_| {}, stop.clone()));
    server.asked(1).await;
    stop.cancel();
    soon(running).await.unwrap();
    server.left(1).await;
}
