//! Traces as their users meet them: what is recorded is read back, replay is strict both ways, and a
//! changed trace is noticed.

#![cfg(test)]

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_contract::{
    CostEffect, SideEffect, ToolName,
    id::{CallId, RunId},
    input_hash,
};
use tollgate_trace::{Difference, Ended, Entry, Receipt, Replay, Trace, TraceError, VERSION, diff};

fn entry(seq: u64, tool: &str, input: Value, output: Value) -> Entry {
    let id = |last: u64| [0, 0, 0, 0, 0, 0, 0, 0, 0, u8::try_from(last % 256).unwrap()];
    Entry {
        v: VERSION,
        seq,
        ts: format!("2026-01-02T03:04:{:02}Z", seq % 60),
        run_id: RunId::from_parts(1, id(0)),
        call_id: CallId::from_parts(1, id(seq)),
        parent_call_id: None,
        tool: ToolName::parse(tool).unwrap(),
        input_hash: input_hash(&input).unwrap(),
        input,
        ended: Ended::Output(output),
        output_summary: "an object".to_owned(),
        side_effect: SideEffect::None,
        cost_effect: CostEffect::ApiCost,
        verdict: json!({"decision": "approve", "explain": []}),
        duration_ms: 5,
        replayable: true,
        redaction: 0,
    }
    .redacted()
}

fn text(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.line().unwrap()).collect()
}

fn trace(entries: &[Entry]) -> Trace {
    Trace::parse(&text(entries)).unwrap()
}

#[test]
fn a_line_has_the_members_of_the_contract_in_its_order() {
    let line: Value =
        serde_json::from_str(&text(&[entry(1, "world.read", json!({}), json!(1))])).unwrap();
    let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "v",
            "seq",
            "ts",
            "runId",
            "callId",
            "tool",
            "inputHash",
            "input",
            "output",
            "outputSummary",
            "sideEffect",
            "costEffect",
            "verdict",
            "durationMs",
            "replayable",
            "redaction"
        ]
    );
}

#[test]
fn what_is_recorded_is_read_back_and_holds_no_secret() {
    let key = format!("tg_key_{}", "canary00".repeat(8));
    let made = entry(
        1,
        "http.get",
        json!({"token": key, "url": "x"}),
        json!({"echo": format!("Bearer {key}")}),
    );
    let written = text(std::slice::from_ref(&made));
    assert!(!written.contains("canary0"), "{written}");
    assert_eq!(Trace::parse(&written).unwrap().entries(), [made]);
}

#[test]
fn replay_answers_each_recorded_call_once_in_the_order_of_admission() {
    let tool = ToolName::parse("world.read").unwrap();
    let (a, b) = (json!({"q": 1}), json!({"q": 2}));
    // The lines stand in another order than the calls were admitted in.
    let recorded = trace(&[
        entry(3, "world.read", a.clone(), json!("second a")),
        entry(1, "world.read", a.clone(), json!("first a")),
        entry(2, "world.read", b.clone(), json!("b")),
    ]);
    let mut replay = Replay::new(&recorded);
    let mut ask = |input: &Value| {
        replay.take(&tool, input_hash(input).unwrap(), None).map(|entry| entry.ended)
    };
    assert_eq!(ask(&b).unwrap(), Ended::Output(json!("b")), "order across different calls is free");
    assert_eq!(ask(&a).unwrap(), Ended::Output(json!("first a")));
    assert_eq!(ask(&a).unwrap(), Ended::Output(json!("second a")));
    assert!(ask(&a).is_err(), "an entry answers once");
    assert!(ask(&json!({"q": 3})).is_err());
    assert!(replay.unused().is_empty());
}

