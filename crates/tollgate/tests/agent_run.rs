//! Agents with a model, as a person at a terminal runs them: through the binary, with a model over HTTP.

#![cfg(test)]

mod common;

use common::{
    agents::{Beside, Fake, Place, calls, notes, until},
    daemon::{Daemon, finish, signal, tollgate},
};
use serde_json::{Value, json};

/// A model that summarises what it finds.
fn summariser() -> Fake {
    let summary = "# Summary\n- alpha\n- beta\n";
    let write = json!({"path": "SUMMARY.md", "text": summary});
    let replies = [
        format!("I will look first.\n\n{}", calls(&[("fs.list_dir", json!({"path": "."}))])),
        calls(&[
            ("fs.read_text", json!({"path": "a.md"})),
            ("fs.read_text", json!({"path": "b.md"})),
        ]),
        calls(&[("fs.write_text", write)]),
        format!(
            "I wrote **SUMMARY.md**.{}",
            notes(&json!({
                "set_goals": ["Summaries"], "add_open_loops": ["check the spelling"],
                "add_decisions": ["bullets"], "add_constraints": ["one page"],
                "add_memory_tags": ["summaries"],
            }))
        ),
    ];
    // In pieces of seven characters, so that every mark comes in several.
    let replies: Vec<Value> =
        replies.iter().map(|text| json!({"content": text, "chunk": 7})).collect();
    Fake::start(&json!({"replies": replies}))
}

fn summarise(place: &Place, fake: &Fake) -> common::Ran {
    place.write("a.md", "# A\nalpha\n");
    place.write("b.md", "# B\nbeta\n");
    place.run(&[
        "agent",
        "run",
        "Summarise the markdown files here into SUMMARY.md",
        "--root",
        ".",
        "--model",
        &fake.url,
        "--session",
        "notes",
    ])
}

