use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()))
        .collect()
}

const BOUND: &str = "127.0.0.1:8090";

#[test]
fn only_names_of_this_machine_are_hosts_unless_others_are_allowed() {
    let settings =
        Settings { allowed_hosts: vec!["gate.example".to_owned()], ..Settings::default() };
    let check =
        |host: &str| check_host(&headers(&[("host", host)]), BOUND.parse().unwrap(), &settings);
    for good in [
        "localhost",
        "localhost:8090",
        "LOCALHOST:1",
        "127.0.0.1:8090",
        "[::1]:8090",
        "gate.example",
        "gate.example:443",
    ] {
        assert!(check(good).is_ok(), "{good}");
    }
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8090",
        "",
        "evil.example:8090",
        "0x7f.1",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
    let twice = headers(&[("host", "localhost")]);
    let mut twice = twice;
    twice.append(header::HOST, "evil.example".parse().unwrap());
    assert!(check_host(&twice, BOUND.parse().unwrap(), &settings).is_err());
    assert!(check_host(&HeaderMap::new(), BOUND.parse().unwrap(), &settings).is_err());
}

#[test]
fn a_page_is_this_gates_own_or_one_that_was_allowed_exactly() {
    let settings =
        Settings { allowed_origins: vec!["https://ops.example".to_owned()], ..Settings::default() };
    let check = |origin: &str| {
        check_origin(&headers(&[("host", "localhost:8090"), ("origin", origin)]), &settings).ok()
    };
    assert_eq!(check("http://localhost:8090"), Some(true));
    assert_eq!(check("https://ops.example"), Some(true));
    for bad in [
        "http://localhost:3000",
        "https://ops.example.evil.example",
        "https://ops.example:444",
        "null",
        "http://localhost",
    ] {
        assert_eq!(check(bad), None, "{bad}");
    }
    assert_eq!(check_origin(&headers(&[("host", "localhost")]), &settings).ok(), Some(false));
}

#[test]
fn a_key_is_taken_from_one_bearer_header_and_nowhere_else() {
    let secret = |pairs: &[(&'static str, &str)]| {
        bearer(&headers(pairs)).unwrap().map(|secret| secret.expose().to_owned())
    };
    assert_eq!(secret(&[]), None);
    assert_eq!(secret(&[("authorization", "Bearer abc")]).as_deref(), Some("abc"));
    assert_eq!(secret(&[("authorization", "bearer  abc ")]).as_deref(), Some("abc"));
    assert_eq!(secret(&[("authorization", "Basic abc")]).as_deref(), Some(""));
    let mut twice = headers(&[("authorization", "Bearer a")]);
    twice.append(header::AUTHORIZATION, "Bearer b".parse().unwrap());
    assert!(bearer(&twice).is_err());
    assert!(check_uri(&"/v1/events?key=tg_key_abcdef".parse().unwrap()).is_err());
    assert!(check_uri(&"/v1/events?kind=a".parse().unwrap()).is_ok());
    assert!(check_uri(&"/%74g_key_abcdef".parse().unwrap()).is_err());
    assert!(check_uri(&"http://tg_key_abcdef@localhost/health".parse().unwrap()).is_err());
    assert_eq!(decoded("/a%20b%zz%4"), "/a b%zz%4");
}
