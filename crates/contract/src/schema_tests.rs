use serde_json::json;

use super::*;

fn person() -> Schema {
    Schema::compile(&json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "tags": {"type": "array", "items": {"type": "string"}}
        },
        "required": ["name"],
        "additionalProperties": false
    }))
    .unwrap()
}

#[test]
fn problems_point_to_where_they_are_and_do_not_repeat_the_value() {
    let problems = person().problems(&json!({"name": "CANARY", "tags": ["a", 5150], "extra": 1}));
    let pointers: Vec<&str> = problems.iter().map(|p| p.pointer.as_str()).collect();
    assert_eq!(pointers, ["/name", "/tags/1", ""]);
    let text = format!("{problems:?}");
    assert!(!text.contains("CANARY") && !text.contains("5150"), "{text}");
    assert!(person().problems(&json!({"name": "ann"})).is_empty());
}

#[test]
fn a_key_sent_as_a_property_name_is_not_repeated() {
    let key = format!("tg_key_{}", "a".repeat(40));
    let text = format!("{:?}", person().problems(&json!({"name": "ann", &key: 1})));
    assert!(!text.contains("aaaa"), "{text}");
}

#[test]
fn the_number_of_problems_is_bounded() {
    let many: Vec<i32> = (0..1000).collect();
    assert_eq!(person().problems(&json!({"name": "a", "tags": many})).len(), MOST_PROBLEMS);
}

#[test]
fn a_schema_that_reaches_out_or_is_no_schema_is_refused() {
    for bad in [
        json!({"$ref": "http://127.0.0.1:1/schema.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"type": "strin"}),
        json!({"pattern": "("}),
        json!(5),
    ] {
        assert!(Schema::compile(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_pattern_that_would_backtrack_is_refused_or_linear() {
    // Look-around needs backtracking; the linear engine does not have it.
    assert!(Schema::compile(&json!({"pattern": "(?=a)b"})).is_err());
    let schema = Schema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
    assert_eq!(schema.problems(&json!(format!("{}!", "a".repeat(50_000)))).len(), 1);
}

#[test]
fn a_member_where_none_is_allowed_is_pointed_to() {
    let closed = json!({"type": "object", "additionalProperties": false});
    let schema = Schema::compile(&closed).unwrap();
    let problems = schema.problems(&json!({"zone/a": "UTC"}));
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/zone~1a: it is not allowed here"]);
}

#[test]
fn a_problem_is_told_in_a_bounded_way_however_much_is_wrong() {
    let input: serde_json::Map<String, Value> =
        (0..50_000).map(|number| (format!("k{number}"), json!(1))).collect();
    let problems = person().problems(&Value::Object(input));
    let length: usize = problems.iter().map(|problem| problem.to_string().len()).sum();
    assert!(!problems.is_empty() && length < 10_000, "{length}");
}
