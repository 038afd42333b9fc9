//! A key goes everywhere a key can go, and is found nowhere afterwards.

#![cfg(test)]

mod common;

use std::{fs, path::Path};

use common::daemon::{Daemon, finish, tollgate};
use serde_json::json;

/// Everything that was seen, with a name for each.
#[derive(Default)]
struct Seen(Vec<(String, Vec<u8>)>);

impl Seen {
    fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((name.into(), bytes.into()));
    }

    /// Every file below a folder, but for those that are there to hold a key.
    fn files(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                self.files(&path);
            } else if !name.ends_with(".key") && path.is_file() {
                self.add(format!("file {name}"), fs::read(&path).unwrap());
            }
        }
    }

    fn holds(&self, secret: &str) -> Vec<&str> {
        let secret = secret.as_bytes();
        let is_in = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
        self.0.iter().filter(|(_, bytes)| is_in(bytes)).map(|(name, _)| name.as_str()).collect()
    }
}

#[test]
fn a_key_is_in_no_log_error_trace_event_metric_page_or_answer() {
    let mut daemon = Daemon::configured("[daemon]\nlog_level = \"debug\"\n");
    let admin = daemon.admin();
    let (id, key) = daemon.new_key(&json!({"name": "canary", "scopes": ["call", "ask", "read"]}));
    let token =
        daemon.post("/v1/tokens", Some(&key), "{}").json()["secret"].as_str().unwrap().to_owned();
    let (_, gone) = daemon.new_key(&json!({"name": "gone"}));
    daemon.cli(&["key", "revoke", "gone"]);
    let mut seen = Seen::default();
    // Every secret, wherever a caller could put one.
    for secret in [&key, &token, &gone] {
        over_http(&daemon, secret, &id, &mut seen);
        over_the_command_line(&daemon, secret, &mut seen);
    }
    let metrics = daemon.get("/metrics", Some(&admin));
    seen.add("metrics", metrics.body);
    for path in
        ["/v1/keys?tokens=true", "/v1/events?limit=1000", "/v1/calls?limit=1000", "/openapi.json"]
    {
        seen.add(path, daemon.get(path, Some(&admin)).body);
    }
    let verbs: [&[&str]; 5] = [
        &["ledger", "export"],
        &["ledger", "tail", "-n", "1000"],
        &["key", "list"],
        &["doctor"],
        &["doctor", "--json"],
    ];
    for args in verbs {
        let ran = daemon.cli(args);
        seen.add(args.join(" "), ran.out + &ran.err);
    }
    daemon.until("a call is projected", || {
        !daemon.get("/v1/calls", Some(&admin)).json()["calls"].as_array().unwrap().is_empty()
    });
    daemon.stop();
    seen.add("log", daemon.logged());
    seen.files(daemon.folder.path());
    let names: Vec<&str> = seen.0.iter().map(|(name, _)| name.as_str()).collect();
    for expected in ["log", "metrics", "file tollgate.db", "file queries.db", "file t.ndjson"] {
        assert!(names.contains(&expected), "{expected} was not looked at");
    }
    for (what, secret) in
        [("key", &key), ("token", &token), ("withdrawn key", &gone), ("admin key", &admin)]
    {
        assert_eq!(seen.holds(secret), Vec::<&str>::new(), "the {what}");
        // Nor enough of it to matter.
        let part = secret.get(7..39).unwrap();
        assert_eq!(seen.holds(part), Vec::<&str>::new(), "half of the {what}");
    }
    // What was looked at would have shown it.
    seen.add("control", key.clone());
    assert_eq!(seen.holds(&key), ["control"]);
}

