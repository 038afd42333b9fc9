//! The gate as a person and a script meet it: started, asked over HTTP and the command line, stopped.

#![cfg(test)]

mod common;

use std::{
    io::{Read, Write},
    sync::Arc,
    time::Instant,
};

use common::daemon::{Daemon, PATIENCE, finish, signal, tollgate};
use serde_json::{Value, json};

/// A report as one line, wherever it was broken.
fn plain(report: &str) -> String {
    report.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_minute() {
    let daemon = Daemon::start();
    let printed = daemon.printed();
    assert_eq!(printed.matches(&daemon.admin()).count(), 1, "{printed}");
    let manifest = daemon.get("/api/contracts/tools", None);
    assert_eq!(manifest.status, 200);
    assert_eq!(manifest.json()["schemaVersion"], "0.3.0-draft");
    let called = daemon.cli(&["call", "system.time"]);
    assert_eq!(called.code, 0, "{}", called.err);
    let time: Value = serde_json::from_str(&called.out).unwrap();
    assert!(time["unixMs"].as_i64().unwrap() > 1_700_000_000_000);
    let live = ["agent", "--tool", "system.time", "--stream-json", "--record-trace", "t.ndjson"];
    let recorded = daemon.cli(&live);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let mut daemon = daemon;
    daemon.kill();
    // No server, no key, no data folder.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(daemon.folder.path().join("t.ndjson"), elsewhere.path().join("t.ndjson"))
        .unwrap();
    let mut command = tollgate(elsewhere.path());
    command.args(["agent", "--tool", "system.time", "--stream-json", "--replay-trace", "t.ndjson"]);
    let replayed = finish(command, b"");
    assert_eq!((replayed.code, replayed.err.as_str()), (0, ""));
    let result = |text: &str| -> Value {
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        last["result"].clone()
    };
    assert_eq!(result(&recorded.out)["output"], result(&replayed.out)["output"]);
    assert_eq!(result(&replayed.out)["replayed"], true);
    let receipt = daemon.cli(&["trace", "receipt", "t.ndjson", "--json"]);
    assert_eq!(receipt.json()["data"]["calls"], 1);
    let verified = daemon.cli(&["ledger", "verify"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
}

#[test]
fn the_curl_lines_that_it_prints_work_when_pasted() {
    let daemon = Daemon::start();
    daemon.until("the hint is printed", || daemon.printed().contains("-d '"));
    let printed = daemon.printed();
    let script = printed.split("another terminal:\n").nth(1).unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-ec", script]).current_dir(daemon.folder.path());
    let ran = finish(shell, b"");
    assert_eq!(ran.code, 0, "{script}\n{}", ran.err);
    assert!(ran.out.contains("\"schemaVersion\"") && ran.out.contains("\"unixMs\""), "{}", ran.out);
}

#[test]
fn a_second_start_prints_no_key_and_knows_the_first_one() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    let daemon = daemon.again();
    assert!(!daemon.printed().contains("tg_key_"), "{}", daemon.printed());
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    assert_eq!(daemon.admin(), key);
}

#[test]
fn the_manifest_is_for_everyone_and_a_key_sees_what_its_policy_shows() {
    let daemon = Daemon::start();
    let names = |answer: common::daemon::Answer| -> Vec<String> {
        let tools = answer.json()["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = names(daemon.get("/api/contracts/tools", None));
    let built_in = ["manifest.list", "manifest.get", "system.time", "fs.read_text", "fs.list_dir"];
    assert_eq!(
        all,
        [&built_in[..], &["fs.write_text", "http.get", "shell.exec", "model.chat", "model.embed"]]
            .concat()
    );
    let review = daemon.get("/api/contracts/tools?mode=review", None).json();
    assert_eq!(review["mode"], "review");
    let policy = json!({"allow": ["tool:system.time"]});
    let (_, key) = daemon.new_key(&json!({"name": "narrow", "policy": policy}));
    assert_eq!(names(daemon.get("/api/contracts/tools", Some(&key))), ["system.time"]);
    assert_eq!(daemon.get("/api/contracts/tools/manifest.list", Some(&key)).code(), "UNKNOWN_TOOL");
    let policy = json!({"deny": ["system.time"]});
    let (_, key) = daemon.new_key(&json!({"name": "no-time", "policy": policy}));
    let listed = daemon.call("manifest.list", &key, "{}").json();
    let listed: Vec<&str> = listed["output"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert!(!listed.contains(&"system.time") && listed.contains(&"manifest.list"), "{listed:?}");
    assert_eq!(
        daemon.call("manifest.get", &key, "{\"name\":\"system.time\"}").code(),
        "UNKNOWN_TOOL"
    );
    assert!(!daemon.get("/api/tools", Some(&key)).body.contains("system.time"));
    let one = daemon.get("/api/contracts/tools/system.time", None);
    assert_eq!(one.json()["tool"]["name"], "system.time");
    let wrong = daemon.get("/api/contracts/tools?mod=review", None);
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "INVALID_REQUEST"));
    assert!(wrong.message().contains("did you mean `mode`?"), "{}", wrong.message());
}

#[test]
fn nothing_resolves_from_the_compatibility_inventory() {
    let daemon = Daemon::start();
    let inventory = daemon.get("/api/tools", None).json();
    let names: Vec<&str> = inventory["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"get_world_state") && names.contains(&"system_time"), "{names:?}");
    for name in names.into_iter().chain(["get_regime_history", "events.search", "System.Time"]) {
        let answer = daemon.call(name, &daemon.admin(), "{}");
        assert_eq!((answer.status, answer.code().as_str()), (404, "UNKNOWN_TOOL"), "{name}");
    }
    let answer = daemon.call("system_time", &daemon.admin(), "{}");
    assert!(answer.message().contains("did you mean `system.time`?"), "{}", answer.message());
}

#[test]
fn every_call_is_in_the_ledger_whatever_became_of_it() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    assert_eq!(daemon.call("system.time", &key, "{\"x\":1}").code(), "INVALID_INPUT");
    assert_eq!(daemon.call("no.such", &key, "{}").code(), "UNKNOWN_TOOL");
    assert_eq!(
        daemon.post("/v1/tools/system.time/call", None, "{\"input\":{}}").code(),
        "MISSING_API_KEY"
    );
    let cut = key.get(..key.len() - 1).unwrap();
    assert_eq!(daemon.call("system.time", cut, "{}").code(), "INVALID_API_KEY");
    let events = daemon.events();
    let calls: Vec<(String, Value)> = events
        .iter()
        .filter(|event| event["kind"].as_str().unwrap().starts_with("call_"))
        .map(|e| (e["kind"].as_str().unwrap().to_owned(), e["payload"]["error"]["code"].clone()))
        .collect();
    let kind = |kind: &str, code: Value| (kind.to_owned(), code);
    assert_eq!(
        calls,
        [
            kind("call_started", Value::Null),
            kind("call_completed", Value::Null),
            kind("call_failed", json!("INVALID_INPUT")),
            kind("call_failed", json!("UNKNOWN_TOOL")),
            kind("call_failed", json!("MISSING_API_KEY")),
            kind("call_failed", json!("INVALID_API_KEY")),
        ]
    );
    let refused = events.iter().find(|e| e["payload"]["error"]["code"] == "INVALID_INPUT").unwrap();
    let last = refused["payload"]["verdict"]["explain"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((last["step"].as_str(), last["outcome"].as_str()), (Some("input"), Some("refuse")));
}

#[test]
fn a_wrong_input_is_told_with_pointers() {
    let daemon = Daemon::start();
    let answer = daemon.call("manifest.get", &daemon.admin(), "{\"name\": 7}");
    assert_eq!((answer.status, answer.code().as_str()), (422, "INVALID_INPUT"));
    assert_eq!(answer.json()["error"]["details"]["problems"][0]["pointer"], "/name");
    assert!(answer.header("x-tollgate-call-id").unwrap().starts_with("call_"));
    let request = answer.header("x-request-id").unwrap();
    assert_eq!(answer.json()["error"]["requestId"], request.as_str());
}

#[test]
fn bodies_that_are_not_acceptable_are_refused_and_nothing_is_called() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    let before = daemon.events().len();
    let deep =
        format!("{{\"input\":{}{}}}", "{\"a\":".repeat(500), "1".to_owned() + &"}".repeat(500));
    let wrong: [(&str, u16, &str); 9] = [
        ("", 400, "INVALID_REQUEST"),
        ("{", 400, "INVALID_REQUEST"),
        ("[]", 400, "INVALID_REQUEST"),
        ("{\"input\":{},\"input\":{}}", 400, "INVALID_REQUEST"),
        ("{\"input\":{\"id\":12345678901234567890}}", 400, "INVALID_REQUEST"),
        (&deep, 400, "INVALID_REQUEST"),
        ("{}", 400, "INVALID_REQUEST"),
        ("{\"input\":[]}", 400, "INVALID_REQUEST"),
        ("{\"input\":{},\"urgncy\":\"high\"}", 400, "INVALID_REQUEST"),
    ];
    for (body, status, code) in wrong {
        let answer = daemon.post("/v1/tools/system.time/call", Some(&key), body);
        let start: String = body.chars().take(60).collect();
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{start}: {answer:?}");
    }
    let missing = daemon.post("/v1/tools/system.time/call", Some(&key), "{}");
    assert_eq!(missing.json()["error"]["details"]["missing_required_fields"], json!(["input"]));
    let typo =
        daemon.post("/v1/tools/system.time/call", Some(&key), "{\"input\":{},\"urgncy\":\"high\"}");
    assert!(typo.message().contains("did you mean `urgency`?"), "{}", typo.message());
    let mut bytes = format!(
        "POST /v1/tools/system.time/call HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n"
    )
    .into_bytes();
    bytes.extend([b'"', 0xff, 0xfe, b'"']);
    assert_eq!(daemon.raw(&bytes).code(), "INVALID_REQUEST");
    let huge = format!("{{\"input\":{{\"a\":\"{}\"}}}}", "x".repeat(2_000_000));
    let answer = daemon.post("/v1/tools/system.time/call", Some(&key), &huge);
    assert_eq!((answer.status, answer.code().as_str()), (413, "PAYLOAD_TOO_LARGE"));
    let form =
        [("Authorization", format!("Bearer {key}")), ("Content-Type", "text/plain".to_owned())];
    let form: Vec<(&str, &str)> = form.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let answer = daemon.request("POST", "/v1/tools/system.time/call", &form, "{\"input\":{}}");
    assert_eq!(answer.code(), "INVALID_REQUEST");
    assert_eq!(daemon.events().len(), before);
}

#[test]
fn a_page_of_another_site_cannot_reach_the_gate() {
    let daemon = Daemon::start();
    let key = format!("Bearer {}", daemon.admin());
    let own = daemon.url.clone();
    let ask = |headers: &[(&str, &str)]| daemon.request("GET", "/v1/keys", headers, "");
    assert_eq!(ask(&[("Authorization", &key)]).status, 200);
    let rebound = ask(&[("Authorization", &key), ("Host", "evil.example")]);
    assert_eq!((rebound.status, rebound.code().as_str()), (400, "INVALID_REQUEST"));
    let cross = ask(&[("Authorization", &key), ("Origin", "https://evil.example")]);
    assert_eq!((cross.status, cross.code().as_str()), (400, "INVALID_REQUEST"));
    // Even the gate's own page may not hold a key; it holds a token.
    let page = ask(&[("Authorization", &key), ("Origin", &own)]);
    assert_eq!(page.status, 400);
    assert!(page.message().contains("short-lived token"), "{}", page.message());
    let token = daemon.post("/v1/tokens", Some(&daemon.admin()), "{}").json();
    let token = format!("Bearer {}", token["secret"].as_str().unwrap());
    assert_eq!(ask(&[("Authorization", &token), ("Origin", &own)]).status, 200);
    let preflight =
        daemon.request("OPTIONS", "/v1/keys", &[("Origin", "https://evil.example")], "");
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    let in_url = daemon.get(&format!("/v1/keys?key={}", daemon.admin()), None);
    assert_eq!(in_url.status, 400);
    assert!(in_url.message().contains("rotate"), "{}", in_url.message());
}

#[test]
fn a_page_that_was_allowed_can_use_the_gate_with_a_token() {
    let page = "https://ops.example";
    let daemon = Daemon::configured(&format!("[daemon]\nallowed_origins = [\"{page}\"]\n"));
    let token = daemon.post("/v1/tokens", Some(&daemon.admin()), "{}").json();
    let token = format!("Bearer {}", token["secret"].as_str().unwrap());
    let allow = "access-control-allow-origin";
    let ask = [("Origin", page), ("Access-Control-Request-Method", "POST")];
    let preflight = daemon.request("OPTIONS", "/v1/tools/system.time/call", &ask, "");
    assert_eq!((preflight.status, preflight.header(allow).as_deref()), (204, Some(page)));
    let call = [("Origin", page), ("Authorization", &token), ("Content-Type", "application/json")];
    let called = daemon.request("POST", "/v1/tools/system.time/call", &call, "{\"input\":{}}");
    assert_eq!((called.status, called.header(allow).as_deref()), (200, Some(page)));
    let other =
        [("Origin", "https://ops.example.evil.example"), ("Access-Control-Request-Method", "POST")];
    assert_eq!(
        daemon.request("OPTIONS", "/v1/tools/system.time/call", &other, "").header(allow),
        None
    );
    let key = format!("Bearer {}", daemon.admin());
    let call = [("Origin", page), ("Authorization", &key), ("Content-Type", "application/json")];
    let refused = daemon.request("POST", "/v1/tools/system.time/call", &call, "{\"input\":{}}");
    assert_eq!(refused.status, 400);
}

#[test]
fn a_key_is_made_listed_rotated_withdrawn_and_expires() {
    let daemon = Daemon::start();
    let made =
        daemon.cli(&["key", "create", "crawler", "--scope", "call", "--expires", "30d", "--json"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let made = made.json()["data"].clone();
    let first = made["secret"].as_str().unwrap().to_owned();
    assert_eq!(daemon.call("system.time", &first, "{}").status, 200);
    let listed = daemon.cli(&["key", "list"]);
    assert!(listed.out.contains("crawler") && !listed.out.contains(&first), "{}", listed.out);
    let used = daemon.cli(&["key", "list", "--json"]).json()["data"]["keys"][1].clone();
    assert_eq!(used["name"], "crawler");
    assert!(used["lastUsedAt"].is_string(), "{used}");
    let rotated = daemon.cli(&["key", "rotate", "crawler", "--out", "crawler.key"]);
    assert_eq!(rotated.code, 0, "{}", rotated.err);
    assert!(!rotated.out.contains("tg_key_"), "{}", rotated.out);
    let file = daemon.folder.path().join("crawler.key");
    let second = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(daemon.call("system.time", &first, "{}").code(), "INVALID_API_KEY");
    assert_eq!(daemon.call("system.time", &second, "{}").status, 200);
    let by_file = daemon.cli(&["call", "system.time", "--key-file", "crawler.key"]);
    assert_eq!(by_file.code, 0, "{}", by_file.err);
    // A key for calls is for nothing else.
    assert_eq!(daemon.get("/v1/keys", Some(&second)).code(), "SCOPE_MISSING");
    assert_eq!(daemon.get("/metrics", Some(&second)).code(), "SCOPE_MISSING");
    let token = daemon.post("/v1/tokens", Some(&second), "{}").json()["secret"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(daemon.call("system.time", &token, "{}").status, 200);
    assert_eq!(daemon.cli(&["key", "revoke", "crawler"]).code, 0);
    for gone in [&second, &token] {
        assert_eq!(daemon.call("system.time", gone, "{}").code(), "INVALID_API_KEY");
    }
    let (_, short) = daemon.new_key(&json!({"name": "short", "expiresInSeconds": 1}));
    daemon.until("the key has expired", || daemon.call("system.time", &short, "{}").status == 401);
    let daemon = daemon.again();
    for gone in [&first, &second, &token, &short] {
        assert_eq!(daemon.call("system.time", gone, "{}").code(), "INVALID_API_KEY");
    }
}

#[test]
fn keys_that_are_no_keys_are_told_nothing_more() {
    let daemon = Daemon::start();
    let (id, withdrawn) = daemon.new_key(&json!({"name": "gone"}));
    let admin = format!("Bearer {}", daemon.admin());
    let path = format!("/v1/keys/{id}");
    assert_eq!(daemon.request("DELETE", &path, &[("Authorization", &admin)], "").status, 200);
    let mut answers: Vec<String> = Vec::new();
    let unknown = format!("tg_key_{}", "0".repeat(64));
    for key in [&withdrawn, &unknown, "tg_key_short", "sk-other", ""] {
        let answer = daemon.call("system.time", key, "{}");
        assert_eq!((answer.status, answer.code().as_str()), (401, "INVALID_API_KEY"), "{key}");
        answers.push(answer.message());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn a_token_only_narrows() {
    let daemon = Daemon::start();
    let (_, key) = daemon.new_key(&json!({"name": "agent", "role": "agent"}));
    let mint = |body: &str| daemon.post("/v1/tokens", Some(&key), body);
    assert_eq!(mint("{\"scopes\":[\"admin\"]}").code(), "SCOPE_MISSING");
    assert_eq!(mint("{\"expiresInSeconds\":999999}").code(), "INVALID_REQUEST");
    assert_eq!(mint("{\"policy\":\"nope\"}").code(), "INVALID_REQUEST");
    let narrow = mint("{\"scopes\":[\"call\"],\"policy\":{\"deny\":[\"system.time\"]}}").json();
    let token = narrow["secret"].as_str().unwrap();
    let answer = daemon.call("system.time", token, "{}");
    assert_eq!(answer.code(), "PERMISSION_DENIED", "{answer:?}");
    assert_eq!(daemon.call("manifest.list", token, "{}").status, 200);
    assert_eq!(daemon.post("/v1/tokens", Some(token), "{}").code(), "INVALID_REQUEST");
    assert_eq!(daemon.post("/v1/tokens", None, "{}").code(), "MISSING_API_KEY");
}

#[test]
fn the_last_admin_key_stays_and_can_be_made_anew_at_the_console() {
    let daemon = Daemon::start();
    let old = daemon.admin();
    let refused = daemon.cli(&["key", "revoke", "admin"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("CONFLICT"), "{}", refused.err);
    let folder = Arc::clone(&daemon.folder);
    drop(daemon);
    let daemon = Daemon::start_in(folder, &["--new-admin-key"]);
    assert_ne!(daemon.admin(), old);
    assert_eq!(daemon.call("system.time", &old, "{}").code(), "INVALID_API_KEY");
    assert_eq!(daemon.call("system.time", &daemon.admin(), "{}").status, 200);
}

#[test]
fn a_key_on_the_command_line_is_refused_with_the_reason() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    let tries: [&[&str]; 4] = [
        &["call", "system.time", "--key", &key],
        &["call", "system.time", "--url", &format!("http://{key}@127.0.0.1")],
        &["call", &key],
        &["key", "revoke", &key, "--json"],
    ];
    for args in tries {
        let ran = daemon.cli(args);
        assert_eq!(ran.code, 2, "{args:?}");
        let all = format!("{}{}", ran.out, ran.err);
        assert!(all.contains("every process of this machine"), "{all}");
        assert!(!all.contains(&key), "{all}");
    }
}

#[test]
fn the_same_idempotency_key_runs_once_and_gives_the_same_result() {
    let daemon = Daemon::start();
    let key = format!("Bearer {}", daemon.admin());
    let call = |input: &str| {
        let headers = [
            ("Authorization", key.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "k-1"),
        ];
        daemon.request(
            "POST",
            "/v1/tools/manifest.get/call",
            &headers,
            &format!("{{\"input\":{input}}}"),
        )
    };
    let first = call("{\"name\":\"system.time\"}");
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
    let second = call("{\"name\":\"system.time\"}");
    assert_eq!(second.header("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!(second.json()["callId"], first.json()["callId"]);
    assert_eq!(second.json()["output"], first.json()["output"]);
    assert_eq!(call("{\"name\":\"manifest.get\"}").code(), "CONFLICT");
    // A failure is a result too.
    let twice =
        ["call", "manifest.get", "{\"name\":\"no.such\"}", "--idempotency-key", "k-2", "--json"];
    let (one, two) = (daemon.cli(&twice), daemon.cli(&twice));
    assert_eq!(one.json()["error"]["code"], "UNKNOWN_TOOL");
    assert_eq!(two.json()["error"]["code"], "UNKNOWN_TOOL");
    let daemon = daemon.again();
    let started = |events: &[Value]| events.iter().filter(|e| e["kind"] == "call_started").count();
    assert_eq!(started(&daemon.events()), 2);
    let headers = [
        ("Authorization", key.as_str()),
        ("Content-Type", "application/json"),
        ("Idempotency-Key", "k-1"),
    ];
    let body = "{\"input\":{\"name\":\"system.time\"}}";
    let after = daemon.request("POST", "/v1/tools/manifest.get/call", &headers, body);
    assert_eq!(after.json()["output"], first.json()["output"]);
    assert_eq!(started(&daemon.events()), 2);
    // That it was asked for again is in the record.
    let last = daemon.events().pop().unwrap();
    assert_eq!(last["payload"]["replayOf"], first.json()["callId"]);
}

#[test]
fn events_are_streamed_from_where_a_reader_stopped() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    for _ in 0..3 {
        assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    }
    let page = daemon.get("/v1/events?limit=2", Some(&key)).json();
    assert_eq!(page["events"].as_array().unwrap().len(), 2);
    let next = page["next"].as_u64().unwrap();
    assert_eq!(next, 2);
    let rest = daemon.get(&format!("/v1/events?after={next}"), Some(&key)).json();
    assert_eq!(rest["events"][0]["seq"], 3);
    daemon.until("the queries have caught up", || {
        let some = daemon.get("/v1/events?kind=call_completed", Some(&key)).json();
        some["events"].as_array().unwrap().len() == 3
    });
    let head = daemon.get("/v1/ledger/head", Some(&key)).json();
    let mut stream = daemon.connect();
    let resume = head["seq"].as_u64().unwrap() - 1;
    write!(
        stream,
        "GET /v1/events?stream=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nLast-Event-ID: {resume}\r\n\r\n"
    )
    .unwrap();
    let mut heard = String::new();
    let mut hear = |what: &str| {
        let mut piece = [0; 4096];
        while !heard.contains(what) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "the stream ended: {heard}");
            heard.push_str(&String::from_utf8_lossy(piece.get(..count).unwrap()));
        }
    };
    hear(&format!("id: {}", resume + 1));
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    hear(&format!("id: {}", resume + 3));
    assert!(heard.contains("event: call_completed"), "{heard}");
    assert!(!heard.contains(&format!("id: {resume}\n")), "{heard}");
    let wrong = daemon.get("/v1/events?from=yesterday", Some(&key));
    assert!(wrong.message().contains("is no time"), "{}", wrong.message());
}

#[test]
fn a_call_can_be_looked_up_with_its_whole_record() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    let id = daemon.call("system.time", &key, "{}").json()["callId"].as_str().unwrap().to_owned();
    let path = format!("/v1/calls/{id}");
    daemon.until("the call is projected", || daemon.get(&path, Some(&key)).status == 200);
    let whole = daemon.get(&path, Some(&key)).json();
    assert_eq!(whole["call"]["outcome"], "completed");
    assert_eq!(whole["events"][0]["payload"]["verdict"]["decision"], "approve");
    let all = daemon.get("/v1/calls?tool=system.time", Some(&key)).json();
    assert_eq!(all["calls"][0]["callId"], id.as_str());
    assert_eq!(daemon.get("/v1/calls/call_nope", Some(&key)).code(), "NOT_FOUND");
}

#[test]
fn a_stream_tells_the_events_of_the_run_in_their_order() {
    let daemon = Daemon::start();
    let names = |text: &str| -> Vec<String> {
        let name = |line: &str| line.strip_prefix("event: ").map(str::to_owned);
        text.lines().filter_map(name).collect()
    };
    let path = "/v1/tools/system.time/stream";
    let run = daemon.post(path, Some(&daemon.admin()), "{\"input\":{}}");
    assert_eq!(
        names(&run.body),
        [
            "run.started",
            "tool.resolved",
            "policy.checked",
            "tool.started",
            "tool.completed",
            "run.completed"
        ]
    );
    let refused = daemon.post(path, Some(&daemon.admin()), "{\"input\":{\"x\":1}}");
    assert_eq!(
        names(&refused.body),
        ["run.started", "tool.resolved", "policy.checked", "run.failed"]
    );
    let unknown = daemon.post("/v1/tools/no.such/stream", Some(&daemon.admin()), "{\"input\":{}}");
    assert_eq!(names(&unknown.body), ["run.started", "run.failed"]);
    assert_eq!(daemon.post(path, None, "{\"input\":{}}").code(), "MISSING_API_KEY");
}

#[test]
fn a_call_brings_a_policy_that_only_narrows() {
    let daemon = Daemon::start();
    std::fs::write(daemon.folder.path().join("p.toml"), "deny = [\"system.time\"]\n").unwrap();
    let denied = daemon.cli(&["call", "system.time", "--policy", "p.toml", "--json"]);
    assert_eq!(
        (denied.code, denied.json()["error"]["code"].as_str()),
        (4, Some("PERMISSION_DENIED"))
    );
    let agent =
        daemon.cli(&["agent", "--tool", "system.time", "--policy", "p.toml", "--stream-json"]);
    assert_eq!(agent.code, 4);
    let last: Value = serde_json::from_str(agent.out.lines().last().unwrap()).unwrap();
    assert_eq!(last["verdict"]["reason"], "permission_denied");
    std::fs::write(daemon.folder.path().join("wide.toml"), "maxSideEffect = \"live_trade\"\n")
        .unwrap();
    let wide = daemon.cli(&["call", "system.time", "--policy", "wide.toml", "--explain"]);
    assert!(wide.out.contains("server paper_trade"), "{}", wide.out);
    let body = "{\"input\":{},\"policy\":{\"maxSideEfect\":\"none\"}}";
    let typo = daemon.post("/v1/tools/system.time/call", Some(&daemon.admin()), body);
    assert!(typo.message().contains("did you mean `maxSideEffect`?"), "{}", typo.message());
}

#[test]
fn the_metrics_count_calls_and_refusals() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    daemon.call("system.time", &key, "{}");
    daemon.call("no.such", &key, "{}");
    let text = daemon.get("/metrics", Some(&key)).body;
    for line in [
        "tollgate_calls_total{tool=\"system.time\",outcome=\"completed\",code=\"\"} 1",
        "tollgate_calls_total{tool=\"unknown\",outcome=\"denied\",code=\"UNKNOWN_TOOL\"} 1",
        "tollgate_ledger_failures_total 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn health_says_how_the_gate_is() {
    let daemon = Daemon::start();
    for path in ["/health", "/v1/health"] {
        let health = daemon.get(path, None).json();
        assert_eq!(health["status"], "ok");
        assert!(health["version"].is_string() && health["uptime_seconds"].is_u64(), "{health}");
    }
    let lost = daemon.get("/nope", None);
    assert_eq!((lost.status, lost.code().as_str()), (404, "NOT_FOUND"));
    let method = daemon.request("PUT", "/health", &[], "");
    assert_eq!((method.status, method.header("allow").as_deref()), (405, Some("GET,HEAD")));
}

#[test]
fn openapi_is_committed_and_is_what_the_gate_serves() {
    let daemon = Daemon::start();
    let served = daemon.get("/openapi.json", None).json();
    let file = common::root().join("docs/openapi.json");
    let written = format!("{served:#}\n");
    if std::env::var_os("TOLLGATE_UPDATE_OPENAPI").is_some() {
        std::fs::write(&file, &written).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == written,
        "docs/openapi.json is not what the gate serves; TOLLGATE_UPDATE_OPENAPI=1 writes it"
    );
}

#[test]
fn a_policy_that_changed_applies_to_the_next_call_and_a_bad_one_does_not_load() {
    let daemon = Daemon::configured("[server]\n");
    let key = daemon.admin();
    let file = daemon.folder.path().join("tollgate.toml");
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    std::fs::write(&file, "[server]\ndeny = [\"system.time\"]\n").unwrap();
    signal(daemon.child.id(), "HUP");
    daemon.until("the policy applies", || daemon.call("system.time", &key, "{}").status == 403);
    std::fs::write(&file, "[server]\ndney = []\n").unwrap();
    signal(daemon.child.id(), "HUP");
    daemon.until("the mistake is told", || daemon.logged().contains("was not applied"));
    assert!(daemon.logged().contains("did you mean `deny`?"), "{}", daemon.logged());
    assert_eq!(daemon.call("system.time", &key, "{}").code(), "PERMISSION_DENIED");
    assert!(daemon.events().iter().any(|event| event["kind"] == "policy_updated"));
}

#[test]
fn a_configuration_with_a_typo_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("tollgate.toml"),
        "[daemon]\nlisten = []\nmax_conections = 5\n",
    )
    .unwrap();
    let mut command = tollgate(folder.path());
    command.arg("serve");
    let ran = finish(command, b"");
    assert_eq!(ran.code, 3, "{}", ran.err);
    for part in ["max_conections", "line 3, column 1", "did you mean `max_connections`?"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(!folder.path().join(".tollgate").exists());
}

#[test]
fn what_a_start_that_cannot_work_says() {
    let daemon = Daemon::start();
    let start = |args: &[&str]| {
        let mut command = tollgate(daemon.folder.path());
        command.arg("serve").args(args);
        finish(command, b"")
    };
    let in_use = start(&["--listen", "127.0.0.1:0"]);
    assert_eq!(in_use.code, 7, "{}", in_use.err);
    assert!(in_use.err.contains("in use by another tollgate"), "{}", in_use.err);
    let port = start(&["--listen", &daemon.address(), "--data", "other"]);
    assert_eq!(port.code, 1, "{}", port.err);
    assert!(port.err.contains("is in use") && port.err.contains("--listen"), "{}", port.err);
    assert!(!daemon.folder.path().join("other/admin.key").exists());
    let open = start(&["--listen", "0.0.0.0:0", "--data", "other2"]);
    assert_eq!(open.code, 1, "{}", open.err);
    assert!(open.err.contains("trusted_proxy"), "{}", open.err);
    let nonsense = start(&["--listen", "nowhere", "--data", "other3"]);
    assert_eq!(nonsense.code, 2, "{}", nonsense.err);
    std::fs::write(daemon.folder.path().join("file"), "").unwrap();
    let unusable = start(&["--listen", "127.0.0.1:0", "--data", "file/below"]);
    assert_eq!(unusable.code, 7, "{}", unusable.err);
    assert!(unusable.err.contains("cannot be used"), "{}", unusable.err);
}

#[test]
fn a_folder_of_a_newer_version_is_left_alone() {
    let mut daemon = Daemon::start();
    daemon.stop();
    let db = daemon.data().join("tollgate.db");
    // The number of the format stands at byte 60 of an SQLite file.
    let mut bytes = std::fs::read(&db).unwrap();
    bytes.splice(60..64, 99_u32.to_be_bytes());
    std::fs::write(&db, &bytes).unwrap();
    let mut command = tollgate(daemon.folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let ran = finish(command, b"");
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.err.contains("newer tollgate"), "{}", ran.err);
    assert_eq!(std::fs::read(&db).unwrap(), bytes);
}

#[test]
fn commands_without_a_gate_say_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = tollgate(folder.path());
        command.args(args);
        finish(command, b"")
    };
    let call = run(&["call", "system.time", "--url", "http://127.0.0.1:1"]);
    assert_eq!(call.code, 7, "{}", call.err);
    assert!(plain(&call.err).contains("tollgate serve"), "{}", call.err);
    let ledger = run(&["ledger", "verify"]);
    assert_eq!(ledger.code, 7, "{}", ledger.err);
    assert!(plain(&ledger.err).contains("tollgate serve"), "{}", ledger.err);
    let miss = run(&["replay", "no.ndjson"]);
    assert_eq!(miss.code, 3, "{}", miss.err);
}

#[test]
fn the_key_of_a_dead_gate_is_sent_to_nobody() {
    let mut daemon = Daemon::start();
    daemon.kill();
    assert!(daemon.data().join("address").exists());
    // Somebody else listens where the gate was.
    let stranger = std::net::TcpListener::bind(daemon.address()).unwrap();
    stranger.set_nonblocking(true).unwrap();
    for args in
        [&["call", "system.time"][..], &["agent", "--tool", "system.time"], &["key", "list"]]
    {
        let ran = daemon.cli(args);
        assert_eq!(ran.code, 7, "{}", ran.err);
        assert!(plain(&ran.err).contains("no gate runs on the data folder"), "{}", ran.err);
    }
    let met = stranger.accept().unwrap_err();
    assert_eq!(met.kind(), std::io::ErrorKind::WouldBlock);
}

/// A request whose body is held back.
fn half_sent(
    daemon: &Daemon,
    method: &str,
    path: &str,
    key: &str,
    body: &str,
) -> std::net::TcpStream {
    let mut stream = daemon.connect();
    let (first, _) = body.split_at(2);
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}",
        body.len()
    )
    .unwrap();
    stream
}

/// The rest of it, and the status that it gets.
fn finished(mut stream: std::net::TcpStream, body: &str) -> String {
    let (_, rest) = body.split_at(2);
    stream.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_request_that_took_its_time_counts_for_what_its_key_is_when_it_is_done() {
    let daemon = Daemon::start();
    let (id, evil) = daemon.new_key(&json!({"name": "evil", "role": "admin"}));
    let admin_id = daemon.get("/v1/keys", Some(&daemon.admin())).json()["keys"][0]["id"].clone();
    let make = "{\"name\":\"backdoor\",\"role\":\"admin\"}";
    let rotate = format!("/v1/keys/{}/rotate", admin_id.as_str().unwrap());
    let call = "{\"input\":{}}";
    let waiting = [
        (half_sent(&daemon, "POST", "/v1/keys", &evil, make), make),
        (half_sent(&daemon, "POST", &rotate, &evil, "{  }"), "{  }"),
        (half_sent(&daemon, "POST", "/v1/tokens", &evil, "{  }"), "{  }"),
        (half_sent(&daemon, "POST", "/v1/tools/system.time/call", &evil, call), call),
    ];
    let bearer = format!("Bearer {}", daemon.admin());
    let gone =
        daemon.request("DELETE", &format!("/v1/keys/{id}"), &[("Authorization", &bearer)], "");
    assert_eq!(gone.status, 200);
    for (stream, body) in waiting {
        assert_eq!(finished(stream, body), "401", "{body}");
    }
    // A text that was replaced counts as little as a key that was withdrawn.
    let (id, old) = daemon.new_key(&json!({"name": "agent"}));
    let stream = half_sent(&daemon, "POST", "/v1/tools/system.time/call", &old, call);
    let rotated = daemon.post(&format!("/v1/keys/{id}/rotate"), Some(&daemon.admin()), "{}");
    assert_eq!(rotated.status, 200);
    assert_eq!(finished(stream, call), "401");
    assert_eq!(
        daemon.call("system.time", rotated.json()["secret"].as_str().unwrap(), "{}").status,
        200
    );
}

#[test]
fn a_stream_of_events_ends_with_the_key_that_opened_it() {
    let daemon = Daemon::start();
    let (id, reader) = daemon.new_key(&json!({"name": "reader", "role": "reader"}));
    let token = daemon.post("/v1/tokens", Some(&reader), "{\"expiresInSeconds\":1}").json();
    let open = |key: &str| {
        let mut stream = daemon.connect();
        write!(stream, "GET /v1/events?stream=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
        let mut piece = [0; 64];
        assert!(stream.read(&mut piece).unwrap() > 0);
        stream
    };
    let mut streams = vec![open(token["secret"].as_str().unwrap()), open(&reader)];
    let bearer = format!("Bearer {}", daemon.admin());
    daemon.request("DELETE", &format!("/v1/keys/{id}"), &[("Authorization", &bearer)], "");
    for stream in &mut streams {
        let mut rest = String::new();
        // It ends; a stream that goes on would wait until the test gives up.
        stream.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("call_"), "{rest}");
    }
}

#[test]
fn a_token_makes_no_keys_and_a_key_not_too_many_tokens() {
    let daemon = Daemon::start();
    let admin = daemon.admin();
    let token = daemon.post("/v1/tokens", Some(&admin), "{}").json();
    let token = token["secret"].as_str().unwrap();
    let made = daemon.post("/v1/keys", Some(token), "{\"name\":\"n\",\"role\":\"admin\"}");
    assert_eq!(made.code(), "INVALID_REQUEST", "{made:?}");
    let many: Vec<String> = (0..2000).map(|number| format!("tool:a.b{number}")).collect();
    let large = json!({"policy": {"deny": many}}).to_string();
    assert!(daemon.post("/v1/tokens", Some(&admin), &large).message().contains("bytes"));
    let claims = json!({"name": "n", "agents": vec!["a"; 101]}).to_string();
    assert_eq!(daemon.post("/v1/keys", Some(&admin), &claims).code(), "INVALID_REQUEST");
}

#[test]
fn the_keys_of_a_folder_go_to_its_own_gate_alone() {
    let daemon = Daemon::start();
    assert_eq!(daemon.cli(&["agent", "--tool", "system.time"]).code, 0);
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", stranger.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let mut heard = String::new();
        for _ in 0..2 {
            let (mut stream, _) = stranger.accept().unwrap();
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).unwrap();
            heard.push_str(&String::from_utf8_lossy(&piece[..count]));
            let _ = stream.write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
        heard
    });
    let called = daemon.cli(&["call", "system.time", "--url", &url]);
    assert_eq!(called.code, 7, "{}", called.err);
    let agent = daemon.cli(&["agent", "--tool", "system.time", "--url", &url]);
    assert_eq!(agent.code, 4, "{}", agent.err);
    assert_ne!(daemon.cli(&["key", "list", "--url", &url]).code, 0);
    let heard = heard.join().unwrap();
    assert!(heard.contains("POST /v1/tools/system.time/call"), "{heard}");
    assert!(!heard.to_lowercase().contains("authorization") && !heard.contains("tg_"), "{heard}");
    // The folder's own address may be named.
    assert_eq!(daemon.cli(&["call", "system.time", "--url", &daemon.url]).code, 0);
}

