//! Agents at a gate that runs: over HTTP, with other keys, with people who answer, and when it dies.

#![cfg(test)]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
};

use common::{
    agents::{Beside, Fake, calls, notes, until},
    daemon::{Daemon, signal, tollgate},
};
use serde_json::{Value, json};

/// A gate that knows this model.
fn gate(fake: &Fake) -> Daemon {
    Daemon::configured(&config(fake, "fake"))
}

fn config(fake: &Fake, name: &str) -> String {
    format!("[models.{name}]\nurl = \"{}\"\n", fake.url)
}

/// A key of an agent that may do all that an operator's policy allows.
fn agent(daemon: &Daemon, name: &str) -> String {
    daemon.new_key(&json!({"name": name, "policy": "operator", "scopes": ["call"]})).1
}

fn turn(daemon: &Daemon, key: &str, session: &str, body: &Value) -> common::daemon::Answer {
    daemon.post(&format!("/v1/sessions/{session}/turns"), Some(key), &body.to_string())
}

/// Lets commands run without asking anybody.
fn let_commands_run(daemon: &Daemon, session: &str) {
    let path = format!("/v1/sessions/{session}");
    let set = daemon.put(&path, &daemon.admin(), &json!({"policy": {"maxSideEffect": "runtime"}}));
    assert_eq!(set.status, 200, "{set:?}");
}

/// A turn that is heard as it happens.
struct Heard {
    reader: BufReader<TcpStream>,
}

impl Heard {
    fn start(daemon: &Daemon, key: &str, session: &str, body: &Value) -> Self {
        Self::asked(daemon, key, session, body, "text/event-stream")
    }

    fn asked(daemon: &Daemon, key: &str, session: &str, body: &Value, accept: &str) -> Self {
        let mut stream = daemon.connect();
        let (address, body) = (daemon.address(), body.to_string());
        let request = format!(
            "POST /v1/sessions/{session}/turns HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// The next event; nothing when the stream is over.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 || line == "0\r\n" {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data.trim()).unwrap()));
            }
        }
    }

    fn rest(mut self) -> Vec<(String, Value)> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Waits for a step of this kind.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("no {kind}"));
            if name == "step" && data["kind"] == kind {
                return data;
            }
        }
    }
}

#[test]
fn a_turn_over_http_is_whole_or_heard_as_it_happens() {
    let said = format!("It is late.{}", notes(&json!({"add_open_loops": ["sleep"]})));
    let time = calls(&[("system.time", json!({}))]);
    let fake = Fake::start(&json!({"replies": [
        {"content": time.clone(), "chunk": 5}, {"content": said.clone(), "chunk": 5},
        {"content": time}, {"content": said},
    ]}));
    let daemon = gate(&fake);
    let key = agent(&daemon, "one");
    let body = json!({"input": "What time is it?"});
    let events = Heard::start(&daemon, &key, "clock", &body).rest();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.iter().filter(|name| ["done", "error"].contains(name)).count(), 1);
    let (last, report) = events.last().unwrap();
    assert_eq!(last, "done");
    assert_eq!(report["session_id"], "clock");
    assert_eq!((&report["ok"], &report["text"]), (&json!(true), &json!("It is late.")));
    let steps: Vec<&Value> =
        events.iter().filter(|(name, _)| name == "step").map(|(_, data)| data).collect();
    let kinds: Vec<&str> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "turn_start",
            "retrieval",
            "llm_req",
            "llm_stream",
            "llm_done",
            "tool_plan",
            "tool_start",
            "tool_done",
            "llm_req",
            "llm_stream",
            "llm_done",
            "notes_patch",
            "turn_done",
            "checkpoint",
        ]
    );
    assert!(steps.iter().all(|step| step["ts"].as_f64().unwrap() > 1e9), "{steps:?}");
    let text: String = events
        .iter()
        .filter(|(name, _)| name == "delta")
        .filter_map(|(_, d)| d["text"].as_str())
        .collect();
    assert_eq!(text.trim(), "It is late.");
    // The same as one answer.
    let whole = turn(&daemon, &key, "clock", &body);
    assert_eq!(whole.status, 200, "{whole:?}");
    assert_eq!((&whole.json()["text"], &whole.json()["turn"]), (&json!("It is late."), &json!(2)));
    let open = daemon.get("/v1/sessions/clock/open-loops", Some(&key)).json();
    assert_eq!(open, json!({"open_loops": ["sleep"]}));
    // A turn that ran and failed is an answer; what could not run at all is an error.
    let failed = turn(&daemon, &key, "clock", &body);
    assert_eq!((failed.status, &failed.json()["ok"]), (200, &json!(false)), "{failed:?}");
    for accept in ["application/json", "text/event-stream"] {
        let no_model = json!({"input": "x", "model": "fakr"});
        let mut heard = Heard::asked(&daemon, &key, "clock", &no_model, accept);
        let mut status = String::new();
        heard.reader.read_line(&mut status).unwrap();
        assert!(status.contains(" 400 "), "{accept}: {status}");
    }
    let told = turn(&daemon, &key, "clock", &json!({"input": "x", "model": "fakr"})).message();
    assert!(told.contains("did you mean `fake`?"), "{told}");
}