fn over_http(daemon: &Daemon, secret: &str, id: &str, seen: &mut Seen) {
    let bearer = format!("Bearer {secret}");
    let mut add = |name: &str, answer: common::daemon::Answer| {
        seen.add(name, format!("{}\n{}", answer.head, answer.body));
    };
    let json_body = |value: serde_json::Value| value.to_string();
    let call = "/v1/tools/manifest.get/call";
    add("call", daemon.post(call, Some(secret), "{\"input\":{\"name\":\"system.time\"}}"));
    add("input", daemon.post(call, Some(secret), &json_body(json!({"input": {"name": secret}}))));
    add(
        "wrong input",
        daemon.post(call, Some(secret), &json_body(json!({"input": {"name": {secret: secret}}}))),
    );
    add(
        "wrong field",
        daemon.post(call, Some(secret), &json_body(json!({"input": {}, secret: 1}))),
    );
    add(
        "wrong word",
        daemon.post(call, Some(secret), &json_body(json!({"input": {}, "urgency": secret}))),
    );
    add(
        "scope",
        daemon.post(
            call,
            Some(secret),
            &json_body(
                json!({"input": {"name": "system.time"}, "scope": secret, "session": secret}),
            ),
        ),
    );
    add(
        "policy",
        daemon.post(
            call,
            Some(secret),
            &json_body(json!({"input": {}, "policy": {"deny": [secret]}})),
        ),
    );
    add(
        "policy field",
        daemon.post(call, Some(secret), &json_body(json!({"input": {}, "policy": {secret: 1}}))),
    );
    add(
        "key policy field",
        daemon.post(
            "/v1/keys",
            Some(&daemon.admin()),
            &json_body(json!({"name": "n", "policy": {secret: 1}})),
        ),
    );
    add("no JSON", daemon.post(call, Some(secret), secret));
    add("tool", daemon.post(&format!("/v1/tools/{secret}/call"), Some(secret), "{\"input\":{}}"));
    add("path", daemon.get(&format!("/{secret}"), Some(secret)));
    add("query", daemon.get(&format!("/v1/events?kind={secret}"), Some(secret)));
    add("contract", daemon.get(&format!("/api/contracts/tools/{secret}"), None));
    add("stream", daemon.post("/v1/tools/system.time/stream", Some(secret), "{\"input\":{}}"));
    let with = |headers: &[(&str, &str)]| daemon.request("GET", "/v1/events", headers, "");
    add("host", with(&[("Host", secret), ("Authorization", &bearer)]));
    add("origin", with(&[("Origin", secret), ("Authorization", &bearer)]));
    add("basic", with(&[("Authorization", &format!("Basic {secret}"))]));
    add("bare", with(&[("Authorization", secret)]));
    add("twice", with(&[("Authorization", &bearer), ("Authorization", &bearer)]));
    add("cookie", with(&[("Cookie", secret), ("Authorization", &bearer)]));
    add("last event", with(&[("Last-Event-ID", secret), ("Authorization", &bearer)]));
    let once = [
        ("Idempotency-Key", secret),
        ("Content-Type", "application/json"),
        ("Authorization", &bearer),
    ];
    let body = "{\"input\":{\"name\":\"system.time\"}}";
    add("idempotency key", daemon.request("POST", call, &once, body));
    add("idempotency key again", daemon.request("POST", call, &once, body));
    let admin = daemon.admin();
    add("name", daemon.post("/v1/keys", Some(&admin), &json_body(json!({"name": secret}))));
    add(
        "owner",
        daemon.post("/v1/keys", Some(&admin), &json_body(json!({"name": "n", "owner": secret}))),
    );
    add(
        "claim",
        daemon.post("/v1/keys", Some(&admin), &json_body(json!({"name": "n", "agents": [secret]}))),
    );
    add(
        "key policy",
        daemon.post("/v1/keys", Some(&admin), &json_body(json!({"name": "n", "policy": secret}))),
    );
    add("key", daemon.get(&format!("/v1/keys/{id}"), Some(&admin)));
    add("nonsense", daemon.raw(format!("{secret}\r\n\r\n").as_bytes()));
    add(
        "method",
        daemon.raw(
            format!("{secret} / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        ),
    );
}

fn over_the_command_line(daemon: &Daemon, secret: &str, seen: &mut Seen) {
    let mut run = |name: &str, args: &[&str], stdin: &str| {
        let mut command = tollgate(daemon.folder.path());
        command.args(args).env("TOLLGATE_API_KEY", secret);
        let ran = finish(command, stdin.as_bytes());
        seen.add(format!("tollgate {name}"), ran.out + &ran.err);
    };
    run("call", &["call", "system.time"], "");
    run("call --json", &["call", "system.time", "--json"], "");
    run("call -", &["call", "manifest.get", "-"], &format!("{{\"name\":\"{secret}\"}}"));
    run("call with no JSON", &["call", "manifest.get", "-"], secret);
    let trace = [
        "agent",
        "--tool",
        "manifest.get",
        "--input",
        "-",
        "--record-trace",
        "t.ndjson",
        "--stream-json",
    ];
    run("agent", &trace, &format!("{{\"name\":\"{secret}\"}}"));
    run("agent that works", &trace, "{\"name\":\"system.time\"}");
    run("key create", &["key", "create", "other"], "");
    run("argument", &["call", secret], "");
    run("hash", &["hash", "-"], &format!("{{\"a\":\"{secret}\""));
    std::fs::write(daemon.folder.path().join("p.toml"), format!("\"{secret}\" = 1\n")).unwrap();
    run("policy file", &["call", "system.time", "--policy", "p.toml"], "");
    std::fs::remove_file(daemon.folder.path().join("p.toml")).unwrap();
    run("url", &["doctor", "--url", &format!("http://127.0.0.1:1/{secret}")], "");
}