#[test]
fn what_was_recorded_and_never_asked_for_is_told() {
    let recorded =
        trace(&[entry(1, "a.b", json!({}), json!(1)), entry(2, "a.c", json!({}), json!(2))]);
    let mut replay = Replay::new(&recorded);
    replay.take(&ToolName::parse("a.c").unwrap(), input_hash(&json!({})).unwrap(), None).unwrap();
    assert_eq!(replay.unused().iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_entry_that_must_not_stand_in_for_a_call_is_a_miss_and_stays() {
    let mut made = entry(1, "a.b", json!({}), json!(1));
    made.replayable = false;
    let mut replay = Replay::new(&trace(&[made]));
    let miss = replay.take(&ToolName::parse("a.b").unwrap(), input_hash(&json!({})).unwrap(), None);
    assert!(miss.is_err());
    assert_eq!(replay.unused().len(), 1);
}

#[test]
fn equal_calls_of_different_parents_are_not_mixed_up() {
    let parent = CallId::from_parts(9, [9; 10]);
    let mut child = entry(1, "a.b", json!({}), json!("child"));
    child.parent_call_id = Some(parent);
    let mut replay = Replay::new(&trace(&[child, entry(2, "a.b", json!({}), json!("top"))]));
    let tool = ToolName::parse("a.b").unwrap();
    let hash = input_hash(&json!({})).unwrap();
    assert_eq!(replay.take(&tool, hash, None).unwrap().ended, Ended::Output(json!("top")));
    assert!(replay.take(&tool, hash, None).is_err());
    assert_eq!(
        replay.take(&tool, hash, Some(parent)).unwrap().ended,
        Ended::Output(json!("child"))
    );
}

#[test]
fn a_changed_or_foreign_trace_is_refused_with_its_line() {
    let good = text(&[
        entry(1, "a.b", json!({"q": 1}), json!(1)),
        entry(2, "a.b", json!({"q": 2}), json!(2)),
    ]);
    let refused = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        Trace::parse(&good.replace(from, to)).unwrap_err()
    };
    assert_eq!(refused(r#""input":{"q":2}"#, r#""input":{"q":3}"#), TraceError::Hash { line: 2 });
    assert!(matches!(
        refused(r#""v":1,"seq":2"#, r#""v":2,"seq":2"#),
        TraceError::Version { line: 2, found: 2 }
    ));
    assert!(matches!(
        refused(r#""redaction":1"#, r#""redaction":7"#),
        TraceError::Redaction { line: 1, found: 7 }
    ));
    assert!(matches!(
        refused(r#""tool":"a.b""#, r#""tool":"get_world_state""#),
        TraceError::Shape { line: 1, .. }
    ));
    assert!(matches!(
        refused(r#""seq":2"#, r#""seq":2,"seq":2"#),
        TraceError::Json { line: 2, .. }
    ));
    assert!(matches!(Trace::parse("{}\n").unwrap_err(), TraceError::Shape { line: 1, .. }));
}

#[test]
fn a_receipt_sums_a_trace_up() {
    let mut failed = entry(3, "fs.write_text", json!({}), json!(null));
    failed.ended = Ended::Error(json!({"code": "TOOL_FAILED"}));
    failed.side_effect = SideEffect::UserWrite;
    failed.replayable = false;
    let receipt = Receipt::of(&trace(&[
        failed,
        entry(1, "a.b", json!({}), json!(1)),
        entry(2, "a.b", json!({}), json!(2)),
    ]));
    assert_eq!(
        (receipt.calls, receipt.failed, receipt.replayable, receipt.duration_ms),
        (3, 1, 2, 15)
    );
    assert_eq!(
        (receipt.max_side_effect, receipt.max_cost_effect),
        (SideEffect::UserWrite, CostEffect::ApiCost)
    );
    assert_eq!(receipt.first.as_deref(), Some("2026-01-02T03:04:01Z"));
    assert_eq!(receipt.last.as_deref(), Some("2026-01-02T03:04:03Z"));
    assert_eq!(receipt.tools["a.b"].calls, 2);
    assert_eq!((receipt.runs.len(), receipt.sha256.len()), (1, 64));
}

#[test]
fn a_diff_tells_what_was_called_and_what_came_of_it() {
    let first = trace(&[
        entry(1, "a.b", json!({"q": 1}), json!(1)),
        entry(2, "a.c", json!({}), json!("x")),
        entry(3, "a.d", json!({}), json!(0)),
    ]);
    let second = trace(&[
        entry(7, "a.d", json!({}), json!(0)),
        entry(8, "a.c", json!({}), json!("y")),
        entry(9, "a.e", json!({}), json!(0)),
    ]);
    let found = diff(&first, &second);
    assert!(matches!(found[0], Difference::OnlyInFirst { seq: 1, .. }));
    assert!(matches!(found[1], Difference::EndedOtherwise { seqs: (2, 8), .. }));
    assert!(matches!(found[2], Difference::OnlyInSecond { seq: 9, .. }));
    assert_eq!(found.len(), 3);
    assert_eq!(diff(&first, &first), []);
}

proptest! {
    /// Whatever was recorded, replaying it in any order uses every entry once and misses nothing.
    #[test]
    fn a_recorded_run_replays_whole_in_any_order(
        calls in proptest::collection::vec((0..3_u8, 0..4_i64), 0..20), order in any::<prop::sample::Index>(),
    ) {
        let tools = ["a.a", "a.b", "a.c"];
        let entries: Vec<Entry> = calls
            .iter()
            .enumerate()
            .map(|(at, (tool, n))| entry(at as u64 + 1, tools[usize::from(*tool)], json!({"n": n}), json!(at)))
            .collect();
        let mut replay = Replay::new(&trace(&entries));
        let mut asked = entries.clone();
        if !asked.is_empty() {
            let middle = order.index(asked.len());
            asked.rotate_left(middle);
        }
        let mut used = std::collections::BTreeSet::new();
        for call in &asked {
            let found = replay.take(&call.tool, call.input_hash, None).unwrap();
            prop_assert_eq!((&found.tool, found.input_hash), (&call.tool, call.input_hash));
            prop_assert!(used.insert(found.seq));
        }
        prop_assert!(replay.unused().is_empty());
        prop_assert_eq!(used.len(), entries.len());
    }

    #[test]
    fn any_text_is_answered_without_a_panic(text in "\\PC{0,200}") {
        let _ = Trace::parse(&text);
    }
}