#[test]
fn bodies_and_names_that_are_wrong_are_refused_with_the_rule() {
    let fake = Fake::saying(&[]);
    let daemon = gate(&fake);
    let (admin, key) = (daemon.admin(), agent(&daemon, "one"));
    for body in [
        json!({}),
        json!({"input": ""}),
        json!({"input": "  "}),
        json!({"input": 7}),
        json!({"input": "x", "bugdet": {}}),
        json!({"input": "x", "budget": {"rounds": 0}}),
        json!({"input": "x", "budget": {"seconds": 90_000}}),
        json!({"input": "x", "budget": {"round": 1}}),
        json!({"input": "x", "budget": [1, 2, 3, 4]}),
        json!({"input": "x", "policy": {"maxSideEfect": "none"}}),
        json!({"input": "x", "urgency": "now"}),
        json!({"input": "x".repeat(300_000)}),
        json!([]),
    ] {
        let answer = turn(&daemon, &key, "s", &body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "INVALID_REQUEST"),
            "{body:.100}"
        );
    }
    for name in ["..", ".x", "-x", "a%2Fb", "a%20b", "%C3%A4", &"x".repeat(65)] {
        for (method, path) in [
            ("GET", format!("/v1/sessions/{name}")),
            ("GET", format!("/v1/sessions/{name}/open-loops")),
            ("POST", format!("/v1/sessions/{name}/cancel")),
        ] {
            let headers = [("Authorization", format!("Bearer {admin}"))];
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answer = daemon.request(method, &path, &headers, "");
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
            assert!(answer.message().contains("cannot be the name of a session"), "{answer:?}");
        }
        let answer = turn(&daemon, &key, name, &json!({"input": "x"}));
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
    }
    for settings in [
        json!({"root": "relative"}),
        json!({"root": "/nowhere/at/all"}),
        json!({"root": "/"}),
        json!({"root": daemon.folder.path()}),
        json!({"model": {"own": {"url": "nowhere"}}}),
        json!({"model": {"own": {"url": fake.url, "headers": {"authorization": "x"}}}}),
        json!({"model": {"other": 1}}),
        json!({"policy": {"nothing": 1}}),
        json!({"roles": ["king"]}),
        json!({"roles": vec!["planner"; 9]}),
        json!({"budget": {"rounds": 501}}),
        json!({"budget": [null, null]}),
        json!({"colour": "red"}),
    ] {
        let answer = daemon.put("/v1/sessions/s", &admin, &settings);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "INVALID_REQUEST"),
            "{settings}: {answer:?}"
        );
    }
    assert_eq!(daemon.get("/v1/sessions/nothing", Some(&admin)).status, 404);
    for query in ["", "?q=", "?q=x&limit=0", "?q=x&limit=101", "?q=x&session=..", "?q=x&what=y"] {
        let answer = daemon.get(&format!("/v1/memory{query}"), Some(&admin));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
}

