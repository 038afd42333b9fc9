//! The built-in tools through the binary: their contracts, a command in its sandbox, and what happens where there
//! is none.

#![cfg(test)]

mod common;

use std::{process::Command, sync::Arc};

use common::{
    daemon::{Daemon, finish, tollgate},
    run,
};
use serde_json::{Value, json};

fn call(daemon: &Daemon, tool: &str, input: &Value) -> Value {
    daemon.cli(&["call", tool, &input.to_string(), "--session", "s1", "--json"]).json()
}

#[test]
fn the_tools_of_the_seed_have_its_arguments_and_defaults() {
    let daemon = Daemon::start();
    let all = daemon.get("/api/contracts/tools", None).json()["tools"].clone();
    let tool = |name: &str| {
        let found = all.as_array().unwrap().iter().find(|tool| tool["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not there")).clone()
    };
    let arguments = |name: &str| {
        let schema = tool(name)["inputSchema"].clone();
        let mut of: Vec<(String, String, Value)> = schema["properties"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, what)| {
                let kind = what["type"].as_str().unwrap_or_default().to_owned();
                (name.clone(), kind, what["default"].clone())
            })
            .collect();
        of.sort_by(|a, b| a.0.cmp(&b.0));
        json!({"arguments": of, "required": schema["required"], "more": schema["additionalProperties"]})
    };
    let wanted = [
        (
            "fs.read_text",
            json!([["max_bytes", "integer", 20000], ["path", "string", null]]),
            json!(["path"]),
        ),
        (
            "fs.list_dir",
            json!([["max_entries", "integer", 200], ["path", "string", "."]]),
            json!(null),
        ),
        (
            "fs.write_text",
            json!([
                ["overwrite", "boolean", false],
                ["path", "string", null],
                ["text", "string", null]
            ]),
            json!(["path", "text"]),
        ),
        (
            "shell.exec",
            json!([["cmd", "string", null], ["timeout_s", "integer", 20]]),
            json!(["cmd"]),
        ),
        (
            "http.get",
            json!([["url", "string", null], ["use_cache", "boolean", true]]),
            json!(["url"]),
        ),
    ];
    for (name, of, required) in wanted {
        let found = arguments(name);
        assert_eq!(found["arguments"], of, "{name}");
        assert_eq!(found["required"], required, "{name}");
        assert_eq!(found["more"], false, "{name}");
        assert_eq!(tool(name)["access"]["anonymousAllowed"], false, "{name}");
    }
    let effects = |name: &str| (tool(name)["sideEffect"].clone(), tool(name)["costEffect"].clone());
    assert_eq!(effects("fs.write_text"), (json!("user_write"), json!("none")));
    assert_eq!(effects("shell.exec"), (json!("runtime"), json!("none")));
    assert_eq!(effects("http.get"), (json!("none"), json!("api_cost")));
}

