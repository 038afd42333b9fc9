use proptest::prelude::*;
use serde_json::json;

use super::*;

fn applied(state: &mut State, payload: &Value) -> Applied {
    let limits = Limits::default();
    let (patch, mut warnings) = NotesPatch::read(payload, &limits);
    let mut applied = patch.apply(state, &limits);
    warnings.append(&mut applied.warnings);
    Applied { warnings, ..applied }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_key_does_what_the_protocol_says() {
    let mut state = State { open_loops: words(&["a", "b"]), ..State::default() };
    let done = applied(
        &mut state,
        &json!({
            "set_goals": ["g"], "add_open_loops": ["c"], "close_open_loops": ["a"],
            "add_decisions": ["d"], "add_constraints": ["k"], "set_episode_summary": "s",
            "add_memory_tags": ["t"], "actions": ["condense_now"],
        }),
    );
    let expected = State {
        goals: words(&["g"]),
        open_loops: words(&["b", "c"]),
        decisions: words(&["d"]),
        constraints: words(&["k"]),
        episode_summary: "s".into(),
        memory_tags: words(&["t"]),
        ..State::default()
    };
    assert_eq!(state, expected);
    assert!(done.warnings.is_empty());
    assert_eq!(
        done.changed,
        ["goals", "open_loops", "decisions", "constraints", "episode_summary", "memory_tags"]
    );
}

#[test]
fn absent_keys_and_nulls_change_nothing_and_an_empty_list_clears() {
    let full = State { goals: words(&["g"]), episode_summary: "s".into(), ..State::default() };
    let mut state = full.clone();
    applied(&mut state, &json!({}));
    applied(&mut state, &json!({"set_goals": null, "set_episode_summary": null, "actions": null}));
    assert_eq!(state, full);
    applied(&mut state, &json!({"set_goals": [], "set_episode_summary": ""}));
    assert_eq!(state, State::default());
}

#[test]
fn a_loop_is_closed_only_by_its_exact_words() {
    let mut state = State { open_loops: words(&["call Bob"]), ..State::default() };
    let done = applied(&mut state, &json!({"close_open_loops": ["call bob", "call", "call Bob "]}));
    // Blanks around an entry are not part of it.
    assert!(state.open_loops.is_empty());
    assert_eq!(done.warnings, ["no open loop is `call bob`", "no open loop is `call`"]);
}

#[test]
fn a_bad_entry_leaves_its_neighbours() {
    let mut state = State { goals: words(&["old"]), ..State::default() };
    let done = applied(
        &mut state,
        &json!({"add_constraints": ["a", 7, null, {"x": 1}, "", "b"], "add_decisions": "no list", "typo": 1}),
    );
    assert_eq!(state.constraints, ["a", "b"]);
    assert_eq!(done.warnings.len(), 6);
    // Nothing usable is not the same as nothing.
    let done = applied(&mut state, &json!({"set_goals": [7]}));
    assert_eq!((state.goals.as_slice(), done.warnings.len()), (words(&["old"]).as_slice(), 1));
}

#[test]
fn goals_and_constraints_are_never_dropped_and_old_decisions_are_handed_over() {
    let limits = Limits { constraints: 2, decisions: 2, ..Limits::default() };
    let mut state = State { constraints: words(&["a", "b"]), ..State::default() };
    let payload = json!({"add_constraints": ["c"], "add_decisions": ["1", "2", "3"]});
    let (patch, _) = NotesPatch::read(&payload, &limits);
    let done = patch.apply(&mut state, &limits);
    assert_eq!(state.constraints, ["a", "b"]);
    assert_eq!(state.decisions, ["2", "3"]);
    assert_eq!(done.evicted, ["1"]);
    assert_eq!(done.warnings, ["1 constraints were not taken: there is room for 2"]);
}

#[test]
fn nothing_granted_is_pending() {
    let mut state = State::default();
    state.project(
        words(&["net:huggingface.co"]),
        words(&["net:HuggingFace.co", "net", "net:huggingface.co", "net"]),
    );
    assert_eq!(state.capabilities_pending, ["net"]);
    assert_eq!(state.capabilities_granted, ["net:huggingface.co"]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(Value::from("x".repeat(3000))),
        Just(Value::from("two\nlines\u{0}")),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let name = prop_oneof![
            Just("set_goals".to_owned()),
            Just("add_open_loops".to_owned()),
            Just("close_open_loops".to_owned()),
            Just("add_decisions".to_owned()),
            Just("add_constraints".to_owned()),
            Just("set_episode_summary".to_owned()),
            Just("add_memory_tags".to_owned()),
            Just("actions".to_owned()),
            "[a-z]{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_payload_leaves_a_state_within_its_bounds(payloads in prop::collection::vec(any_json(), 1..6)) {
        let limits = Limits { entry: 20, summary: 30, goals: 3, open_loops: 3, decisions: 3, constraints: 3, memory_tags: 3, memory_refs: 3 };
        let mut state = State::default();
        for payload in &payloads {
            let constraints = state.constraints.clone();
            let (patch, _) = NotesPatch::read(payload, &limits);
            patch.apply(&mut state, &limits);
            let _ = patch.actions();
            prop_assert!(state.constraints.starts_with(&constraints));
        }
        for list in [&state.goals, &state.open_loops, &state.decisions, &state.constraints, &state.memory_tags] {
            prop_assert!(list.len() <= 3);
            for entry in list {
                prop_assert!(entry.chars().count() <= 20 && !entry.contains(char::is_control));
            }
        }
        prop_assert!(state.episode_summary.chars().count() <= 30);
    }
}
