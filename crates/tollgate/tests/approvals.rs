//! Asking people, through the binary: calls that wait, capabilities that are granted, and halts.

#![cfg(test)]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::Arc,
};

use common::daemon::{Daemon, PATIENCE, tollgate};
use serde_json::{Value, json};

const ASKS: &str = "[server]\nask = [{ permission = \"write\", reason = \"it writes\" }]\n";

fn write(text: &str) -> String {
    json!({"path": "note.txt", "text": text, "overwrite": true}).to_string()
}

#[test]
fn a_call_that_a_policy_asks_about_waits_and_is_made_once_it_is_approved() {
    let daemon = Daemon::configured(ASKS);
    let waits = daemon.cli(&["call", "fs.write_text", &write("one")]);
    assert_eq!(waits.code, 5, "{}{}", waits.out, waits.err);
    assert!(waits.err.contains("tollgate approve apr_"), "{}", waits.err);
    let id = waits.err.split("tollgate approve ").nth(1).unwrap();
    let id = id.split_whitespace().next().unwrap().to_owned();
    let listed = daemon.cli(&["approve"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.out.contains(&id) && listed.out.contains("fs.write_text"), "{}", listed.out);
    assert!(listed.out.contains("cli"), "the key that asks: {}", listed.out);
    let approved = daemon.cli(&["approve", &id, "--reason", "go on"]);
    assert_eq!((approved.code, approved.out.as_str()), (0, "Approved: fs.write_text.\n"));
    let done = daemon.cli(&["call", "fs.write_text", &write("one")]);
    assert_eq!(done.code, 0, "{}", done.err);
    let read = daemon.cli(&["call", "fs.read_text", "{\"path\":\"note.txt\"}", "--json"]);
    assert_eq!(read.json()["data"]["output"]["text"], "one");
    // Once is once, and what differs is another call.
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("one")]).code, 5);
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("two")]).code, 5);
    let all = daemon.cli(&["approve", "--all", "--json"]).json();
    let states: Vec<&str> = all["data"]["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["used", "pending", "pending"]);
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
}

#[test]
fn a_caller_over_http_gets_202_polls_and_comes_back_and_sees_nobody_elses() {
    let daemon = Daemon::configured(ASKS);
    let operator = json!({"name": "bot", "role": "agent", "policy": "operator"});
    let (_, key) = daemon.new_key(&operator);
    let (_, other) = daemon.new_key(&json!({"name": "other", "role": "agent"}));
    let (_, approver) = daemon.new_key(&json!({"name": "ann", "role": "approver"}));
    let body = |extra: &str| format!("{{\"input\":{}{extra}}}", write("x"));
    let path = "/v1/tools/fs.write_text/call";
    let waits = daemon.post(path, Some(&key), &body(""));
    assert_eq!(waits.status, 202, "{waits:?}");
    let item = waits.json()["approval"].clone();
    assert_eq!(waits.json()["verdict"]["decision"], "pending");
    assert_eq!(item["state"], "pending");
    assert!(item.get("binding").is_none() && !waits.body.contains("binding"));
    let at = waits.header("location").unwrap();
    assert_eq!(at, format!("/v1/approvals/{}", item["id"].as_str().unwrap()));
    assert_eq!(daemon.get(&at, Some(&key)).json()["state"], "pending");
    assert_eq!(daemon.get(&at, Some(&other)).status, 404);
    assert_eq!(daemon.get(&at, None).status, 401);
    let yes = json!({"decision": "approve"}).to_string();
    assert_eq!(daemon.post(&at, Some(&key), &yes).code(), "SCOPE_MISSING");
    assert_eq!(daemon.get("/v1/approvals", Some(&key)).code(), "SCOPE_MISSING");
    let answered = daemon.post(&at, Some(&approver), &yes);
    assert_eq!(answered.json()["state"], "approved", "{answered:?}");
    assert_eq!(daemon.post(&at, Some(&approver), &yes).status, 409);
    let approval = format!(",\"approval\":{}", item["id"]);
    let changed = format!("{{\"input\":{}{approval}}}", write("y"));
    let refused = daemon.post(path, Some(&key), &changed);
    assert_eq!((refused.status, refused.code().as_str()), (403, "APPROVAL_DENIED"));
    assert_eq!(daemon.post(path, Some(&key), &body(&approval)).status, 200);
    assert_eq!(daemon.get(&at, Some(&key)).json()["state"], "used");
}

