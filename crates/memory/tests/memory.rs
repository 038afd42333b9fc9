//! Storing, finding and forgetting, as a caller sees it.

#![cfg(test)]

mod common;

use common::{Place, id, record, tagged};
use tollgate_memory::{
    Added, By, CUT_MARK, LONGEST_TEXT, Limits, MOST_AT_ONCE, Memory, MemoryError, Query, Record,
    block,
};

const NOTES: [&str; 8] = [
    "The staging database moved to the host db-7 in Frankfurt; its password rotates weekly.",
    "Alice prefers short answers and dislikes tables in reports.",
    "Deployments are frozen from December 20 until January 5.",
    "The quarterly report is due on Friday; Alice wants it before noon.",
    "We decided against Kafka: a table in the database is enough for the queue.",
    "Bob's deployment script fails when the database is being backed up.",
    "東京の会議は水曜日に変更されました。",
    "数据库迁移计划在周五晚上进行。",
];

/// A score, and where the record is in the list above.
fn golden(place: &Place, text: &str) -> Vec<(f64, u64)> {
    place.find("notes", text).iter().map(|found| (found.score, found.turn)).collect()
}

#[test]
fn a_small_corpus_is_ranked_as_it_was() {
    let place = Place::new();
    place.add("notes", 0, &NOTES);
    let ranked = |text| golden(&place, text);
    assert_eq!(ranked("database"), [(0.472, 4), (0.472, 5), (0.433, 0)]);
    assert_eq!(ranked("what does Alice want in a report?"), [(0.48, 3), (0.323, 1)]);
    assert_eq!(ranked("deploying"), [(0.496, 2), (0.461, 5)]);
    assert_eq!(ranked("会議はいつですか"), [(0.161, 6)]);
    assert_eq!(ranked("数据库"), [(0.5, 7)]);
    assert_eq!(ranked("東"), [(0.5, 6)]);
    assert_eq!(ranked("unheard of"), []);
    assert_eq!(ranked(""), []);
}

#[test]
fn the_block_is_the_one_of_the_seed() {
    let place = Place::new();
    place.add("notes", 1, &["The build server is called otto.", "Lunch is at noon."]);
    let shown = block(&place.find("notes", "which server builds?"));
    let expected = format!(
        "=== RETRIEVED_MEMORY ===\n- id={} score=0.436\n  The build server is called otto.\n=== END_RETRIEVED_MEMORY ===",
        id(1)
    );
    assert_eq!(shown, expected);
}
