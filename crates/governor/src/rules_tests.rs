use std::time::{Duration, Instant};

use proptest::prelude::*;

use tollgate_contract::Urgency;

use super::{during::During, *};

fn rule(id: &str, action: Action) -> RuleConfig {
    let toml = format!("id = \"{id}\"\naction = \"{}\"\nbecause = \"it is so\"", action.as_str());
    let mut config: RuleConfig = toml::from_str(&toml).unwrap();
    if action == Action::Wait {
        config.wait = Some("30s".to_owned());
    }
    config
}

fn when(condition: &str) -> RuleConfig {
    RuleConfig { when: Some(condition.to_owned()), ..rule("r", Action::Deny) }
}

fn read(toml: &str) -> Result<Rules, String> {
    #[derive(serde::Deserialize)]
    struct File {
        rules: Vec<RuleConfig>,
    }
    let file: File = toml::from_str(toml).map_err(|error| error.message().to_owned())?;
    Rules::build(&file.rules).map_err(|error| error.to_string())
}

fn problem(config: RuleConfig) -> String {
    Rules::build(&[config]).expect_err("it must not load").to_string()
}

fn refused(condition: &str) -> String {
    let text = problem(when(condition));
    text.strip_prefix("rules[0] \"r\" when").unwrap_or(&text).trim_start_matches(", ").to_owned()
}

fn facts() -> Facts<'static> {
    Facts {
        intent: IntentFacts {
            agent_id: "ci-1",
            identity_id: "github:bot",
            workload_id: "search",
            scope_id: "prod/eu",
            urgency: Urgency::Background,
            duration_ms: Some(1_200_000),
            can_switch: true,
        },
        identity: IdentityFacts { name: "ci-bot", kind: Some("oauth"), group: Some("team-a") },
        agent: AgentFacts { name: "an agent with a long name", demoted: false, open: Some(90) },
        pool: Some(PoolFacts {
            id: "github:core",
            unit: "tokens",
            limit: Some(10_000),
            used: Some(9_000),
            held: Some(985),
            booked: Some(0),
            remaining: Some(15),
            reset_in_ms: Some(7_200_000),
        }),
        forecast: Some(ForecastFacts {
            p_exhaust: Some(0.99),
            p_exhaust_with: Some(0.99),
            tte_p50: Some(10.0),
            tte_p90: Some(5.0),
            tte_p99: Some(1.0),
            burn_rate: Some(50.0),
        }),
        cost: Some(2_000),
        // 2027-08-01 00:00:02 UTC, a Sunday.
        now: 1_817_078_402_000,
    }
}

fn evaluate(condition: &str, facts: &Facts<'_>) -> Evaluated {
    let rules = Rules::build(&[when(condition)]).unwrap_or_else(|error| panic!("{error}"));
    rules.get(0).unwrap().evaluate(facts)
}

#[test]
fn every_name_of_the_table_is_read_by_its_example() {
    for variable in VARIABLES {
        let rules = Rules::build(&[when(variable.example)]).unwrap_or_else(|e| panic!("{e}"));
        let rule = rules.get(0).unwrap();
        assert!(rule.reads(variable.name), "{}", variable.example);
        assert_eq!(rule.evaluate(&facts()), Evaluated::Matches, "{}", variable.example);
    }
    assert!(VARIABLES.len() <= 64, "more than a set of 64 holds");
}

#[test]
fn what_is_unknown_is_an_error_and_can_be_asked_for() {
    let mut unknown = facts();
    unknown.pool.as_mut().unwrap().limit = None;
    let failed = |name: &str| Evaluated::Failed(format!("reads `{name}`, which is not known"));
    assert_eq!(evaluate("pool.limit > 5", &unknown), failed("pool.limit"));
    assert_eq!(evaluate("pool.utilization > 0.5", &unknown), failed("pool.utilization"));
    assert_eq!(evaluate("has(pool.limit) && pool.limit > 5", &unknown), Evaluated::DoesNot);
    assert_eq!(evaluate("!has(pool.limit)", &unknown), Evaluated::Matches);
    unknown.pool = None;
    unknown.forecast = Some(ForecastFacts { burn_rate: Some(f64::NAN), ..Default::default() });
    assert_eq!(evaluate("pool.id == 'x'", &unknown), failed("pool.id"));
    assert_eq!(evaluate("forecast.burn_rate > 1.0", &unknown), failed("forecast.burn_rate"));
    assert_eq!(evaluate("has(forecast.burn_rate)", &unknown), Evaluated::DoesNot);
    assert_eq!(evaluate("pool.used > 1 || agent.demoted", &unknown), failed("pool.used"));
    assert_eq!(evaluate("pool.used > 1 || intent.can_switch", &unknown), Evaluated::Matches);
}

