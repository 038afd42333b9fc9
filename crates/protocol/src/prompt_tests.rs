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
    let text = prompt.system().text;
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
    let text = Prompt { state: Some(&state), ..Prompt::default() }.system().text;
    assert!(text.len() < 26 * 1024, "{}", text.len());
    assert!(text.ends_with("=== END_STATE ===\n"));
}

#[test]
fn sections_leave_room_in_a_small_model() {
    let state = State {
        constraints: vec!["c".repeat(1900); 20],
        goals: vec!["g".repeat(1900), "the newest".into()],
        ..State::default()
    };
    let long = "said ".repeat(2000);
    let upstream = [("planner".to_owned(), long.clone()), ("critic".to_owned(), long)];
    let of = |halved| {
        let prompt = Prompt { state: Some(&state), upstream: &upstream, ..Prompt::default() };
        Prompt { share: Share { halved }, ..prompt }.system()
    };
    assert_eq!(of(0).hidden_constraints, 16);
    let small = of(4);
    assert!(small.text.len() < 4_000, "{}", small.text);
    assert_eq!(small.hidden_constraints, 19);
    for part in [
        "cccc… [",
        "  - the newest\n",
        "(19 more, not shown)",
        "planner:\nsaid ",
        "=== END_UPSTREAM ===\n",
    ] {
        assert!(small.text.contains(part), "{part} is missing in {}", small.text);
    }
    let least = Share::all().last().unwrap();
    let least = Prompt { state: Some(&state), share: least, ..Prompt::default() }.system().text;
    assert!(least.len() < 600, "{least}");
    assert_eq!(Prompt::memory_room(Share::default()), 16 * 1024);
}

#[test]
fn tools_that_do_not_fit_are_named() {
    let tool = |n: usize| ToolText {
        name: format!("many.tool_{n}"),
        description: "x".repeat(1000),
        schema: json!({"type": "object"}),
    };
    let tools: Vec<ToolText> = (0..60).map(tool).collect();
    let text = Prompt { tools: &tools, ..Prompt::default() }.system().text;
    let described = text.matches("\n  args: {\"type\":\"object\"}\n").count();
    assert!((40..50).contains(&described), "{described}");
    assert!(text.contains("without room to describe them: many.tool_"), "{text}");
    assert!(text.contains("many.tool_59\n=== END_TOOLS ==="), "{text}");
}

fn weighed(role: Role, tokens: u64) -> Weighed {
    Weighed { role, tokens }
}

#[test]
fn history_fits_newest_first_and_begins_with_a_question() {
    let history: Vec<Weighed> =
        (0..10).flat_map(|_| [weighed(Role::User, 10), weighed(Role::Assistant, 10)]).collect();
    let turn = [weighed(Role::User, 10)];
    let fit = |room| History::fit(20, &history, &turn, room, |_, _| 10);
    let skipped = |skipped, tokens| History { skipped, tokens, ..History::default() };
    assert_eq!(fit(1000).unwrap(), skipped(0, 210));
    assert_eq!(fit(70).unwrap(), skipped(16, 50));
    assert_eq!(fit(60).unwrap(), skipped(18, 30));
    assert_eq!(fit(30).unwrap(), skipped(20, 10));
    assert_eq!(fit(29).unwrap_err(), PromptError { needed: 30, system: 20, room: 29 });
}

