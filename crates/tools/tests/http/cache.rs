//! What is kept, for how long, and for whom.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use tollgate_tools::http::{Fetcher, Host, HttpConfig, HttpProblem, Page, Reach};

use crate::support::{Fixture, NOW, Server, again, is_role, redirect, reply, text};

fn named(_: &Host) -> Reach {
    Reach::Named
}

async fn cached(fixture: &Fixture, url: &str, now_ms: i64) -> Page {
    fixture.get_as(url, true, now_ms, &named).await.unwrap().page
}

#[tokio::test]
async fn an_answer_is_kept_for_its_time() {
    let server = Server::start(|_| text("page")).await;
    let fixture = Fixture::new();
    let url = server.url("/a");
    let first = cached(&fixture, &url, NOW).await;
    assert!(!first.metadata.cache_hit);
    // Another spelling of the same address.
    let again = format!("HTTP://127.1:{}/x/../a#there", server.address.port());
    let second = cached(&fixture, &again, NOW + 3_599_999).await;
    assert!(second.metadata.cache_hit);
    assert_eq!(second.metadata.age_s, 3_599);
    assert_eq!(second.metadata.fetched_at, first.metadata.fetched_at);
    assert_eq!((second.text, second.url), (first.text, first.url));
    assert_eq!(server.connections(), 1);
    assert!(!cached(&fixture, &url, NOW + 3_600_000).await.metadata.cache_hit);
    assert!(!cached(&fixture, &server.url("/b"), NOW).await.metadata.cache_hit);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn it_survives_a_restart() {
    let server = Server::start(|_| text("page")).await;
    let mut fixture = Fixture::new();
    cached(&fixture, &server.url("/"), NOW).await;
    fixture.fetcher = Fetcher::new(HttpConfig::default(), fixture.data.path());
    let fetched = fixture.get_as(&server.url("/"), true, NOW, &named).await.unwrap();
    assert!(fetched.page.metadata.cache_hit);
    assert_eq!(fetched.headers, []);
}

#[tokio::test]
async fn without_the_cache_nothing_is_read_and_nothing_kept() {
    let server = Server::start(|_| text("page")).await;
    let fixture = Fixture::new();
    let url = server.url("/");
    assert!(!fixture.get(&url).await.unwrap().page.metadata.cache_hit);
    assert!(!cached(&fixture, &url, NOW).await.metadata.cache_hit, "it was not kept");
    assert!(!fixture.get(&url).await.unwrap().page.metadata.cache_hit, "it is not read");
    assert!(cached(&fixture, &url, NOW).await.metadata.cache_hit);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn only_what_may_be_kept_is_kept() {
    let server = Server::start(|path| match path {
        "/404" => reply(404, &[], "no"),
        "/203" => reply(203, &[], "other"),
        "/no-store" => reply(200, &[("cache-control", "no-store")], "x"),
        "/private" => reply(200, &[("cache-control", "private, max-age=600")], "x"),
        "/zero" => reply(200, &[("cache-control", "max-age=0")], "x"),
        "/through" => reply(302, &[("cache-control", "no-store"), ("location", "/plain")], ""),
        "/short" => reply(200, &[("cache-control", "max-age=60")], "x"),
        _ => text("x"),
    })
    .await;
    let fixture = Fixture::new();
    for path in ["/404", "/203", "/no-store", "/private", "/zero", "/through"] {
        for _ in 0..2 {
            let page = cached(&fixture, &server.url(path), NOW).await;
            assert!(!page.metadata.cache_hit, "{path}");
        }
    }
    cached(&fixture, &server.url("/short"), NOW).await;
    assert!(cached(&fixture, &server.url("/short"), NOW + 59_000).await.metadata.cache_hit);
    assert!(!cached(&fixture, &server.url("/short"), NOW + 60_000).await.metadata.cache_hit);
}

/// Two hosts, both of them this machine: `127.0.0.1` redirects to `localhost`.
#[tokio::test]
async fn what_one_may_read_is_not_served_to_another() {
    let server = Server::start(|path| match path.strip_prefix("/to/") {
        Some(port) => redirect(&format!("http://localhost:{port}/page")),
        None => text("for some"),
    })
    .await;
    let fixture = Fixture::new();
    let port = server.address.port();
    let (page, way) = (format!("http://localhost:{port}/page"), server.url(&format!("/to/{port}")));
    cached(&fixture, &page, NOW).await;
    cached(&fixture, &way, NOW).await;
    let asked = server.connections();
    let as_ = async |url: &str, first: Reach, second: Reach| {
        let reach = move |host: &Host| {
            if host.as_str() == "127.0.0.1" { first.clone() } else { second.clone() }
        };
        fixture.get_as(url, true, NOW + 1, &reach).await
    };
    let no = || Reach::No("no grant".to_owned());
    assert!(as_(&way, Reach::Named, Reach::Named).await.unwrap().page.metadata.cache_hit);
    // Whoever may not reach the host does not learn what is kept of it.
    let problem = as_(&page, Reach::Named, no()).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotGranted { .. }), "{problem}");
    let problem = as_(&way, no(), Reach::Named).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotGranted { .. }), "{problem}");
    // What only a grant by name reached is not for those who may reach what is public.
    let problem = as_(&page, Reach::Named, Reach::Public).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{problem}");
    assert_eq!(server.connections(), asked, "none of them was let through to the server");
    // The same for a host on the way: the first may be reached and says where it leads, but there it ends.
    for (second, granted) in [(no(), true), (Reach::Public, false)] {
        let problem = as_(&way, Reach::Named, second).await.unwrap_err();
        assert_eq!(matches!(problem, HttpProblem::NotGranted { .. }), granted, "{problem}");
    }
    assert_eq!(server.connections(), asked + 2);
}