#[test]
fn a_gate_that_hangs_up_after_it_was_asked_leaves_open_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let hangs_up = std::thread::spawn(move || {
        let (mut stream, _) = silent.accept().unwrap();
        let mut piece = [0; 4096];
        let _ = stream.read(&mut piece).unwrap();
    });
    let mut command = tollgate(folder.path());
    command.args(["call", "system.time", "--url", &url, "--json"]);
    let ran = finish(command, b"");
    hangs_up.join().unwrap();
    assert_eq!(ran.code, 7, "{}", ran.out);
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("is in its ledger") && !message.contains("nothing was called"),
        "{message}"
    );
}

#[test]
fn a_gate_whose_database_is_taken_away_lets_nothing_through() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    let (db, away) = (daemon.data().join("tollgate.db"), daemon.data().join("away.db"));
    std::fs::rename(&db, &away).unwrap();
    assert_eq!(daemon.call("system.time", &key, "{}").code(), "LEDGER_UNAVAILABLE");
    assert_eq!(daemon.get("/health", None).json()["status"], "degraded");
    std::fs::rename(&away, &db).unwrap();
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
    for file in ["tollgate.lock", "tollgate.db-wal"] {
        let (here, away) = (daemon.data().join(file), daemon.data().join("away"));
        std::fs::rename(&here, &away).unwrap();
        assert_eq!(daemon.call("system.time", &key, "{}").code(), "LEDGER_UNAVAILABLE", "{file}");
        std::fs::rename(&away, &here).unwrap();
        assert_eq!(daemon.call("system.time", &key, "{}").status, 200, "{file}");
    }
}

