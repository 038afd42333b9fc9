//! What is told of a scenario file that cannot be run: where, what, and what to write instead.
#![cfg(test)]

use tollgate_simulate::Scenario;

const GOOD: &str = r#"name = "small"
lasts = "1m"
[[pools]]
id = "a:calls"
limit = 10
window = { kind = "fixed", every = "10s" }
[[pools]]
id = "b:calls"
limit = 10
window = { kind = "provider", every = "10s" }
[[routes]]
workload = "work"
pools = [{ id = "a:calls" }]
[[providers]]
pool = "b:calls"
limit = 10
every = "10s"
[[agents]]
name = "worker"
workload = "work"
behaviour = { kind = "periodic", every = "1s" }
[[sabotage]]
at = "10s"
crash = "events"
[[invariants]]
metric = "overshoot"
equals = 0
because = "it must"
"#;

/// What is told when this is written instead of that.
fn told(that: &str, this: &str) -> String {
    assert!(GOOD.contains(that), "{that}");
    Scenario::parse(&GOOD.replacen(that, this, 1)).unwrap_err().to_string()
}

#[test]
fn the_good_one_is_good() {
    assert!(Scenario::parse(GOOD).unwrap().run(None).holds());
}

#[test]
fn sections_and_fields() {
    assert_eq!(
        told("[[agents]]", "[[agent]]"),
        "line 18, column 3: there is no section or field `agent`; did you mean `agents`?"
    );
    assert_eq!(
        told("[[routes]]", "[[router]]"),
        "line 11, column 3: there is no section or field `router`; did you mean `routes`?"
    );
    assert_eq!(
        told("limit = 10", "limits = 10"),
        "line 5, column 1: pools[0].limits: unknown field `limits`, expected one of `id`, `unit`, `limit`, `window`, `per`, `hard`, `price`, `on_expiry`, `trust_usage`, `valid_for`, `risk_limit`; did you mean `limit`?"
    );
    let problem = told("behaviour =", "behavior =");
    assert!(problem.starts_with("line 21, column 1: agents[0].behavior: unknown field `behavior`"));
    assert!(problem.ends_with("; did you mean `behaviour`?"), "{problem}");
    assert_eq!(told("name = \"small\"\n", ""), "line 1, column 1: missing field `name`");
    assert!(told("lasts = \"1m\"", "lasts = ").starts_with("line 2, column 9: "));
}

#[test]
fn numbers_and_lengths() {
    assert_eq!(
        told("lasts = \"1m\"", "lasts = \"1 minute\""),
        "line 2, column 9: lasts: `1 minute` is no length of time; write it as 500ms, 90s, 15m, 12h or 7d, up to 366d"
    );
    assert_eq!(
        told("lasts = \"1m\"", "lasts = \"1m\"\nstarts_at = \"monday\""),
        "line 3, column 13: starts_at: `monday` is no moment; write it as 2026-01-05T09:00:00Z, with its offset from UTC"
    );
    let agents = |line: &str| {
        told("workload = \"work\"\nbehaviour", &format!("workload = \"work\"\n{line}\nbehaviour"))
    };
    assert_eq!(
        agents("takes = { min = 5, max = 1 }"),
        "line 19, column 8: agents[0].takes: `min` is more than `max`"
    );
    assert_eq!(
        agents("takes = \"much\""),
        "line 21, column 9: agents[0].takes: expected a whole number, { min = 1, max = 5 } or { mean = 3.5 }"
    );
    assert_eq!(
        agents("reports = 2"),
        "line 21, column 11: agents[0].reports: `2` is no share; it is from 0 to 1"
    );
    assert_eq!(
        agents("retries = \"often\""),
        "line 21, column 11: agents[0].retries: expected \"none\", \"when_told\" or { every = \"200ms\" }"
    );
    assert_eq!(
        agents("expected_cost = \"lots of it\""),
        "line 21, column 17: agents[0].expected_cost: `lots of it` is no cost; write a number, or a text such as \"100 points\""
    );
    assert_eq!(
        agents("count = 0"),
        "line 19, column 8: agents[0].count: there are 1 to 100000 agents in all"
    );
    assert_eq!(
        told("kind = \"periodic\", every = \"1s\"", "kind = \"poisson\", per_second = 0"),
        "line 19, column 8: agents[0].behaviour: `per_second` is above 0, and at most 1000"
    );
    assert!(
        told("kind = \"periodic\"", "kind = \"periodical\"").contains("did you mean `periodic`?")
    );
}