#[test]
fn errors_restrict_and_allow_nothing() {
    let failed = Evaluated::Failed("why".to_owned());
    for action in [Action::Deny, Action::Defer, Action::Wait] {
        assert!(failed.counts_for(action));
        assert!(Evaluated::Matches.counts_for(action) && !Evaluated::DoesNot.counts_for(action));
    }
    for action in [Action::Switch, Action::Approve, Action::Warn] {
        assert!(!failed.counts_for(action));
        assert!(Evaluated::Matches.counts_for(action) && !Evaluated::DoesNot.counts_for(action));
    }
}

#[test]
fn expressions_do_what_they_say() {
    let facts = facts();
    for (condition, expected) in [
        ("true", true),
        ("false", false),
        ("!agent.demoted && (cost > 1 || false)", true),
        ("cost == 2000.0 && 1 < 1.5 && 2.0 in [1, 2]", true),
        ("cost in [1, 2, 2000]", true),
        ("intent.agent_id + '!' == 'ci-1!'", true),
        ("'a' < 'b' && intent.agent_id >= 'ci'", true),
        ("(agent.demoted ? 1 : 2) == 2", true),
        ("-cost < 0 && cost - 1 == 1999 && cost / 3 == 666 && cost % 3 == 2", true),
        ("double(cost) * 0.5 == 1000.0 && int(2.9) == 2 && string(cost) == '2000'", true),
        ("['ci-', 'dev-'].exists(x, intent.agent_id.startsWith(x))", true),
        ("['ci-', 'c'].all(x, intent.agent_id.startsWith(x))", true),
        ("[1, 2, 3].exists_one(x, x > 2)", true),
        ("size([1, 2, 3].filter(x, x > 1)) == 2 && 4 in [1, 2].map(x, x * 2)", true),
        ("[1, 2, 3].map(x, x > 1, x * 10) == [20, 30]", true),
        ("intent.agent_id.matches('^ci-[0-9]$') && !intent.agent_id.matches('^x')", true),
        ("['ci', 'x'].exists(x, x.matches('^c'))", true),
        ("size('äöü') == 3 && 'ab'.size() == 2", true),
        ("intent.scope_id.contains('/') // and nothing else", true),
        ("pool.id == 'github:core' && \"it's\" != 'a'", true),
    ] {
        let expected = if expected { Evaluated::Matches } else { Evaluated::DoesNot };
        assert_eq!(evaluate(condition, &facts), expected, "{condition}");
    }
}

#[test]
fn names_are_checked() {
    assert_eq!(
        refused("pool.remainin < 5"),
        "line 1, column 6: `pool` has no `remainin`; did you mean `remaining`?"
    );
    assert_eq!(
        refused("true &&\n  pol.remaining < 5"),
        "line 2, column 3: there is no `pol`; did you mean `pool`?"
    );
    assert_eq!(
        refused("'ü' == intent.agentid"),
        "line 1, column 15: `intent` has no `agentid`; did you mean `agent_id`?"
    );
    assert_eq!(refused("cost.x == 1"), "line 1, column 5: `cost` is a value and has no field `x`");
    assert_eq!(
        refused("pool.id.x == 1"),
        "line 1, column 8: a value has no fields; names are two words long: `pool.limit`"
    );
    assert!(refused("pool == 1").starts_with(
        "line 1, column 1: `pool` is no value by itself; read a field of it; there are `id`, `unit`"
    ));
    assert!(refused("int == 1").contains("there is no `int`"));
    assert!(refused(".pool.limit == 1").contains("there is no `.pool`"));
    assert!(refused("[1].exists(pool, pool > 1)").contains("`pool` is already something else"));
    assert!(refused("[1].exists(x, x.y > 1)").contains("`x` is a value and has no field `y`"));
}

