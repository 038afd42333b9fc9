//! A process that dies in the middle of a turn, at every step of it. It is a real process, and it really dies.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tollgate_agent::runtime::{AgentEvent, TurnRequest, kinds, replay_turn};
use tollgate_protocol::Role;

use crate::stage::{Place, Setting, Stage, calls, marks, model, name, notes};

pub(crate) fn script() -> Value {
    let first = format!(
        "Two things to do.{}{}",
        calls(&json!([
            {"id": "a", "tool": "text.give", "args": {"text": "x"}},
            {"id": "b", "tool": "note.append", "args": {"text": "mark"}},
        ])),
        notes(&json!({"set_goals": ["survive"], "actions": ["condense_now"]})),
    );
    json!({"loop": true, "replies": [
        {"when": {"last_contains": "crash me"}, "content": first, "times": 100, "chunk": 40},
        {"when": {"last_contains": "TOOL RESULT"}, "content": "Both done.", "times": 100},
        {"when": {"last_contains": "go on"}, "content": "Here again.", "times": 100},
        {"content": "What?"},
    ]})
}

/// The process that dies. It is no test by itself.
#[tokio::test]
#[ignore = "it is started by the tests below, and dies"]
async fn child() {
    let var = |name: &str| std::env::var(name).unwrap();
    let place = Place::of(var("CRASH_FOLDER").into(), var("CRASH_KEY"));
    let stage = place.open(&var("CRASH_MODEL"), &Setting::new(Value::Null)).await;
    let at: Option<usize> = var("CRASH_AT").parse().ok();
    let seen = AtomicUsize::new(0);
    let listener = Arc::new(move |_: AgentEvent| {
        if Some(seen.fetch_add(1, Ordering::SeqCst)) == at {
            std::process::abort();
        }
    });
    let request = TurnRequest::new("crash me");
    stage.runtime.run(&stage.by, &name(), request, listener).await.unwrap();
}

/// Lets a child die at this step. Says whether it died.
pub(crate) fn dies(place: &Place, url: &str, at: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored"])
        .env("CRASH_FOLDER", place.path())
        .env("CRASH_KEY", place.key())
        .env("CRASH_MODEL", url)
        .env("CRASH_AT", at)
        .output()
        .unwrap()
        .status;
    // A child that fails otherwise would show nothing.
    assert!(status.success() || std::os::unix::process::ExitStatusExt::signal(&status) == Some(6));
    !status.success()
}

/// A place with a key, whose gate is closed again.
pub(crate) async fn prepared(url: &str) -> Place {
    let place = Place::new();
    let stage = place.open(url, &Setting::new(Value::Null)).await;
    stage.gate.drain(std::time::Duration::from_secs(5)).await;
    place
}

/// Goes on after a crash, and looks at what is there.
async fn goes_on(place: &Place, url: &str) -> (Stage, Vec<String>) {
    let stage = place.open(url, &Setting::new(Value::Null)).await;
    let report = stage.say("go on").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(report.text, "Here again.");
    let warnings = report.warnings.clone();
    let said = stage.checkpoint().recent_messages;
    let asked = said.iter().filter(|one| one.role == Role::User && one.content == "crash me");
    assert_eq!(asked.count(), 1, "the message is kept, once: {said:?}");
    (stage, warnings)
}

// The model answers while the child is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_step_loses_no_message_and_nothing_runs_twice() {
    let model = model(&script()).await;
    let url = model.url();
    let (mut cut_off, mut steps) = (0, 0);
    for at in 0.. {
        let place = prepared(&url).await;
        if !dies(&place, &url, &at.to_string()) {
            break;
        }
        steps += 1;
        let (stage, warnings) = goes_on(&place, &url).await;
        assert!(stage.marks().len() <= 1, "at {at}: {:?}", stage.marks());
        let checkpoint = stage.checkpoint();
        assert_eq!(checkpoint.revision, 2, "at {at}");
        let was_saved = warnings.is_empty();
        cut_off += usize::from(!was_saved);
        // What ran is in the history, and what is in the history ran.
        let results: Vec<&str> = checkpoint
            .recent_messages
            .iter()
            .filter(|one| one.role == Role::Tool && one.content.contains("note.append"))
            .map(|one| one.content.as_str())
            .collect();
        let is_done = |text: &&str| text.contains("\"ok\":true");
        let is_unknown = |text: &&str| text.contains("OUTCOME_UNKNOWN");
        match stage.marks().len() {
            1 => {
                assert!(results.iter().any(|r| is_done(r) || is_unknown(r)), "at {at}: {results:?}")
            }
            _ => assert!(!results.iter().any(is_done), "at {at}: {results:?}"),
        }
        // The trace is whole, and both turns come out the same again.
        for turn in replay_turn(&stage.session(), 2).await.unwrap() {
            assert!(turn.is_same(), "at {at}, turn {}: {:?}", turn.turn, turn.divergence);
        }
        let autopsy = tollgate_agent::runtime::Autopsy::of(&stage.session()).unwrap();
        assert_eq!(
            autopsy.findings.iter().any(|f| f.what.contains("the gate stopped")),
            !was_saved
        );
    }
    assert!(steps >= 15 && cut_off >= 14, "{steps} steps, {cut_off} cut off");
}