#[test]
fn names() {
    assert_eq!(
        told("pool = \"b:calls\"", "pool = \"b:cals\""),
        "line 15, column 8: providers[0].pool: there is no pool `b:cals`; did you mean `b:calls`?"
    );
    assert_eq!(
        told("workload = \"work\"\nbehaviour", "workload = \"play\"\nbehaviour"),
        "line 20, column 12: agents[0].workload: no route says which pools `play` draws on; add one under [[routes]]"
    );
    assert_eq!(
        told("metric = \"overshoot\"", "metric = \"overshot\""),
        "line 25, column 1: invariants[0].metric: there is no metric `overshot`; did you mean `overshoot`?"
    );
    assert_eq!(
        told("equals = 0", "equals = 0\npool = \"zzz\""),
        "line 25, column 1: invariants[0].pool: there is no pool `zzz`; there are `a:calls`, `b:calls`"
    );
    assert_eq!(
        told("metric = \"overshoot\"", "metric = \"asks\"\nagents = \"workers\""),
        "line 25, column 1: invariants[0].agents: there is no group of agents `workers`; did you mean `worker`?"
    );
    assert_eq!(
        told("crash = \"events\"", "storm = { agents = \"worke\", lasts = \"1s\" }"),
        "line 22, column 1: sabotage[0].storm.agents: there is no group of agents `worke`; did you mean `worker`?"
    );
    let twice = format!(
        "{GOOD}[[agents]]\nname = \"worker\"\nworkload = \"work\"\nbehaviour = {{ kind = \"greedy\" }}\n"
    );
    let problem = Scenario::parse(&twice).unwrap_err().to_string();
    assert_eq!(problem, "line 30, column 8: agents[1].name: there are two groups named `worker`");
}

#[test]
fn what_does_not_go_together() {
    assert_eq!(
        told("equals = 0", "equals = 0\nat_most = 1"),
        "line 25, column 1: invariants[0].at_most: say exactly one of `at_most`, `at_least` and `equals`"
    );
    assert_eq!(
        told("equals = 0", "equals = 0\nagents = \"worker\""),
        "line 25, column 1: invariants[0].agents: `overshoot` is measured of a pool, not of agents"
    );
    assert_eq!(
        told("metric = \"overshoot\"", "metric = \"asks\"\npool = \"a:calls\""),
        "line 25, column 1: invariants[0].pool: `asks` is measured of agents, not of a pool"
    );
    assert_eq!(
        told("metric = \"overshoot\"", "metric = \"utilization\""),
        "line 25, column 1: invariants[0].pool: is missing: say of which pool"
    );
    assert_eq!(
        told("metric = \"overshoot\"", "metric = \"recovery\"\nfrom = \"1s\""),
        "line 25, column 1: invariants[0].from: `recovery` is measured of the whole run"
    );
    assert!(
        told("crash = \"events\"", "crash = \"events\"\nprovider_drops = 1")
            .starts_with("line 22, column 1: sabotage[0]: say exactly one of `crash`, ")
    );
    assert_eq!(
        told("at = \"10s\"", "at = \"2m\""),
        "line 22, column 1: sabotage[0].at: is when the scenario is over already"
    );
    assert_eq!(
        told("crash = \"events\"", "crash = \"events\"\nlasts = \"1s\""),
        "line 22, column 1: sabotage[0].lasts: does not go with this; it is over at once, or says itself how long it is"
    );
    assert_eq!(
        told("crash = \"events\"", "crash = \"events\"\npool = \"b:calls\""),
        "line 22, column 1: sabotage[0].pool: says which provider is meant, and this is nothing of a provider's"
    );
    assert_eq!(
        told("crash = \"events\"", "clock_jump = \"soon\""),
        "line 22, column 1: sabotage[0].clock_jump: `soon` is no length of time; write it as 500ms, 90s, 15m, 12h or 7d, up to 366d"
    );
    // What the governor itself finds wrong is told in its own words.
    assert_eq!(
        told("pools = [{ id = \"a:calls\" }]", "pools = [{ id = \"a:call\" }]"),
        "routes[0].pools[0].id: there is no pool `a:call`; did you mean `a:calls`?"
    );
}
