//! Recorded turns, run again offline.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_agent::runtime::{
    AgentEvent, RunReceipt, SessionSettings, TurnRequest, kinds, replay_turn,
};

use tollgate_contract::id::ApprovalId;

use crate::stage::{Play, Setting, call, calls, name, notes, says};

const SECRET: &str = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH";

/// Answers with everything that there is: tools, notes, odd blocks, secrets, reasoning, failures.
fn script() -> Value {
    let odd = "Odd.<<<TOOL_CALLS_JSON>>>[{\"id\": broken<<<END_TOOL_CALLS_JSON>>>";
    let secret = json!([
        {"id": SECRET, "tool": "text.give", "args": {"text": format!("token {SECRET}"), "password": "x"}},
        {"id": "t2", "tool": "text.give", "args": {"text": format!("password={SECRET}")}},
    ]);
    let reply = |text: String| json!({"content": text, "chunk": 11});
    json!({"loop": true, "replies": [
        reply(format!("<think>I think {SECRET}</think>Step.{}", call("text.give", "plain"))),
        reply(format!("{}{}", calls(&secret), notes(&json!({
            "add_decisions": [format!("use {SECRET}"), "second"], "api_key": SECRET,
            "add_open_loops": ["loop"], "actions": ["request_permission:net:example.com"],
        })))),
        reply(format!("Mark it.{}", call("note.append", &format!("{SECRET} {{{{n}}}}")))),
        reply(format!("Done with {SECRET}. [mem:mem_unknown]")),
        {"status": 503, "body": "busy", "headers": {"retry-after": "0"}},
        reply(odd.to_owned()),
        reply(format!("Short.{}", notes(&json!({"close_open_loops": ["loop"], "add_memory_tags": ["tag"]})))),
        {"content": "cut in the middle of it", "chunk": 5, "drop_after": 2},
        reply(format!("Fine.{}", notes(&json!({"actions": ["condense_now", "nonsense"]})))),
        reply(format!("{}{}", call("text.fail", &format!("Bearer {SECRET}")), notes(&json!([1])))),
        reply("End.".to_owned()),
        reply(calls(&json!([
            {"id": "c1", "tool": "text.confirm", "args": {"confirm": true, "token": null}},
            {"id": "c2", "tool": "text.confirm", "args": {"confirm": true, "token": SECRET}},
        ]))),
        {"content": "", "tool_calls": [
            {"id": "n1", "name": "text.confirm", "arguments": {"confirm": true, "token": null}},
            {"id": "n2", "name": "text.give", "arguments": {"text": format!("--token\n{SECRET}")}},
            {"id": "n3", "name": "text.give", "arguments": "{broken"},
        ]},
        reply(format!("{}{}", "long words of an answer ".repeat(1500), notes(&json!({
            "set_goals": ["--token\nabc"], "set_episode_summary": "password=\nhunter2",
        })))),
    ]})
}

