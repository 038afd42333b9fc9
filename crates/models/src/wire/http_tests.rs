use super::*;

#[test]
fn paths_go_behind_the_address() {
    for (base, path, expected) in [
        ("http://a/v1", "chat/completions", "http://a/v1/chat/completions"),
        ("http://a/v1/", "chat/completions", "http://a/v1/chat/completions"),
        ("http://a", "chat/completions", "http://a/chat/completions"),
        ("http://a", "v1/messages", "http://a/v1/messages"),
        ("http://a/v1", "v1/messages", "http://a/v1/messages"),
        ("http://a/x/v1/", "v1/messages", "http://a/x/v1/messages"),
        ("http://a/apiv1", "v1/messages", "http://a/apiv1/v1/messages"),
    ] {
        assert_eq!(below(&Url::parse(base).unwrap(), path).as_str(), expected);
    }
}

#[test]
fn a_key_that_cannot_be_sent_is_not_shown() {
    let environment: Environment = Arc::new(|_| Some("line\nbreak".to_owned()));
    let key = Some(("KEY".to_owned(), KeyHeader::Bearer));
    let url = Url::parse("http://127.0.0.1:1/").unwrap();
    let http = Http::new(url, key, environment, HeaderMap::new(), Duration::from_secs(1));
    let error = http.key().unwrap_err().to_string();
    assert!(error.contains("`KEY` holds no API key") && !error.contains("break"), "{error}");
}