#[test]
fn the_admin_key_can_be_rotated_from_its_own_folder() {
    let daemon = Daemon::start();
    let old = daemon.admin();
    let rotated = daemon.cli(&["key", "rotate", "admin"]);
    assert_eq!(rotated.code, 0, "{}", rotated.err);
    assert!(!rotated.out.contains("tg_key_"), "{}", rotated.out);
    assert_ne!(daemon.admin(), old);
    assert_eq!(daemon.call("system.time", &old, "{}").code(), "INVALID_API_KEY");
    assert_eq!(daemon.cli(&["key", "list"]).code, 0);
}

#[test]
fn a_lost_secret_is_told_and_not_passed_over() {
    let mut daemon = Daemon::start();
    daemon.stop();
    std::fs::remove_file(daemon.data().join("gate.secret")).unwrap();
    let start = |args: &[&str]| {
        let mut command = tollgate(daemon.folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        finish(command, b"")
    };
    let refused = start(&[]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(plain(&refused.err).contains("start with --new-secret"), "{}", refused.err);
    let daemon = Daemon::start_in(Arc::clone(&daemon.folder), &["--new-secret"]);
    assert_eq!(daemon.call("system.time", &daemon.admin(), "{}").status, 200);
    let daemon = daemon.again();
    assert_eq!(daemon.get("/health", None).status, 200);
}

#[test]
fn a_key_that_somebody_gave_himself_shows() {
    let mut daemon = Daemon::start();
    let (id, _) = daemon.new_key(&json!({"name": "agent", "scopes": ["call"]}));
    daemon.stop();
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
    let db = rusqlite::Connection::open(daemon.data().join("tollgate.db")).unwrap();
    let sql = "UPDATE beside SET value = CAST(replace(CAST(value AS TEXT), '[\"call\"]', '[\"call\",\"admin\"]') AS BLOB) WHERE space = 'keys'";
    db.execute(sql, []).unwrap();
    drop(db);
    let verified = daemon.cli(&["ledger", "verify"]);
    assert_eq!(verified.code, 1, "{}", verified.out);
    assert!(verified.out.contains(&id), "{}", verified.out);
    assert_eq!(daemon.cli(&["doctor"]).code, 1);
    let db = rusqlite::Connection::open(daemon.data().join("tollgate.db")).unwrap();
    db.execute("DELETE FROM beside WHERE space = 'keys'", []).unwrap();
    drop(db);
    let verified = daemon.cli(&["ledger", "verify"]);
    assert!(verified.out.contains("was made and is gone"), "{}", verified.out);
}

#[test]
fn a_socket_that_is_not_ours_is_left_alone() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let socket = folder.path().join("gate.sock");
    let listen = format!("unix:{}", socket.display());
    std::fs::write(&socket, "somebody's").unwrap();
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", &listen]);
    let refused = finish(command, b"");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "somebody's");
    std::fs::remove_file(&socket).unwrap();
    let mut daemon = Daemon::start_in(folder, &["--listen", &listen]);
    daemon.until("the socket is there", || socket.exists());
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "somebody's").unwrap();
    daemon.stop();
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "somebody's");
}

