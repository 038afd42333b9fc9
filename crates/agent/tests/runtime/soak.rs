//! Many turns in one session: what is kept does not grow with them.

use serde_json::{Value, json};
use tollgate_models::ModelConfig;

use crate::stage::{Place, Play, Setting, call, notes};

fn size(folder: &std::path::Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            if entry.path().is_dir() {
                size(&entry.path())
            } else {
                entry.metadata().unwrap().len()
            }
        })
        .sum()
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn two_thousand_turns_leave_a_session_as_small_as_two_hundred() {
    let script: Value = json!({"loop": true, "replies": [
        {"content": format!("Working. {}", "word ".repeat(40))},
        {"content": call("text.give", "something")},
        {"content": format!("Done.{}", notes(&json!({
            "add_decisions": ["decision {{n}}"],
            "set_episode_summary": "summary {{n}}", "add_memory_tags": ["tag {{n}}"],
        })))},
    ]});
    let place = Place::in_memory();
    // In process: what a server adds is tested elsewhere.
    let file = place.path().join("script.json");
    std::fs::write(&file, script.to_string()).unwrap();
    let mut setting = Setting::new(script);
    setting.model = Box::new(move |model| *model = ModelConfig::scripted(&file));
    setting.config.keep_messages = Some(20);
    setting.config.trace_file_bytes = Some(256 * 1024);
    setting.config.keep_trace_files = Some(4);
    // It is about growth, not about the disk.
    let play = Play::at(place, setting).await;
    let session = play.place.path().join("sessions/notes");
    let mut early = (0, 0);
    for turn in 1..=2000u32 {
        let report = play.say(&format!("turn {turn}")).await;
        assert!(report.ok, "{report:?}");
        if turn == 400 {
            early = (size(&session), resident());
        }
    }
    let late = (size(&session), resident());
    assert_eq!(play.stage.checkpoint().revision, 2000);
    assert!(late.0 < early.0 * 3 / 2, "the session's files grew from {} to {}", early.0, late.0);
    // In kilobytes. The gate keeps what it knows of calls for a while, and the model's record of requests is bounded.
    assert!(late.1 < early.1 + 120 * 1024, "memory grew from {} to {} kB", early.1, late.1);
    let checkpoint = std::fs::metadata(session.join("checkpoint.json")).unwrap().len();
    assert!(checkpoint < 200 * 1024, "{checkpoint}");
}
