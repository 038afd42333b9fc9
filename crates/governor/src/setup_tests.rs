use super::*;

fn build(json: &str) -> Result<Setup, SetupError> {
    serde_json::from_str::<GovernorConfig>(json).unwrap().build(0)
}

/// What is wrong, and where.
fn wrong(json: &str) -> (String, String) {
    let error = build(json).unwrap_err();
    (error.field, error.problem)
}

const POOL: &str = r#"{"id": "p:a", "limit": 10, "window": {"kind": "fixed", "every": "1h"}}"#;

#[test]
fn a_configuration_that_cannot_work_does_not_load_and_says_why() {
    let route = |draw: &str| {
        format!(
            r#"{{"pools": [{POOL}, {{"id": "llm:tokens", "unit": "tokens", "limit": 100, "window": {{"kind": "concurrency"}}}}], "routes": [{{"pools": [{draw}]}}]}}"#
        )
    };
    let pool = |pool: &str| {
        format!(r#"{{"pools": [{pool}], "routes": [{{"pools": [{{"id": "p:a"}}]}}]}}"#)
    };
    for (json, field, words) in [
        (
            pool(r#"{"id": "A", "limit": 1, "window": {"kind": "concurrency"}}"#),
            "pools[0].id",
            "provider:name",
        ),
        (
            pool(r#"{"id": "p:a", "limit": 0, "window": {"kind": "concurrency"}}"#),
            "pools[0].limit",
            "from 1",
        ),
        (
            pool(r#"{"id": "p:a", "window": {"kind": "concurrency"}}"#),
            "pools[0].limit",
            "is missing",
        ),
        (
            pool(r#"{"id": "p:a", "limit": 1, "window": {"kind": "fixed", "every": "soon"}}"#),
            "pools[0].window",
            "length of time",
        ),
        (
            pool(
                r#"{"id": "p:a", "limit": 1, "window": {"kind": "calendar", "every": "day", "zone": "Mars/Base"}}"#,
            ),
            "pools[0].window",
            "time zone",
        ),
        (
            pool(
                r#"{"id": "p:a", "limit": 1, "window": {"kind": "bucket", "refill": 0, "every": "1s"}}"#,
            ),
            "pools[0].window.refill",
            "from 1 to",
        ),
        (
            pool(
                r#"{"id": "p:a", "unit": "Many Calls", "limit": 1, "window": {"kind": "concurrency"}}"#,
            ),
            "pools[0].unit",
            "one word",
        ),
        (format!(r#"{{"pools": [{POOL}, {POOL}], "routes": []}}"#), "pools[1].id", "two pools"),
        (format!(r#"{{"pools": [{POOL}]}}"#), "routes", "no route"),
        (route(r#"{"id": "p:b"}"#), "routes[0].pools[0].id", "did you mean `p:a`?"),
        (route(r#"{"id": "p:a"}, {"id": "p:a"}"#), "routes[0].pools[1].id", "twice"),
        (route(r#"{"id": "p:a", "cost": 11}"#), "routes[0].pools[0].cost", "never fits"),
        (route(r#"{"id": "p:a", "cost": 5, "worst": 2}"#), "routes[0].pools[0].worst", "less than"),
        (route(r#"{"id": "llm:tokens"}"#), "routes[0].pools[0].worst", "is missing"),
        (route(""), "routes[0].pools", "1 to 16"),
    ] {
        let (at, problem) = wrong(&json);
        assert_eq!(at, field, "{problem}");
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn every_route_that_matches_counts_and_the_larger_cost_wins() {
    let setup = build(
        r#"{"pools": [{"id": "p:core", "limit": 100, "window": {"kind": "concurrency"}},
                      {"id": "p:search", "limit": 100, "window": {"kind": "concurrency"}}],
            "routes": [{"pools": [{"id": "p:core"}]},
                       {"workload": "search*", "pools": [{"id": "p:search"}, {"id": "p:core", "cost": 3}]},
                       {"workload": "search_é*", "agent": "ci", "pools": [{"id": "p:core", "cost": 9}]}]}"#,
    )
    .unwrap();
    let draws = |agent, workload, named_only| {
        let work = Work { agent, identity: "i", workload, scope: "s" };
        let mut draws: Vec<(usize, u64)> = setup
            .draws_of(&work, &Expected::UNKNOWN, named_only)
            .into_iter()
            .map(|draw| (draw.pool, draw.amount))
            .collect();
        draws.sort_unstable();
        draws
    };
    assert_eq!(draws("a", "scan", false), [(0, 1)]);
    assert_eq!(draws("a", "search_code", false), [(0, 3), (1, 1)]);
    assert_eq!(draws("ci", "search_é1", false), [(0, 9), (1, 1)]);
    assert_eq!(draws("a", "search_é1", false), [(0, 3), (1, 1)]);
    // Work that costs nothing by itself draws only where it is named.
    assert_eq!(draws("a", "scan", true), []);
    assert_eq!(draws("a", "search_code", true), [(0, 3), (1, 1)]);
}

#[test]
fn what_is_kept_free_leaves_something_of_the_smallest_limit() {
    let kept: Vec<u64> =
        [1, 2, 10, 100, 1000].iter().map(|limit| Pool::kept_free(*limit, 5)).collect();
    assert_eq!(kept, [0, 1, 1, 5, 50]);
    assert_eq!(Pool::kept_free(1000, 0), 0);
}
