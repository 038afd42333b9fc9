use proptest::prelude::*;
use serde_json::json;

use super::*;

fn clean(mut value: Value) -> Value {
    redact(&mut value);
    value
}

#[test]
fn fields_with_secret_names_lose_their_value_whatever_its_type() {
    let value = json!({
        "user": "ann", "password": "hunter2", "apiKey": 12345, "credentials": {"a": 1},
        "nested": [{"access_token": ["x"]}], "max_tokens": 100,
        "secret": null, "token": true, "cookie": ""
    });
    assert_eq!(
        clean(value),
        json!({
            "user": "ann", "password": "[redacted:field]", "apiKey": "[redacted:field]",
            "credentials": "[redacted:field]", "nested": [{"access_token": "[redacted:field]"}],
            "max_tokens": 100, "secret": null, "token": true, "cookie": ""
        })
    );
}

#[test]
fn keys_are_known_by_their_format() {
    for (key, placeholder) in [
        (format!("tg_key_{}", "0f".repeat(32)), "[redacted:tollgate-key]"),
        ("tg_tok_abcdef".to_owned(), "[redacted:tollgate-key]"),
        (format!("sk-ant-api03-{}", "aB3_".repeat(8)), "[redacted:provider-key]"),
        (format!("sk-proj-{}", "aB3-".repeat(8)), "[redacted:provider-key]"),
        (format!("ghp_{}", "a1B2".repeat(9)), "[redacted:provider-key]"),
        (format!("github_pat_{}", "a1_".repeat(9)), "[redacted:provider-key]"),
        (format!("AKIA{}", "A1B2".repeat(4)), "[redacted:provider-key]"),
        (format!("AIza{}", "a".repeat(35)), "[redacted:provider-key]"),
        (format!("xoxb-{}", "1234567890"), "[redacted:provider-key]"),
        (format!("hf_{}", "aB".repeat(17)), "[redacted:provider-key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl".to_owned(), "[redacted:jwt]"),
    ] {
        assert_eq!(
            redact_text(&format!("use {key}, please")),
            format!("use {placeholder}, please")
        );
    }
}