// The model answers while the child is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_running_has_an_unknown_outcome_and_is_not_made_again() {
    let model = model(&script()).await;
    let url = model.url();
    let place = prepared(&url).await;
    assert!(dies(&place, &url, "tool"));
    assert_eq!(marks(place.path()), ["mark"]);
    let (stage, warnings) = goes_on(&place, &url).await;
    assert_eq!(stage.marks(), ["mark"]);
    assert_eq!(
        warnings,
        [
            "turn 1 was cut off while note.append ran, and nobody knows whether it took effect; look before it is called again"
        ]
    );
    let checkpoint = stage.checkpoint();
    let results: Vec<Value> = checkpoint
        .recent_messages
        .iter()
        .filter(|one| one.role == Role::Tool)
        .map(|one| serde_json::from_str(&one.content).unwrap())
        .collect();
    assert_eq!((results[0]["ok"].as_bool(), results[1]["ok"].as_bool()), (Some(true), Some(false)));
    assert!(results[1]["error"].as_str().unwrap().contains("outcome unknown"));
    // What the model had noted before it happened counts.
    assert_eq!(checkpoint.state.goals, ["survive"]);
}

#[tokio::test]
async fn a_turn_that_was_saved_but_whose_trace_lacks_the_last_line_is_no_crash() {
    let model = model(&script()).await;
    let place = prepared(&model.url()).await;
    let setting = Setting::new(Value::Null);
    let stage = place.open(&model.url(), &setting).await;
    stage.say("crash me").await;
    let file = place.path().join("sessions/notes/trace/000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap();
    assert!(text.get(cut..).unwrap().contains(kinds::CHECKPOINT));
    std::fs::write(&file, text.get(..=cut).unwrap()).unwrap();
    // As after a restart: nothing is known of the session but its files.
    drop(stage);
    let stage = place.open(&model.url(), &setting).await;
    let report = stage.say("go on").await;
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(stage.checkpoint().revision, 2);
    for turn in replay_turn(&stage.session(), 2).await.unwrap() {
        assert!(turn.is_same(), "turn {}: {:?}", turn.turn, turn.divergence);
    }
}

#[tokio::test]
async fn a_damaged_checkpoint_is_told_and_made_again_from_the_trace() {
    let model = model(&script()).await;
    let place = prepared(&model.url()).await;
    let stage = place.open(&model.url(), &Setting::new(Value::Null)).await;
    stage.say("crash me").await;
    stage.say("go on").await;
    let file = place.path().join("sessions/notes/checkpoint.json");
    std::fs::write(&file, "{\"half").unwrap();
    let report = stage.say("go on").await;
    assert!(report.warnings[0].contains("the copy of revision 1 is used"), "{:?}", report.warnings);
    assert!(report.warnings[1].contains("revision 2 was made again"), "{:?}", report.warnings);
    let said = stage.checkpoint().recent_messages;
    assert_eq!(said.iter().filter(|one| one.content == "go on").count(), 2);
    // The turn was done, so its answer is there and nothing says that it is missing.
    assert_eq!(said.iter().filter(|one| one.content == "Here again.").count(), 2);
    assert!(!said.iter().any(|one| one.content.starts_with("(no answer")));
    assert_eq!(stage.checkpoint().revision, 3);
    for turn in replay_turn(&stage.session(), 3).await.unwrap() {
        assert!(turn.is_same(), "turn {}: {:?}", turn.turn, turn.divergence);
    }
}
