//! Models with little room: what does not fit is shortened, in an order that a reader can follow.

use serde_json::{Value, json};
use tollgate_agent::runtime::{Replayed, kinds, replay_turn};

use crate::stage::{Play, Setting, calls, notes, says};

/// How long an answer may be here.
const ANSWER: u32 = 6_000;

/// A play with a model that has room for so many tokens beside its answer.
async fn small(replies: &[&str], room: u32) -> Play {
    let mut setting = Setting::new(says(replies));
    setting.model = Box::new(move |model| {
        model.context_tokens = ANSWER + room;
        model.max_output_tokens = ANSWER;
    });
    Play::with(setting).await
}

async fn replayed(play: &Play, turn: u64) -> Replayed {
    replay_turn(&play.stage.session(), turn).await.unwrap().pop().unwrap()
}

/// So many calls that give much, each named.
fn long_reads(count: usize, name: &str) -> Vec<Value> {
    let read = |n| json!({"id": format!("c{n}"), "tool": "text.long", "args": {"text": format!("{name} {n}")}});
    (0..count).map(read).collect()
}

fn contents(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_state_that_has_grown_leaves_room_for_the_question() {
    let lines: Vec<String> =
        (0..60).map(|n| format!("rule {n}: {}", "be careful. ".repeat(20))).collect();
    let grown =
        notes(&json!({"add_constraints": lines, "set_goals": lines, "add_decisions": lines}));
    let play = small(&[&format!("Noted.{grown}"), "Still here."], 2_744).await;
    assert!(play.say("note it").await.ok);
    let report = play.say("are you there?").await;
    assert!(report.ok, "{report:?}");
    let asked = play.asked().pop().unwrap();
    let (system, said) = (contents(&asked)[0], contents(&asked)[1..].to_vec());
    assert!(system.contains("rule 59") && system.contains("more, not shown)"), "{system}");
    assert!(said.ends_with(&["are you there?"]), "{said:?}");
    assert!(replayed(&play, 2).await.is_same());
}

#[tokio::test]
async fn constraints_come_first_and_those_that_are_not_shown_are_told_of() {
    let rules = |count: usize| -> Vec<String> {
        (0..count).map(|n| format!("rule {n}: {}", "be careful. ".repeat(4))).collect()
    };
    let noted = |count| notes(&json!({"add_constraints": rules(count)}));
    let (few, many) = (noted(20), noted(60));
    let play =
        small(&[&format!("Noted.{few}"), &format!("Noted.{many}"), "Still here."], 3_840).await;
    for text in ["note it", "note more", "are you there?"] {
        assert!(play.say(text).await.ok);
    }
    let shown = |asked: &[Value]| contents(asked)[0].matches("be careful. be careful").count() / 2;
    let asked = play.asked();
    assert_eq!(shown(&asked[1]), 20);
    assert!((10..60).contains(&shown(&asked[2])), "{}", shown(&asked[2]));
    let warnings = play.stage.of_kind(kinds::WARNING);
    let hidden = 60 - shown(&asked[2]);
    let told = format!("{hidden} of the session's constraints are not shown to it");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0]["problem"].as_str().unwrap().ends_with(&told), "{warnings:?} {told}");
    assert!(replayed(&play, 3).await.is_same());
}

#[tokio::test]
async fn a_summary_in_a_script_with_many_tokens_a_byte_ends_no_session() {
    let long = notes(
        &json!({"set_episode_summary": "概要🙂".repeat(2_600), "add_decisions": vec!["決定"; 50]}),
    );
    let play = small(&[&format!("Noted.{long}"), "Still here."], 3_840).await;
    assert!(play.say("note it").await.ok);
    let report = play.say("are you there?").await;
    assert!(report.ok, "{report:?}");
}

