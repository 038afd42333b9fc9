use serde_json::{Value, json};

use super::*;

fn read(source: Value) -> Result<PollSource, String> {
    let source: PollSource = serde_json::from_value(source).map_err(|error| error.to_string())?;
    source.check().map(|()| source).map_err(|error| error.to_string())
}

#[test]
fn little_needs_to_be_said() {
    let github = read(json!({"kind": "github"})).unwrap();
    assert_eq!(github.url(), "https://api.github.com/rate_limit");
    assert_eq!(
        (github.every(), github.timeout()),
        (Duration::from_secs(60), Duration::from_secs(10))
    );
    let json = read(json!({"kind": "json", "url": "http://127.0.0.1/", "used": "/used"})).unwrap();
    assert_eq!(json.header(), ("authorization", "Bearer"));
    let PollSource::Json(poll) = json else { panic!("{json:?}") };
    assert_eq!(poll.reset_is, ResetIs::Unix);
}

#[test]
fn what_is_wrong_is_said() {
    let json = |members: Value| {
        let mut source = json!({"kind": "json", "url": "https://a.example/", "remaining": "/left"});
        let source_members = source.as_object_mut().unwrap();
        source_members.extend(members.as_object().unwrap().clone());
        source
    };
    for (source, said) in [
        (json!({"kind": "gitlab"}), "unknown variant `gitlab`"),
        (json!({"kind": "github", "tokn": "x"}), "unknown field `tokn`"),
        (json!({"kind": "json", "remaining": "/left"}), "missing field `url`"),
        (json!({"kind": "json", "url": "https://a.example/"}), "neither `remaining` nor `used`"),
        (json(json!({"reset_is": "minutes"})), "unknown variant `minutes`"),
        (json(json!({"extra": 1})), "unknown field `extra`"),
        (json(json!({"url": "a.example"})), "is not an address to ask"),
        (json(json!({"url": "ftp://a.example"})), "is not an address to ask"),
        (json(json!({"url": "https://a:b@a.example"})), "use `token_env` or `token_file` instead"),
        (json(json!({"every_seconds": 4})), "at least 5 is needed"),
        (json(json!({"timeout_seconds": 0})), "from 1 to 300"),
        (json(json!({"token_env": "A", "token_file": "b"})), "keep one"),
        (json(json!({"limit": "data.limit"})), "`limit` is `data.limit`, which is no JSON pointer"),
        (json(json!({"header": "a b"})), "which is no name of a header"),
    ] {
        let problem = read(source).unwrap_err();
        assert!(problem.contains(said), "{problem}");
    }
}