#[test]
fn pipes_that_close_early_and_files_that_are_none_are_no_trouble() {
    let daemon = Daemon::start();
    for _ in 0..50 {
        daemon.call("system.time", &daemon.admin(), "{}");
    }
    let bin = env!("CARGO_BIN_EXE_tollgate");
    for line in ["ledger export", "ledger tail --follow", "ledger tail -n 100"] {
        let mut shell = std::process::Command::new("bash");
        let script =
            format!("set -o pipefail; {bin} {line} | head -1 > /dev/null; echo ${{PIPESTATUS[0]}}");
        shell.args(["-c", &script]).current_dir(daemon.folder.path());
        if line.contains("follow") {
            // It notices when there is something more to say.
            let daemon = &daemon;
            let ended = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(std::sync::atomic::Ordering::SeqCst) {
                        daemon.call("system.time", &daemon.admin(), "{}");
                    }
                });
                let ran = finish(shell, b"");
                ended.store(true, std::sync::atomic::Ordering::SeqCst);
                assert_eq!((ran.out.as_str(), ran.err.as_str()), ("0\n", ""), "{line}");
            });
        } else {
            let ran = finish(shell, b"");
            assert_eq!((ran.out.as_str(), ran.err.as_str()), ("0\n", ""), "{line}");
        }
    }
    let trace = daemon.cli(&["agent", "--tool", "system.time", "--record-trace", "/dev/full"]);
    assert_eq!(trace.code, 3, "{}", trace.err);
}