#[tokio::test]
async fn results_that_the_model_has_not_seen_are_shortened_alike() {
    let list = long_reads(4, "file");
    let play = small(&[&calls(&json!(list)), "Read all of them."], 5_744).await;
    let report = play.say("read four files").await;
    assert!(report.ok, "{report:?}");
    let asked = play.asked().pop().unwrap();
    let results = contents(&asked[asked.len() - 4..]);
    for (n, result) in results.iter().enumerate() {
        assert!(result.contains(&format!("file {n} a word")), "{result}");
        assert!(result.contains("more bytes]"), "{result}");
        assert!(!result.contains("shown before"), "{result}");
    }
    let asked = play.stage.of_kind(kinds::LLM_REQ).pop().unwrap();
    assert!(asked["result_bytes"].as_u64().is_some_and(|bytes| bytes >= 1024), "{asked}");
    assert!(asked["prompt_tokens"].as_u64().is_some_and(|tokens| tokens < 5_800), "{asked}");
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn a_long_turn_goes_on_without_its_oldest_rounds() {
    let thought = "I think about it at length. ".repeat(120);
    let round = |n: usize| {
        let list = json!([{"id": "c", "tool": "text.give", "args": {"text": format!("step {n}")}}]);
        format!("Round {n}. {thought}{}", calls(&list))
    };
    let rounds: Vec<String> = (1..=8).map(round).chain(["Done.".to_owned()]).collect();
    let rounds: Vec<&str> = rounds.iter().map(String::as_str).collect();
    let play = small(&rounds, 4_744).await;
    let report = play.say("work through it").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(report.totals.rounds, 9);
    let asked = play.asked().pop().unwrap();
    let said = contents(&asked);
    assert_eq!(said[1], "work through it");
    assert!(said[2].contains("left out") && said[2].contains("text.give ok"), "{}", said[2]);
    assert!(said[3].starts_with("Round ") && !said[3].starts_with("Round 1."), "{}", said[3]);
    assert!(said.last().is_some_and(|last| last.contains("step 8")), "{said:?}");
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn a_model_that_wrote_a_long_file_is_not_shown_all_of_it_again() {
    let file = "line after line. ".repeat(600);
    let list = json!([{"id": "c", "tool": "note.append", "args": {"text": file}}]);
    let play = small(&[&format!("Here.{}", calls(&list)), "Written."], 3_744).await;
    let report = play.say("write a long file").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(play.stage.marks(), [file]);
    let asked = play.asked().pop().unwrap();
    let said = contents(&asked);
    assert!(said[2].starts_with("Here.") && said[2].contains("more bytes]"), "{}", said[2]);
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn a_secret_that_is_longer_than_what_is_kept_of_it_does_not_burst_the_prompt() {
    let list = json!([{"id": "c", "tool": "text.secret", "args": {"text": "id_rsa"}}]);
    let play = small(&[&calls(&list), "It is a key."], 3_744).await;
    let report = play.say("what is in that file?").await;
    assert!(report.ok, "{report:?}");
    let asked = play.asked().pop().unwrap();
    let result = contents(&asked).pop().unwrap();
    assert!(result.contains("id_rsa") && result.len() < 1_000, "{result}");
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn many_calls_at_once_are_answered_in_few_words_each() {
    let list = long_reads(32, "file");
    let play = small(&[&calls(&json!(list)), "Read all of them."], 7_744).await;
    let report = play.say("read many files").await;
    assert!(report.ok, "{report:?}");
    let asked = play.asked().pop().unwrap();
    for (n, result) in contents(&asked[asked.len() - 32..]).iter().enumerate() {
        assert!(result.contains(&format!("file {n} a word")), "{result}");
    }
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn where_no_result_fits_the_turn_still_goes_on() {
    for native in [false, true] {
        let list = long_reads(20, "文件");
        let first = if native {
            let calls: Vec<Value> = list
                .iter()
                .map(|call| json!({"id": call["id"], "name": call["tool"], "arguments": call["args"]}))
                .collect();
            json!({"tool_calls": calls, "content": "読みます。".repeat(40)})
        } else {
            json!({"content": calls(&json!(list))})
        };
        let mut setting =
            Setting::new(json!({"replies": [first, {"content": "Read all of them."}]}));
        setting.model = Box::new(move |model| {
            if native {
                model.tools = tollgate_models::ToolMode::Native;
            }
            (model.context_tokens, model.max_output_tokens) = (ANSWER + 3_344, ANSWER);
        });
        let play = Play::with(setting).await;
        let report = play.say("read many files").await;
        assert!(report.ok, "native {native}: {report:?}");
        assert_eq!(report.totals.tool_calls, 20);
        assert!(replayed(&play, 1).await.is_same());
    }
}

#[tokio::test]
async fn long_arguments_of_native_calls_are_shortened_and_stay_json() {
    let file = "line after line. ".repeat(600);
    let arguments = json!({"text": file}).to_string();
    let mut setting = Setting::new(json!({"replies": [
        {"tool_calls": [{"id": "n1", "name": "note.append", "arguments": arguments}]},
        {"content": "Written."},
    ]}));
    setting.model = Box::new(|model| {
        model.tools = tollgate_models::ToolMode::Native;
        model.context_tokens = ANSWER + 3_744;
        model.max_output_tokens = ANSWER;
    });
    let play = Play::with(setting).await;
    let report = play.say("write a long file").await;
    assert!(report.ok, "{report:?}");
    assert_eq!(play.stage.marks(), [file]);
    let asked = play.asked().pop().unwrap();
    let sent =
        asked.iter().find_map(|message| message["tool_calls"][0]["function"]["arguments"].as_str());
    let sent: Value = serde_json::from_str(sent.unwrap()).unwrap();
    assert!(sent["cut_short"].as_str().unwrap().contains("more bytes]"), "{sent}");
    assert!(replayed(&play, 1).await.is_same());
}

#[tokio::test]
async fn a_small_model_can_sum_up_what_leaves_its_history() {
    let long = "It was a long story. ".repeat(80);
    let last = format!("Fine.{}", notes(&json!({"actions": ["condense_smart"]})));
    let mut replies = vec![long.as_str(); 15];
    replies.extend([last.as_str(), "A summary of it all."]);
    let mut setting = Setting::new(says(&replies));
    setting.config.keep_messages = Some(32);
    setting.model = Box::new(|model| {
        model.context_tokens = ANSWER + 3_744;
        model.max_output_tokens = ANSWER;
    });
    let play = Play::with(setting).await;
    for _ in 0..16 {
        assert!(play.say("tell me").await.ok);
    }
    assert_eq!(play.stage.checkpoint().state.episode_summary, "A summary of it all.");
    assert!(replayed(&play, 16).await.is_same());
}

#[tokio::test]
async fn what_a_person_says_is_never_shortened_in_secret() {
    let play = small(&["Never asked."], 2_744).await;
    let report = play.say(&"long ".repeat(4_000)).await;
    let error = report.error.unwrap();
    assert_eq!(error.code, "CONTEXT_TOO_SMALL");
    assert!(error.message.contains("say less at once"), "{}", error.message);
    assert!(play.asked().is_empty());
}
