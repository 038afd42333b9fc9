use proptest::prelude::*;
use serde_json::json;

use super::*;

fn refused(text: &str) -> (&'static str, String) {
    let error = parse(text.as_bytes()).unwrap_err();
    (error.kind().as_str(), error.pointer().to_owned())
}

#[test]
fn ordinary_json_is_read_as_usual() {
    let text = r#" {"a": [1, -2.5, "x\u00e9\n", true, false, null, {}], "b": {"c": 1e3}} "#;
    assert_eq!(
        parse(text.as_bytes()).unwrap(),
        json!({"a": [1, -2.5, "xé\n", true, false, null, {}], "b": {"c": 1000.0}})
    );
}

#[test]
fn a_repeated_key_is_refused_with_its_pointer() {
    assert_eq!(refused(r#"{"a":1,"a":2}"#), ("duplicate_key", "/a".to_owned()));
    assert_eq!(
        refused(r#"{"x":[0,{"k~/":1,"k~/":1}]}"#),
        ("duplicate_key", "/x/1/k~0~1".to_owned())
    );
    // The same key written in another way is the same key.
    assert_eq!(refused(r#"{"a":1,"\u0061":2}"#), ("duplicate_key", "/a".to_owned()));
    // The same key in another object is not.
    assert!(parse(br#"[{"a":1},{"a":1}]"#).is_ok());
}

#[test]
fn integers_that_would_lose_digits_are_refused_with_their_pointer() {
    assert!(parse(b"[9007199254740991,-9007199254740991]").is_ok());
    for text in [
        "9007199254740992",
        "-9007199254740992",
        "18446744073709551615",
        "1000000000000000000000",
        "9007199254740993.0",
        "1e20",
        "-123456789012345678901234567890",
    ] {
        assert_eq!(
            refused(&format!("{{\"n\":[{text}]}}")),
            ("unsafe_integer", "/n/0".to_owned()),
            "{text}"
        );
    }
    // Written with an exponent in the canonical form, these are no integers there.
    assert!(parse(b"[1E30, -1e21, 1e-400]").is_ok());
}

#[test]
fn a_number_no_double_holds_is_refused() {
    assert_eq!(refused("[1e400]"), ("number_out_of_range", "/0".to_owned()));
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(refused(&nested(MAX_DEPTH + 1)).0, "too_deep");
    // Far beyond it there is still an answer.
    assert_eq!(refused(&"[".repeat(1_000_000)).0, "too_deep");
}

#[test]
fn syntax_errors_say_where() {
    let error = parse(b"{\n  \"a\": [1,\n  }").unwrap_err();
    assert_eq!(error.kind().as_str(), "syntax");
    assert_eq!(error.position().map(|p| p.line), Some(3));
    for text in [
        "",
        " ",
        "{",
        "[1",
        "{\"a\"",
        "nul",
        "01",
        "+1",
        "1.",
        "'a'",
        "[1,]",
        "{,}",
        "1 2",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"a\nb\"",
        "NaN",
        "Infinity",
        "// x\n1",
    ] {
        assert_eq!(refused(text).0, "syntax", "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_is_refused() {
    assert_eq!(refused("\u{feff}1").0, "syntax");
}

#[test]
fn a_number_under_a_secret_name_is_not_repeated() {
    for text in [r#"{"password": 12345678901234567890}"#, r#"{"a": {"pin": [1e999]}}"#] {
        let message = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(!message.contains("123456") && !message.contains("1e999"), "{message}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_position() {
    let error = parse(b"{\"a\":\n\"\xff\"}").unwrap_err();
    assert_eq!(error.kind().as_str(), "not_utf8");
    assert_eq!(error.position(), Some(Position { line: 2, column: 2 }));
}

#[test]
fn check_refuses_in_a_value_what_parse_refuses_in_a_text() {
    assert!(check(&json!({"a": [9_007_199_254_740_991_i64, 0.5, "9007199254740993"]})).is_ok());
    for bad in [json!(9_007_199_254_740_992_i64), json!(u64::MAX), json!(i64::MIN), json!(1e20)] {
        let error = check(&json!({"a": [bad]})).unwrap_err();
        assert_eq!((error.kind().as_str(), error.pointer()), ("unsafe_integer", "/a/0"));
    }
    let mut deep = json!(1);
    for _ in 0..=MAX_DEPTH {
        deep = json!([deep]);
    }
    assert_eq!(check(&deep).unwrap_err().kind().as_str(), "too_deep");
}

proptest! {
    #[test]
    fn agrees_with_serde_json_on_what_is_json(text in "[\\[\\]{}:,\"a1e.\\-+ \\\\unltrfs\n]{0,40}") {
        let ours = parse(text.as_bytes());
        let theirs = serde_json::from_str::<Value>(&text);
        match (&ours, &theirs) {
            (Ok(a), Ok(b)) => prop_assert_eq!(serde_json_canonicalizer::to_string(a).unwrap(), serde_json_canonicalizer::to_string(b).unwrap()),
            (Err(error), Ok(_)) => prop_assert_ne!(error.kind().as_str(), "syntax", "{:?} {}", text, error),
            (Ok(_), Err(error)) => prop_assert!(false, "{text:?} refused by serde_json alone: {error}"),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = parse(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