#[tokio::test]
async fn the_cache_stays_within_its_bound() {
    let server = Server::start(|_| text(&"x".repeat(10_000))).await;
    let config = HttpConfig { cache_bytes: 50_000, ..HttpConfig::default() };
    let fixture = Fixture::with(config);
    for number in 0..30 {
        cached(&fixture, &server.url(&format!("/{number}")), NOW + number).await;
    }
    assert!(cached(&fixture, &server.url("/29"), NOW + 100).await.metadata.cache_hit);
    assert!(!cached(&fixture, &server.url("/0"), NOW + 100).await.metadata.cache_hit);
    let size =
        |name: &str| fs::metadata(fixture.data.path().join(name)).map_or(0, |file| file.len());
    assert!(size("http_cache.db") < 500_000, "{}", size("http_cache.db"));
}

#[tokio::test]
async fn a_damaged_cache_costs_a_fetch_and_no_more() {
    let server = Server::start(|_| text("page")).await;
    let mut fixture = Fixture::new();
    let url = server.url("/");
    cached(&fixture, &url, NOW).await;
    let data = fixture.data.path().to_owned();
    fixture.fetcher = Fetcher::new(HttpConfig { cache_seconds: 0, ..HttpConfig::default() }, &data);
    fs::write(data.join("http_cache.db"), "garbage ".repeat(5_000)).unwrap();
    _ = fs::remove_file(data.join("http_cache.db-wal"));
    fixture.fetcher = Fetcher::new(HttpConfig::default(), &data);
    let page = cached(&fixture, &url, NOW).await;
    assert_eq!((page.text.as_str(), page.metadata.cache_hit), ("page", false));
    assert!(cached(&fixture, &url, NOW).await.metadata.cache_hit);
    assert!(data.join("http_cache.db.broken").exists());
}

const ROUNDS: usize = 5;

#[tokio::test]
async fn a_process_that_is_ended_leaves_a_cache_that_works() {
    if is_role("fetches") {
        let data = std::env::var("FOLDER").unwrap();
        let mut fixture = Fixture::new();
        fixture.fetcher = Fetcher::new(HttpConfig::default(), Path::new(&data));
        let server = Server::start(|path| text(&path.repeat(2_000))).await;
        for number in 0.. {
            cached(&fixture, &server.url(&format!("/{number}")), NOW).await;
            println!("\n{}", server.url(&format!("/{number}")));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "cache::a_process_that_is_ended_leaves_a_cache_that_works";
    for round in 1..=ROUNDS {
        let mut child = again(test, "fetches")
            .env("FOLDER", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let kept: Vec<String> =
            lines.filter(|line| line.starts_with("http://")).take(round * 5).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let mut fixture = Fixture::new();
        fixture.fetcher = Fetcher::new(HttpConfig::default(), folder.path());
        for url in kept {
            // The server is gone with the process: this comes from the cache or not at all.
            let page = cached(&fixture, &url, NOW).await;
            let path = url.rsplit('/').next().unwrap();
            assert_eq!(page.text, format!("/{path}").repeat(2_000));
        }
        assert!(!folder.path().join("http_cache.db.broken").exists());
    }
}
