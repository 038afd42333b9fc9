use serde_json::json;

use super::*;

#[test]
fn what_is_not_said_has_its_default() {
    let config: ModelConfig =
        serde_json::from_value(json!({"url": "http://127.0.0.1:8080/v1"})).unwrap();
    assert_eq!(config.check(), Ok(()));
    assert_eq!(config, ModelConfig::at("http://127.0.0.1:8080"));
    assert_eq!((config.kind, config.tools), (Kind::Openai, ToolMode::Text));
    assert_eq!((config.context_tokens, config.max_output_tokens), (32_768, 4_096));
    let limits = config.limits();
    assert_eq!((limits.timeout.as_secs(), limits.idle.as_secs()), (600, 60));
    assert_eq!(limits.first.as_secs(), 300);
    let unknown = serde_json::from_value::<ModelConfig>(json!({"api_key": "x"})).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `api_key`"), "{unknown}");
}

#[test]
fn everything_can_be_said() {
    let all = json!({
        "kind": "anthropic", "url": "https://api.anthropic.com", "model": "claude",
        "api_key_env": "KEY", "context_tokens": 200_000, "max_output_tokens": 8_000,
        "max_tokens_field": "max_completion_tokens", "tools": "native", "tokenizer": "cl100k",
        "price": {"input": 3, "output": 15.0, "cached_input": 0.3}, "timeout_seconds": 60,
        "idle_timeout_seconds": 5, "first_timeout_seconds": 9, "max_answer_bytes": 1000,
        "headers": {"anthropic-beta": "x"}, "embedding_model": "e",
    });
    let config: ModelConfig = serde_json::from_value(all).unwrap();
    assert_eq!(config.check(), Ok(()));
    let again = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<ModelConfig>(again).unwrap(), config);
    assert_eq!(config.limits().first.as_secs(), 9);
}

#[test]
fn a_bare_address_has_its_version_added() {
    for (given, url) in [
        ("http://localhost:8080", "http://localhost:8080/v1"),
        ("http://localhost:8080/", "http://localhost:8080/v1"),
        ("http://localhost:8080/v1/", "http://localhost:8080/v1"),
        ("https://host/api", "https://host/api"),
        ("nonsense", "nonsense"),
    ] {
        assert_eq!(ModelConfig::at(given).url.unwrap(), url);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let bare = || ModelConfig::at("http://127.0.0.1:1");
    let at = |url: &str| ModelConfig { url: Some(url.to_owned()), ..ModelConfig::default() };
    let header = |name: &str, value: &str| ModelConfig {
        headers: [(name.to_owned(), value.to_owned())].into(),
        ..bare()
    };
    let price = Price { input: -1.0, output: 0.0, cached_input: None };
    let cases = [
        (ModelConfig::default(), "url"),
        (at("no address"), "url"),
        (at("ftp://host/"), "url"),
        (at("http://user:hidden@host/"), "url"),
        (at("http://host/?key=hidden"), "url"),
        (ModelConfig { kind: Kind::Anthropic, ..bare() }, "model"),
        (ModelConfig { kind: Kind::Scripted, ..ModelConfig::default() }, "script"),
        (ModelConfig { script: Some("x".into()), ..bare() }, "script"),
        (ModelConfig { model: Some(" ".to_owned()), ..bare() }, "model"),
        (ModelConfig { api_key_env: Some("sk-12 34".to_owned()), ..bare() }, "api_key_env"),
        (ModelConfig { context_tokens: 0, ..bare() }, "context_tokens"),
        (ModelConfig { max_output_tokens: 0, ..bare() }, "max_output_tokens"),
        (ModelConfig { max_output_tokens: 32_768, ..bare() }, "max_output_tokens"),
        (ModelConfig { timeout_seconds: 0, ..bare() }, "timeout_seconds"),
        (ModelConfig { idle_timeout_seconds: u64::MAX, ..bare() }, "idle_timeout_seconds"),
        (ModelConfig { first_timeout_seconds: Some(0), ..bare() }, "first_timeout_seconds"),
        (ModelConfig { max_answer_bytes: 0, ..bare() }, "max_answer_bytes"),
        (ModelConfig { price: Some(price), ..bare() }, "price.input"),
        (header("Authorization", "x"), "headers.Authorization"),
        (header("x-api-key", "x"), "headers.x-api-key"),
        (header("cookie", "x"), "headers.cookie"),
        (header("Host", "x"), "headers.Host"),
        (header("a b", "x"), "headers.a b"),
        (header("x", "a\nb"), "headers.x"),
    ];
    for (config, setting) in cases {
        let (found, problem) = config.check().expect_err(setting);
        assert_eq!(found, setting);
        assert!(!problem.contains("hidden"), "{problem}");
    }
}

#[test]
fn what_may_be_secret_is_not_shown() {
    let config = ModelConfig {
        headers: [("x-team".to_owned(), "hidden-value".to_owned())].into(),
        url: Some("http://user:hidden-value@host/".to_owned()),
        ..ModelConfig::default()
    };
    let shown = format!("{config:?}");
    assert!(shown.contains("x-team") && !shown.contains("hidden-value"), "{shown}");
}