#[test]
fn results_that_were_seen_go_first_then_new_ones_are_shortened_then_rounds_go() {
    use Role::{Assistant, Tool, User};
    let turn: Vec<Weighed> = [User, Assistant, Tool, Assistant, Tool, Assistant, Tool, Tool]
        .into_iter()
        .map(|role| weighed(role, if role == Tool { 40_000 } else { 10 }))
        .collect();
    let fit = |room| {
        let fit = History::fit(0, &[], &turn, room, |_, bytes| bytes as u64 + 10)?;
        assert!(fit.tokens <= room);
        Ok::<_, PromptError>(History { tokens: 0, ..fit })
    };
    let of = |cut, result_bytes, left| History { cut, left, result_bytes, ..History::default() };
    assert_eq!(fit(160_040).unwrap(), of(0, None, 0));
    assert_eq!(fit(160_000).unwrap(), of(1, None, 0));
    assert_eq!(fit(81_000).unwrap(), of(2, None, 0));
    assert_eq!(fit(80_000).unwrap(), of(2, Some(16 * 1024), 0));
    assert_eq!(fit(3_000).unwrap(), of(2, Some(1024), 0));
    // What is left: the question, what was left out, and the last answer with what came of it.
    let small: Vec<Weighed> = turn
        .iter()
        .map(|one| weighed(one.role, if one.role == Tool { 10 } else { 1_000 }))
        .collect();
    let fit = |room| History::fit(0, &[], &small, room, |_, bytes| bytes as u64 + 10);
    let left = |room| fit(room).map(|fit| (fit.left, fit.answer_bytes, fit.tokens));
    assert_eq!(left(4_040), Ok((0, None, 4_040)));
    assert_eq!(left(4_000), Ok((2, None, 3_230)));
    assert_eq!(left(3_000), Ok((4, None, 2_220)));
    assert_eq!(left(2_219), Ok((4, Some(512), 1_742)));
    assert_eq!(left(1_000).unwrap_err(), PromptError { needed: 1_231, system: 0, room: 1_000 });
}

#[test]
fn what_was_called_in_rounds_that_are_left_out_is_told() {
    let result = |tool: &str, ok: bool| json!({"id": "x", "tool": tool, "ok": ok}).to_string();
    let (one, two) = (result("fs.write_text", true), result("shell.exec", false));
    let text = History::left_text(&[&one, &two, "no JSON"]);
    assert!(
        text.ends_with("called in them: fs.write_text ok, shell.exec failed, ? failed)"),
        "{text}"
    );
    let text = History::left_text(&vec![one.as_str(); 100]);
    assert!(text.len() < 500 && text.contains(" more, fs.write_text ok, "), "{text}");
}

#[test]
fn a_large_model_is_shown_everything() {
    for most in [24 * 1024, 16 * 1024, 8 * 1024, 6 * 1024, 4 * 1024, 512] {
        assert_eq!(Share::default().of(most), most);
    }
    assert_eq!((Share { halved: 1 }.of(512), Share { halved: 8 }.of(512)), (256, 60));
}

#[test]
fn what_is_open_is_shown_in_its_exact_words_or_not_at_all() {
    let long = "x".repeat(1_900);
    let state = State { open_loops: vec![long.clone(), "short".into()], ..State::default() };
    let of = |halved| {
        let share = Share { halved };
        Prompt { state: Some(&state), share, ..Prompt::default() }.system().text
    };
    assert!(of(0).contains(&format!("  - {long}\n  - short\n")), "{}", of(0));
    assert!(of(3).contains("  (1 more, not shown)\n  - short\n"), "{}", of(3));
}

#[test]
fn the_models_own_words_are_shortened_last() {
    let turn =
        [weighed(Role::User, 10), weighed(Role::Assistant, 40_000), weighed(Role::Tool, 40_000)];
    let fit = |room| History::fit(0, &[], &turn, room, |_, bytes| bytes as u64 + 10);
    let bytes = |fit: History| (fit.result_bytes, fit.answer_bytes);
    assert_eq!(bytes(fit(80_010).unwrap()), (None, None));
    assert_eq!(bytes(fit(41_100).unwrap()), (Some(1024), None));
    assert_eq!(bytes(fit(41_000).unwrap()), (Some(1024), Some(16 * 1024)));
    assert_eq!(bytes(fit(2_100).unwrap()), (Some(1024), Some(1024)));
    assert_eq!(bytes(fit(2_000).unwrap()), (Some(512), Some(512)));
    assert_eq!(bytes(fit(10 + 2 * 11).unwrap()), (Some(1), Some(1)));
    assert!(fit(10 + 2 * 11 - 1).is_err());
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
        let system = Prompt { state: Some(&state), upstream: &upstream, tools: &tools, ..Prompt::default() }.system().text;
        let borders: Vec<&str> = system.lines().filter(|line| line.trim_start().starts_with("===")).collect();
        prop_assert_eq!(borders, ["=== TOOLS ===", "=== END_TOOLS ===", "=== STATE ===", "=== END_STATE ===", "=== UPSTREAM ===", "=== END_UPSTREAM ==="]);
        prop_assert_eq!(system.matches("<<<").count(), 2);
    }
}
