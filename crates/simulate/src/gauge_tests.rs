use super::*;

fn gauge(json: &str) -> Gauge {
    Gauge::new(&serde_json::from_str(json).unwrap(), None)
}

/// What the window shows after each of these acts: (at, ends, amount).
fn after(mut gauge: Gauge, acts: &[(i64, i64, u64)]) -> Vec<u64> {
    let each = acts.iter().map(|(at, ends, amount)| {
        gauge.take(*at, *ends, *amount);
        gauge.taken()
    });
    each.collect()
}

#[test]
fn fixed_windows_begin_anew_with_the_utc_clock() {
    let fixed = gauge(r#"{"kind": "fixed", "every": "10s"}"#);
    let acts = [(9_000, 0, 2), (9_999, 0, 3), (10_000, 0, 4), (25_000, 0, 1)];
    assert_eq!(after(fixed, &acts), [2, 5, 4, 1]);
}

#[test]
fn a_provider_has_its_own_windows() {
    let plan = ProviderPlan {
        pool: 0,
        limit: 9,
        every: 10_000,
        begins: 3_000,
        hidden_per_second: 0.0,
        answers: true,
        polled: None,
        latency: 0,
    };
    let window = serde_json::from_str(r#"{"kind": "provider", "every": "1h"}"#).unwrap();
    let acts = [(2_999, 0, 2), (3_000, 0, 3), (12_999, 0, 4), (13_000, 0, 1)];
    assert_eq!(after(Gauge::new(&window, Some(&plan)), &acts), [2, 3, 7, 1]);
}

#[test]
fn a_sliding_window_forgets_each_act_after_its_length_and_not_before() {
    let sliding = gauge(r#"{"kind": "sliding", "every": "5s"}"#);
    let acts = [(0, 0, 2), (4_999, 0, 3), (5_000, 0, 4), (9_999, 0, 1), (20_000, 0, 1)];
    assert_eq!(after(sliding, &acts), [2, 5, 7, 5, 1]);
}

#[test]
fn a_bucket_leaks_steadily_and_counts_parts_as_whole() {
    let bucket = gauge(r#"{"kind": "bucket", "refill": 2, "every": "1s"}"#);
    let acts = [(1_000, 0, 5), (1_499, 0, 1), (1_500, 0, 1), (9_000, 0, 1)];
    assert_eq!(after(bucket, &acts), [5, 6, 6, 1]);
}

#[test]
fn what_runs_counts_until_it_ends() {
    let same = gauge(r#"{"kind": "concurrency"}"#);
    let acts = [(0, 100, 1), (50, 60, 2), (60, 200, 1), (100, 100, 9), (150, 300, 1)];
    assert_eq!(after(same, &acts), [1, 3, 2, 1, 2]);
}

#[test]
fn days_weeks_and_months_begin_at_midnight_in_their_zone() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
    let taken = |unit: &str, moments: [&str; 4]| {
        let json = format!(r#"{{"kind": "calendar", "every": "{unit}", "zone": "Europe/Berlin"}}"#);
        after(gauge(&json), &moments.map(|text| (at(text), 0, 1)))
    };
    // Berlin is an hour ahead in winter: its midnight is at 23:00.
    let days = [
        "2026-01-05T22:59:59Z",
        "2026-01-05T23:00:00Z",
        "2026-01-06T22:59:59Z",
        "2026-01-06T23:00:00Z",
    ];
    assert_eq!(taken("day", days), [1, 1, 2, 1]);
    // The 4th of January 2026 is a Sunday.
    let weeks = [
        "2026-01-04T22:59:59Z",
        "2026-01-04T23:00:00Z",
        "2026-01-11T22:59:59Z",
        "2026-01-11T23:00:00Z",
    ];
    assert_eq!(taken("week", weeks), [1, 1, 2, 1]);
    let months = [
        "2026-01-31T22:59:59Z",
        "2026-01-31T23:00:00Z",
        "2026-02-28T22:59:59Z",
        "2026-02-28T23:00:00Z",
    ];
    assert_eq!(taken("month", months), [1, 1, 2, 1]);
}

#[test]
fn a_run_has_room_for_as_many_limits_as_windows() {
    let minute = 60_000;
    let room = |json: &str| gauge(json).capacity(30_000, 30_000 + 10 * minute, 100.0);
    assert_eq!(room(r#"{"kind": "fixed", "every": "1m"}"#), 1100.0, "it touches eleven");
    assert_eq!(room(r#"{"kind": "sliding", "every": "1m"}"#), 1000.0);
    assert_eq!(room(r#"{"kind": "bucket", "refill": 1, "every": "1s"}"#), 700.0);
    assert_eq!(room(r#"{"kind": "calendar", "every": "day"}"#), 100.0);
    assert_eq!(room(r#"{"kind": "concurrency"}"#), 100.0 * 10.0 * 60_000.0);
}
