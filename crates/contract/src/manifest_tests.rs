use serde_json::json;

use super::*;

/// The example response of the seed, byte for byte.
const SEED: &str = include_str!("../tests/seed_manifest.json");

#[test]
fn the_seeds_example_is_read_and_written_byte_for_byte() {
    let manifest = Manifest::parse(SEED.as_bytes()).unwrap();
    let written =
        serde_json::to_string_pretty(&manifest.document(ManifestMode::Implemented)).unwrap();
    assert_eq!(compact_lists(&written), compact_lists(SEED.trim_end()));
}

/// The seed writes short lists on one line; apart from that the texts must be the same.
fn compact_lists(text: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '[' if chars.clone().find(|c| matches!(c, '{' | ']')) == Some(']') => {
                depth += 1;
                out.push(c);
            }
            ']' if depth > 0 => {
                depth -= 1;
                out.push(c);
            }
            c if depth > 0 && c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

fn review() -> Manifest {
    let mut deferred: Value = serde_json::from_str(SEED).unwrap();
    let mut entry = deferred["tools"][0].clone();
    entry["name"] = json!("world.delta");
    entry["agent"]["name"] = json!("world.delta");
    entry["status"] = json!("deferred");
    deferred["tools"].as_array_mut().unwrap().push(entry);
    deferred["mode"] = json!("review");
    Manifest::parse(deferred.to_string().as_bytes()).unwrap()
}

#[test]
fn what_is_not_active_is_shown_in_review_only() {
    let manifest = review();
    let names = |mode| -> Vec<String> {
        manifest.document(mode).tools.iter().map(|tool| tool.name.to_string()).collect()
    };
    assert_eq!(names(ManifestMode::Implemented), ["world.read"]);
    assert_eq!(names(ManifestMode::Review), ["world.read", "world.delta"]);
}

#[test]
fn only_canonical_names_resolve() {
    let manifest = review();
    assert_eq!(manifest.resolve("world.read").unwrap().name.as_str(), "world.read");
    for other in [
        "get_world_state",
        "get_regime_history",
        "world_read",
        "World.read",
        "events.search",
        "",
        "world.read ",
    ] {
        assert!(manifest.resolve(other).is_err(), "{other}");
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_one_that_was_meant() {
    let manifest = review();
    let message = |name: &str| Error::from(manifest.resolve(name).unwrap_err()).to_string();
    assert_eq!(
        message("get_world_state"),
        "`get_world_state` is not a canonical tool name; did you mean `world.read`?"
    );
    assert_eq!(
        message("world_read"),
        "`world_read` is not a canonical tool name; did you mean `world.read`?"
    );
    assert_eq!(message("world.raed"), "there is no tool `world.raed`; did you mean `world.read`?");
    assert_eq!(
        message("events.search"),
        "`events.search` is a reserved name and is never a tool; `tollgate tools` lists the names"
    );
    // What cannot be called is not what was meant.
    assert_eq!(
        message("world.detla"),
        "there is no tool `world.detla`; `tollgate tools` lists the names"
    );
}

use crate::error::Error;

#[test]
fn a_manifest_that_breaks_a_rule_does_not_load_at_all() {
    let mut broken: Value = serde_json::from_str(SEED).unwrap();
    broken["tools"][0]["access"]["anonymousAllowed"] = json!(true);
    let error = Manifest::parse(broken.to_string().as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the manifest breaks 1 rule\n  world.read: `costEffect`: a tool with access.anonymousAllowed must have costEffect `none`"
    );
}

#[test]
fn text_that_is_no_manifest_is_refused_with_what_is_wrong() {
    let message = |text: &str| Manifest::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(message("[1").contains("not valid JSON"));
    assert!(message("[]").contains("a manifest is an object"));
    assert!(message("{}").contains("schemaVersion"));
    assert!(
        message(r#"{"schemaVersion":"0.3.0-draft","mode":"implemented","tools":[1]}"#)
            .contains("tools/0")
    );
    assert!(
        message(
            r#"{"schemaVersion":"0.3.0-draft","mode":"implemented","mode":"review","tools":[]}"#
        )
        .contains("appears twice")
    );
}
