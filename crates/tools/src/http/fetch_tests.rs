use reqwest::header::HeaderValue;

use super::*;

#[test]
fn a_redirect_leads_where_it_may() {
    let from = Target::parse("https://example.com/a/b?c").unwrap();
    for (location, to) in [
        ("/x", "https://example.com/x"),
        ("x", "https://example.com/a/x"),
        ("//other.example/x", "https://other.example/x"),
        ("https://other.example#frag", "https://other.example/"),
        ("?d", "https://example.com/a/b?d"),
    ] {
        assert_eq!(next(&from, location).unwrap().url.as_str(), to);
    }
    for (location, says) in [
        ("http://example.com/", "from https:// to http://"),
        ("file:///etc/passwd", "`file`"),
        ("data:text/html,x", "`data`"),
        ("javascript:x", "`javascript`"),
        ("https://a:b@example.com/", "user name"),
        ("https://", "no address"),
    ] {
        let problem = next(&from, location).unwrap_err();
        assert!(problem.to_string().contains(says), "{location}: {problem}");
    }
    let from = Target::parse("http://example.com/").unwrap();
    assert!(next(&from, "https://example.com/").is_ok());
}

#[test]
fn what_is_not_to_be_kept_is_not_kept() {
    for (value, seconds) in [
        ("no-store", Some(0)),
        ("Private, max-age=60", Some(0)),
        ("no-cache=\"x\"", Some(0)),
        ("public, max-age=60", Some(60)),
        ("max-age=60, s-maxage=30", Some(30)),
        ("max-age=\"5\"", Some(5)),
        ("max-age=99999999999999999999999", None),
        ("public", None),
        ("", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_str(value).unwrap());
        assert_eq!(keep_seconds(&headers), seconds, "{value}");
    }
    assert_eq!(keep_seconds(&HeaderMap::new()), None);
}

#[test]
fn problems_become_errors_that_say_what_to_do() {
    let host = Target::parse("https://api.example/x").unwrap().host;
    let error = HttpProblem::NotGranted { host: host.clone(), why: "no grant".into() }.error();
    assert_eq!(error.details()["capability"], "net:api.example");
    let inside = HttpProblem::NotPublic {
        host,
        address: "10.0.0.1".parse().unwrap(),
        what: "a private address",
        by_address: false,
    };
    assert!(inside.to_string().ends_with("that takes the capability `net:api.example`"));
}
