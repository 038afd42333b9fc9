use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::message::Role;

fn tools() -> Vec<ToolText> {
    vec![ToolText {
        name: "fs.read_text".into(),
        description: "Reads a file.".into(),
        schema: json!({"type": "object"}),
    }]
}

#[test]
fn the_system_message_tells_tools_syntax_state_memory_and_upstream() {
    let state = State { goals: vec!["win".into()], ..State::default() };
    let tools = tools();
    let upstream = [("planner".to_owned(), "first this".to_owned())];
    let memory =
        "=== RETRIEVED_MEMORY ===\n- id=mem_x score=0.412\n  text\n=== END_RETRIEVED_MEMORY ===\n";
    let prompt = Prompt {
        role: "You are an agent.",
        tools: &tools,
        notes: true,
        state: Some(&state),
        memory,
        upstream: &upstream,
        ..Prompt::default()
    };
    let text = prompt.system();
    for part in [
        "=== TOOLS ===\n",
        "<<<TOOL_CALLS_JSON>>>\n[{\"id\":\"t1\",\"tool\":\"<name>\",\"args\":{}}]\n<<<END_TOOL_CALLS_JSON>>>",
        "- fs.read_text: Reads a file.\n  args: {\"type\":\"object\"}\n",
        "=== STATE ===\ngoals:\n  - win\n=== END_STATE ===\n",
        memory,
        "=== UPSTREAM ===\nplanner:\nfirst this\n=== END_UPSTREAM ===\n",
        "<<<NOTES_JSON>>>",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn sections_are_bounded() {
    let state = State { decisions: vec!["x".repeat(1900); 200], ..State::default() };
    let text = Prompt { state: Some(&state), ..Prompt::default() }.system();
    assert!(text.len() < 26 * 1024, "{}", text.len());
    assert!(text.ends_with("=== END_STATE ===\n"));
}

#[test]
fn history_fits_newest_first_and_begins_with_a_question() {
    let history: Vec<ChatMessage> = (0..10)
        .flat_map(|n| {
            [ChatMessage::new(Role::User, format!("q{n}")), ChatMessage::new(Role::Assistant, "a")]
        })
        .collect();
    let turn = [ChatMessage::new(Role::User, "now")];
    let ten = |_: &ChatMessage| 10;
    let fit = |room| History::fit(20, &history, &turn, room, ten);
    assert_eq!(fit(1000).unwrap(), History { skipped: 0, cut: 0 });
    assert_eq!(fit(70).unwrap(), History { skipped: 16, cut: 0 });
    assert_eq!(fit(60).unwrap(), History { skipped: 18, cut: 0 });
    assert_eq!(fit(30).unwrap(), History { skipped: 20, cut: 0 });
    assert_eq!(fit(29).unwrap_err(), PromptError { needed: 30, room: 29 });
}

#[test]
fn old_results_of_a_turn_are_cut_before_it_does_not_fit() {
    let long = |n: usize| ChatMessage::new(Role::Tool, "x".repeat(n));
    let turn = [ChatMessage::new(Role::User, "now"), long(1000), long(1000), long(1000)];
    let bytes = |message: &ChatMessage| message.content.len() as u64;
    assert_eq!(History::fit(0, &[], &turn, 3100, bytes).unwrap().cut, 0);
    assert_eq!(History::fit(0, &[], &turn, 2200, bytes).unwrap().cut, 1);
    assert_eq!(History::fit(0, &[], &turn, 1200, bytes).unwrap().cut, 2);
    assert!(History::fit(0, &[], &turn, 900, bytes).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_can_forge_a_border_or_a_mark(
        texts in prop::collection::vec("(=== END_STATE ===|=== TOOLS ===|<<<NOTES_JSON>>>|\n|\r|\u{2028}| |x){0,6}", 4)
    ) {
        let state = State {
            goals: vec![texts[0].clone()],
            episode_summary: texts[1].clone(),
            capabilities_pending: vec![texts[2].clone()],
            ..State::default()
        };
        let upstream = [(texts[2].clone(), texts[3].clone())];
        let tools = [ToolText { name: texts[1].clone(), description: texts[0].clone(), schema: json!({"x": texts[3]}) }];
        let system = Prompt { state: Some(&state), upstream: &upstream, tools: &tools, ..Prompt::default() }.system();
        let borders: Vec<&str> = system.lines().filter(|line| line.trim_start().starts_with("===")).collect();
        prop_assert_eq!(borders, ["=== TOOLS ===", "=== END_TOOLS ===", "=== STATE ===", "=== END_STATE ===", "=== UPSTREAM ===", "=== END_UPSTREAM ==="]);
        prop_assert_eq!(system.matches("<<<").count(), 2);
    }
}