#[test]
fn who_may_see_set_and_stop_a_session() {
    let said = format!("Noted.{}", notes(&json!({"add_memory_tags": ["colours"]})));
    let fake = Fake::start(&json!({"replies": [{"content": said, "times": 0}]}));
    let daemon = gate(&fake);
    let (admin, one, two) = (daemon.admin(), agent(&daemon, "one"), agent(&daemon, "two"));
    let reader = daemon.new_key(&json!({"name": "reader", "role": "reader"})).1;
    let set = daemon.put("/v1/sessions/mine", &one, &json!({"budget": {"rounds": 500}}));
    assert_eq!((set.status, set.code().as_str()), (403, "SCOPE_MISSING"));
    assert_eq!(daemon.put("/v1/sessions/mine", "", &json!({})).status, 401);
    // Without a key, or with one that may not call, nothing runs.
    let body = json!({"input": "My favourite colour is green"});
    assert_eq!(turn(&daemon, &reader, "mine", &body).status, 403);
    assert_eq!(daemon.post("/v1/sessions/mine/turns", None, &body.to_string()).status, 401);
    assert_eq!(turn(&daemon, &one, "mine", &body).status, 200);
    // Another key can neither use it nor see it.
    let taken = turn(&daemon, &two, "mine", &body);
    assert_eq!((taken.status, taken.code().as_str()), (409, "CONFLICT"), "{taken:?}");
    let names = |key: &str| -> Vec<String> {
        let all = daemon.get("/v1/sessions", Some(key)).json()["sessions"].clone();
        all.as_array()
            .unwrap()
            .iter()
            .map(|s| s["session_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&one), ["mine"]);
    assert_eq!(names(&two), Vec::<String>::new());
    assert_eq!(names(&reader), ["mine"]);
    for path in
        ["/v1/sessions/mine", "/v1/sessions/mine/open-loops", "/v1/memory?q=green&session=mine"]
    {
        assert_eq!(daemon.get(path, Some(&two)).status, 404, "{path}");
        assert_eq!(daemon.get(path, Some(&one)).status, 200, "{path}");
        assert_eq!(daemon.get(path, Some(&reader)).status, 200, "{path}");
        assert_eq!(daemon.get(path, None).status, 401, "{path}");
    }
    let found = |key: &str| {
        let answer = daemon.get("/v1/memory?q=favourite%20colour", Some(key)).json();
        answer["memories"].as_array().unwrap().len()
    };
    assert_eq!((found(&one), found(&two), found(&reader), found(&admin)), (1, 0, 1, 1));
    // Whoever may only look stops nothing.
    let cancel = |key: &str| daemon.post("/v1/sessions/mine/cancel", Some(key), "").status;
    assert_eq!((cancel(&two), cancel(&reader), cancel(&one), cancel(&admin)), (404, 403, 200, 200));
    // What is decided is put together, taken back with null, and what headers say is shown to nobody.
    let work = tempfile::tempdir().unwrap();
    let own = json!({"own": {"url": fake.url, "headers": {"x-team": "hunter2"}}});
    let first =
        daemon.put("/v1/sessions/mine", &admin, &json!({"root": work.path(), "model": own}));
    assert_eq!(first.status, 200, "{first:?}");
    let second = daemon.put("/v1/sessions/mine", &admin, &json!({"budget": {"rounds": 3}}));
    for (key, sees_root) in [(&admin, true), (&reader, true), (&one, false)] {
        let shown = daemon.get("/v1/sessions/mine", Some(key));
        assert!(!shown.body.contains("hunter2"), "{shown:?}");
        let settings = shown.json()["settings"].clone();
        assert_eq!(settings["budget"]["rounds"], 3);
        assert_eq!(settings["root"].is_string(), sees_root, "{settings}");
    }
    assert!(!second.body.contains("hunter2") && second.body.contains("x-team"), "{second:?}");
    assert_eq!(turn(&daemon, &one, "mine", &body).json()["budget"]["rounds"], 3);
    let taken_back =
        daemon.put("/v1/sessions/mine", &admin, &json!({"budget": null, "root": null}));
    assert_eq!(taken_back.json()["budget"], json!(null));
    assert!(taken_back.json()["model"].is_object());
    assert_eq!(turn(&daemon, &one, "mine", &body).json()["budget"]["rounds"], 16);
}

#[test]
fn a_client_that_goes_away_cancels_its_turn() {
    let fake = Fake::start(&json!({"replies": [
        {"content": "Going on and on", "chunk": 5, "hang_after": 1, "times": 2},
        {"content": "Still here."},
    ]}));
    let daemon = gate(&fake);
    let key = agent(&daemon, "one");
    for (number, accept) in ["text/event-stream", "application/json"].iter().enumerate() {
        let body = json!({"input": format!("question {number}")});
        let heard = Heard::asked(&daemon, &key, "gone", &body, accept);
        until("the model is asked", || fake.chats().len() == number + 1);
        drop(heard);
        until("the model's server is left", || fake.chats()[number]["ended"] == "left");
        until("the turn is over", || {
            let view = daemon.get("/v1/sessions/gone", Some(&key)).json();
            view["running"] == false && view["checkpoint"]["revision"] == number + 1
        });
    }
    let view = daemon.get("/v1/sessions/gone", Some(&key)).json();
    assert_eq!(view["turns"][1]["error"], "cancelled");
    let after = turn(&daemon, &key, "gone", &json!({"input": "hello"})).json();
    assert_eq!(after["text"], "Still here.");
    let told = fake.chats()[2]["body"]["messages"].to_string();
    assert!(told.contains("question 0") && told.contains("question 1"), "{told}");
}

#[test]
fn one_turn_runs_at_a_time_and_can_be_cancelled_by_another_request() {
    let fake =
        Fake::start(&json!({"replies": [{"content": "Hm", "hang_after": 1}, {"content": "Yes."}]}));
    let daemon = gate(&fake);
    let key = agent(&daemon, "one");
    let mut heard = Heard::start(&daemon, &key, "busy", &json!({"input": "think"}));
    heard.until("llm_req");
    until("the model is asked", || fake.chats().len() == 1);
    let second = turn(&daemon, &key, "busy", &json!({"input": "and?"}));
    assert_eq!((second.status, second.code().as_str()), (409, "CONFLICT"));
    assert!(second.message().contains("a turn is running"), "{second:?}");
    assert_eq!(daemon.get("/v1/sessions/busy", Some(&key)).json()["running"], true);
    let cancelled = daemon.post("/v1/sessions/busy/cancel", Some(&key), "").json();
    assert_eq!(cancelled, json!({"cancelled": true}));
    let (name, report) = heard.rest().pop().unwrap();
    assert_eq!((name.as_str(), &report["stop"]), ("done", &json!("cancelled")));
    let cancelled = daemon.post("/v1/sessions/busy/cancel", Some(&key), "").json();
    assert_eq!(cancelled, json!({"cancelled": false}));
    assert_eq!(turn(&daemon, &key, "busy", &json!({"input": "and?"})).json()["text"], "Yes.");
}

/// Runs an agent beside the test that wants a command, and waits until a person is asked. Gives what was asked.
fn wants_a_command(daemon: &Daemon, session: &str) -> (Beside, String) {
    let mut command = tollgate(daemon.folder.path());
    command.args(["agent", "run", "Run it", "--session", session]);
    let asking = Beside::start(command);
    until("a person is asked", || asking.err().contains("tollgate approve apr_"));
    let id = asking.err().split("tollgate approve ").nth(1).unwrap().trim().to_owned();
    (asking, id)
}

#[test]
fn a_person_is_asked_and_answers_from_another_terminal() {
    let echo = calls(&[("shell.exec", json!({"cmd": "echo hello from the shell"}))]);
    let fake = Fake::saying(&[&echo, "It said hello.", &echo, "I was not allowed."]);
    let daemon = gate(&fake);
    let (mut asking, id) = wants_a_command(&daemon, "yes");
    assert!(
        asking.err().contains("… waits for a person: shell.exec echo hello"),
        "{}",
        asking.err()
    );
    // The agent cannot answer for itself.
    let runner = std::fs::read_to_string(daemon.data().join("runner.key")).unwrap();
    let own = json!({"decision": "approve"}).to_string();
    let refused = daemon.post(&format!("/v1/approvals/{id}"), Some(runner.trim()), &own);
    assert_eq!((refused.status, refused.code().as_str()), (403, "SCOPE_MISSING"), "{refused:?}");
    let listed = daemon.cli(&["approve", "--list"]).out;
    assert!(listed.contains(&id) && listed.contains("shell.exec"), "{listed}");
    assert_eq!(daemon.cli(&["approve", &id]).code, 0);
    assert_eq!((asking.end(), asking.out().as_str()), (0, "It said hello.\n"), "{}", asking.err());
    assert!(asking.err().contains("✓ shell.exec echo hello"), "{}", asking.err());
    assert!(fake.chats()[1]["body"]["messages"].to_string().contains("hello from the shell"));
    let (mut asking, id) = wants_a_command(&daemon, "no");
    let denied = daemon.cli(&["approve", &id, "--deny", "--reason", "not on my machine"]);
    assert_eq!(denied.code, 0, "{}", denied.err);
    assert_eq!((asking.end(), asking.out().as_str()), (0, "I was not allowed.\n"));
    assert!(asking.err().contains("✗ shell.exec echo hello"), "{}", asking.err());
    assert!(asking.err().contains("APPROVAL_DENIED"), "{}", asking.err());
    let told = fake.chats()[3]["body"]["messages"].to_string();
    assert!(told.contains("not on my machine"), "{told}");
    daemon.verifies();
}

#[test]
fn nobody_is_asked_about_a_command_that_cannot_be_run() {
    let cannot = calls(&[
        ("shell.exec", json!({"cmd": "make all"})),
        ("shell.exec", json!({"cmd": "echo $(sudo ls)"})),
        ("shell.exec", json!({"cmd": "rm -rf ."})),
        ("shell.exec", json!({"cmd": "ls", "timeout_s": 1_000_000})),
    ]);
    let fake = Fake::saying(&[&cannot, "None of them can be run."]);
    let text = format!("{}\n[agent]\napproval_wait_seconds = 1\n", config(&fake, "fake"));
    let daemon = Daemon::configured(&text);
    let key = agent(&daemon, "one");
    let answer = turn(&daemon, &key, "s", &json!({"input": "run"})).json();
    assert_eq!(answer["text"], "None of them can be run.");
    let told = fake.chats()[1]["body"]["messages"].to_string();
    assert_eq!(told.matches("INVALID_INPUT").count(), 4, "{told}");
    for part in
        ["is not one of the programs that may be run", "deny list", "greater than the maximum"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let asked = daemon.get("/v1/approvals?state=all", Some(&daemon.admin()));
    assert_eq!((asked.status, asked.json()["approvals"].clone()), (200, json!([])));
}

#[test]
fn a_person_who_does_not_answer_in_time_is_not_waited_for() {
    let echo = calls(&[("shell.exec", json!({"cmd": "echo hi"}))]);
    let fake = Fake::saying(&[&echo, "Nobody answered."]);
    let text = format!("{}\n[agent]\napproval_wait_seconds = 1\n", config(&fake, "fake"));
    let daemon = Daemon::configured(&text);
    let key = agent(&daemon, "one");
    let answer = turn(&daemon, &key, "s", &json!({"input": "run"})).json();
    assert_eq!(answer["text"], "Nobody answered.");
    let told = fake.chats()[1]["body"]["messages"].to_string();
    assert!(told.contains("APPROVAL_REQUIRED") && told.contains("apr_"), "{told}");
}

/// The files of the session that a tool wrote.
fn workspace(daemon: &Daemon, session: &str) -> PathBuf {
    daemon.data().join("workspace").join(session)
}

#[test]
fn a_gate_that_dies_during_a_model_call_loses_no_message() {
    let fake = Fake::start(&json!({"replies": [
        {"content": "Half an ans", "hang_after": 1}, {"content": "I am back."},
    ]}));
    let mut daemon = gate(&fake);
    let key = agent(&daemon, "one");
    let mut heard = Heard::start(&daemon, &key, "dies", &json!({"input": "remember the milk"}));
    heard.until("llm_req");
    until("the model is asked", || fake.chats().len() == 1);
    daemon.kill();
    drop(heard);
    // Whoever looks is told, whether a gate runs or not.
    let shown = daemon.cli(&["agent", "show", "dies"]);
    assert!(shown.out.contains("the last turn was cut off"), "{}{}", shown.out, shown.err);
    let daemon = Daemon::start_in(Arc::clone(&daemon.folder), &[]);
    let report = turn(&daemon, &key, "dies", &json!({"input": "hello?"})).json();
    assert_eq!(report["text"], "I am back.");
    assert_eq!(report["turn"], 2);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("turn 1 was cut off"), "{warnings}");
    let told = fake.chats()[1]["body"]["messages"].to_string();
    assert!(told.contains("remember the milk"), "{told}");
    // The mended turn replays too.
    for number in ["1", "2"] {
        let ran = daemon.cli(&["agent", "replay", "dies", "--turn", number]);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
    daemon.verifies();
}

#[test]
fn a_gate_that_dies_during_a_tool_call_runs_nothing_twice() {
    let cmd = "python3 -c 'import time; open(\"ran\", \"a\").write(\"once\\n\"); time.sleep(600)'";
    let write = json!({"path": "done.txt", "text": "done"});
    let fake = Fake::saying(&[
        &calls(&[("fs.write_text", write), ("shell.exec", json!({"cmd": cmd, "timeout_s": 600}))]),
        "I looked; it had run.",
    ]);
    let mut daemon = gate(&fake);
    let key = agent(&daemon, "one");
    let_commands_run(&daemon, "dies");
    let heard = Heard::start(&daemon, &key, "dies", &json!({"input": "write and run"}));
    let ran = workspace(&daemon, "dies").join("ran");
    let text = || std::fs::read_to_string(&ran).unwrap_or_default();
    until("the command runs", || text() == "once\n");
    daemon.kill();
    drop(heard);
    let daemon = Daemon::start_in(Arc::clone(&daemon.folder), &[]);
    let report = turn(&daemon, &key, "dies", &json!({"input": "what happened?"})).json();
    assert_eq!(report["text"], "I looked; it had run.");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("turn 1 was cut off while shell.exec ran"), "{warnings}");
    // The model is told what is known and what is not, and nothing ran again.
    let told = fake.chats()[1]["body"]["messages"].to_string();
    for part in ["write and run", "done.txt", "OUTCOME_UNKNOWN"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(text(), "once\n");
    let is_call = |event: &&Value| event["kind"] == "call_started" && event["tool"] == "shell.exec";
    assert_eq!(daemon.events().iter().filter(is_call).count(), 1);
    let autopsy = daemon.cli(&["agent", "autopsy", "dies"]).out;
    assert!(autopsy.contains("Somebody must look"), "{autopsy}");
    daemon.verifies();
}

#[test]
fn a_gate_that_stops_saves_its_turns_first() {
    let fake = Fake::start(
        &json!({"replies": [{"content": "Long", "hang_after": 1}, {"content": "Yes."}]}),
    );
    let mut daemon = gate(&fake);
    let key = agent(&daemon, "one");
    let mut heard = Heard::start(&daemon, &key, "stops", &json!({"input": "think"}));
    heard.until("llm_req");
    until("the model is asked", || fake.chats().len() == 1);
    signal(daemon.child.id(), "TERM");
    let (name, report) = heard.rest().pop().unwrap();
    assert_eq!((name.as_str(), &report["stop"]), ("done", &json!("cancelled")), "{report}");
    assert!(daemon.wait().success());
    let daemon = Daemon::start_in(Arc::clone(&daemon.folder), &[]);
    let next = turn(&daemon, &key, "stops", &json!({"input": "and?"})).json();
    assert_eq!((&next["text"], &next["warnings"]), (&json!("Yes."), &json!([])));
    assert!(fake.chats()[1]["body"]["messages"].to_string().contains("think"));
}

#[test]
fn models_and_agents_are_read_again_with_the_configuration() {
    let (first, second) = (Fake::saying(&["One."]), Fake::saying(&["Two."]));
    let daemon = gate(&first);
    let key = agent(&daemon, "one");
    let body = json!({"input": "who?"});
    assert_eq!(turn(&daemon, &key, "s", &body).json()["text"], "One.");
    let file = daemon.folder.path().join("tollgate.toml");
    let reload = || daemon.post("/v1/reload", Some(&daemon.admin()), "{}");
    let text = format!(
        "{}{}[agent]\ndefault_model = \"other\"\ndefault_budget = {{ rounds = 2, seconds = 5 }}\n",
        config(&first, "fake"),
        config(&second, "other")
    );
    std::fs::write(&file, &text).unwrap();
    assert_eq!(reload().status, 200, "{:?}", reload());
    let report = turn(&daemon, &key, "s", &body).json();
    assert_eq!((&report["text"], &report["budget"]["rounds"]), (&json!("Two."), &json!(2)));
    // What does not load changes nothing.
    for wrong in [
        text.replace("default_model = \"other\"", "default_model = \"othr\""),
        text.replace("http://", "htp://"),
        format!("{text}[models.script]\nkind = \"scripted\"\nscript = \"missing.json\"\n"),
    ] {
        std::fs::write(&file, wrong).unwrap();
        assert_eq!(reload().status, 400);
    }
    // A turn without a budget or a policy is refused where there is no usual one.
    std::fs::write(
        &file,
        format!("{}[agent]\ndefault_budget = \"off\"\n", config(&second, "other")),
    )
    .unwrap();
    assert_eq!(reload().status, 200);
    let refused = turn(&daemon, &key, "s", &body);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.message().contains("no budget"), "{refused:?}");
    std::fs::write(
        &file,
        format!("{}[agent]\ndefault_policy = \"off\"\n", config(&second, "other")),
    )
    .unwrap();
    assert_eq!(reload().status, 200);
    let refused = turn(&daemon, &key, "s", &body);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.message().contains("no policy"), "{refused:?}");
}

#[test]
fn a_command_finds_the_gate_and_its_models() {
    let fake = Fake::saying(&["Hello.", "Again."]);
    let daemon = gate(&fake);
    let ran = daemon.cli(&["agent", "run", "hi", "--model", "fake", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["data"]["text"], "Hello.");
    assert!(!ran.err.contains("no gate runs"), "{}", ran.err);
    let unknown = daemon.cli(&["agent", "run", "hi", "--model", "fak"]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert!(unknown.err.contains("did you mean `fake`?"), "{}", unknown.err);
    // A key that is no operator's cannot decide on the folder.
    std::fs::create_dir(daemon.folder.path().join("work")).unwrap();
    let key = agent(&daemon, "one");
    let mut command = tollgate(daemon.folder.path());
    command.args(["agent", "run", "hi", "--session", "two", "--root", "work"]);
    command.args(["--url", &daemon.url]).env("TOLLGATE_API_KEY", &key);
    let refused = common::daemon::finish(command, b"");
    assert_eq!(refused.code, 4, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("SCOPE_MISSING"), "{}", refused.err);
    // Without deciding on anything it can run a turn there.
    let mut command = tollgate(daemon.folder.path());
    command.args(["agent", "run", "hi", "--session", "two", "--url", &daemon.url]);
    let ran = common::daemon::finish(
        {
            command.env("TOLLGATE_API_KEY", &key);
            command
        },
        b"",
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "Again.\n"), "{}", ran.err);
    let shown = daemon.cli(&["agent", "show", "two"]);
    assert!(shown.out.contains("two · revision 1"), "{}", shown.out);
}

#[test]
fn a_granted_host_and_one_that_waits_are_shown() {
    let asks = notes(&json!({"actions": ["request_permission:net:example.com"]}));
    let fake = Fake::saying(&[&format!("I asked.{asks}"), "Later."]);
    let daemon = gate(&fake);
    let first = daemon.cli(&["agent", "run", "look it up", "--session", "net"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(
        first.err.contains("request_permission:net:example.com: a person is asked"),
        "{}",
        first.err
    );
    let shown = daemon.cli(&["agent", "show", "net"]).out;
    assert!(shown.contains("Capabilities\n  waits    net:example.com"), "{shown}");
    let granted = daemon.cli(&["grant", "net:example.com", "--session", "net", "--for", "1h"]);
    assert_eq!(granted.code, 0, "{}", granted.err);
    let shown = daemon.cli(&["agent", "show", "net"]).out;
    assert!(shown.contains("granted  net:example.com") && !shown.contains("waits"), "{shown}");
}