#[test]
fn a_command_works_in_the_sessions_folder_and_knows_nothing_of_the_gate() {
    let daemon = Daemon::start();
    let file = json!({"path": "a/note.txt", "text": "one\ntwo\n"});
    assert_eq!(call(&daemon, "fs.write_text", &file)["ok"], true);
    let exec = |cmd: &str| call(&daemon, "shell.exec", &json!({"cmd": cmd}));
    let found = exec("grep -rn two .");
    assert_eq!(found["data"]["output"]["stdout"], "./a/note.txt:2:two\n", "{found}");
    let made = exec("sed -i s/one/eins/ a/note.txt");
    assert_eq!(made["data"]["output"]["exitCode"], 0, "{made}");
    let read = call(&daemon, "fs.read_text", &json!({"path": "a/note.txt"}));
    assert_eq!(read["data"]["output"]["text"], "eins\ntwo\n");
    let failed = exec("cat nowhere");
    assert_eq!(failed["data"]["output"]["exitCode"], 1);
    // Not the gate's own folder, by whatever path.
    let key = daemon.data().join("admin.key");
    let secret = daemon.admin();
    for cmd in [
        format!("cat {}", key.display()),
        "cat ../../admin.key".to_owned(),
        "find / -name admin.key -readable".to_owned(),
        format!("grep -r tg_key_ {} /", daemon.data().display()),
    ] {
        let out = exec(&cmd).to_string();
        assert!(!out.contains(&secret) && !out.contains("/admin.key\\n"), "{cmd}: {out}");
    }
    // What is no command is refused before anything starts, and says what to do.
    for (cmd, word) in [
        ("curl http://127.0.0.1/", "curl"),
        ("ls | wc", "|"),
        ("echo $HOME", "$"),
        ("sudo ls", "sudo"),
        ("ls 'open", "quote"),
    ] {
        let refused = exec(cmd);
        assert_eq!(refused["error"]["code"], "INVALID_INPUT", "{cmd}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(word), "{cmd}: {refused}");
    }
    let over = call(
        &daemon,
        "shell.exec",
        &json!({"cmd": "python3 -c 'while True: pass'", "timeout_s": 1}),
    );
    assert_eq!(over["data"]["output"]["timedOut"], true, "{over}");
}

#[test]
fn a_command_that_runs_longer_than_usual_calls_may_say_so() {
    let daemon = Daemon::configured("[daemon]\ncall_timeout_seconds = 1\n");
    let cmd = "python3 -c 'import time; time.sleep(2); print(7)'";
    let slow = call(&daemon, "shell.exec", &json!({"cmd": cmd, "timeout_s": 60}));
    assert_eq!(slow["data"]["output"]["stdout"], "7\n", "{slow}");
    // A caller who gives up earlier ends it.
    let input = json!({"cmd": cmd, "timeout_s": 60}).to_string();
    let given = daemon.cli(&["call", "shell.exec", &input, "--timeout", "800ms", "--json"]).json();
    assert!(
        given["error"]["code"] == "TIMEOUT" || given["data"]["output"]["timedOut"] == true,
        "{given}"
    );
}

/// Is a process there whose command line holds this?
fn runs(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(mark))
}

#[test]
fn a_halt_ends_a_command_and_so_does_kill_9() {
    let mut daemon = Daemon::start();
    let start = |daemon: &Daemon, mark: &str| {
        let program = format!("python3 -c 'import time; time.sleep(600)' {mark}");
        let input = json!({"cmd": program, "timeout_s": 600}).to_string();
        let mut command = tollgate(daemon.folder.path());
        command.args(["call", "shell.exec", &input, "--json"]);
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mark = format!("\0{mark}\0");
        daemon.until("the command runs", || runs(&mark));
        (child, mark)
    };
    let name = format!("halted-{}", std::process::id());
    let (child, mark) = start(&daemon, &name);
    let halted = daemon.cli(&["halt", "--tool", "shell.exec"]);
    assert!(halted.out.contains("Stopped: shell.exec"), "{}", halted.out);
    assert!(!runs(&mark), "it runs on");
    let out = child.wait_with_output().unwrap();
    let out: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(out["error"]["code"], "HALTED", "{out}");
    assert_eq!(daemon.cli(&["resume", "--tool", "shell.exec"]).code, 0);
    let name = format!("killed-{}", std::process::id());
    let (mut child, mark) = start(&daemon, &name);
    daemon.kill();
    daemon.until("nothing is left of the command", || !runs(&mark));
    child.wait().unwrap();
    // Nobody knows what it did; the record says so.
    let daemon = daemon.again();
    let calls = daemon.get("/v1/calls?tool=shell.exec", Some(&daemon.admin())).json();
    assert_eq!(calls["calls"][0]["outcome"], "unknown", "{calls}");
}

/// A gate on a machine where nobody may make user namespaces.
fn without_namespaces(config: &str) -> Daemon {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tollgate.toml"), config).unwrap();
    let script =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" serve --listen 127.0.0.1:0";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_tollgate")).current_dir(folder.path()).env("NO_COLOR", "1");
    for name in ["TOLLGATE_API_KEY", "TOLLGATE_DATA", "TOLLGATE_URL", "TOLLGATE_CONFIG"] {
        command.env_remove(name);
    }
    Daemon::spawned(Arc::new(folder), command)
}

