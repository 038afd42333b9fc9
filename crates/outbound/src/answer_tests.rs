use serde_json::json;

use super::*;

const NOW: i64 = 1_767_323_045_000;

fn source(members: Value) -> PollSource {
    let mut source = json!({"kind": "json", "url": "http://127.0.0.1/"});
    source.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(source).unwrap()
}

fn read(source: &PollSource, answer: &Value) -> Result<Vec<ProviderReport>, String> {
    reports(source, answer.to_string().as_bytes(), NOW)
}

#[test]
fn github_reports_each_of_its_resources() {
    let github: PollSource = serde_json::from_value(json!({"kind": "github"})).unwrap();
    let answer = json!({
        "resources": {
            "core": {"limit": 5000, "used": 1, "remaining": 4999, "reset": 1_767_326_645},
            "search": {"limit": 30, "used": 12, "remaining": 18, "reset": 1_767_323_105},
            "broken": "x",
            "a name\nthat nobody has": {"remaining": 1},
        },
        "rate": {"limit": 5000, "used": 1, "remaining": 4999, "reset": 1_767_326_645},
    });
    let report = |name: &str, limit, used, remaining, reset_at_ms| ProviderReport {
        name: Some(name.to_owned()),
        limit: Some(limit),
        remaining: Some(remaining),
        reset_at_ms: Some(reset_at_ms),
        used: Some(used),
        window_ms: None,
    };
    assert_eq!(
        read(&github, &answer).unwrap(),
        [
            report("core", 5000, 1, 4999, NOW + 3_600_000),
            report("search", 30, 12, 18, NOW + 60_000)
        ]
    );
    assert!(read(&github, &json!({"message": "hi"})).unwrap_err().contains("no `resources`"));
    assert!(read(&github, &json!({"resources": {}})).unwrap_err().contains("of no resource"));
    let many: serde_json::Map<_, _> =
        (0..1000).map(|n| (format!("r{n}"), json!({"remaining": n}))).collect();
    assert_eq!(read(&github, &json!({"resources": many})).unwrap().len(), MOST);
}

#[test]
fn a_form_of_its_own_is_read_where_the_pointers_point() {
    let everything = source(json!({
        "name": "calls", "limit": "/a/0/max", "remaining": "/a/0/left", "used": "/a/0/spent",
        "reset": "/until", "reset_is": "rfc3339",
    }));
    let answer = json!({
        "a": [{"max": "1000", "left": 12.9, "spent": 988}], "until": "2026-01-02T03:05:05Z",
    });
    let expected = ProviderReport {
        name: Some("calls".to_owned()),
        limit: Some(1000),
        remaining: Some(12),
        reset_at_ms: Some(NOW + 60_000),
        used: Some(988),
        window_ms: None,
    };
    assert_eq!(read(&everything, &answer).unwrap(), [expected]);
}

#[test]
fn a_reset_is_read_as_it_is_said_to_be() {
    for (written, value, expected) in [
        ("unix", json!(1_767_323_105), Some(NOW + 60_000)),
        ("unix", json!("1767323105.5"), Some(NOW + 60_500)),
        ("unix_ms", json!(1_767_323_105_001_i64), Some(NOW + 60_001)),
        ("seconds", json!(1.5), Some(NOW + 1_500)),
        ("rfc3339", json!("2026-01-02T04:05:05+01:00"), Some(NOW + 60_000)),
        ("rfc3339", json!(1_767_323_105), None),
        ("unix", json!(-1), None),
        ("unix", json!("NaN"), None),
        ("unix", json!(1e300), None),
        ("seconds", json!(null), None),
    ] {
        let source = source(json!({"remaining": "/left", "reset": "/reset", "reset_is": written}));
        let report = read(&source, &json!({"left": 1, "reset": value})).unwrap();
        assert_eq!(report[0].reset_at_ms, expected, "{written} {value}");
    }
}

#[test]
fn an_answer_that_says_nothing_is_a_failure_that_does_not_repeat_it() {
    let source = source(json!({"remaining": "/left", "used": "/used"}));
    for nothing in [json!({}), json!({"left": -1}), json!({"left": "many"}), json!({"left": 1e300})]
    {
        let problem = read(&source, &nothing).unwrap_err();
        assert_eq!(problem, "the answer has no count at `/left` or `/used`");
    }
    let problem = reports(&source, b"<html>canary</html>", NOW).unwrap_err();
    assert_eq!(problem, "the answer is not JSON (line 1, column 1)");
    let deep = "[".repeat(100_000);
    assert!(reports(&source, deep.as_bytes(), NOW).is_err());
}
