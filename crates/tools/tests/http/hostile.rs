//! Addresses and answers that mean harm.

use std::{io::Write, time::Duration};

use flate2::{Compress, Compression, FlushCompress, write::GzEncoder};
use tokio::time::Instant;
use tollgate_contract::ErrorCode;
use tollgate_tools::http::{Host, HttpProblem, Reach};

use crate::support::{Answer, Fixture, NOW, Server, number, redirect, reply, text};

#[tokio::test]
async fn no_spelling_of_this_machine_is_public() {
    let server = Server::start(|_| text("inside")).await;
    let fixture = Fixture::new();
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "0.0.0.0",
        "0",
        "[::]",
        "127.255.255.254",
        "１２７.０.０.１",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "[fe80::1]",
        "224.0.0.1",
    ] {
        let problem = fixture.get_public(&format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{host}: {problem}");
        assert_eq!(problem.error().code(), ErrorCode::ToolFailed);
    }
    assert_eq!(server.connections(), 0);
    // Who was granted it by name gets there, however it is spelled.
    let by_name = |host: &Host| {
        if host.as_str() == "127.0.0.1" { Reach::Named } else { Reach::No("another".to_owned()) }
    };
    for host in ["127.1", "0x7f000001", "[::ffff:127.0.0.1]", "127.0.0.1."] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(fixture.get_as(&url, false, NOW, &by_name).await.unwrap().page.text, "inside");
    }
    let error = fixture.get_as(&format!("http://localhost:{port}/"), false, NOW, &by_name).await;
    let error = error.unwrap_err().error();
    assert_eq!(error.code(), ErrorCode::CapabilityMissing);
    assert_eq!(error.details()["capability"], "net:localhost");
}

#[tokio::test]
async fn a_redirect_is_asked_about_like_the_first_address() {
    let inside = Server::start(|_| text("inside")).await;
    let port = inside.address.port();
    let targets: Vec<String> = [
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://127.0.0.2:{port}/"),
        format!("//0x7f000002:{port}/"),
    ]
    .to_vec();
    let locations = targets.clone();
    let server = Server::start(move |path| redirect(&locations[number(path)])).await;
    let fixture = Fixture::new();
    for number in 0..targets.len() {
        let url = server.url(&format!("/{number}"));
        let only_first = |host: &Host| {
            if host.as_str() == "127.0.0.1" {
                Reach::Named
            } else {
                Reach::No("no grant".to_owned())
            }
        };
        let problem = fixture.get_as(&url, false, NOW, &only_first).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::NotGranted { .. }), "{problem}");
        let rest_is_public = |host: &Host| {
            if host.as_str() == "127.0.0.1" { Reach::Named } else { Reach::Public }
        };
        let problem = fixture.get_as(&url, false, NOW, &rest_is_public).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{problem}");
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_something_else_is_not_followed() {
    let targets = [
        "file:///etc/passwd",
        "data:text/plain,hello",
        "ftp://127.0.0.1/",
        "javascript:alert(1)",
        "gopher://127.0.0.1:70/",
        "http://user:pass@127.0.0.1/",
        "http://",
        "http://[::1",
    ];
    let server = Server::start(move |path| redirect(targets[number(path)])).await;
    let fixture = Fixture::new();
    for (number, target) in targets.iter().enumerate() {
        let problem = fixture.get(&server.url(&format!("/{number}"))).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::Redirect { .. }), "{target}: {problem}");
    }
    assert_eq!(server.connections(), targets.len());
}

#[tokio::test]
async fn addresses_that_are_not_fetched_are_not_asked_about() {
    let fixture = Fixture::new();
    for url in
        ["file:///etc/passwd", "data:,x", "http://u:p@127.0.0.1/", "nothing", "ftp://127.0.0.1/"]
    {
        let asked = |_: &Host| -> Reach { panic!("asked") };
        let problem = fixture.get_as(url, true, NOW, &asked).await.unwrap_err();
        assert_eq!(problem.error().code(), ErrorCode::InvalidInput, "{url}");
    }
}

