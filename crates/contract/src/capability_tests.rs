use proptest::prelude::*;

use super::*;

fn capability(text: &str) -> Capability {
    Capability::parse(text).unwrap()
}

fn host(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

#[test]
fn spellings_of_one_host_are_one_capability() {
    for (written, normal) in [
        ("net", "net"),
        ("net:HuggingFace.co", "net:huggingface.co"),
        ("net:huggingface.co.", "net:huggingface.co"),
        ("net:bücher.example", "net:xn--bcher-kva.example"),
        ("net:*.Example.com", "net:*.example.com"),
        ("net:0x7f.1", "net:127.0.0.1"),
        ("net:2130706433", "net:127.0.0.1"),
        ("net:0177.0.0.1", "net:127.0.0.1"),
        ("net:[::FFFF:127.0.0.1]", "net:127.0.0.1"),
        ("net:[0:0:0:0:0:0:0:1]", "net:[::1]"),
    ] {
        assert_eq!(capability(written).to_string(), normal, "{written}");
    }
}

#[test]
fn what_is_no_capability_is_refused_and_says_what_is() {
    for wrong in [
        "",
        "NET",
        "net:",
        "fs",
        "net:*",
        "net:*.",
        "net:*.com",
        "net:a*.example.com",
        "net:*.127.0.0.1",
        "net:https://example.com",
        "net:example.com/path",
        "net:user@example.com",
        "net:example.com:443",
        "net:exa mple.com",
        "net:a,b.example",
        "net:a!.example",
        "net:.example.com",
        "net:a..b",
        "net:example.com\n",
        "net:%00",
    ] {
        let error = Capability::parse(wrong).unwrap_err().to_string();
        assert!(error.contains("net"), "{wrong:?}: {error}");
    }
}

#[test]
fn a_grant_covers_subdomains_only_when_it_says_so() {
    let reach = |grant: &str, to: &str| capability(grant).reach(&host(to), None);
    assert_eq!(reach("net:example.com", "example.com"), Some(Reach::Named));
    assert_eq!(reach("net:example.com", "api.example.com"), None);
    assert_eq!(reach("net:*.example.com", "api.example.com"), Some(Reach::Public));
    assert_eq!(reach("net:*.example.com", "a.b.example.com"), Some(Reach::Public));
    assert_eq!(reach("net:*.example.com", "example.com"), None);
    assert_eq!(reach("net:*.example.com", "badexample.com"), None);
    assert_eq!(reach("net:*.0.0.1.example", "127.0.0.1"), None);
}

#[test]
fn the_allowlist_bounds_net_and_nothing_that_was_named() {
    let list = [capability("net:example.com"), capability("net:*.example.org")];
    let reach = |grant: &str, to: &str| capability(grant).reach(&host(to), Some(&list));
    assert_eq!(reach("net", "example.com"), Some(Reach::Public));
    assert_eq!(reach("net", "api.example.org"), Some(Reach::Public));
    assert_eq!(reach("net", "example.net"), None);
    assert_eq!(reach("net:example.net", "example.net"), Some(Reach::Named));
    let open = [Capability::Net];
    assert_eq!(Capability::Net.reach(&host("example.com"), Some(&open)), None);
}

fn any_host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9]{1,6}(\\.[a-zA-Z0-9]{1,6}){0,3}\\.?",
        any::<[u8; 4]>().prop_map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}")),
        any::<u32>().prop_map(|number| number.to_string()),
    ]
}

proptest! {
    #[test]
    fn the_normal_form_is_normal(text in any_host(), below in any::<bool>()) {
        let text = if below { format!("net:*.{text}") } else { format!("net:{text}") };
        if let Ok(read) = Capability::parse(&text) {
            prop_assert_eq!(Capability::parse(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn what_covers_another_reaches_wherever_the_other_does(
        one in any_host(), two in any_host(), to in any_host(), bounded in any::<bool>(),
    ) {
        let kinds = |text: &str| {
            ["net".to_owned(), format!("net:{text}"), format!("net:*.{text}")]
                .iter().filter_map(|text| Capability::parse(text).ok()).collect::<Vec<_>>()
        };
        let list = kinds(&two);
        let list = bounded.then_some(&list[..]);
        let Some(to) = HostName::parse(&to) else { return Ok(()) };
        for own in kinds(&one) {
            for other in kinds(&two).into_iter().chain(kinds(&one)) {
                if own.covers(&other, list) {
                    prop_assert!(own.reach(&to, list) >= other.reach(&to, list));
                }
            }
        }
    }

    #[test]
    fn reading_never_panics(text in "\\PC{0,40}") {
        let _ = Capability::parse(&text);
        let _ = Capability::parse(&format!("net:{text}"));
        let _ = Capability::parse(&format!("net:*.{text}"));
    }
}
