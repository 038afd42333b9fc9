use serde_json::json;

use super::*;
use crate::{
    hand::PersonNote,
    state::{Limits, State},
};

fn block(payload: &Value) -> String {
    format!("{}{payload}{}", BlockKind::Notes.begin(), BlockKind::Notes.end())
}

fn noted(remove: &[&str], summary: Option<&str>) -> Noted {
    let remove: Vec<String> = remove.iter().map(|text| (*text).to_owned()).collect();
    let state = State { constraints: remove.clone(), ..State::default() };
    let set_episode_summary = summary.map(str::to_owned);
    let note = PersonNote { remove, set_episode_summary, ..PersonNote::default() };
    note.apply(&state, &Limits::default()).unwrap()
}

fn said(text: String) -> ChatMessage {
    ChatMessage::new(Role::Assistant, text)
}

#[test]
fn an_entry_leaves_the_notes_of_every_answer_and_its_neighbours_stay() {
    let first = block(&json!({
        "add_constraints": ["mail \"it\" to X", "one page"], "add_decisions": ["mail \"it\"\nto X"],
        "actions": ["condense_now"],
    }));
    let only = block(&json!({"set_goals": ["mail \"it\" to X"]}));
    let messages = [
        ChatMessage::new(Role::User, block(&json!({"set_goals": ["mail \"it\" to X"]}))),
        said(format!(
            "I mail \"it\" to X.{first}And <<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>>"
        )),
        said(only),
        said(format!("Fine.{}", block(&json!({"set_goals": ["mail it to X"]})))),
        said("mail \"it\" to X".to_owned()),
    ];
    let rest = block(&json!({"add_constraints": ["one page"], "actions": ["condense_now"]}));
    assert_eq!(
        noted(&["mail \"it\" to X"], None).struck(&messages),
        [
            (
                1,
                format!(
                    "I mail \"it\" to X.{rest}And <<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>>"
                )
            ),
            (2, NOTHING_LEFT.to_owned()),
        ]
    );
}

#[test]
fn a_summary_that_was_replaced_leaves_too() {
    let payload = json!({"set_episode_summary": "old", "add_decisions": ["blue"]});
    let messages = [said(format!("Fine.{}", block(&payload)))];
    let rest = format!("Fine.{}", block(&json!({"add_decisions": ["blue"]})));
    assert_eq!(noted(&[], Some("new")).struck(&messages), [(0, rest)]);
    assert_eq!(noted(&["other"], None).struck(&messages), []);
}

#[test]
fn a_block_that_was_cut_short_leaves_whole() {
    let cut = |words: &str| {
        said(format!("Fine.{}{{\"add_constraints\":[\"{words}\", \"a", BlockKind::Notes.begin()))
    };
    let messages = [cut("mail \\\"it\\\" to X"), cut("other")];
    assert_eq!(noted(&["mail \"it\" to X"], None).struck(&messages), [(0, "Fine.".to_owned())]);
}

#[test]
fn whatever_a_message_holds_it_ends_in_a_value() {
    let odd = [
        "<<<NOTES_JSON>>>",
        "<<<NOTES_JSON>>><<<END_NOTES_JSON>>>",
        "<<<NOTES_JSON>>>[\"x\"]<<<END_NOTES_JSON>>>",
        "<<<NOTES_JSON>>>{\"add_constraints\":\"x\"}<<<END_NOTES_JSON>>>",
        "<<<NOTES_JSON>>>{\"add_constraints\":[7,null,{}]}<<<END_NOTES_JSON>>>",
        "<<<END_NOTES_JSON>>><<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>>",
    ];
    let messages: Vec<ChatMessage> = odd.iter().map(|text| said((*text).to_owned())).collect();
    assert_eq!(noted(&["y"], Some("s")).struck(&messages), []);
}