#[test]
fn types_are_checked() {
    for (condition, expected) in [
        ("cost", "line 1, column 1: is an int; a condition is true or false"),
        ("'a'", "line 1, column 1: is a string; a condition is true or false"),
        (
            "cost + 1.5 > 2.0",
            "line 1, column 6: `+` does not go with an int and a double; make them one type: double(pool.used), or 1.0",
        ),
        (
            "cost == '1'",
            "line 1, column 6: `==` does not go with an int and a string; a text in quotes is no number, and a number without quotes no text",
        ),
        ("cost && true", "line 1, column 1: is an int, where true or false is needed"),
        ("!cost", "line 1, column 2: is an int, where true or false is needed"),
        ("-'a' == 'a'", "line 1, column 1: `-` does not go with a string"),
        ("true < false", "line 1, column 6: `<` does not go with a bool and a bool"),
        (
            "pool.utilization % 2.0 == 0.0",
            "line 1, column 18: `%` does not go with a double and a double; it takes whole numbers: int(…)",
        ),
        (
            "cost in 'abc'",
            "line 1, column 6: `in` does not go with an int and a string; it takes a value and a list of such: x in ['a', 'b']",
        ),
        (
            "cost in ['a']",
            "line 1, column 6: `in` does not go with an int and a list of string; it takes a value and a list of such: x in ['a', 'b']",
        ),
        (
            "1 in [1, 'a']",
            "line 1, column 10: is a string in a list of int; the elements of a list are of one type",
        ),
        (
            "[1] + [2] == [1, 2]",
            "line 1, column 5: `+` does not go with a list of int and a list of int",
        ),
        (
            "(true ? 1 : 'a') == 1",
            "line 1, column 7: gives an int or a string; both must be of one type",
        ),
        ("intent.agent_id.startsWith(1)", "line 1, column 28: is an int, where a string is needed"),
        ("cost.startsWith('a')", "line 1, column 1: is an int, where a string is needed"),
        ("size(cost) > 1", "line 1, column 6: is an int; only texts and lists have a size"),
        ("int('5') == 5", "line 1, column 5: is a string; only a number can become one"),
        ("[[1]] == [[1]]", "line 1, column 2: is a list in a list; write one list"),
        ("1u == 1", "line 1, column 1: is an unsigned number; write it without the `u`"),
        ("b'a' == b'a'", "line 1, column 1: is bytes; write a text without the `b`"),
        (
            "pool.limit == null",
            "line 1, column 15: `null` is no value here; `has(pool.limit)` asks whether it is known",
        ),
        (
            "{'a': 1} == {'a': 1}",
            "line 1, column 1: is a map; only lists are known here: ['a', 'b']",
        ),
        (
            "[1][0] == 1",
            "line 1, column 4: elements are not taken out of lists here; use `in` or `exists`",
        ),
        (
            "dyn(1) == 1",
            "line 1, column 1: `dyn` is not known here; every name has one type already; leave it out",
        ),
        (
            "timestamp('2026-01-01T00:00:00Z') == timestamp('x')",
            "line 1, column 1: `timestamp` is not known here; use `time.hour`, `pool.reset_in` and their like, or `during`",
        ),
        (
            "intent.agent_id.startWith('a')",
            "line 1, column 26: there is no function `startWith`; did you mean `startsWith`?",
        ),
        (
            "startsWith(intent.agent_id, 'a')",
            "line 1, column 1: `startsWith` is written as intent.agent_id.startsWith('ci-')",
        ),
        (
            "[1].exists(x, [2].exists(y, x == y))",
            "line 1, column 25: is inside another `exists`, `all`, `map` or `filter`; take it out",
        ),
        (
            "intent.agent_id.exists(x, true)",
            "line 1, column 23: goes over what is no list; write one: ['a', 'b'].exists(x, x == …)",
        ),
        ("[].exists(x, true)", "line 1, column 10: goes over an empty list"),
        ("[1].exists(x, x)", "line 1, column 15: is an int, where true or false is needed"),
        (
            "intent.agent_id.matches(intent.scope_id)",
            "line 1, column 31: a pattern is written out: matches('^ci-[0-9]+$')",
        ),
        ("intent.agent_id.matches('(')", "line 1, column 25: is no pattern: unclosed group"),
        (
            "intent.agent_id.matches('(a{1000}){1000}')",
            "line 1, column 25: the pattern is too large; repeat less: [0-9]+ instead of [0-9]{1000}",
        ),
        ("pool.limit >", "line 1, column 13: cannot be read: mismatched input '<EOF>' expecting"),
        ("  ", ": is empty; leave `when` out to match always"),
    ] {
        let found = refused(condition);
        assert!(
            found.starts_with(expected),
            "{condition}\n  found: {found}\n  expected: {expected}"
        );
    }
}