#[test]
fn ordinary_text_stays_as_it_is() {
    for text in [
        "",
        "hello",
        "task-management-for-everyone-in-2024",
        "a = b",
        "time: 12:30",
        "std::secret::Key::new()",
        "https://example.org/path?limit=5&page_token=abc",
        "max_tokens=100",
        "1 + 1 = 2",
        "--verbose yes",
        "the bearer of news",
        "[redacted:nothing]",
        "tg_key_",
        "ratio 3:4",
        "-----BEGIN-----",
    ] {
        assert_eq!(redact_text(text), text);
        assert!(matches!(redact_text(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn pem_blocks_are_taken_out_also_when_they_are_cut_short() {
    let block = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----";
    assert_eq!(
        redact_text(&format!("a {block} b {block} c")),
        "a [redacted:pem] b [redacted:pem] c"
    );
    assert_eq!(redact_text("x -----BEGIN PRIVATE KEY-----\nMIIE"), "x [redacted:pem]");
}

#[test]
fn credentials_in_headers_urls_and_assignments_are_taken_out() {
    for (text, expected) in [
        ("Bearer abcdefgh", "Bearer [redacted:bearer]"),
        (
            "curl -H 'Authorization: Basic dXNlcjpwYXNz' http://x",
            "curl -H 'Authorization: [redacted:field]' http://x",
        ),
        ("Cookie: a=1; b=2\nHost: x", "Cookie: [redacted:field]\nHost: x"),
        ("postgres://ann:p@ss:w0rd@db/x", "postgres://ann:[redacted:url-password]@db/x"),
        ("https://x/y?api_key=abc&q=1", "https://x/y?api_key=[redacted:field]&q=1"),
        ("export DB_PASSWORD='a b c' && run", "export DB_PASSWORD='[redacted:field]' && run"),
        (r#"{"apiKey": "a\"b", "n": 1}"#, r#"{"apiKey": "[redacted:field]", "n": 1}"#),
        (r#"{\"password\":\"x y\",\"n\":1}"#, r#"{\"password\":\"[redacted:field]\",\"n\":1}"#),
        ("mysql --password hunter2 -u ann", "mysql --password [redacted:field] -u ann"),
        ("mysql --password=hunter2", "mysql --password=[redacted:field]"),
        ("note: password=x", "note: password=[redacted:field]"),
        ("env['API_KEY'] = 'abc'", "env['API_KEY'] = '[redacted:field]'"),
        ("secret => abc", "secret => [redacted:field]"),
        ("password=", "password="),
        (r"password=\x y", "password=[redacted:field] y"),
        (r"password=a\b y", "password=[redacted:field] y"),
        (r#"{\"password\":\"a\\\"b\",\"n\":1}"#, r#"{\"password\":\"[redacted:field]\",\"n\":1}"#),
        (
            r#"{\"password\":\"ends in a backslash\\\\\",\"n\":1}"#,
            r#"{\"password\":\"[redacted:field]\",\"n\":1}"#,
        ),
        (r#"\"Authorization: Basic abc\" x"#, r#"\"Authorization: [redacted:field]\" x"#),
        ("[redacted:url-password]=kept", "[redacted:url-password]=kept"),
        ("password=token]=kept", "password=[redacted:field]]=kept"),
    ] {
        assert_eq!(redact_text(text), expected, "{text}");
        assert_eq!(redact_text(expected), expected, "again: {text}");
    }
}

#[test]
fn keys_of_an_object_are_redacted_and_none_is_lost() {
    let (a, b) = (format!("ghp_{}", "a".repeat(36)), format!("ghp_{}", "b".repeat(36)));
    let value = json!({ &b: 2, "plain": 0, &a: 1 });
    let expected =
        json!({"plain": 0, "[redacted:provider-key]": 1, "[redacted:provider-key]#2": 2});
    assert_eq!(clean(value), expected);
    assert_eq!(clean(expected.clone()), expected);
}

#[test]
fn a_key_that_was_redacted_hides_nothing() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
    let once = clean(json!({ jwt: "kept", "http://ann:pw1234@": "kept too" }));
    assert_eq!(
        once,
        json!({"[redacted:jwt]": "kept", "http://ann:[redacted:url-password]@": "kept too"})
    );
    assert_eq!(clean(once.clone()), once);
}

#[test]
fn a_deeply_nested_value_is_redacted_without_overflow() {
    let mut value = json!("Bearer abcdefgh");
    for _ in 0..5_000 {
        value = Value::Array(vec![value]);
    }
    redact(&mut value);
    let mut inner = &value;
    while let Some(next) = inner.get(0) {
        inner = next;
    }
    assert_eq!(inner, "Bearer [redacted:bearer]");
}

/// Text made of pieces that matter to the stages, so that they meet in every way.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("password".to_owned()),
        Just("token".to_owned()),
        Just("Cookie".to_owned()),
        Just("Authorization".to_owned()),
        Just("--secret".to_owned()),
        Just("=".to_owned()),
        Just(": ".to_owned()),
        Just(":".to_owned()),
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("\\\"".to_owned()),
        Just("\\".to_owned()),
        Just(" ".to_owned()),
        Just("\n".to_owned()),
        Just("Bearer ".to_owned()),
        Just("abcdefgh12".to_owned()),
        Just("://u:".to_owned()),
        Just("@".to_owned()),
        Just("[redacted:field]".to_owned()),
        Just("[redacted:".to_owned()),
        Just("]".to_owned()),
        Just("-----BEGIN X-----".to_owned()),
        Just("-----END X-----".to_owned()),
        Just("tg_key_abcdefgh".to_owned()),
        Just(format!("ghp_{}", "a".repeat(36))),
        Just("AKIAAAAAAAAAAAAAAAAA".to_owned()),
        Just("sk-".to_owned()),
        Just("eyJabcdefgh.eyJabcd".to_owned()),
        "[a-zA-Z0-9]{1,12}",
        "\\PC{0,4}",
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn redaction_of_text_is_idempotent(text in hostile_text()) {
        let once = redact_text(&text).into_owned();
        let twice = redact_text(&once).into_owned();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn redaction_leaves_no_canary(before in hostile_text(), after in hostile_text(), form in 0..8) {
        let canary = "Zq7canaryZq7canaryZq7canaryZq7canary";
        // A quote or an opened block around it may change where a value ends; it starts a line of its own.
        let secret = match form {
            0 => format!("tg_key_{canary}"),
            1 => format!("ghp_{canary}"),
            2 => format!("sk-ant-{canary}"),
            3 => format!("Bearer {canary}"),
            4 => format!("https://ann:{canary}@host/"),
            5 => format!("password={canary}"),
            6 => format!("-----BEGIN X-----{canary}-----END X-----"),
            _ => format!("hf_{canary}"),
        };
        let text = format!("{before}\n{secret}\n{after}");
        prop_assert!(!redact_text(&text).contains(canary), "{}", redact_text(&text));
        let field = json!({"outer": [{"clientSecret": text.clone(), "note": text.clone(), (text): 1}]});
        prop_assert!(!clean(field).to_string().contains(canary));
    }

    #[test]
    fn redaction_of_values_is_idempotent(a in hostile_text(), b in hostile_text(), c in hostile_text()) {
        let once = clean(json!({ (a): [b.clone(), {"password": c.clone()}], (c): {"x": b} }));
        prop_assert_eq!(clean(once.clone()), once);
    }
}
