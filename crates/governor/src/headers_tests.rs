use proptest::prelude::*;

use super::*;

/// 2026-01-02T03:04:05Z.
const NOW: i64 = 1_767_323_045_000;

fn read(headers: &[(&str, &str)]) -> Learned {
    from_headers(headers.iter().copied(), NOW)
}

/// A report from its parts, in the order of the struct.
fn report(
    name: &str,
    limit: impl Into<Option<u64>>,
    remaining: impl Into<Option<u64>>,
    reset_at_ms: impl Into<Option<i64>>,
) -> ProviderReport {
    ProviderReport {
        name: (!name.is_empty()).then(|| name.to_owned()),
        limit: limit.into(),
        remaining: remaining.into(),
        reset_at_ms: reset_at_ms.into(),
        ..ProviderReport::default()
    }
}

fn seconds(seconds: i64) -> i64 {
    NOW + seconds * 1000
}

/// What is shown, what is sent, and what is learned from it.
type Case = (&'static str, Vec<(&'static str, &'static str)>, Vec<ProviderReport>);

#[test]
fn each_provider_is_understood() {
    let windowed = |report, window_ms| ProviderReport { window_ms: Some(window_ms), ..report };
    let table: Vec<Case> = vec![
        (
            "ietf, as it is now",
            vec![
                ("RateLimit-Policy", "\"default\";q=100;w=60"),
                ("RateLimit", "\"default\";r=50;t=30"),
            ],
            vec![windowed(report("default", 100, 50, seconds(30)), 60_000)],
        ),
        (
            "ietf, several limits, parameters in any order, units and partitions",
            vec![
                (
                    "ratelimit",
                    "\"burst\" ; t=5; r=9,\"daily, all\";r=3;pk=:QUJD:;t=7200, other;r=1",
                ),
                (
                    "ratelimit-policy",
                    "\"daily, all\";w=86400;qu=\"requests\";q=1000, \"burst\";w=1;q=10",
                ),
            ],
            vec![
                windowed(report("burst", 10, 9, seconds(5)), 1_000),
                windowed(report("daily, all", 1000, 3, seconds(7200)), 86_400_000),
                report("other", None, 1, None),
            ],
        ),
        (
            "ietf, in one field",
            vec![
                ("RateLimit", "limit=100, remaining=50, reset=30"),
                ("RateLimit-Policy", "10;w=1, 100;w=60"),
            ],
            vec![windowed(report("", 100, 50, seconds(30)), 60_000)],
        ),
        (
            "ietf, in three fields",
            vec![
                ("RateLimit-Limit", "100, 100;w=60, 5000;w=3600"),
                ("RateLimit-Remaining", "42"),
                ("RateLimit-Reset", "17"),
            ],
            vec![windowed(report("", 100, 42, seconds(17)), 60_000)],
        ),
        (
            "docker hub",
            vec![("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "76;w=21600")],
            vec![windowed(report("", 100, 76, None), 21_600_000)],
        ),
        (
            "a policy alone",
            vec![("RateLimit-Policy", "20;w=1")],
            vec![windowed(report("", 20, None, None), 1_000)],
        ),
        (
            "github",
            vec![
                ("X-RateLimit-Limit", "5000"),
                ("X-RateLimit-Remaining", "4987"),
                ("X-RateLimit-Reset", "1767326645"),
                ("X-RateLimit-Used", "13"),
                ("X-RateLimit-Resource", "core"),
            ],
            vec![ProviderReport { used: Some(13), ..report("core", 5000, 4987, seconds(3600)) }],
        ),
        (
            "a reset as a span",
            vec![("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "60")],
            vec![report("", None, 1, seconds(60))],
        ),
        (
            "a reset in milliseconds",
            vec![("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "1767323105000")],
            vec![report("", None, 1, seconds(60))],
        ),
        (
            "a reset as a date",
            vec![
                ("x-ratelimit-remaining", "1"),
                ("x-ratelimit-reset", "2026-01-02T04:05:05+01:00"),
            ],
            vec![report("", None, 1, seconds(60))],
        ),
        (
            "twitter",
            vec![
                ("x-rate-limit-limit", "900"),
                ("x-rate-limit-remaining", "899"),
                ("x-rate-limit-reset", "1767323945"),
            ],
            vec![report("", 900, 899, seconds(900))],
        ),
        (
            "discord",
            vec![
                ("X-RateLimit-Limit", "5"),
                ("X-RateLimit-Remaining", "0"),
                ("X-RateLimit-Reset", "1767323046.470"),
                ("X-RateLimit-Reset-After", "1.47"),
                ("X-RateLimit-Bucket", "abcd1234"),
            ],
            vec![report("", 5, 0, NOW + 1470)],
        ),
        (
            "kong",
            vec![("X-RateLimit-Limit-Minute", "5"), ("X-RateLimit-Remaining-Minute", "4")],
            vec![windowed(report("minute", 5, 4, None), 60_000)],
        ),
        (
            "rapidapi",
            vec![
                ("x-ratelimit-requests-limit", "500"),
                ("x-ratelimit-requests-remaining", "499"),
                ("x-ratelimit-requests-reset", "86399"),
            ],
            vec![report("requests", 500, 499, seconds(86_399))],
        ),
        (
            "openai",
            vec![
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-limit-tokens", "150000"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-requests", "20ms"),
                ("x-ratelimit-reset-tokens", "6m0s"),
                ("x-ratelimit-limit-input-tokens", "7"),
                ("x-ratelimit-reset-input-tokens", "1h2m59.5601s"),
            ],
            vec![
                report("input-tokens", 7, None, seconds(3779) + 561),
                report("requests", 60, 59, NOW + 20),
                report("tokens", 150_000, 149_984, seconds(360)),
            ],
        ),
        (
            "anthropic",
            vec![
                ("anthropic-ratelimit-requests-limit", "1000"),
                ("anthropic-ratelimit-requests-remaining", "999"),
                ("anthropic-ratelimit-requests-reset", "2026-01-02T03:05:05Z"),
                ("anthropic-ratelimit-input-tokens-limit", "80000"),
                ("anthropic-ratelimit-input-tokens-remaining", "79000"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-01-02T03:04:06Z"),
                ("anthropic-ratelimit-unified-status", "allowed"),
            ],
            vec![
                report("input-tokens", 80_000, 79_000, seconds(1)),
                report("requests", 1000, 999, seconds(60)),
            ],
        ),
        (
            "two families are kept apart",
            vec![("x-ratelimit-remaining", "10"), ("ratelimit-remaining", "20")],
            vec![report("", None, 20, None), report("", None, 10, None)],
        ),
    ];
    for (what, headers, expected) in table {
        let expected = Learned { reports: expected, retry_at_ms: None };
        assert_eq!(read(&headers), expected, "{what}");
        let turned: Vec<_> = headers.iter().rev().copied().collect();
        assert_eq!(read(&turned), expected, "{what}, the other way round");
    }
}

#[test]
fn a_wish_to_be_left_alone_is_understood() {
    let table = [
        ("Retry-After", "120", Some(seconds(120))),
        ("retry-after", "0", Some(NOW)),
        ("retry-after", "1.5", Some(NOW + 1500)),
        ("RETRY-AFTER", "Fri, 02 Jan 2026 03:05:05 GMT", Some(seconds(60))),
        ("retry-after", "Friday, 02-Jan-26 03:05:05 GMT", Some(seconds(60))),
        ("retry-after", "Fri Jan  2 03:05:05 2026", Some(seconds(60))),
        ("retry-after", "30, 60", Some(seconds(60))),
        ("retry-after-ms", "250", Some(NOW + 250)),
        ("retry-after", "-1", None),
        ("retry-after", "soon", None),
        ("retry-after", "99999999999999999999999", None),
        ("retry-after", "", None),
        ("retry-after-ms", "9223372036854775807", None),
    ];
    for (name, text, expected) in table {
        assert_eq!(
            read(&[(name, text)]),
            Learned { reports: vec![], retry_at_ms: expected },
            "{text}"
        );
    }
    let both = read(&[("retry-after", "2"), ("retry-after-ms", "1500")]);
    assert_eq!(both.retry_at_ms, Some(seconds(2)));
}

#[test]
fn what_cannot_be_read_is_skipped_by_itself() {
    for nonsense in ["", "-1", "x", "1e9", "NaN", "1.2.3", "0x10", "18446744073709551616", "١"] {
        let learned = read(&[
            ("x-ratelimit-limit", nonsense),
            ("x-ratelimit-remaining", "7"),
            ("x-ratelimit-reset", nonsense),
            ("x-ratelimit-used", "12.2"),
        ]);
        let expected = ProviderReport { used: Some(13), ..report("", None, 7, None) };
        assert_eq!(learned.reports, [expected], "{nonsense}");
    }
    assert_eq!(read(&[("x-ratelimit-limit", "x"), ("server", "nginx")]), Learned::default());
    assert_eq!(
        read(&[("ratelimit", "\"a;r=1"), ("ratelimit-policy", "\"\";q=1")]),
        Learned::default()
    );
    assert_eq!(read(&[("x-ratelimit-limit", "12.0")]).reports, [report("", 12, None, None)]);
}

#[test]
fn of_what_is_said_twice_the_more_careful_counts() {
    let twice = read(&[
        ("x-ratelimit-remaining", "50"),
        ("x-ratelimit-remaining", "40, 45"),
        ("x-ratelimit-remaining", "60"),
        ("x-ratelimit-reset", "10"),
        ("x-ratelimit-reset", "20"),
    ]);
    assert_eq!(twice.reports, [report("", None, 40, seconds(20))]);
}

#[test]
fn however_many_there_are_only_so_many_are_looked_at() {
    let names: Vec<String> = (0..10_000).map(|n| format!("x-ratelimit-remaining-{n:05}")).collect();
    let learned = from_headers(names.iter().map(|name| (name.as_str(), "1")), NOW);
    assert_eq!(learned.reports.len(), MOST);
    let many: Vec<String> = (0..200).map(|n| format!("p{n};r=1")).collect();
    let learned = read(&[("ratelimit", &many.join(","))]);
    assert_eq!(learned.reports.len(), MOST);
    // Others before them do not count.
    let other = std::iter::repeat_n(("server", "nginx"), 10_000);
    let learned = from_headers(other.chain([("x-ratelimit-remaining", "3")]), NOW);
    assert_eq!(learned.reports, [report("", None, 3, None)]);
    assert_eq!(read(&[("x-ratelimit-remaining", &"1".repeat(100_000))]), Learned::default());
}

fn any_name() -> impl Strategy<Value = String> {
    let known = [
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "x-ratelimit-reset",
        "x-ratelimit-used",
        "x-ratelimit-resource",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-reset",
        "x-ratelimit-reset-after",
        "Retry-After",
        "retry-after-ms",
    ];
    prop_oneof![prop::sample::select(known.to_vec()).prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #[test]
    fn no_text_does_harm(
        headers in proptest::collection::vec((any_name(), "\\PC*|[0-9a-z\"=;,.:µ \\\\GMT-]{0,40}"), 0..20),
        now in any::<i64>(),
    ) {
        let learned = from_headers(headers.iter().map(|(name, text)| (name.as_str(), text.as_str())), now);
        prop_assert!(learned.reports.len() <= MOST);
        let says_something = |report: &ProviderReport| {
            let counts = [report.limit, report.remaining, report.used];
            counts.iter().any(Option::is_some) || report.reset_at_ms.is_some()
        };
        prop_assert!(learned.reports.iter().all(says_something));
    }
}