#[tokio::test]
async fn slow_answers_are_given_up() {
    let server = Server::start(|path| {
        let pause = Duration::from_millis(10);
        match path {
            "/headers" => Answer::Endless(b"HTTP/1.1 200 X\r\nx: ".to_vec(), b"y".to_vec(), pause),
            "/body" => Answer::Endless(b"HTTP/1.1 200 X\r\n\r\n".to_vec(), b"y".to_vec(), pause),
            _ => Answer::Endless(Vec::new(), Vec::new(), pause),
        }
    })
    .await;
    let fixture = Fixture::new();
    for (count, path) in ["/headers", "/body", "/silent"].into_iter().enumerate() {
        let begun = Instant::now();
        let time = Duration::from_millis(300);
        let problem = fixture.get_within(&server.url(path), time).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::TimedOut(_)), "{path}: {problem}");
        assert_eq!(problem.error().code(), ErrorCode::Timeout);
        assert!(begun.elapsed() < Duration::from_secs(5));
        server.until_left(count + 1).await;
    }
}

#[tokio::test]
async fn long_headers_are_given_up() {
    let server = Server::start(|path| match path {
        "/long" => reply(200, &[("x", &"y".repeat(100_000))], "body"),
        "/huge" => reply(200, &[("x", &"y".repeat(2_000_000))], "body"),
        "/many" => {
            let names: Vec<String> = (0..500).map(|number| format!("x-{number}")).collect();
            let headers: Vec<(&str, &str)> =
                names.iter().map(|name| (name.as_str(), "y")).collect();
            reply(200, &headers, "body")
        }
        _ => Answer::Endless(
            b"HTTP/1.1 200 X\r\n".to_vec(),
            b"x-y: zzzzzzzzzz\r\n".repeat(100),
            Duration::ZERO,
        ),
    })
    .await;
    let fixture = Fixture::new();
    for path in ["/long", "/huge", "/many", "/endless"] {
        let problem = fixture.get(&server.url(path)).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::Broken { .. }), "{path}: {problem}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    let server = Server::start(|path| {
        Answer::Bytes(match path {
            "/nothing" => Vec::new(),
            "/other" => b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(),
            "/short" => b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nshort".to_vec(),
            "/chunk" => b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nx".to_vec(),
            "/gzip" => b"HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\n\r\nnot gzip".to_vec(),
            "/twice" => b"HTTP/1.1 200 X\r\ncontent-encoding: gzip, gzip\r\n\r\nx".to_vec(),
            _ => b"HTTP/1.1 200 X\r\ncontent-encoding: zstd\r\n\r\nx".to_vec(),
        })
    })
    .await;
    let fixture = Fixture::new();
    for path in ["/nothing", "/other", "/short", "/chunk", "/gzip", "/twice", "/zstd"] {
        let problem = fixture.get(&server.url(path)).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::Broken { .. }), "{path}: {problem}");
    }
    let nobody = format!("http://127.0.0.1:{}/", closed_port().await);
    let problem = fixture.get(&nobody).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::Broken { .. }), "{problem}");
}

async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

/// A gigabyte of nothing, in a megabyte: a piece that expands to a megabyte, a thousand times.
fn bomb() -> Vec<u8> {
    let mut packer = Compress::new(Compression::best(), false);
    let mut piece = Vec::with_capacity(100_000);
    packer.compress_vec(&vec![0; 1 << 20], &mut piece, FlushCompress::Full).unwrap();
    assert!(piece.len() < 2_000);
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    [&head[..], &piece.repeat(1_024)].concat()
}

/// The most memory that this process ever had.
fn most_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_bomb_does_not_go_off() {
    let body = bomb();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b'x'; 3_000_000]).unwrap();
    let whole = encoder.finish().unwrap();
    let server = Server::start(move |path| {
        let headers = [("content-encoding", "gzip"), ("content-type", "text/plain")];
        reply(200, &headers, if path == "/bomb" { &body } else { &whole })
    })
    .await;
    let fixture = Fixture::new();
    let before = most_memory_kb();
    let page = fixture.get(&server.url("/bomb")).await.unwrap().page;
    assert_eq!((page.bytes, page.truncated), (2 * 1024 * 1024, true));
    let grown = most_memory_kb() - before;
    assert!(grown < 64 * 1024, "{grown} kB");
    let page = fixture.get(&server.url("/whole")).await.unwrap().page;
    assert_eq!((page.text.len(), page.truncated), (200_000, true));
}