#[test]
fn what_waits_survives_kill_9_and_a_patient_caller_hears_the_answer() {
    let mut daemon = Daemon::configured(ASKS);
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 5);
    daemon.kill();
    let daemon = daemon.again();
    let waiting = {
        let mut command = tollgate(daemon.folder.path());
        command.args(["call", "fs.write_text", &write("a"), "--wait", "60s", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let listed = || daemon.cli(&["approve", "--json"]).json()["data"]["approvals"].clone();
    let all = listed();
    let id = all[0]["id"].as_str().unwrap();
    assert_eq!(all.as_array().unwrap().len(), 1, "the same call is asked once");
    // It may not have come yet; the answer waits for it.
    let denied = daemon.cli(&["approve", id, "--deny", "--reason", "not today"]);
    assert_eq!(denied.out, "Denied: fs.write_text.\n");
    let output = waiting.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    // Either it was waiting and heard the no, or it came later and was asked anew.
    if output.status.code() == Some(4) {
        assert!(out.contains("not today"), "{out}");
    }
    assert!(!daemon.data().join("workspace").join("note.txt").exists());
}

/// The lines of a stream, as they come.
fn stream(daemon: &Daemon, path: &str, key: &str) -> std::sync::mpsc::Receiver<(String, Value)> {
    let mut stream = daemon.connect();
    let host = daemon.address();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut name = String::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(text).unwrap_or_default();
                if send.send((name.clone(), data)).is_err() {
                    return;
                }
            }
        }
    });
    receive
}

#[test]
fn whoever_listens_hears_what_waits_and_what_became_of_it() {
    let daemon = Daemon::configured(ASKS);
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("before")]).code, 5);
    let (id, approver) = daemon.new_key(&json!({"name": "ann", "role": "approver"}));
    let heard = stream(&daemon, "/v1/approvals?stream=true", &approver);
    let next = || heard.recv_timeout(PATIENCE).unwrap();
    let (name, first) = next();
    assert_eq!((name.as_str(), &first["tool"]), ("waits", &json!("fs.write_text")));
    assert_eq!(next().0, "ready");
    assert_eq!(daemon.cli(&["request", "net:example.com", "--session", "s1"]).code, 5);
    let (name, second) = next();
    assert_eq!((name.as_str(), &second["capability"]), ("waits", &json!("net:example.com")));
    assert_eq!(daemon.cli(&["approve", second["id"].as_str().unwrap()]).code, 0);
    let (name, decided) = next();
    assert_eq!((name.as_str(), &decided["state"]), ("decided", &json!("approved")));
    // A key that is withdrawn hears no more.
    assert_eq!(daemon.cli(&["key", "revoke", &id]).code, 0);
    daemon.cli(&["request", "net:example.org", "--session", "s1"]);
    assert!(heard.recv_timeout(PATIENCE).is_err());
}

#[test]
fn http_get_needs_a_grant_says_how_to_get_it_and_works_with_it() {
    let served = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/page", served.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in served.incoming().take(4) {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            let body = "<title>Hello</title><p>It works.";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let daemon = Daemon::start();
    let get = |extra: &[&str]| {
        let input = json!({"url": url}).to_string();
        daemon.cli(&[&["call", "http.get", &input, "--session", "s1", "--json"], extra].concat())
    };
    let missing = get(&[]);
    assert_eq!(missing.code, 4, "{}", missing.out);
    let error = missing.json()["error"].clone();
    assert_eq!(error["code"], "CAPABILITY_MISSING");
    let grant = error["details"]["grant"].as_str().unwrap();
    assert_eq!(grant, "tollgate grant net:127.0.0.1 --session s1 --for 1h");
    // What it says works as it is said.
    let words: Vec<&str> = grant.split(' ').skip(1).collect();
    let granted = daemon.cli(&words);
    assert_eq!(granted.code, 0, "{}", granted.err);
    assert!(granted.out.starts_with("Granted net:127.0.0.1 to the session s1 until "));
    let page = get(&[]).json()["data"]["output"].clone();
    assert_eq!((&page["status"], &page["title"]), (&json!(200), &json!("Hello")), "{page}");
    assert_eq!(page["metadata"]["cache_hit"], false);
    assert_eq!(get(&[]).json()["data"]["output"]["metadata"]["cache_hit"], true);
    // Another session has nothing of it, not even what is in the cache.
    let input = json!({"url": url}).to_string();
    let other = daemon.cli(&["call", "http.get", &input, "--session", "s2", "--json"]);
    assert_eq!(other.json()["error"]["code"], "CAPABILITY_MISSING");
    let listed = daemon.cli(&["capabilities", "--json"]).json()["data"].clone();
    let id = listed["granted"][0]["id"].as_str().unwrap();
    assert_eq!(daemon.cli(&["revoke", id]).code, 0);
    assert_eq!(get(&[]).json()["error"]["code"], "CAPABILITY_MISSING");
}