#[test]
fn where_the_sandbox_cannot_give_its_guarantees_no_command_is_run() {
    let daemon = without_namespaces("[shell]\ntier = \"full\"\n");
    let mark = daemon.folder.path().join(".tollgate/workspace");
    let refused =
        call(&daemon, "shell.exec", &json!({"cmd": "python3 -c 'open(\"made\", \"w\")'"}));
    assert_eq!(refused["error"]["code"], "SANDBOX_UNAVAILABLE", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("tollgate doctor"));
    let made = Command::new("find").arg(&mark).args(["-name", "made"]).output().unwrap();
    assert!(made.stdout.is_empty(), "it ran");
    // The other tools are there all the same.
    assert_eq!(call(&daemon, "fs.list_dir", &json!({}))["ok"], true);
    // And where it can, doctor shows what was tried.
    let doctor = {
        let mut command = tollgate(daemon.folder.path());
        command.args(["doctor", "--json"]);
        finish(command, b"").json()
    };
    let checks = doctor["data"]["checks"].as_array().unwrap().clone();
    let held = |text: &str| {
        let found = checks.iter().find(|check| check["found"].as_str().unwrap().starts_with(text));
        found.is_some_and(|check| check["state"] == "good")
    };
    assert!(held("a file outside cannot be read"), "{doctor}");
    assert!(held("nobody can be reached by TCP"), "{doctor}");
}

#[test]
fn explain_says_what_the_tools_errors_mean() {
    for code in ["CAPABILITY_MISSING", "APPROVAL_DENIED", "SANDBOX_UNAVAILABLE", "HALTED"] {
        let page = run(&["explain", code]).out;
        assert!(!page.contains("later") && !page.contains("cannot ask"), "{page}");
    }
}

#[test]
fn what_a_terminal_would_act_on_stays_json_and_does_nothing() {
    let daemon = Daemon::start();
    let odd = "a\u{9b}31m\u{202e}b";
    let file = json!({"path": "odd.txt", "text": odd});
    assert_eq!(call(&daemon, "fs.write_text", &file)["ok"], true);
    let input = json!({"path": "odd.txt"}).to_string();
    for extra in [&[][..], &["--json"]] {
        let args = [&["call", "fs.read_text", &input, "--session", "s1"], extra].concat();
        let ran = daemon.cli(&args);
        assert!(!ran.out.contains('\u{9b}') && !ran.out.contains('\u{202e}'), "{}", ran.out);
        let text = {
            let told = ran.json();
            told.pointer("/text").or(told.pointer("/data/output/text")).cloned()
        };
        assert_eq!(text, Some(json!(odd)));
    }
}

#[test]
fn whole_numbers_are_whole_however_they_are_written() {
    let daemon = Daemon::start();
    let list =
        call(&daemon, "fs.list_dir", &serde_json::from_str("{\"max_entries\": 5.0}").unwrap());
    assert_eq!(list["ok"], true, "{list}");
    let list = call(&daemon, "fs.list_dir", &json!({"max_entries": 5.5}));
    assert_eq!(list["error"]["code"], "INVALID_INPUT", "{list}");
}

#[test]
fn a_program_may_not_be_given_the_gates_own_folder_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[shell.programs.cat]\nread_only = [\"{}\"]\n", folder.path().display());
    std::fs::write(folder.path().join("tollgate.toml"), config).unwrap();
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let refused = finish(command, b"");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("the gate's own keys"), "{}", refused.err);
}

#[test]
fn many_short_commands_do_not_get_round_the_quota() {
    let daemon = Daemon::configured("[workspace]\nbytes = 1000000\n");
    let exec =
        |cmd: &str| call(&daemon, "shell.exec", &json!({"cmd": cmd}))["data"]["output"].clone();
    let write =
        |name: &str| exec(&format!("python3 -c 'open(\"{name}\", \"w\").write(\"x\" * 700000)'"));
    assert_eq!(write("one")["exitCode"], 0);
    // Between two looks it may become a little too much, or the command is ended by it.
    let second = write("two");
    assert!(second["exitCode"] == 0 || second["endedBy"] == "disk", "{second}");
    let third = write("three");
    assert_ne!(third["exitCode"], 0, "{third}");
    assert!(third["note"].as_str().unwrap().contains("remove something first"), "{third}");
    // What can be removed is removed, and then there is room again.
    assert_eq!(exec("find . -name two -delete")["exitCode"], 0);
    assert_eq!(exec("find . -name three -delete")["exitCode"], 0);
    assert_eq!(exec("find . -name one -delete")["exitCode"], 0);
    assert_eq!(write("four")["exitCode"], 0);
}
