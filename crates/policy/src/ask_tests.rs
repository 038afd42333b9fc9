use serde_json::json;

use super::*;

fn condition(value: Value) -> Condition {
    serde_json::from_value(value).unwrap()
}

#[test]
fn each_test_answers_for_what_stands_at_the_pointer() {
    let input = json!({"n": 5, "path": "/tmp/x", "flag": null, "list": [{"a": 1.0}]});
    for (test, expected) in [
        (json!({"pointer": "/n", "above": 4}), true),
        (json!({"pointer": "/n", "above": 5}), false),
        (json!({"pointer": "/n", "below": 6}), true),
        (json!({"pointer": "/n", "equals": 5.0}), true),
        (json!({"pointer": "/n", "notEquals": 5}), false),
        (json!({"pointer": "/n", "oneOf": [1, 5]}), true),
        (json!({"pointer": "/n", "notOneOf": [1, 5]}), false),
        (json!({"pointer": "/path", "startsWith": "/tmp/"}), true),
        (json!({"pointer": "/path", "notStartsWith": "/tmp/"}), false),
        (json!({"pointer": "/path", "contains": "x"}), true),
        (json!({"pointer": "/flag", "equals": null}), true),
        (json!({"pointer": "/flag", "exists": true}), true),
        (json!({"pointer": "/none", "exists": true}), false),
        (json!({"pointer": "/none", "exists": false}), true),
        (json!({"pointer": "/list/0/a", "equals": 1}), true),
    ] {
        assert_eq!(condition(test.clone()).holds(&input), expected, "{test}");
    }
}

#[test]
fn what_cannot_be_told_holds() {
    for test in [
        json!({"pointer": "/none", "above": 4}),
        json!({"pointer": "/none", "equals": 4}),
        json!({"pointer": "/none", "oneOf": [1]}),
        json!({"pointer": "/text", "above": 4}),
        json!({"pointer": "/text", "below": 4}),
        json!({"pointer": "/number", "startsWith": "x"}),
        json!({"pointer": "/number", "contains": "x"}),
    ] {
        assert!(condition(test.clone()).holds(&json!({"text": "5", "number": 1})), "{test}");
    }
}

#[test]
fn a_condition_has_one_test_and_a_real_pointer() {
    for bad in [
        json!({"pointer": "/a"}),
        json!({"pointer": "/a", "above": 1, "below": 2}),
        json!({"pointer": "a", "above": 1}),
        json!({"pointer": "/a", "abov": 1}),
        json!({"above": 1}),
        json!({"pointer": "/a", "oneOf": []}),
        json!({"pointer": "/a", "notOneOf": []}),
    ] {
        assert!(serde_json::from_value::<Condition>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn an_entry_that_would_ask_for_everything_by_accident_does_not_load() {
    assert!(serde_json::from_value::<AskRule>(json!({})).is_err());
    assert!(serde_json::from_value::<AskRule>(json!({"reason": "x"})).is_err());
    assert!(serde_json::from_value::<AskRule>(json!({"tols": "fs.*"})).is_err());
}

#[test]
fn an_entry_is_written_as_it_was_read() {
    for entry in [
        json!({"tool": "fs.*", "input": {"pointer": "/a", "equals": null}, "reason": "why"}),
        json!({"permission": "write", "sideEffect": "runtime", "input": {"pointer": "", "exists": true}}),
    ] {
        let rule: AskRule = serde_json::from_value(entry.clone()).unwrap();
        assert_eq!(serde_json::to_value(rule).unwrap(), entry);
    }
}