#[test]
fn net_alone_does_not_lead_inside_and_is_bounded_by_the_allowlist() {
    let daemon = Daemon::configured("[net]\nallow = [\"*.example.com\"]\n");
    let grant = |capability: &str| daemon.cli(&["grant", capability, "--session", "s1"]).code;
    let code = |url: &str| {
        let input = json!({"url": url}).to_string();
        let ran = daemon.cli(&["call", "http.get", &input, "--session", "s1", "--json"]);
        ran.json()["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(grant("net"), 0);
    for inside in
        ["http://127.0.0.1:1/", "http://[::1]:1/", "http://0x7f.1/", "http://example.org/"]
    {
        assert_eq!(code(inside), "CAPABILITY_MISSING", "{inside}");
    }
    let wrong = daemon.cli(&["grant", "net:https://example.com", "--session", "s1"]);
    assert_eq!(wrong.code, 3, "{}", wrong.err);
    assert!(wrong.err.contains("net:example.com"), "{}", wrong.err);
    assert_eq!(daemon.cli(&["grant", "net"]).code, 2, "to whom?");
}

#[test]
fn sessions_have_files_of_their_own_and_the_person_at_the_terminal_needs_no_set_up() {
    let daemon = Daemon::start();
    let listed = daemon.cli(&["call", "fs.list_dir", "--json"]);
    assert_eq!(listed.code, 0, "{}{}", listed.out, listed.err);
    assert_eq!(listed.json()["data"]["output"]["entries"], json!([]));
    let write = |session: &str| {
        let input = json!({"path": "who.txt", "text": session}).to_string();
        daemon.cli(&["call", "fs.write_text", &input, "--session", session]).code
    };
    assert_eq!((write("one"), write("two"), write("../one")), (0, 0, 0));
    for session in ["one", "two", "../one"] {
        let input = json!({"path": "who.txt"}).to_string();
        let read = daemon.cli(&["call", "fs.read_text", &input, "--session", session, "--json"]);
        assert_eq!(read.json()["data"]["output"]["text"], session);
    }
    let out = json!({"path": "../two/who.txt"}).to_string();
    assert_ne!(daemon.cli(&["call", "fs.read_text", &out, "--session", "one"]).code, 0);
    // A root of one's own, but never one that holds the gate's own record.
    let folder = Arc::clone(&daemon.folder);
    drop(daemon);
    std::fs::create_dir(folder.path().join("project")).unwrap();
    std::fs::write(folder.path().join("project/readme"), "mine").unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &["--root", "project"]);
    let read = daemon.cli(&["call", "fs.read_text", "{\"path\":\"readme\"}", "--json"]);
    assert_eq!(read.json()["data"]["output"]["text"], "mine");
    drop(daemon);
    let refused = {
        let mut command = tollgate(folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--root", "."]);
        common::daemon::finish(command, b"")
    };
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("holds the data folder"), "{}", refused.err);
}

#[test]
fn a_halt_by_tool_or_key_stops_what_runs_and_says_so() {
    let daemon = Daemon::configured(ASKS);
    let waiting = {
        let mut command = tollgate(daemon.folder.path());
        command.args(["call", "fs.write_text", &write("a"), "--wait", "10m", "--json"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    daemon.until("it waits", || {
        !daemon.cli(&["approve", "--json"]).json()["data"]["approvals"][0].is_null()
    });
    let unknown = daemon.cli(&["halt", "--tool", "fs.wriet_text"]);
    assert_eq!(unknown.code, 6, "{}", unknown.err);
    let halted = daemon.cli(&["halt", "--tool", "fs.write_text", "--reason", "stop"]);
    assert_eq!(halted.code, 0, "{}", halted.err);
    assert!(halted.out.contains("Stopped: fs.write_text (call_"), "{}", halted.out);
    let out = waiting.wait_with_output().unwrap();
    let out: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(out["error"]["code"], "HALTED", "{out}");
    assert_eq!(daemon.cli(&["call", "fs.list_dir"]).code, 0);
    assert_eq!(daemon.cli(&["resume", "--tool", "fs.write_text"]).code, 0);
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 5);
    let by_key = daemon.cli(&["halt", "--key", "cli"]);
    assert!(by_key.out.contains("key:cli"), "{}", by_key.out);
    let refused = daemon.cli(&["call", "fs.list_dir", "--json"]);
    assert_eq!(refused.json()["error"]["code"], "HALTED");
    assert_eq!(daemon.cli(&["resume", "--key", "cli"]).code, 0);
    assert_eq!(daemon.cli(&["call", "fs.list_dir"]).code, 0);
}

#[test]
fn two_approvers_where_a_policy_wants_them_and_an_hour_that_ends() {
    let config = "[approvals]\nanswer_within = \"1s\"\n\n[server]\nask = [{ sideEffect = \"user_write\", approvers = 2 }]\n";
    let daemon = Daemon::configured(config);
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 5);
    let waiting = |state: &str| {
        let all = daemon.cli(&["approve", "--all", "--json"]).json();
        all["data"]["approvals"][0]["state"] == state
    };
    daemon.until("nobody has answered in time", || waiting("expired"));
    let daemon = {
        let long = config.replace("1s", "10m");
        std::fs::write(daemon.folder.path().join("tollgate.toml"), long).unwrap();
        daemon.again()
    };
    let (_, ann) = daemon.new_key(&json!({"name": "ann", "role": "approver"}));
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 5);
    let listed = daemon.cli(&["approve", "--json"]).json();
    let id = listed["data"]["approvals"][0]["id"].as_str().unwrap().to_owned();
    let first = daemon.cli(&["approve", &id]);
    assert_eq!(first.out, "Noted: 1 of 2 have said yes to fs.write_text.\n");
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 5);
    let yes = json!({"decision": "approve"}).to_string();
    let second = daemon.post(&format!("/v1/approvals/{id}"), Some(&ann), &yes);
    assert_eq!(second.json()["state"], "approved");
    assert_eq!(daemon.cli(&["call", "fs.write_text", &write("a")]).code, 0);
}
