use serde_json::json;

use super::*;
use crate::manifest::Manifest;

fn broken(patch: impl FnOnce(&mut Value)) -> String {
    let mut document: Value =
        serde_json::from_str(include_str!("../tests/seed_manifest.json")).unwrap();
    patch(&mut document["tools"][0]);
    Manifest::parse(document.to_string().as_bytes()).unwrap_err().to_string()
}

/// Every kind of violation, as the person sees it who wrote the manifest. (The golden vectors check
/// which rules are broken when; this checks that the words name tool and field and say what to do.)
#[test]
fn the_words_of_violations() {
    let mut words = String::new();
    let mut add = |patch: fn(&mut Value)| words.push_str(&(broken(patch) + "\n"));
    add(|tool| tool["name"] = json!("get_world_state"));
    add(|tool| tool["name"] = json!("World State"));
    add(|tool| tool["sideEffect"] = json!("llm_cost"));
    add(|tool| tool["permissions"] = json!(["user_dat"]));
    add(|tool| tool["sideEfect"] = json!("none"));
    add(|tool| {
        tool.as_object_mut().unwrap().shift_remove("costEffect");
        tool["access"] = json!({});
    });
    add(|tool| tool["permissions"] = json!([]));
    add(|tool| {
        tool["access"]["anonymousAllowed"] = json!(true);
        tool["authRequired"] = json!(true);
        tool["sideEffect"] = json!("user_write");
        tool["permissions"] = json!(["user_data"]);
    });
    add(|tool| {
        tool["permissions"] = json!(["user_data"]);
        tool["costEffect"] = json!("none");
    });
    add(|tool| {
        tool["sideEffect"] = json!("live_trade");
        tool["retry"] = json!("idempotent");
    });
    add(|tool| {
        tool["agent"]["name"] = json!("world.get");
        tool["agent"]["compatName"] = json!("world");
        tool["http"]["path"] = json!("x");
    });
    add(|tool| tool["inputSchema"] = json!({"type": "strin"}));
    add(|tool| tool["http"]["method"] = json!("get"));
    add(|tool| tool["status"] = json!("deferred"));
    insta::assert_snapshot!(words);
}

#[test]
fn a_key_in_a_manifest_is_not_repeated() {
    let key = format!("tg_key_{}", "c".repeat(40));
    let text = broken(|tool| tool["name"] = json!(key))
        + &broken(|tool| tool[&key] = json!(1))
        + &broken(|tool| tool["stability"] = json!(key));
    assert!(!text.contains("cccc"), "{text}");
}