#[tokio::test]
async fn fifty_turns_with_tools_redactions_and_waits_replay_to_identical_checkpoints() {
    let mut setting = Setting::new(script());
    setting.settings = SessionSettings {
        policy: Some(serde_json::from_value(json!({"ask": [{"tool": "note.append"}]})).unwrap()),
        ..SessionSettings::default()
    };
    // Small, so that history is folded and files are changed on the way.
    setting.config.keep_messages = Some(12);
    setting.config.trace_file_bytes = Some(128 * 1024);
    let play = Play::with(setting).await;
    // A person who says yes and no in turn, as soon as something waits.
    let (gate, admin) = (play.stage.gate.clone(), play.stage.admin.clone());
    let (waits, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let person = tokio::spawn(async move {
        let mut answered = 0u32;
        while let Some(id) = waiting.recv().await {
            gate.answer(&admin, id, answered.is_multiple_of(2), None, None).await.unwrap();
            answered += 1;
        }
        answered
    });
    for turn in 1..=50 {
        let tell = waits.clone();
        let listener = Arc::new(move |event: AgentEvent| {
            if let AgentEvent::Step(step) = event
                && step.kind == kinds::TOOL_WAIT
                && let Some(id) = step.data.pointer("/approval/id").and_then(Value::as_str)
            {
                tell.send(ApprovalId::parse(id).unwrap()).unwrap();
            }
        });
        let request =
            TurnRequest::new(format!("turn {turn}, my password is hunter{turn}, {SECRET}"));
        let report = play.stage.runtime.run(&play.stage.by, &name(), request, listener).await;
        assert_eq!(report.unwrap().turn, turn);
    }
    drop(waits);
    assert!(person.await.unwrap() >= 4);
    let folder = play.stage.session();
    let mut compared = 0;
    for last in folder.events().unwrap().iter().filter_map(|(_, events)| {
        events.iter().rfind(|e| e.kind == kinds::TURN_START)?.data["turn"].as_u64()
    }) {
        for turn in replay_turn(&folder, last).await.unwrap() {
            assert!(turn.divergence.is_none(), "turn {}: {}", turn.turn, turn.divergence.unwrap());
            assert_eq!(turn.checkpoint_sha256, turn.recorded_sha256, "turn {}", turn.turn);
            compared += 1;
        }
    }
    assert_eq!(compared, 50);
    assert!(folder.traces().numbers().unwrap().len() > 1);
    let last = replay_turn(&folder, 50).await.unwrap().pop().unwrap();
    assert_eq!(last.checkpoint.written(), play.stage.checkpoint().written());
    let receipt = RunReceipt::of(&folder).unwrap();
    assert_eq!(receipt.turns, 50);
    assert!(receipt.tools["note.append"].0 >= 4 && receipt.tools["note.append"].1 >= 2);
}

#[tokio::test]
async fn a_trace_that_was_changed_is_told() {
    let play =
        Play::new(json!({"replies": [{"content": call("text.give", "x")}, {"content": "Done."}]}))
            .await;
    play.say("go").await;
    let folder = play.stage.session();
    assert!(replay_turn(&folder, 1).await.unwrap()[0].is_same());
    let file = folder.traces().folder().join("000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [
        ("{\"text\":\"x\"},\"error\":null", "{\"text\":\"y\"},\"error\":null"),
        ("{\"text\":\"Done.\"}", "{\"text\":\"Gone.\"}"),
        ("\"input\":\"go\"", "\"input\":\"no\""),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let turn = replay_turn(&folder, 1).await.unwrap().pop().unwrap();
        assert!(!turn.is_same(), "{to}");
    }
    std::fs::write(&file, text.replace("\"kind\":\"tool_done\"", "\"kind\":\"tool_gone\""))
        .unwrap();
    let turn = replay_turn(&folder, 1).await.unwrap().pop().unwrap();
    let came = turn.divergence.unwrap().came.unwrap();
    assert!(came.data.to_string().contains("REPLAY_MISS"), "{came:?}");
    assert!(replay_turn(&folder, 9).await.unwrap_err().contains("no turn 9"));
}

#[tokio::test]
async fn a_checkpoint_that_is_gone_is_made_again_from_the_trace() {
    let noting = |n: usize| format!("{n}.{}", notes(&json!({"add_decisions": [format!("d{n}")]})));
    let replies: Vec<String> = (1..=7).map(noting).collect();
    let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
    let play = Play::new(says(&replies)).await;
    for text in ["one", "two", "three"] {
        play.say(text).await;
    }
    let folder = play.place.path().join("sessions/notes");
    let (current, before) = (folder.join("checkpoint.json"), folder.join("checkpoint.prev.json"));
    // Both are gone, the last one is gone or damaged, both are damaged: each time another process finds it so.
    let losses: [&dyn Fn(); 4] = [
        &|| {
            std::fs::remove_file(&current).unwrap();
            std::fs::remove_file(&before).unwrap();
        },
        &|| std::fs::remove_file(&current).unwrap(),
        &|| std::fs::write(&current, "{").unwrap(),
        &|| {
            std::fs::write(&current, "").unwrap();
            std::fs::write(&before, "{").unwrap();
        },
    ];
    let Play { stage, model, place } = play;
    drop(stage);
    for (at, lose) in losses.iter().enumerate() {
        let turn = at + 4;
        lose();
        let setting = Setting::new(json!({"replies": []}));
        let stage = place.open(&model.url(), &setting).await;
        let report = stage.say("and?").await;
        let told = format!("the checkpoint of revision {} was made again from the trace", turn - 1);
        assert!(report.warnings.contains(&told), "{:?}", report.warnings);
        assert!(!report.warnings.iter().any(|warning| warning.contains("cut off")));
        let state = stage.checkpoint().state;
        assert_eq!(state.decisions.len(), turn, "{state:?}");
        for turn in 1..=turn as u64 {
            let again = replay_turn(&stage.session(), turn).await.unwrap().pop().unwrap();
            assert!(again.is_same(), "turn {turn}: {:?}", again.divergence);
        }
        stage.runtime.drain().await;
        drop(stage);
    }
    assert!(folder.join("checkpoint.json.damaged").is_file());
}