#[test]
fn what_fails_on_an_extreme_does_not_load() {
    for (condition, expected) in [
        ("pool.used / pool.limit > 0", "divides by zero where "),
        ("100 / (pool.remaining - 5) > 1", "divides by zero where pool.remaining is 5; ask first"),
        (
            "pool.used * pool.used > 1",
            "becomes larger than a whole number can be where pool.used is 1000000000000000",
        ),
        (
            "int(forecast.tte_p50) > 1",
            "makes a whole number of one that is infinite or too large where forecast.tte_p50 is infinite",
        ),
        (
            "forecast.tte_p50 - forecast.tte_p90 < 1.0",
            "compares what is no number, such as infinite less infinite where",
        ),
        ("1 / 0 == 1", "divides by zero; ask first"),
    ] {
        let found = refused(condition);
        assert!(found.contains(expected), "{condition}\n  found: {found}");
    }
    let guarded = "pool.limit > 0 && pool.used * 100 / pool.limit > 80";
    assert_eq!(evaluate(guarded, &facts()), Evaluated::Matches);
}

#[test]
fn hostile_expressions_are_refused_quickly() {
    let long = |beginning: &str, middle: &str, end: &str, times: usize| {
        beginning.repeat(times) + middle + &end.repeat(times)
    };
    let mut hostile = vec![
        long("(", "1", ")", 100_000),
        "a".repeat(1 << 20),
        format!("intent.agent_id.matches('{}')", "a".repeat(201)),
        long("[1].exists(x, ", "true", ")", 3),
        format!("[{}1].exists(x, x == 1 && x == 2 && x == 3)", "1,".repeat(150)),
        "'".to_owned(),
        "'''".to_owned(),
        "r'\\".to_owned(),
        "\u{0}".to_owned(),
        "@".repeat(1990),
        ") ( ".repeat(490),
        "a ".repeat(900),
        "1 +".repeat(600),
    ];
    for (beginning, middle, end) in [
        ("(", "1", ")"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("-(", "1", ")"),
        ("", "a", ".b"),
        ("", "1", "+1"),
        ("", "1", "<1"),
        ("a?b:", "c", ""),
        ("a?", "b", ":c"),
        ("[", "", "]"),
        ("{1:", "1", "}"),
        ("", "a", "[0]"),
        ("", "a", ".f()"),
        ("f(", "1", ")"),
        ("(')',", "1", ")"),
        ("(//)\n", "1", ")"),
        ("true&&(", "true", ")"),
        ("true?true&&", "true", ":true"),
    ] {
        let bytes = beginning.len() + end.len();
        for times in [101, 1_990 / bytes] {
            hostile.push(long(beginning, middle, end, times));
        }
    }
    // A thread of an ordinary server has 2 MB of stack; much less must do.
    let all = std::thread::Builder::new().stack_size(512 << 10).spawn(move || {
        for condition in &hostile {
            let start = Instant::now();
            let refused = Rules::build(&[when(condition)]).is_err();
            let shown: String = condition.chars().take(40).collect();
            assert!(refused, "{shown} of {} bytes was taken", condition.len());
            assert!(start.elapsed() < Duration::from_secs(2), "{shown} took {:?}", start.elapsed());
        }
    });
    all.unwrap().join().unwrap();
}

#[test]
fn bounds_are_said() {
    assert_eq!(
        refused(&"a".repeat(2001)),
        "line 1, column 1: is 2001 bytes long; an expression has at most 2000, so write several rules"
    );
    let deep = format!("{}true{}", "(".repeat(33), ")".repeat(33));
    assert!(refused(&deep).contains("column 33: is nested too deep"), "{}", refused(&deep));
    let sum = format!("1{} > 1", "+1".repeat(40));
    assert!(refused(&sum).contains("is nested too deep"), "{}", refused(&sum));
    let slow = format!("[{}1].exists(x, x == 1 && x == 2 && x == 3)", "1,".repeat(80));
    assert!(refused(&slow).contains("takes more than 1000 steps"), "{}", refused(&slow));
    let pattern = format!("intent.agent_id.matches('{}')", "a".repeat(201));
    assert!(refused(&pattern).contains("at most 200 bytes, and this has 201"));
    let wide = vec!["cost == 1"; 150].join(" || ");
    assert!(Rules::build(&[when(&wide)]).is_ok(), "a long chain is flat");
}

#[test]
fn fields_are_checked() {
    let deny = || rule("r", Action::Deny);
    let some = |text: &str| Some(text.to_owned());
    for (config, expected) in [
        (
            rule("Big", Action::Deny),
            "rules[0] \"Big\" id: is 1 to 64 small letters, digits, `-`, `_` and `.`",
        ),
        (
            RuleConfig { because: None, ..deny() },
            "rules[0] \"r\" because: is missing; whoever is kept back is told why",
        ),
        (
            RuleConfig { because: Some("x".repeat(501)), ..deny() },
            "rules[0] \"r\" because: has at most 500 characters",
        ),
        (
            RuleConfig { wait: None, ..rule("r", Action::Wait) },
            "rules[0] \"r\" wait: is missing: a length of time such as 30s, or `paced`",
        ),
        (
            RuleConfig { wait: some("30s"), ..deny() },
            "rules[0] \"r\" wait: is only for the action `wait`; leave it out",
        ),
        (
            RuleConfig { wait: some("soon"), ..rule("r", Action::Wait) },
            "rules[0] \"r\" wait: `soon` is no length of time; write it as 500ms, 90s, 15m, 12h or 7d, up to 366d",
        ),
        (
            RuleConfig { workload: some("a*b"), ..deny() },
            "rules[0] \"r\" workload: `a*b` is a name, or the beginning of one and then `*`",
        ),
        (
            RuleConfig { urgency: Some(Urgencies::Any(vec![])), ..deny() },
            "rules[0] \"r\" urgency: names none; leave it out for all",
        ),
    ] {
        assert_eq!(problem(config), expected);
    }
    let twice = Rules::build(&[deny(), deny()]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "rules[1] \"r\" id: there are two rules of this name; every name is used once"
    );
    assert!(Rules::build(&[RuleConfig { because: None, ..rule("r", Action::Warn) }]).is_ok());
    assert!(
        read("[[rules]]\nid = \"r\"\naction = \"deny\"\nbecause = \"x\"\nwen = \"true\"").is_err()
    );
}

fn during(from: &str, to: &str, days: &[&str], zone: &str) -> DuringConfig {
    let days = (!days.is_empty()).then(|| days.iter().map(|day| (*day).to_owned()).collect());
    DuringConfig { days, from: from.to_owned(), to: to.to_owned(), zone: Some(zone.to_owned()) }
}

fn holds(config: &DuringConfig, at: &str) -> bool {
    let now = at.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    During::build(config).unwrap().holds(now).unwrap()
}

#[test]
fn windows_of_time() {
    let day = during("09:00", "17:30", &[], "UTC");
    for (at, expected) in [
        ("2026-06-17T08:59:59Z", false),
        ("2026-06-17T09:00:00Z", true),
        ("2026-06-17T17:29:59Z", true),
        ("2026-06-17T17:30:00Z", false),
    ] {
        assert_eq!(holds(&day, at), expected, "{at}");
    }
    // Friday night, which ends on Saturday.
    let night = during("22:00", "06:00", &["fri"], "Europe/Berlin");
    for (at, expected) in [
        ("2026-11-13T21:59:59+01:00", false),
        ("2026-11-13T22:00:00+01:00", true),
        ("2026-11-14T05:59:59+01:00", true),
        ("2026-11-14T06:00:00+01:00", false),
        ("2026-11-13T05:00:00+01:00", false),
        ("2026-11-14T23:00:00+01:00", false),
    ] {
        assert_eq!(holds(&night, at), expected, "{at}");
    }
    let weekend = during("00:00", "24:00", &["sat", "sun"], "America/New_York");
    assert!(holds(&weekend, "2026-11-14T00:00:00-05:00"));
    assert!(holds(&weekend, "2026-11-15T23:59:59-05:00"));
    assert!(!holds(&weekend, "2026-11-16T00:00:00-05:00"));
    let beyond = Facts { now: i64::MAX, ..facts() };
    let rules =
        Rules::build(&[RuleConfig { during: Some(weekend), ..rule("r", Action::Deny) }]).unwrap();
    let failed = Evaluated::Failed("is asked at a time without a date".to_owned());
    assert_eq!(rules.get(0).unwrap().evaluate(&beyond), failed);
    let evening = during("18:00", "24:00", &["mon"], "UTC");
    assert!(holds(&evening, "2026-11-16T23:59:59Z") && !holds(&evening, "2026-11-17T00:00:00Z"));
}

#[test]
fn clocks_that_change() {
    // 2026-03-29 in Berlin there is no 02:00 to 03:00; on 2026-10-25 there are two.
    let skipped = during("02:10", "02:50", &[], "Europe/Berlin");
    for (at, expected) in [
        ("2026-03-29T01:59:59+01:00", false),
        ("2026-03-29T03:09:59+02:00", false),
        ("2026-03-29T03:10:00+02:00", true),
        ("2026-03-29T03:49:59+02:00", true),
        ("2026-03-29T03:50:00+02:00", false),
        ("2026-10-25T02:10:00+02:00", true),
        ("2026-10-25T02:50:00+02:00", false),
        ("2026-10-25T02:10:00+01:00", true),
    ] {
        assert_eq!(holds(&skipped, at), expected, "{at}");
    }
    let night = during("22:00", "02:30", &["sat"], "Europe/Berlin");
    assert!(holds(&night, "2026-10-25T02:29:59+02:00"));
    assert!(!holds(&night, "2026-10-25T02:30:00+02:00"));
    assert!(holds(&night, "2026-10-25T02:10:00+01:00"), "the clock shows it again");
    let around = during("02:30", "03:30", &[], "Europe/Berlin");
    assert!(holds(&around, "2026-03-29T03:15:00+02:00"), "the clock shows it");
}

#[test]
fn windows_are_checked() {
    for (config, expected) in [
        (
            during("22:00", "22:00", &[], "UTC"),
            "during.to: is when it begins; the whole day is from 00:00 to 24:00",
        ),
        (
            during("24:00", "06:00", &[], "UTC"),
            "during.from: `24:00` is no time of the day; write it as 06:30",
        ),
        (
            during("6:00", "07:00", &[], "UTC"),
            "during.from: `6:00` is no time of the day; write it as 06:30",
        ),
        (
            during("06:00", "25:00", &[], "UTC"),
            "during.to: `25:00` is no time of the day; write it as 06:30",
        ),
        (
            during("06:00", "24:01", &[], "UTC"),
            "during.to: `24:01` is no time of the day; write it as 06:30",
        ),
        (
            during("06:00", "07:00", &["mo"], "UTC"),
            "during.days: `mo` is no day; did you mean `mon`?",
        ),
        (
            during("06:00", "07:00", &[], "Europe/Berln"),
            "during.zone: `Europe/Berln` is no time zone; write it as Europe/Berlin",
        ),
    ] {
        let found = problem(RuleConfig { during: Some(config), ..rule("r", Action::Deny) });
        assert_eq!(found, format!("rules[0] \"r\" {expected}"));
    }
    let none = DuringConfig { days: Some(vec![]), ..during("06:00", "07:00", &[], "UTC") };
    let found = problem(RuleConfig { during: Some(none), ..rule("r", Action::Deny) });
    assert!(found.ends_with("during.days: names no day; leave it out for every day"), "{found}");
}

#[test]
fn time_is_told_in_the_zone_of_the_window() {
    let config = RuleConfig {
        during: Some(during("00:00", "24:00", &[], "Asia/Tokyo")),
        ..when("time.hour == 9 && time.weekday == 7")
    };
    let rules = Rules::build(&[config]).unwrap();
    assert_eq!(rules.get(0).unwrap().evaluate(&facts()), Evaluated::Matches);
}

#[test]
fn examples_must_come_out_as_they_say() {
    let file = |example: &str| {
        read(&format!(
            r#"
            [[rules]]
            id = "save-the-rest"
            workload = "search.*"
            pool = "github:core"
            urgency = ["background", "normal"]
            when = "pool.remaining_percent < 20.0 && cost > 10"
            during = {{ from = "22:00", to = "06:00", zone = "Europe/Berlin" }}
            action = "defer"
            because = "the rest of the night is for releases"
            expect = [{{ {example} }}]
            "#
        ))
        .map(|_| ())
    };
    for right in [
        r#"pool = { remaining_percent = 5 }, cost = 11, outcome = "matches""#,
        r#"pool = { limit = 100, remaining = 19 }, intent = { expected_cost = 11 }, outcome = "matches""#,
        r#"pool = { limit = 100, used = 90 }, cost = 11, outcome = "matches""#,
        r#"pool = { utilization = 0.5 }, cost = 11, outcome = "no_match""#,
        r#"pool = { remaining_percent = 5 }, cost = 11, at = "2026-11-13T23:30:00+01:00", outcome = "matches""#,
        r#"pool = { remaining_percent = 5 }, cost = 11, at = "2026-11-13T12:30:00+01:00", outcome = "no_match""#,
        r#"pool = { remaining_percent = 5 }, cost = 11, intent = { urgency = "high" }, outcome = "no_match""#,
        r#"pool = { id = "other:pool", remaining_percent = 5 }, cost = 11, outcome = "no_match""#,
        r#"intent = { workload_id = "fetch" }, pool = { remaining_percent = 5 }, cost = 11, outcome = "no_match""#,
        r#"unknown = ["pool.limit"], cost = 11, outcome = "error""#,
        r#"forecast = { tte_p50 = inf }, outcome = "no_match""#,
    ] {
        assert_eq!(file(right), Ok(()), "{right}");
    }
    for (wrong, expected) in [
        (
            r#"cost = 11, outcome = "matches""#,
            "expect[0]: expected `matches`, and it came out as `no_match`; change the rule or the example",
        ),
        (
            r#"pool = { id = "a:b" }, outcome = "matches""#,
            "expect[0]: expected `matches`, and it came out as `no_match`: its head does not match; change the rule or the example",
        ),
        (
            r#"unknown = ["pool.limit"], cost = 11, outcome = "matches""#,
            "expect[0]: expected `matches`, and it came out as `error`: it reads `pool.remaining_percent`, which is not known; change the rule or the example",
        ),
        (
            r#"pool = { remainin = 5 }, outcome = "matches""#,
            "expect[0].pool.remainin: `pool` has no `remainin`; did you mean `remaining`?",
        ),
        (
            r#"pool = { remaining = "5" }, outcome = "matches""#,
            "expect[0].pool.remaining: is to be an int",
        ),
        (
            r#"at = "tomorrow", outcome = "matches""#,
            "expect[0].at: `tomorrow` is no time; write it as 2026-11-13T23:30:00+01:00",
        ),
        (
            r#"unknown = ["pool.limt"], outcome = "matches""#,
            "expect[0].unknown: `pool.limt` is nothing that can be unknown; did you mean `pool.limit`?",
        ),
        (
            r#"intent = { urgency = "now" }, outcome = "matches""#,
            "expect[0].intent.urgency: is `high`, `normal` or `background`",
        ),
    ] {
        assert_eq!(file(wrong), Err(format!("rules[0] \"save-the-rest\" {expected}")), "{wrong}");
    }
}

#[test]
fn configurations_survive_being_stored() {
    let mut config = when("pool.utilization > 0.9");
    config.urgency = Some(Urgencies::One(Urgency::High));
    let example: ExampleConfig = toml::from_str(
        "forecast = { tte_p50 = inf }\npool = { limit = 5 }\noutcome = \"no_match\"",
    )
    .unwrap();
    config.expect = vec![example];
    let stored = serde_json::to_string(&config).unwrap();
    let read: RuleConfig = serde_json::from_str(&stored).unwrap();
    assert!(Rules::build(std::slice::from_ref(&read)).is_ok());
    assert_eq!(serde_json::to_string(&read).unwrap(), stored);
}

#[test]
fn rules_say_what_they_read() {
    let of = |config: RuleConfig| {
        let rules = Rules::build(&[config]).unwrap();
        let rule = rules.get(0).unwrap();
        (rule.reads_pool(), rule.reads_forecast(), rule.is_per_pool())
    };
    assert_eq!(of(rule("r", Action::Deny)), (false, false, false));
    assert_eq!(of(when("agent.demoted && time.hour > 3")), (false, false, false));
    assert_eq!(of(when("pool.used > 3")), (true, false, true));
    assert_eq!(of(when("has(pool.limit)")), (true, false, true));
    assert_eq!(of(when("agent.open > 3")), (true, false, true));
    assert_eq!(of(when("cost > 3")), (true, false, true));
    assert_eq!(of(when("forecast.p_exhaust_with > 0.3")), (false, true, true));
    let pool = RuleConfig { pool: Some("github:*".to_owned()), ..rule("r", Action::Deny) };
    assert_eq!(of(pool), (false, false, true));
    let paced = RuleConfig { wait: Some("paced".to_owned()), ..rule("r", Action::Wait) };
    assert_eq!(of(paced), (false, false, true));
}

#[test]
fn the_strictest_decides_and_the_first_of_equals() {
    use Action::{Approve, Defer, Deny, Switch, Wait, Warn};
    let of = |actions: &[Action]| {
        let matches: Vec<Matched> = actions
            .iter()
            .enumerate()
            .map(|(rule, action)| Matched { rule, pool: None, action: *action, failed: None })
            .collect();
        strictest(&matches).map(|found| found.rule)
    };
    assert_eq!(of(&[Warn, Approve, Switch, Wait, Defer, Deny]), Some(5));
    assert_eq!(of(&[Warn, Approve, Switch, Wait, Defer]), Some(4));
    assert_eq!(of(&[Warn, Approve, Switch, Wait]), Some(3));
    assert_eq!(of(&[Warn, Approve, Switch]), Some(2));
    assert_eq!(of(&[Warn, Approve]), Some(1));
    assert_eq!(of(&[Warn, Warn]), None);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[Approve, Deny, Warn, Deny]), Some(1));
}

