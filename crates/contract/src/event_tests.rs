use std::collections::BTreeSet;

use super::*;

fn names(of: fn(Event) -> Option<&'static str>) -> Vec<&'static str> {
    Event::ALL.iter().filter_map(|event| of(*event)).collect()
}

#[test]
fn a_run_streams_the_events_of_the_rfc_in_its_order() {
    assert_eq!(
        names(Event::stream_name),
        [
            "run.started",
            "tool.resolved",
            "policy.checked",
            "tool.started",
            "tool.completed",
            "tool.failed",
            "run.completed",
            "run.failed"
        ]
    );
}

#[test]
fn a_manifest_names_the_three_events_of_the_seed() {
    assert_eq!(
        names(Event::manifest_name),
        ["tool.call.started", "tool.call.completed", "tool.call.failed"]
    );
}

#[test]
fn the_runtime_trace_has_the_nine_required_kinds() {
    let kinds: BTreeSet<&str> = names(Event::runtime_name).into_iter().collect();
    let required = [
        "llm_req",
        "llm_stream",
        "llm_done",
        "notes_patch",
        "actions",
        "retrieval",
        "tool_plan",
        "tool_start",
        "tool_done",
    ];
    assert_eq!(kinds, required.into_iter().collect());
}

#[test]
fn ledger_kinds_are_unique() {
    let kinds = names(Event::ledger_kind);
    let unique: BTreeSet<&str> = kinds.iter().copied().collect();
    assert_eq!(kinds.len(), unique.len());
    assert_eq!(kinds.len(), 30);
}

#[test]
fn every_event_appears_somewhere() {
    for event in Event::ALL {
        let shown = event
            .stream_name()
            .or(event.manifest_name())
            .or(event.runtime_name())
            .or(event.ledger_kind());
        assert!(shown.is_some(), "{event:?}");
    }
}
