//! The commands, through the binary: what people see, what scripts rely on, and what bad input gets.

#![cfg(test)]

mod common;

use std::fmt::Write;

use common::{
    agents::Fake,
    daemon::{Daemon, finish},
    root, run, run_with,
};
use serde_json::json;

#[test]
fn help_of_every_command() {
    let mut text = String::new();
    let described = run(&["describe", "--all", "--json"]).json()["data"]["commands"].clone();
    let names =
        described.as_array().unwrap().iter().map(|command| command["name"].as_str().unwrap());
    for name in [""].into_iter().chain(names) {
        let words: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
        let help = run(&words);
        assert_eq!(help.code, 0);
        let _ = writeln!(text, "$ tollgate {}\n{}", words.join(" "), help.out);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_bad_input_gets() {
    let mut text = String::new();
    let bad: &[(&[&str], &str)] = &[
        (&["nope"], ""),
        (&["tools", "get_world_state"], ""),
        (&["tools", "system.tmie"], ""),
        (&["tools", "--manifest", "no/such/file.json"], ""),
        (
            &["tools", "--manifest", "-"],
            "{\"schemaVersion\": \"0.2.0-draft\", \"mode\": \"implemented\", \"tools\": []}",
        ),
        (&["explain", "UNKNOWN_TOL"], ""),
        (&["describe", "polcy", "check"], ""),
        (&["hash", "-"], "{\"a\": 1, \"a\": 2}"),
        (&["hash", "-"], "{\"id\": 12345678901234567890}"),
        (&["hash", "-"], "{\n  \"a\": [1, 2,,]\n}"),
        (&["redact", "-"], "plain text"),
        (&["redact", "--lines", "-"], "{\"a\": 1}\nplain text"),
        (&["policy", "check", "-"], "[[rules]]\nid = \"r\"\naction = \"stop\"\n"),
        (&["policy", "check", "-", "--tool", "system.time"], "[server]\nmaxSideEffct = \"none\"\n"),
        (&["policy", "check", "-", "--tool", "system.time"], "{\"deny\": [\"user_dta\"]}"),
        (&["policy", "check", "examples/policy.toml", "--tool", "system.time", "--input", "{"], ""),
        (
            &["policy", "check", "examples/policy.toml", "--tool", "system.time", "--as", "tradr"],
            "",
        ),
        (
            &[
                "policy",
                "check",
                "examples/policy.toml",
                "--tool",
                "system.time",
                "--as",
                "trader,scope=call",
            ],
            "",
        ),
        (
            &[
                "policy",
                "check",
                "examples/policy.toml",
                "--tool",
                "system.time",
                "--as",
                "trader,scopes=cal",
            ],
            "",
        ),
        (
            &[
                "policy",
                "check",
                "examples/policy.toml",
                "--tool",
                "system.time",
                "--as",
                "trader,session=frugal,session=trader",
            ],
            "",
        ),
        (&["policy", "check", "-", "--tool", "system.time"], "[trade]\nconfirmToken = 8675309\n"),
        (&["policy", "check", "-", "--tool", "system.time"], ""),
        (&["hash", "-"], "{\"password\": 12345678901234567890}"),
        (&["explain", "SOMETHING_ELSE_ALTOGETHER"], ""),
        (&["policy", "check", "-", "--tool", "system.time", "--input", "-"], ""),
    ];
    for (args, stdin) in bad {
        let ran = run_with(args, stdin.as_bytes());
        assert_ne!(ran.code, 0, "{args:?}");
        assert_eq!(ran.out, "", "errors for people go to the standard error");
        let _ = writeln!(text, "$ tollgate {}\n{}[exit {}]\n", args.join(" "), ran.err, ran.code);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn policy_check_prints_the_steps_as_a_list() {
    let check = |tool: &str, caller: &str, input: &str| {
        run(&[
            "policy",
            "check",
            "examples/policy.toml",
            "--manifest",
            "examples/markets.json",
            "--tool",
            tool,
            "--as",
            caller,
            "--input",
            input,
        ])
    };
    let order = "@examples/order.json";
    let large = r#"{"venue":"kalshi","ticker":"KXFED-1","action":"buy","direction":"yes","quantity":60,"limitPrice":42,"jurisdiction":"US-NY"}"#;
    let mut text = String::new();
    for (tool, caller, input, code) in [
        ("execution.place", "trader", order, 0),
        ("execution.place", "trader", large, 5),
        (
            "execution.place",
            "trader",
            r#"{"venue":"polymarket","action":"buy","direction":"yes","quantity":1}"#,
            4,
        ),
        ("execution.place", "trader", r#"{"venue":"kalshi"}"#, 4),
        ("execution.place", "research", order, 4),
        ("theses.evaluate", "operator,session=frugal", "{}", 4),
        ("world.read", "anonymous", "{}", 4),
        ("world.read", "readonly,scopes=ask+read", "{}", 4),
        ("get_world_state", "trader", "{}", 4),
    ] {
        let ran = check(tool, caller, input);
        let _ = writeln!(
            text,
            "$ … --tool {tool} --as {caller} --input {input}\n{}[exit {}]\n",
            ran.out, ran.code
        );
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{tool} {caller}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_entry_that_means_nothing_is_noted() {
    let policy = r#"{"deny": ["world.raed", "tool:system.time"], "ask": [{"tool": "sytem.*"}]}"#;
    let ran =
        run_with(&["policy", "check", "-", "--tool", "system.time", "--json"], policy.as_bytes());
    assert_eq!(
        ran.json()["data"]["notes"],
        json!([
            "`deny` of the key policy names `world.raed`, which means nothing in this manifest",
            "`ask` of the key policy names `sytem.*`, which means nothing in this manifest"
        ])
    );
    let ran = run_with(&["policy", "check", "-", "--tool", "system.time"], policy.as_bytes());
    assert!(ran.out.contains("! note"), "{}", ran.out);
}

#[test]
fn every_command_writes_one_stable_envelope() {
    for args in [
        &["tools"][..],
        &["tools", "system.time"],
        &["explain"],
        &["explain", "UNKNOWN_TOOL"],
        &["describe", "--all"],
        &["describe", "policy", "check"],
        &["policy", "check", "examples/policy.toml", "--tool", "system.time"],
        &["hash", "examples/order.json"],
        &["hash", "--canonical", "examples/order.json"],
        &["redact", "examples/order.json"],
        &["redact", "--text", "examples/policy.toml"],
    ] {
        let ran = run(&[args, &["--json"]].concat());
        let envelope = ran.json();
        let keys: Vec<&String> = envelope.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ok", "command", "data", "meta"], "{args:?}");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        assert!(args.join(" ").starts_with(envelope["command"].as_str().unwrap()), "{args:?}");
        assert_eq!(envelope["meta"]["version"], env!("CARGO_PKG_VERSION"));
    }
    for (args, code) in
        [(&["tools", "nope.nope"][..], 6), (&["hash", "no/such/file"], 3), (&["nope"], 2)]
    {
        let ran = run(&[args, &["--json"]].concat());
        let envelope = ran.json();
        let keys: Vec<&String> = envelope.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ok", "command", "error", "meta"], "{args:?}");
        assert_eq!((envelope["ok"].clone(), ran.code), (json!(false), code), "{args:?}");
    }
}

#[test]
fn explain_prints_the_page_of_every_code() {
    let index = run(&["explain", "--json"]).json();
    let codes: Vec<String> = index["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["code"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(codes.len(), 30);
    for code in codes {
        let page = run(&["explain", &code]);
        assert!(page.out.starts_with(&format!("# {code}\n")), "{code}");
        assert_eq!(run(&["explain", &code.to_lowercase()]).out, page.out);
    }
}

#[test]
fn describe_is_made_from_the_parser() {
    let data = run(&["describe", "--all", "--json"]).json()["data"].clone();
    let names: Vec<&str> =
        data["commands"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let expected: [&[&str]; 7] = [
        &["serve", "init", "key create", "key list", "key rotate", "key revoke"],
        &["key token", "ask", "pools", "forecast", "what-if", "simulate"],
        &["identities", "identities register", "identities delete", "halt", "resume"],
        &["approve", "grant", "revoke", "request", "capabilities", "call"],
        &[
            "agent",
            "agent run",
            "agent repl",
            "agent sessions",
            "agent show",
            "agent note",
            "agent cancel",
            "agent replay",
            "agent autopsy",
            "agent receipt",
            "memory search",
            "memory forget",
            "fake-model",
        ],
        &["replay", "trace receipt", "trace diff", "ledger verify", "ledger head"],
        &["ledger tail", "ledger export", "doctor", "completions", "tools", "explain"],
    ];
    let last = ["describe", "policy check", "hash", "redact"];
    assert_eq!(names, [&expected.concat()[..], &last].concat());
    assert_eq!(data["exitCodes"].as_array().unwrap().len(), 9);
    for command in data["commands"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        assert!(!command["about"].as_str().unwrap().is_empty(), "{name}");
        assert!(!command["examples"].as_array().unwrap().is_empty(), "{name} has no example");
        // What is described can be typed.
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let help = run(&words).out;
        for arg in command["args"].as_array().unwrap() {
            let written = arg["written"].as_str().unwrap();
            assert!(help.contains(written), "{name}: {written}");
            assert!(!arg["help"].as_str().unwrap().is_empty(), "{name}: {written}");
        }
    }
}

#[test]
fn the_examples_of_the_help_work() {
    let daemon = Daemon::start();
    let folder = daemon.folder.path();
    let written = [
        ("input.json", "{\"name\": \"system.time\"}"),
        ("response.json", "{\"a\": 1}"),
        ("app.log", "all is well\n"),
        ("trace.ndjson", "{}\n"),
        ("calls.ndjson", "{\"tool\": \"system.time\"}\n"),
        ("before.ndjson", ""),
        ("after.ndjson", ""),
        ("policy.toml", "maxSideEffect = \"user_write\"\n"),
        ("stricter.toml", "[governor]\nkeyless = false\n"),
    ];
    for (name, text) in written {
        std::fs::write(folder.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink(root().join("examples"), folder.join("examples")).unwrap();
    // Agents work in a folder that does not hold the gate's own, with a model that says a word.
    let work = folder.join("work");
    std::fs::create_dir(&work).unwrap();
    let word = json!({"content": "Done.", "times": 0});
    let fake = Fake::start(&json!({"replies": [word]}));
    let memory = daemon.cli(&["agent", "run", "Remember this", "--model", &fake.url]);
    assert_eq!(memory.code, 0, "{}", memory.err);
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let data = run(&["describe", "--all", "--json"]).json()["data"].clone();
    let mut tried = 0;
    for command in data["commands"].as_array().unwrap() {
        for example in command["examples"].as_array().unwrap() {
            let example = example.as_str().unwrap();
            // A gate runs already, a home folder is not the test's, and a head is everybody's own.
            let not_here = ["tollgate serve", "completions", "--head", "fake-model"];
            if not_here.iter().any(|not| example.contains(not)) {
                continue;
            }
            let example = &example.replace("http://127.0.0.1:8080/v1", &fake.url);
            let is_agent = example.contains("tollgate agent ") && !example.contains("--tool");
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", example]).env("PATH", &path).env("TOLLGATE_DATA", daemon.data());
            shell.current_dir(if is_agent { &work } else { folder });
            shell.env("XDG_DATA_HOME", folder.join("no-home"));
            shell.env_remove("TOLLGATE_API_KEY").env("NO_COLOR", "1");
            let ran = finish(shell, b"");
            // A policy may say no, and a person may have to answer: those are answers too. Nobody has the names
            // that examples give to what waits.
            let has_made_up_name =
                ["apr_", "cap_", "mem_"].iter().any(|name| example.contains(name));
            let fine: &[i32] = if has_made_up_name { &[6] } else { &[0, 4, 5] };
            assert!(fine.contains(&ran.code), "{example}: {} {}", ran.code, ran.err);
            tried += 1;
        }
    }
    assert!(tried >= 30, "{tried}");
}

#[test]
fn hash_gives_the_hash_of_what_canonical_prints() {
    let text = br#"{"b": [1.0, "x"], "a": null, "password": "hunter2"}"#;
    let form = run_with(&["hash", "--canonical", "-"], text);
    assert_eq!(form.out, r#"{"a":null,"b":[1,"x"],"password":"[redacted:field]"}"#);
    let hash = run_with(&["hash", "-"], text);
    // printf '%s' '{"a":null,…}' | sha256sum
    assert_eq!(hash.out, "5cfd9a0a1a482e40141aec3498a9f51e4c9468a5417bd5d55bdb05f61bf6a8a5\n");
}

#[test]
fn redact_takes_secrets_out_of_json_lines_and_text() {
    let key = format!("tg_key_{}", "canary00".repeat(8));
    let json = run_with(
        &["redact", "-"],
        format!(r#"{{"z": 1, "note": "{key}", "password": "x"}}"#).as_bytes(),
    );
    assert_eq!(
        json.json(),
        json!({"z": 1, "note": "[redacted:tollgate-key]", "password": "[redacted:field]"})
    );
    assert!(json.out.find("\"z\"") < json.out.find("\"note\""), "members keep their order");
    let lines =
        run_with(&["redact", "--lines", "-"], format!("{{\"a\":\"{key}\"}}\n\n[1]\n").as_bytes());
    assert_eq!(lines.out, "{\"a\":\"[redacted:tollgate-key]\"}\n[1]\n");
    let text = run_with(&["redact", "--text", "-"], format!("key: {key}\nPASSWORD=x\n").as_bytes());
    assert_eq!(text.out, "key: [redacted:tollgate-key]\nPASSWORD=[redacted:field]\n");
}

#[test]
fn a_key_is_never_repeated() {
    let key = format!("tg_key_{}", "canary00".repeat(8));
    let broken = format!("{{\"password\": \"{key}\",, }}");
    let reason = format!(
        "{{\"maxSideEffect\": \"none\", \"ask\": [{{\"tool\": \"system.time\", \"reason\": \"{key}\"}}]}}"
    );
    let markets = std::fs::read_to_string(common::root().join("examples/markets.json")).unwrap();
    let described = markets
        .replace("Saves a thesis.", &format!("{key} \\u001b[31m\\u202e"))
        .replace("\"api_cost\",\n      \"risk\": []", "\"nope\",\n      \"risk\": []");
    let file = format!("{key}.json");
    let policy = format!("[server]\nconfirmToken = \"{key}\"\n");
    for (args, stdin) in [
        (vec!["tools", &key], ""),
        (vec!["explain", &key], ""),
        (vec!["describe", &key], ""),
        (vec!["hash", "-"], broken.as_str()),
        (vec!["redact", "-"], broken.as_str()),
        (vec!["redact", "--lines", "-"], broken.as_str()),
        (vec!["policy", "check", "-", "--tool", "system.time"], policy.as_str()),
        (vec!["policy", "check", "-", "--tool", &key], "{}"),
        (vec!["policy", "check", "-", "--tool", "system.time", "--as", &key], "{}"),
        (vec!["policy", "check", "-", "--tool", "system.time", "--input", &broken], "{}"),
        (vec!["tools", "--manifest", "-"], broken.as_str()),
        (vec!["tools", "--manifest", "-"], described.as_str()),
        (vec!["policy", "check", "-", "--tool", "system.time"], reason.as_str()),
        (vec![&key], ""),
        (vec!["tools", "a", &key], ""),
        (vec!["policy", &key], ""),
        (vec!["policy", "check", "-", "--tool", "system.time", "--mode", &key], "{}"),
        (vec!["hash", &file], ""),
        (vec!["tools", "--manifest", &file], ""),
        (vec!["policy", "check", &file, "--tool", "system.time"], ""),
    ] {
        for json in [false, true] {
            let mut args = args.clone();
            if json {
                args.push("--json");
            }
            let ran = run_with(&args, stdin.as_bytes());
            assert_ne!(ran.code, 0, "{args:?}");
            assert!(
                !format!("{}{}", ran.out, ran.err).contains("canary0"),
                "{args:?}: {}{}",
                ran.out,
                ran.err
            );
        }
    }
}

#[test]
fn a_manifest_cannot_act_on_the_terminal() {
    let markets = std::fs::read_to_string(common::root().join("examples/markets.json")).unwrap();
    let hostile = markets.replace(
        "Saves a thesis.",
        "\\u001b]0;title\\u0007\\u001b[31m\\u202e tg_key_0123456789abcdef",
    );
    for args in [&["tools", "--manifest", "-"][..], &["tools", "--manifest", "-", "theses.create"]]
    {
        let ran = run_with(args, hostile.as_bytes());
        assert_eq!(ran.code, 0);
        assert!(!ran.out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{}", ran.out);
        assert!(!ran.out.contains("0123456789abcdef"), "{}", ran.out);
    }
}

#[test]
fn hostile_input_gets_an_answer() {
    let deep = "[".repeat(200_000);
    let wide = format!("[{}1]", "1,".repeat(200_000));
    let far = format!("[{}x]", "1,".repeat(200_000));
    for stdin in [
        far.as_bytes(),
        deep.as_bytes(),
        wide.as_bytes(),
        b"\xff\xfe\x00",
        b"",
        b"\0",
        "{\"a\":\"\u{202e}\"".as_bytes(),
    ] {
        for args in [
            &["hash", "-"][..],
            &["redact", "-"],
            &["redact", "--text", "-"],
            &["redact", "--lines", "-"],
            &["tools", "--manifest", "-"],
            &["policy", "check", "-", "--tool", "system.time"],
        ] {
            let ran = run_with(args, stdin);
            assert!([0, 3].contains(&ran.code), "{args:?} ended with {}: {}", ran.code, ran.err);
            assert!(!ran.err.contains("panicked"), "{args:?}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::{
        io::Read,
        process::{Command, Stdio},
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["tools", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}