#[test]
fn what_remains_is_spread_until_the_reset() {
    assert_eq!(Wait::Fixed(30_000).ms(1, None, None), Some(30_000));
    assert_eq!(Wait::Paced.ms(1, Some(100), Some(60_000)), Some(600));
    assert_eq!(Wait::Paced.ms(10, Some(100), Some(60_000)), Some(6_000));
    assert_eq!(Wait::Paced.ms(1, Some(0), Some(60_000)), Some(60_000));
    assert_eq!(Wait::Paced.ms(u64::MAX, Some(1), Some(i64::MAX)), Some(i64::MAX));
    assert_eq!(Wait::Paced.ms(1, None, Some(60_000)), None);
    assert_eq!(Wait::Paced.ms(1, Some(1), None), None);
}

#[test]
fn no_rules_match_nothing() {
    let head =
        Head { workload: "w", agent: "a", identity: "i", scope: "s", urgency: Urgency::High };
    let found = Rules::empty().candidates(&head, ["a:b"].into_iter());
    assert_eq!((found.len(), found.capacity()), (0, 0));
}

fn pattern() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[abü]{1,3}\\*?|\\*")
}

proptest! {
    #[test]
    fn the_index_finds_what_looking_at_all_finds(
        heads in proptest::collection::vec((pattern(), pattern(), pattern(), pattern(), pattern(), 0..4_usize), 0..12),
        names in proptest::collection::vec("[abü]{0,4}", 4),
        pools in proptest::collection::vec("[abü]{0,4}", 0..4),
        urgency in 0..3_usize,
    ) {
        let urgencies = [Urgency::Background, Urgency::Normal, Urgency::High];
        let configs: Vec<RuleConfig> = heads.into_iter().enumerate().map(|(place, head)| {
            let (workload, agent, identity, scope, pool, urgency) = head;
            let urgency = urgencies.get(urgency).map(|urgency| Urgencies::One(*urgency));
            RuleConfig { workload, agent, identity, scope, pool, urgency, ..rule(&format!("r{place}"), Action::Deny) }
        }).collect();
        let rules = Rules::build(&configs).unwrap();
        let head = Head {
            workload: &names[0], agent: &names[1], identity: &names[2], scope: &names[3], urgency: urgencies[urgency],
        };
        let covers = |pattern: &Option<String>, name: &str| match pattern.as_deref() {
            None => true,
            Some(text) => match text.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => text == name,
            },
        };
        let naive: Vec<usize> = configs.iter().enumerate().filter(|(_, config)| {
            covers(&config.workload, head.workload)
                && covers(&config.agent, head.agent)
                && covers(&config.identity, head.identity)
                && covers(&config.scope, head.scope)
                && (config.pool.as_deref().is_none_or(|pool| pool == "*")
                    || pools.iter().any(|pool| covers(&config.pool, pool)))
                && config.urgency.as_ref().is_none_or(|all| all.as_slice().contains(&head.urgency))
        }).map(|(place, _)| place).collect();
        prop_assert_eq!(rules.candidates(&head, pools.iter().map(String::as_str)), naive);
    }

    #[test]
    fn whatever_is_written_is_taken_or_refused(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("pool.used"), Just("cost"), Just("forecast.tte_p50"), Just("intent.agent_id"), Just("("),
                Just(")"), Just("["), Just("]"), Just(","), Just(" && "), Just(" || "), Just("!"), Just("-"),
                Just("+"), Just("/"), Just("%"), Just(" < "), Just(" == "), Just(" in "), Just("1"), Just("0.5"),
                Just("'a'"), Just("?"), Just(":"), Just(".startsWith"), Just(".exists(x,"), Just("x"), Just("has("),
                Just("size("), Just("'"), Just("\""), Just("r'"), Just("//"), Just("\n"), Just("ü"), Just("true"),
            ], 0..30),
    ) {
        let condition = parts.concat();
        if let Ok(rules) = Rules::build(&[when(&condition)]) {
            let outcome = rules.get(0).unwrap().evaluate(&facts());
            prop_assert!(!matches!(outcome, Evaluated::Failed(_)), "{} {:?}", condition, outcome);
        }
    }
}