#[test]
fn the_first_run_needs_one_command_and_no_gate() {
    let (place, fake) = (Place::new(), summariser());
    let ran = summarise(&place, &fake);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "I will look first.\n\nI wrote **SUMMARY.md**.\n");
    assert_eq!(place.read("SUMMARY.md"), "# Summary\n- alpha\n- beta\n");
    for line in [
        "no gate runs on",
        "✓ fs.list_dir .",
        "✓ fs.read_text a.md",
        "✓ fs.read_text b.md",
        "✓ fs.write_text SUMMARY.md",
        "turn 1 · 4 rounds · 4 calls · ",
    ] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    assert!(!ran.err.contains("<<<") && !ran.out.contains("<<<"), "{}", ran.err);
    // What the model was told of the files is what is in them.
    let asked = fake.chats();
    assert_eq!(asked.len(), 4);
    let last = asked[2]["body"]["messages"].to_string();
    assert!(last.contains("alpha") && last.contains("beta"), "{last}");
    // The gate has gone with the command, and left its record: every call is in it, made by a key that is not the
    // admin's.
    assert!(!place.data().join("address").exists());
    let verified = place.run(&["ledger", "verify"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    let events = place.run(&["ledger", "export"]).out;
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let completed = |tool: &str| {
        let is_it = |event: &&Value| event["kind"] == "call_completed" && event["tool"] == tool;
        events.iter().filter(is_it).count()
    };
    let made = ["fs.list_dir", "fs.read_text", "fs.write_text", "model.chat"].map(completed);
    assert_eq!(made, [1, 2, 1, 4], "{events:#?}");
    assert!(place.data().join("runner.key").exists());
    // Nothing of the gate's is in the folder that was worked in.
    let mut names: Vec<String> = std::fs::read_dir(place.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["SUMMARY.md", "a.md", "b.md"]);
}

#[test]
fn a_session_is_shown_and_goes_on_where_it_was() {
    let (place, fake) = (Place::new(), summariser());
    assert_eq!(summarise(&place, &fake).code, 0);
    let shown = place.run(&["agent", "show", "notes"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    for part in [
        "notes · revision 1 · last",
        "Goals\n  • Summaries",
        "Open loops\n  • check the spelling",
        "Decisions\n  • bullets",
        "Constraints\n  • one page",
        "Memory\n  1 record\n  tags summaries",
        &format!("model    {}", fake.url),
        "✓   1  Summarise the markdown files here into SUMMARY.md",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(!shown.out.contains("Capabilities"), "{}", shown.out);
    let sessions = place.json(&["agent", "sessions"]);
    assert_eq!(sessions["sessions"][0]["session_id"], "notes");
    assert_eq!(sessions["sessions"][0]["revision"], 1);
    // The conversation goes on with the same model, which hears what was said before.
    drop(fake);
    let fake = Fake::saying(&["It has two.", "Bye."]);
    let talked = place.run_with(
        &["agent", "repl", "--session", "notes", "--model", &fake.url],
        "How many bullets?\n\n/show\n/cancel\n/what\nThanks.\n",
    );
    assert_eq!(talked.code, 0, "{}{}", talked.out, talked.err);
    assert!(talked.out.starts_with("It has two.\nnotes · revision 2"), "{}", talked.out);
    assert!(talked.out.ends_with("Bye.\n"), "{}", talked.out);
    assert!(talked.err.contains("no turn runs") && talked.err.contains("there is /show"));
    let asked = fake.chats();
    assert_eq!(asked.len(), 2);
    let said = |request: &Value| {
        let messages = request["body"]["messages"].as_array().unwrap().clone();
        let contents = messages.iter().map(|m| m["content"].as_str().unwrap().to_owned());
        contents.collect::<Vec<_>>().join("\n")
    };
    for part in [
        "Summarise the markdown files here into SUMMARY.md",
        "I wrote **SUMMARY.md**.",
        "How many bullets?",
        "check the spelling",
    ] {
        assert!(said(&asked[0]).contains(part), "{part}: {}", said(&asked[0]));
    }
    assert!(said(&asked[1]).contains("It has two.") && said(&asked[1]).contains("Thanks."));
    assert_eq!(place.json(&["agent", "show", "notes"])["checkpoint"]["revision"], 3);
    // What is remembered is found, as a table and as a model sees it.
    let found = place.run(&["memory", "search", "markdown", "--session", "notes"]);
    assert!(found.out.contains("mem_") && found.out.contains("notes"), "{}", found.out);
    let block = place.run(&["memory", "search", "markdown", "--block"]).out;
    assert!(block.starts_with("=== RETRIEVED_MEMORY ===\n- id=mem_"), "{block}");
    assert!(block.ends_with("=== END_RETRIEVED_MEMORY ===\n"), "{block}");
    let other = place.run(&["memory", "search", "markdown", "--session", "other"]);
    assert_eq!((other.code, other.out.as_str()), (0, "Nothing is remembered of that.\n"));
}

/// The only trace of a session.
fn trace(place: &Place, session: &str) -> std::path::PathBuf {
    place.data().join(format!("agent/sessions/{session}/trace/000001.jsonl"))
}

#[test]
fn a_turn_is_replayed_byte_for_byte_and_a_changed_trace_is_told() {
    let (place, fake) = (Place::new(), summariser());
    assert_eq!(summarise(&place, &fake).code, 0);
    drop(fake);
    let fake = Fake::saying(&["Second."]);
    let again = ["agent", "run", "Once more", "--session", "notes", "--model", &fake.url];
    assert_eq!(place.run(&again).code, 0);
    drop(fake);
    // Without a gate, without a model, and without the files.
    std::fs::remove_dir_all(place.work()).unwrap();
    std::fs::create_dir(place.work()).unwrap();
    for turn in ["1", "2"] {
        let ran = place.run(&["agent", "replay", "notes", "--turn", turn]);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(ran.out.contains("✓ the same, byte for byte (sha256 "), "{}", ran.out);
    }
    let last = place.json(&["agent", "replay", "notes"]);
    assert_eq!((&last["same"], &last["turn"]["turn"]), (&json!(true), &json!(2)));
    assert_eq!(last["turn"]["visible"], "Second.");
    assert_eq!(std::fs::read_dir(place.work()).unwrap().count(), 0, "nothing was called");
    let missing = place.run(&["agent", "replay", "notes", "--turn", "9"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(missing.err.contains("turns 1 to 2"), "{}", missing.err);
    // Another result of a tool is another turn.
    let text = std::fs::read_to_string(trace(&place, "notes")).unwrap();
    let line = text.lines().find(|line| line.contains("tool_done") && line.contains("alpha"));
    let changed = line.unwrap().replace("alpha", "gamma");
    std::fs::write(trace(&place, "notes"), text.replace(line.unwrap(), &changed)).unwrap();
    let ran = place.run(&["agent", "replay", "notes", "--turn", "1"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("✗ turn 1 differs at event "), "{}", ran.out);
    assert!(!ran.out.contains("✓ the same"), "{}", ran.out);
    // And so are the turns behind it.
    assert_eq!(place.run(&["agent", "replay", "notes", "--turn", "2"]).code, 1);
}

#[test]
fn an_autopsy_says_what_went_wrong_and_a_receipt_what_it_took() {
    let place = Place::new();
    let broken = "<<<TOOL_CALLS_JSON>>>[{\"tool\": <<<END_TOOL_CALLS_JSON>>>";
    let circle = calls(&[("fs.read_text", json!({"path": "no.txt"}))]);
    let fake = Fake::start(&json!({"replies": [
        {"content": calls(&[("http.get", json!({"url": "https://example.com/"}))])},
        {"content": broken},
        {"content": circle.clone()}, {"content": circle.clone()}, {"content": circle},
        {"status": 503}, {"status": 503}, {"status": 503}, {"status": 503},
    ]}));
    let ran = place.run(&["agent", "run", "Try", "--session", "bad", "--model", &fake.url]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("✗ http.get https://example.com/ CAPABILITY_MISSING"), "{}", ran.err);
    assert!(ran.err.contains("turn 1 · 6 rounds"), "{}", ran.err);
    // A model that fails is asked again, and the same failure is told in full once, and at the end.
    for part in ["· asking again in 500 ms (2 of 4)", "· asking again in 2.0 s (4 of 4)"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert_eq!(ran.err.matches("✗ model TOOL_FAILED, as before").count(), 3, "{}", ran.err);
    let autopsy = place.run(&["agent", "autopsy", "bad"]);
    assert_eq!(autopsy.code, 0, "{}", autopsy.err);
    for part in [
        "bad · 1 turn, 1 failed",
        "Turns that failed",
        "http.get: CAPABILITY_MISSING",
        "the model went in circles: fs.read_text 3 times",
        "the model failed",
        "Slowest",
    ] {
        assert!(autopsy.out.contains(part), "{part}: {}", autopsy.out);
    }
    let receipt = place.json(&["agent", "receipt", "bad"]);
    assert_eq!(receipt["turns"], 1);
    assert_eq!(receipt["tools"]["fs.read_text"], json!([3, 3]));
    let text = place.run(&["agent", "receipt", "bad"]).out;
    assert!(text.contains("http.get       1 call, 1 failed"), "{text}");
    // Its hash of the trace is the trace's.
    let sum = std::process::Command::new("sha256sum").arg(trace(&place, "bad")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert!(text.contains(sum.split(' ').next().unwrap()), "{text}");
    // Nothing went wrong elsewhere.
    let fake = Fake::saying(&["Fine."]);
    assert_eq!(place.run(&["agent", "run", "Hi", "--model", &fake.url]).code, 0);
    assert!(place.run(&["agent", "autopsy", "main"]).out.contains("✓ nothing went wrong"));
}

#[test]
fn programs_get_lines_or_one_envelope() {
    let place = Place::new();
    let said = format!("Hello\u{1b}[31m.{}", notes(&json!({"set_goals": ["greet"]})));
    let fake = Fake::start(&json!({"replies": [{"content": said, "chunk": 3, "times": 0}]}));
    let ran = place.run(&["agent", "run", "Hi", "--model", &fake.url, "--stream-json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let events: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((names("done"), names("error")), (1, 0));
    assert_eq!(events.last().unwrap()["event"], "done");
    assert_eq!(events[0]["data"]["kind"], "turn_start");
    let deltas = events.iter().filter(|event| event["event"] == "delta");
    let text: String = deltas.filter_map(|event| event["data"]["text"].as_str()).collect();
    assert_eq!(text, "Hello\u{1b}[31m.");
    assert!(!ran.out.contains('\u{1b}'), "a terminal acts on nothing of it");
    let ran = place.run(&["agent", "run", "Hi", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let envelope = ran.json();
    assert_eq!(envelope["command"], "agent run");
    let report = &envelope["data"];
    assert_eq!((&report["ok"], &report["turn"]), (&json!(true), &json!(2)));
    assert_eq!(report["text"], "Hello\u{1b}[31m.");
    assert!(report["totals"]["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!(report["budget"]["rounds"], 16);
    // The prompt may come from a pipe.
    let ran = place.run_with(&["agent", "run", "-", "--json"], "From a pipe");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(fake.chats()[2]["body"]["messages"].to_string().contains("From a pipe"));
    // A person's terminal gets no control character of the model either.
    let ran = place.run(&["agent", "run", "Hi"]);
    assert_eq!(ran.out, "Hello\\u{1b}[31m.\n");
}

#[test]
fn an_answer_that_is_taken_back_is_never_in_a_pipe() {
    let place = Place::new();
    // The connection is cut in the middle of the first answer, and the model is asked again.
    let fake = Fake::start(&json!({"replies": [
        {"content": "This is a draft that\n\nbreaks off here", "chunk": 4, "drop_after": 8},
        {"content": "This is the answer."},
    ]}));
    let ran = place.run(&["agent", "run", "Hi", "--model", &fake.url]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "This is the answer.\n"), "{}", ran.err);
    assert!(ran.err.contains("✗ model "), "{}", ran.err);
}

#[test]
fn reasoning_is_shown_only_if_it_is_wanted() {
    let place = Place::new();
    let fake = Fake::start(&json!({"replies": [
        {"content": "Yes.", "reasoning": "let me think\nabout it", "times": 0},
    ]}));
    let quiet = place.run(&["agent", "run", "Hi", "--model", &fake.url]);
    assert_eq!((quiet.code, quiet.out.as_str()), (0, "Yes.\n"));
    assert!(!quiet.err.contains("let me think"), "{}", quiet.err);
    let loud = place.run(&["agent", "run", "Hi", "--show-reasoning"]);
    assert_eq!(loud.out, "Yes.\n");
    assert!(loud.err.contains("  let me think\n  about it\n"), "{}", loud.err);
}

#[test]
fn ctrl_c_cancels_and_the_session_goes_on() {
    let place = Place::new();
    let fake = Fake::start(&json!({"replies": [
        {"content": "I am thinking very long", "chunk": 4, "hang_after": 3},
        {"content": "Here I am."},
        {"content": "And again", "hang_after": 1},
    ]}));
    let run = |said: &str| {
        let args = ["agent", "run", said, "--session", "notes", "--model", &fake.url];
        Beside::start(place.command(&args))
    };
    let mut first = run("Think");
    until("the model is asked", || !fake.chats().is_empty());
    signal(first.child.id(), "INT");
    assert_eq!(first.end(), 130, "{}", first.err());
    assert!(first.err().contains("✗ the turn was cancelled"), "{}", first.err());
    until("the model's server is left", || fake.chats()[0]["ended"] == "left");
    let view = place.json(&["agent", "show", "notes"]);
    assert_eq!(view["turns"][0]["error"], "cancelled");
    assert_eq!(view["warnings"], json!([]));
    let kept = view["checkpoint"]["recent_messages"].to_string();
    assert!(kept.contains("Think"), "{kept}");
    let mut second = run("Are you there?");
    assert_eq!((second.end(), second.out().as_str()), (0, "Here I am.\n"), "{}", second.err());
    let told = fake.chats()[1]["body"]["messages"].to_string();
    assert!(told.contains("Think") && told.contains("Are you there?"), "{told}");
    // Whoever asks to end it with another signal is heard as well.
    let mut third = run("Once more");
    until("the model is asked again", || fake.chats().len() == 3);
    signal(third.child.id(), "TERM");
    assert_eq!(third.end(), 130, "{}", third.err());
    assert_eq!(place.json(&["agent", "show", "notes"])["checkpoint"]["revision"], 3);
    assert_eq!(place.run(&["ledger", "verify"]).code, 0);
}

#[test]
fn ctrl_c_once_more_leaves_a_gate_that_does_not_answer() {
    let fake = Fake::start(&json!({"replies": [{"content": "Thinking", "hang_after": 1}]}));
    let gate = Daemon::start();
    let mut command = tollgate(gate.folder.path());
    command.args(["agent", "run", "Think", "--session", "notes", "--model", &fake.url]);
    let mut run = Beside::start(command);
    until("the model is asked", || !fake.chats().is_empty());
    // A gate that hears nothing.
    signal(gate.child.id(), "STOP");
    signal(run.child.id(), "INT");
    until("it is told how to leave", || run.err().contains("stopping; once more to leave at once"));
    signal(run.child.id(), "INT");
    let code = run.end();
    signal(gate.child.id(), "CONT");
    assert_eq!(code, 130, "{}", run.err());
    // The gate cancels what nobody waits for, and keeps it.
    until("the turn is kept", || {
        let shown = gate.cli(&["agent", "show", "notes", "--json"]).out;
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        shown["data"]["turns"][0]["error"] == "cancelled"
    });
}

#[test]
fn budgets_stop_a_turn_and_say_which() {
    let place = Place::new();
    let again = calls(&[("system.time", json!({}))]);
    let fake = Fake::start(&json!({"replies": [{"content": again, "times": 0}]}));
    let run = |more: &[&str]| {
        let args = ["agent", "run", "Go on for ever", "--model", &fake.url];
        place.run(&[&args[..], more].concat())
    };
    let rounds = run(&["--max-rounds", "2"]);
    assert_eq!(rounds.code, 4, "{}{}", rounds.out, rounds.err);
    assert!(
        rounds.err.contains("BUDGET_DENIED: the turn's 2 rounds are used up"),
        "{}",
        rounds.err
    );
    assert!(rounds.err.contains("turn 1 · 2 rounds · 2 calls"), "{}", rounds.err);
    let tokens = run(&["--max-tokens", "4500"]);
    assert_eq!(tokens.code, 4, "{}", tokens.err);
    assert!(tokens.err.contains("BUDGET_DENIED: the turn's budget is used up"), "{}", tokens.err);
    // Money means nothing for a model without a price.
    let money = run(&["--budget-usd", "0.50"]);
    assert_eq!(money.code, 3, "{}", money.err);
    assert!(money.err.contains("has no price"), "{}", money.err);
    let wrong = run(&["--budget-usd", "much"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    for more in [&["--max-rounds", "0"][..], &["--max-rounds", "501"], &["--max-tokens", "0"]] {
        let refused = run(more);
        assert_eq!(refused.code, 3, "{more:?}: {}", refused.err);
        assert!(refused.err.contains("budget."), "{}", refused.err);
    }
}

#[test]
fn money_is_counted_by_the_models_price() {
    let place = Place::new();
    let again = calls(&[("system.time", json!({}))]);
    let fake = Fake::start(&json!({"replies": [{"content": again, "times": 0}]}));
    let config = format!(
        "[models.paid]\nurl = \"{}\"\nprice = {{ input = 3.0, output = 15.0 }}\nmax_output_tokens = 200\n",
        fake.url
    );
    std::fs::write(place.work().join("tollgate.toml"), config).unwrap();
    let ran = place.run(&["agent", "run", "Go on", "--budget-usd", "0.03"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("BUDGET_DENIED"), "{}", ran.err);
    let view = place.json(&["agent", "show", "main"]);
    let spent = view["turns"][0]["totals"]["usd_micros"].as_u64().unwrap();
    assert!((1..=30_000).contains(&spent), "{view}");
    assert!(ran.err.contains(" · $0.0"), "{}", ran.err);
    // With a configuration in the folder, the data is beside it, and the folder cannot be worked in as a whole.
    let refused = place.run(&["agent", "run", "Go on", "--root", "."]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains("holds the data folder") && refused.err.contains("--data"));
}

#[test]
fn what_is_typed_wrong_says_so() {
    let place = Place::new();
    let fake = Fake::saying(&[]);
    let url = fake.url.as_str();
    for (args, code, part) in [
        (&["agent", "run", "x", "--session", "../x"][..], 2, "cannot be the name of a session"),
        (&["agent", "show", ".."], 2, "cannot be the name of a session"),
        (&["agent", "show", "nothing"], 6, "nothing"),
        (&["agent", "replay", "nothing"], 6, "nothing"),
        (&["agent", "autopsy", "nothing"], 6, "nothing"),
        (&["agent", "receipt", "nothing"], 6, "nothing"),
        (&["agent", "cancel", "nothing"], 7, "gate"),
        (&["agent", "run", "x", "--model", "ftp://example.com"], 2, "--model"),
        (&["agent", "run", "x", "--model", "gpt", "--model-name", "y"], 2, "--model-name"),
        (&["agent", "run", "x", "--model", url, "--root", "nowhere"], 3, "nowhere"),
        (&["agent", "run", "x", "--model", url, "--policy", "nowhere"], 3, "nowhere"),
        (&["agent", "run", "x", "--model", url, "--roles", "king"], 2, "king"),
        (&["agent", "run", "x", "--model", url, "--timeout", "soon"], 2, "soon"),
        (&["agent", "run", " ", "--model", url], 3, "`input`"),
        (&["agent", "run", "x", "--session", "fresh"], 3, "[models.NAME]"),
        (&["agent", "run"], 2, "PROMPT"),
        (&["agent"], 2, "--tool"),
        (&["agent", "--tool", "system.time", "run", "x"], 2, "--tool"),
        (&["memory", "search", "x", "-n", "0"], 2, "--limit"),
        (&["fake-model", "nowhere.json"], 3, "nowhere.json"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
    }
    let none = place.run(&["memory", "search", "x", "--data", "nowhere"]);
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("it is made when an agent first remembers"), "{}", none.err);
    for (script, part) in [
        ("{\"replies\": [{\"contnt\": \"x\"}]}", "line 1 column"),
        ("{\"replies\": [{}, {\"status\": 99}]}", "reply 2 of the script"),
        ("[]", "the script"),
    ] {
        place.write("bad.json", script);
        let ran = place.run(&["fake-model", "bad.json"]);
        assert_eq!(ran.code, 3, "{script}: {}", ran.err);
        assert!(ran.err.contains(part), "{script}: {}", ran.err);
    }
    // A variable of the environment is no argument that a command could conflict with.
    let mut command = place.command(&["agent", "sessions"]);
    command.env("TOLLGATE_DATA", place.data());
    assert_eq!(finish(command, b"").code, 0);
}

#[test]
fn roles_and_a_policy_hold_for_the_session() {
    let place = Place::new();
    let fake = Fake::saying(&[
        "Plan: write it.",
        "Looks fine.",
        &calls(&[("fs.write_text", json!({"path": "x.txt", "text": "x"}))]),
        "I may not.",
        "Only reading, then.",
    ]);
    place.write("reading.toml", "maxSideEffect = \"none\"\n");
    let ran = place.run(&[
        "agent",
        "run",
        "Write x",
        "--model",
        &fake.url,
        "--session",
        "r",
        "--policy",
        "reading.toml",
        "--roles",
        "planner,critic,governor",
    ]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "I may not.\n", "only the last role speaks");
    assert!(ran.err.contains("✗ fs.write_text x.txt"), "{}", ran.err);
    let asked = fake.chats();
    assert!(asked[2]["body"]["messages"].to_string().contains("Plan: write it."));
    let tools = asked[2]["body"]["messages"][0]["content"].as_str().unwrap();
    assert!(tools.contains("fs.read_text") && !tools.contains("fs.write_text"), "{tools}");
    // It holds for the next turn too, and one that names one role has one.
    let ran = place.run(&["agent", "run", "And?", "--session", "r", "--roles", "governor"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Only reading, then.\n"), "{}", ran.err);
    assert_eq!(fake.chats().len(), 5);
    let settings = place.json(&["agent", "show", "r"])["settings"].clone();
    assert_eq!(settings["policy"]["maxSideEffect"], "none");
    assert_eq!(settings["roles"], json!(["governor"]));
}

#[test]
fn two_commands_share_one_gate() {
    let place = Place::new();
    let fake = Fake::start(&json!({"replies": [
        {"when": {"last_contains": "slowly"}, "content": "Slow", "hang_after": 1},
        {"content": "Quick.", "times": 0},
    ]}));
    let slow = ["agent", "run", "slowly", "--session", "one", "--model", &fake.url];
    let mut slow = Beside::start(place.command(&slow));
    until("the model is asked", || !fake.chats().is_empty());
    // The second one finds the gate of the first.
    let quick = place.run(&["agent", "run", "hi", "--session", "two", "--model", &fake.url]);
    assert_eq!((quick.code, quick.out.as_str()), (0, "Quick.\n"), "{}", quick.err);
    assert!(!quick.err.contains("no gate runs"), "{}", quick.err);
    let conflict = place.run(&["agent", "run", "hi", "--session", "one"]);
    assert_eq!(conflict.code, 1, "{}", conflict.err);
    assert!(conflict.err.contains("a turn is running in the session one"), "{}", conflict.err);
    assert!(place.run(&["agent", "show", "one"]).out.contains("a turn runs now"));
    let cancelled = place.run(&["agent", "cancel", "one"]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    assert!(cancelled.out.contains("is being stopped"), "{}", cancelled.out);
    assert_eq!(slow.end(), 130, "{}", slow.err());
}

#[test]
fn a_turn_whose_time_is_over_says_so() {
    let place = Place::new();
    let fake = Fake::start(&json!({"replies": [{"content": "Thinking", "hang_after": 1}]}));
    let ran = place.run(&["agent", "run", "Think", "--model", &fake.url, "--timeout", "1s"]);
    assert_eq!(ran.code, 4, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("✗ the turn's time was over"), "{}", ran.err);
    until("the model's server is left", || fake.chats()[0]["ended"] == "left");
}

/// A command on a terminal of its own. What it writes, to either output, is gathered; what is typed goes to it.
struct Terminal {
    shown: Beside,
    keys: std::process::ChildStdin,
}

impl Terminal {
    fn start(place: &Place, args: &str) -> Self {
        let inner = place.command(&[]);
        let mut command = std::process::Command::new("script");
        // In the shell's place: a shell that stays tells of a Ctrl-C as its own end, whatever came of it.
        let line = format!("stty cols 80; exec {} {args}", env!("CARGO_BIN_EXE_tollgate"));
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.current_dir(place.work()).env("NO_COLOR", "1").env("TERM", "xterm");
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut shown = Beside::typed(command);
        let keys = shown.child.stdin.take().unwrap();
        Self { shown, keys }
    }

    fn types(&mut self, keys: &str) {
        use std::io::Write;
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
}

#[test]
fn on_a_terminal_the_person_is_asked_right_there_and_sees_markdown() {
    let place = Place::new();
    let echo = calls(&[("shell.exec", json!({"cmd": "echo hello"}))]);
    let last = "It said **hello**, \u{1b}[31mred.\n\n- one\n- two\n";
    let fake = Fake::saying(&[&echo, last, &echo, "Not allowed."]);
    let args = format!("agent run 'Run it' --model {}", fake.url);
    let mut terminal = Terminal::start(&place, &args);
    until("the person is asked", || terminal.shown.all().contains("allow? [y]es / [n]o"));
    for part in ["what        shell.exec", "{\"cmd\":\"echo hello\"}", "why asked"] {
        assert!(terminal.shown.all().contains(part), "{part}: {}", terminal.shown.all());
    }
    terminal.types("perhaps\n");
    until("it is asked again", || terminal.shown.all().matches("allow?").count() == 2);
    terminal.types("y\n");
    assert_eq!(terminal.shown.end(), 0, "{}", terminal.shown.all());
    let all = terminal.shown.all();
    assert!(all.contains("✓ shell.exec echo hello"), "{all}");
    assert!(all.contains("It said hello,") && all.contains("• one"), "{all}");
    assert!(!all.contains("\u{1b}[31m"), "{all:?}");
    assert!(all.contains("turn 1 · 2 rounds · 1 call"), "{all}");
    // And no is no.
    let mut terminal = Terminal::start(&place, "agent run 'Run it'");
    until("the person is asked", || terminal.shown.all().contains("allow? [y]es / [n]o"));
    terminal.types("n\n");
    assert_eq!(terminal.shown.end(), 0, "{}", terminal.shown.all());
    assert!(terminal.shown.all().contains("APPROVAL_DENIED"), "{}", terminal.shown.all());
}

#[test]
fn on_a_terminal_a_conversation_has_a_prompt_and_ctrl_c_stops_only_the_turn() {
    let place = Place::new();
    let fake = Fake::start(&json!({"replies": [
        {"content": "Thinking", "hang_after": 1}, {"content": "Here."},
    ]}));
    let mut terminal = Terminal::start(&place, &format!("agent repl --model {}", fake.url));
    until("there is a prompt", || terminal.shown.all().contains("/quit or Ctrl-D"));
    terminal.types("think\n");
    until("the model is asked", || fake.chats().len() == 1);
    terminal.types("\u{3}");
    until("the turn is over", || terminal.shown.all().contains("the turn was cancelled"));
    terminal.types("are you there?\n");
    until("it answers", || terminal.shown.all().contains("turn 2 · "));
    assert!(terminal.shown.all().contains("Here."), "{}", terminal.shown.all());
    terminal.types("\u{4}");
    assert_eq!(terminal.shown.end(), 0, "{}", terminal.shown.all());
}

#[test]
fn a_fake_model_ends_when_it_is_told_to() {
    let place = Place::new();
    place.write("script.json", "{\"replies\": [{\"content\": \"x\", \"hang_after\": 0}]}");
    let mut fake = Beside::start(place.command(&["fake-model", "script.json"]));
    until("it listens", || fake.out().starts_with("listening on http://127.0.0.1:"));
    signal(fake.child.id(), "TERM");
    assert_eq!(fake.end(), 0, "{}", fake.err());
}

#[test]
fn what_an_agent_writes_does_not_become_the_gates_configuration() {
    let place = Place::new();
    let write = |path: &str, text: &str| ("fs.write_text", json!({"path": path, "text": text}));
    let open = "[shell.programs.sh]\n[policies.session]\n";
    let planted = [write("tollgate.toml", open), write(".tollgate/admin.key", "tg_key_planted")];
    let fake = Fake::saying(&[&calls(&planted), "Done.", "Still here."]);
    let first = place.run(&["agent", "run", "Go", "--root", ".", "--model", &fake.url]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(place.work().join("tollgate.toml").is_file());
    assert!(place.work().join(".tollgate/admin.key").is_file());
    // The folder is the agent's from now on, and nothing in it is believed, whoever asks.
    let second = place.run(&["agent", "run", "Are you there?"]);
    assert_eq!((second.code, second.out.as_str()), (0, "Still here.\n"), "{}", second.err);
    assert_eq!(second.err.matches("! an agent works in ").count(), 1, "{}", second.err);
    assert!(second.err.contains("TOLLGATE_CONFIG or --data"), "{}", second.err);
    let shown = |place: &Place| {
        let shown = place.run(&["agent", "show", "main"]);
        assert!(shown.out.contains("main · revision 2"), "{}{}", shown.out, shown.err);
    };
    shown(&place);
    let doctor = place.run(&["doctor"]).out;
    assert!(doctor.contains("what stands in this folder is left out"), "{doctor}");
    let serve = |more: &[&str]| {
        let args = [&["serve", "--listen", "127.0.0.1:0"], more].concat();
        let served = place.run(&args);
        assert_eq!(served.code, 3, "{}{}", served.out, served.err);
        assert!(served.err.contains("name both with --config and --data"), "{}", served.err);
    };
    serve(&[]);
    // Neither by a link to a file elsewhere, nor with a data folder that was named, the session's own or another.
    let (here, there) =
        (place.work().join("tollgate.toml"), place.work().join("../elsewhere.toml"));
    std::fs::rename(&here, &there).unwrap();
    std::os::unix::fs::symlink("../elsewhere.toml", &here).unwrap();
    serve(&[]);
    serve(&["--data", place.data().to_str().unwrap()]);
    serve(&["--data", "../other"]);
    // Nor by a configuration that names no data folder.
    std::fs::write(&there, "").unwrap();
    serve(&["--config", "../elsewhere.toml"]);
    let mut command = place.command(&["agent", "show", "main"]);
    command.env("TOLLGATE_CONFIG", "../elsewhere.toml");
    let named = finish(command, b"");
    assert!(named.out.contains("main · revision 2"), "{}{}", named.out, named.err);
    // Nor when the session works elsewhere by then.
    std::fs::create_dir(place.work().join("../next")).unwrap();
    let next = place.work().join("../next");
    let fake = Fake::saying(&["Moved."]);
    let args = ["agent", "run", "Go", "--session", "main", "--root", next.to_str().unwrap()];
    let moved = place.run(&[&args[..], &["--model", &fake.url]].concat());
    assert_eq!(moved.code, 0, "{}", moved.err);
    serve(&[]);
}

#[test]
fn the_own_folder_of_a_session_configures_nothing_either() {
    let place = Place::new();
    let write = json!({"path": "tollgate.toml", "text": "no configuration"});
    let fake = Fake::saying(&[&calls(&[("fs.write_text", write)]), "Done."]);
    assert_eq!(place.run(&["agent", "run", "Go", "--model", &fake.url]).code, 0);
    let own = place.data().join("workspace/main");
    assert!(own.join("tollgate.toml").is_file());
    let mut command = place.command(&["agent", "show", "main"]);
    command.current_dir(&own);
    let shown = finish(command, b"");
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.err.contains("! agents work in "), "{}", shown.err);
}

#[test]
fn what_is_hidden_from_a_person_takes_more_than_a_key_press() {
    let place = Place::new();
    let hides = "echo 'Authorization: Bearer abcdefghijklmnop'";
    let fake = Fake::saying(&[&calls(&[("shell.exec", json!({"cmd": hides}))]), "Done."]);
    let mut terminal = Terminal::start(&place, &format!("agent run 'Run it' --model {}", fake.url));
    let ask = "allow it unseen? type `yes` in full";
    until("the person is asked", || terminal.shown.all().contains(ask));
    assert!(terminal.shown.all().contains("! hidden"), "{}", terminal.shown.all());
    terminal.types("y\n");
    until("it is asked again", || terminal.shown.all().matches(ask).count() == 2);
    terminal.types("yes\n");
    assert_eq!(terminal.shown.end(), 0, "{}", terminal.shown.all());
    assert!(terminal.shown.all().contains("✓ shell.exec"), "{}", terminal.shown.all());
}

#[test]
fn a_root_that_leads_elsewhere_by_now_is_not_followed() {
    let place = Place::new();
    std::fs::create_dir(place.work().join("sub")).unwrap();
    let list = calls(&[("fs.list_dir", json!({"path": "."}))]);
    let fake = Fake::saying(&["One.", &list, "Two."]);
    let args = ["agent", "run", "Hi", "--session", "b"];
    let first = place.run(&[&args[..], &["--root", "sub", "--model", &fake.url]].concat());
    assert_eq!(first.code, 0, "{}", first.err);
    std::fs::rename(place.work().join("sub"), place.work().join("old")).unwrap();
    std::os::unix::fs::symlink("/etc", place.work().join("sub")).unwrap();
    let second = place.run(&args);
    assert_eq!(second.code, 3, "{}{}", second.out, second.err);
    assert!(second.err.contains("leads to /etc now; decide on it again"), "{}", second.err);
}

#[test]
fn a_turn_that_was_cut_off_is_counted_and_replayed_once_it_is_closed() {
    let place = Place::new();
    let hang = json!({"content": "Half", "hang_after": 1});
    let time = calls(&[("system.time", json!({}))]);
    let fake = Fake::start(&json!({"replies": [{"content": time}, hang, {"content": "Back."}]}));
    let run = |said: &str| {
        let args = ["agent", "run", said, "--session", "cut", "--model", &fake.url];
        Beside::start(place.command(&args))
    };
    let mut first = run("Go");
    until("the model is asked again", || fake.chats().len() == 2);
    signal(first.child.id(), "KILL");
    first.child.wait().unwrap();
    let receipt = place.json(&["agent", "receipt", "cut"]);
    assert_eq!(receipt["totals"]["tool_calls"], 1, "{receipt}");
    assert_eq!(receipt["totals"]["model_calls"], 1, "{receipt}");
    assert!(receipt["totals"]["input_tokens"].as_u64().unwrap() > 0, "{receipt}");
    let early = place.run(&["agent", "replay", "cut", "--turn", "1"]);
    assert_eq!(early.code, 3, "{}{}", early.out, early.err);
    assert!(early.err.contains("was cut off and is not closed yet"), "{}", early.err);
    assert_eq!(run("Are you there?").end(), 0);
    let late = place.run(&["agent", "replay", "cut", "--turn", "1"]);
    assert_eq!(late.code, 0, "{}{}", late.out, late.err);
}

#[test]
fn an_agent_does_not_work_where_the_users_own_data_are() {
    let place = Place::new();
    let fake = Fake::saying(&["Hi."]);
    let home = place.data();
    let home = home.parent().unwrap();
    std::fs::create_dir_all(home).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let data = elsewhere.path().join("data");
    let data = data.to_str().unwrap();
    let args = ["agent", "run", "Hi", "--data", data, "--model", &fake.url, "--root"];
    for root in [home, home.parent().unwrap()] {
        let ran = place.run(&[&args[..], &[root.to_str().unwrap()]].concat());
        assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
        let words = ran.err.split_whitespace().filter(|word| *word != "│");
        let told = words.collect::<Vec<_>>().join(" ");
        assert!(told.contains("where your own data and the list of agents' folders are"), "{told}");
    }
    assert!(fake.chats().is_empty());
}