#[test]
fn a_stop_refuses_new_work_and_leaves_nothing_behind() {
    let mut daemon = Daemon::start();
    let key = daemon.admin();
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    // A stream of events has no end of its own; the stop ends it.
    let mut stream = daemon.connect();
    write!(stream, "GET /v1/events?stream=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
    let mut piece = [0; 1024];
    assert!(stream.read(&mut piece).unwrap() > 0);
    let status = daemon.stop();
    assert_eq!(status.code(), Some(0), "{}", daemon.logged());
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(std::net::TcpStream::connect(daemon.address()).is_err());
    assert!(!daemon.data().join("address").exists());
    // Everything is in the database itself: no log is left to be read.
    assert!(!daemon.data().join("tollgate.db-wal").exists());
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
}

#[test]
fn slow_and_half_open_clients_do_not_keep_others_out() {
    let daemon = Daemon::configured("[daemon]\nmax_connections = 8\n");
    // All but one connection are held by clients that never finish their request.
    let mut held: Vec<_> = (0..7).map(|_| daemon.connect()).collect();
    for stream in &mut held {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
    }
    assert_eq!(daemon.get("/health", None).status, 200);
    // Two more than there is room for wait, and are served once the slow ones are turned away.
    held.extend((0..3).map(|_| daemon.connect()));
    let since = Instant::now();
    assert_eq!(daemon.get("/health", None).status, 200);
    assert!(since.elapsed() < PATIENCE);
    for stream in &mut held {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

#[test]
fn a_reader_that_stops_reading_costs_nobody_anything() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    let mut stuck = daemon.connect();
    write!(stuck, "GET /v1/events?stream=true&after=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
    let input = format!("{{\"name\":\"{}\"}}", "x".repeat(20_000));
    for _ in 0..200 {
        assert_eq!(daemon.call("manifest.get", &key, &input).status, 404);
    }
    // What it did not read is still there for it, in order.
    let mut heard = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let end = Instant::now() + PATIENCE;
    while !String::from_utf8_lossy(&heard).contains("id: 300\n") {
        let count = stuck.read(&mut piece).unwrap();
        assert!(count > 0 && Instant::now() < end);
        heard.extend_from_slice(piece.get(..count).unwrap());
    }
    let text = String::from_utf8_lossy(&heard).into_owned();
    let ids: Vec<u64> =
        text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
}

#[test]
fn a_unix_socket_is_for_its_owner_who_needs_no_key() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let socket = folder.path().join("gate.sock");
    let listen = format!("unix:{}", socket.display());
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &["--listen", &listen]);
    daemon.until("the socket is there", || socket.exists());
    let mode = std::os::unix::fs::PermissionsExt::mode(&socket.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::remove_file(daemon.data().join("admin.key")).unwrap();
    let called = daemon.cli(&["call", "system.time", "--url", &listen]);
    assert_eq!(called.code, 0, "{}", called.err);
    assert_eq!(daemon.cli(&["call", "system.time"]).code, 4);
    // A killed gate leaves its socket; the next one takes its place.
    daemon.kill();
    assert!(socket.exists());
    let mut daemon = Daemon::start_in(folder, &["--listen", &listen]);
    assert_eq!(daemon.cli(&["key", "list", "--url", &listen]).code, 0);
    daemon.stop();
    assert!(!socket.exists());
}

#[test]
fn agents_use_a_key_of_their_own_that_is_not_the_admins() {
    let daemon = Daemon::start();
    assert_eq!(daemon.cli(&["agent", "--tool", "system.time"]).code, 0);
    let own = std::fs::read_to_string(daemon.data().join("agent.key")).unwrap().trim().to_owned();
    assert_ne!(own, daemon.admin());
    assert_eq!(daemon.get("/v1/keys", Some(&own)).code(), "SCOPE_MISSING");
    let keys = daemon.get("/v1/keys", Some(&daemon.admin())).json();
    let agent =
        keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == "agent").unwrap().clone();
    assert_eq!(agent["policy"], "readonly");
    assert_eq!(agent["scopes"], json!(["call", "ask"]));
}

#[test]
fn a_replay_never_calls_and_tells_both_ways() {
    let daemon = Daemon::start();
    let record = |input: &str| {
        let args =
            ["agent", "--tool", "manifest.get", "--input", input, "--record-trace", "t.ndjson"];
        daemon.cli(&args).code
    };
    assert_eq!(record("{\"name\":\"system.time\"}"), 0);
    assert_eq!(record("{\"name\":\"no.such\"}"), 6);
    let before = daemon.events().len();
    assert_eq!(daemon.cli(&["replay", "t.ndjson"]).code, 0);
    let miss = [
        "agent",
        "--tool",
        "manifest.get",
        "--input",
        "{\"name\":\"other.tool\"}",
        "--replay-trace",
        "t.ndjson",
        "--json",
    ];
    let missed = daemon.cli(&miss);
    assert_eq!((missed.code, missed.json()["error"]["code"].as_str()), (6, Some("REPLAY_MISS")));
    let calls = "{\"tool\":\"manifest.get\",\"input\":{\"name\":\"system.time\"}}\n{\"tool\":\"system.time\",\"input\":{}}\n";
    std::fs::write(daemon.folder.path().join("calls.ndjson"), calls).unwrap();
    let replayed = daemon.cli(&["replay", "t.ndjson", "--calls", "calls.ndjson", "--json"]);
    assert_eq!(replayed.code, 1);
    let data = replayed.json()["data"].clone();
    assert_eq!((data["missed"].as_u64(), data["unused"].as_array().unwrap().len()), (Some(1), 1));
    assert_eq!(daemon.events().len(), before);
    assert_eq!(daemon.cli(&["trace", "diff", "t.ndjson", "t.ndjson"]).code, 0);
    std::fs::write(daemon.folder.path().join("not.ndjson"), "hello\n").unwrap();
    let kept = daemon.cli(&["agent", "--tool", "system.time", "--record-trace", "not.ndjson"]);
    assert_eq!(kept.code, 3, "{}", kept.err);
    assert_eq!(
        std::fs::read_to_string(daemon.folder.path().join("not.ndjson")).unwrap(),
        "hello\n"
    );
    assert_eq!(daemon.events().len(), before);
}

#[test]
fn the_ledger_shows_whoever_changed_it() {
    let mut daemon = Daemon::start();
    daemon.call("system.time", &daemon.admin(), "{}");
    let head = daemon.cli(&["ledger", "head"]).out.trim().to_owned();
    assert_eq!(daemon.cli(&["ledger", "verify", "--head", &head]).code, 0);
    daemon.stop();
    let db = daemon.data().join("tollgate.db");
    let bytes = std::fs::read(&db).unwrap();
    let at = bytes.windows(11).position(|part| part == b"system.time").unwrap();
    let mut changed = bytes.clone();
    changed.splice(at..at + 11, *b"system.tame");
    std::fs::write(&db, changed).unwrap();
    let broken = daemon.cli(&["ledger", "verify"]);
    assert_eq!(broken.code, 1, "{}", broken.out);
    assert!(broken.out.contains("was changed"), "{}", broken.out);
    let doctor = daemon.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    std::fs::write(&db, bytes).unwrap();
    let later = head.replacen(head.split(':').next().unwrap(), "999", 1);
    let cut = daemon.cli(&["ledger", "verify", "--head", &later]);
    assert_eq!(cut.code, 1, "{}", cut.out);
    assert!(cut.out.contains("was cut"), "{}", cut.out);
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let daemon = Daemon::start();
    let good = daemon.cli(&["doctor"]);
    assert_eq!(good.code, 0, "{}", good.out);
    assert!(!good.out.contains('✗'), "{}", good.out);
    let key = daemon.data().join("admin.key");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let bad = daemon.cli(&["doctor", "--json"]);
    assert_eq!(bad.code, 1);
    let checks = bad.json()["data"]["checks"].clone();
    let check =
        checks.as_array().unwrap().iter().find(|c| c["name"] == "admin key").unwrap().clone();
    assert_eq!(check["state"], "bad");
    assert!(check["advice"].as_str().unwrap().contains("chmod 600"), "{check}");
}

#[test]
fn init_writes_what_holds_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let init = || {
        let mut command = tollgate(folder.path());
        command.arg("init");
        finish(command, b"")
    };
    assert_eq!(init().code, 0);
    let again = init();
    assert_eq!(again.code, 3, "{}", again.err);
    let text = std::fs::read_to_string(folder.path().join("tollgate.toml")).unwrap();
    let all: String = text
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line)))
        .collect();
    let daemon = Daemon::configured(&all);
    let made = daemon.cli(&["key", "create", "r", "--policy", "researcher"]);
    assert_eq!(made.code, 0, "{}", made.err);
}

#[test]
fn many_callers_at_once_leave_one_unbroken_record() {
    let daemon = Daemon::start();
    let key = daemon.admin();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
                }
            });
        }
    });
    let events = daemon.events();
    assert_eq!(events.iter().filter(|event| event["kind"] == "call_completed").count(), 400);
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
}
