//! Trends are the sums of what the governor's events say, whatever else is in the ledger.

#![cfg(test)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use common::{CHILD, child, kill_after, open};
use proptest::{collection::vec, option, prelude::*, sample::select};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{
    Ledger, NewEvent, StoredEvent, Subject, TrendBy, TrendQuery, TrendRow, TrendStep, TrendSums,
};

fn of(agent: &str, identity: Option<&str>) -> Subject {
    Subject {
        agent_id: Some(agent.into()),
        identity_id: identity.map(Into::into),
        workload_id: Some("search".into()),
        ..Subject::default()
    }
}

fn told(kind: Event, ts_ms: i64, subject: Subject, payload: &Value) -> NewEvent {
    NewEvent::new(kind, ts_ms, subject, payload).unwrap()
}

fn decided(ts_ms: i64, subject: Subject, decision: &str, pools: &Value) -> NewEvent {
    let payload = json!({"decision": decision, "urgency": "normal", "pools": pools, "more": [{}]});
    told(Event::IntentDecided, ts_ms, subject, &payload)
}

fn trends(ledger: &Ledger, wanted: &TrendQuery) -> Vec<TrendRow> {
    ledger.queries().unwrap().trends(wanted).unwrap()
}

#[test]
fn sums_are_what_the_events_say() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let core = json!([{"pool": "core", "key": "k", "amount": 3}]);
    let both = json!([
        {"pool": "core", "key": "k", "amount": 2}, {"pool": "tokens", "key": "k", "amount": 500},
        {"pool": "core", "key": "other", "amount": 1},
    ]);
    let hold = |agent: &str, released: bool| {
        json!({"intent_id": "int_1", "agent_id": agent, "identity_id": null,
               "pools": [{"pool": "core", "key": "k", "amount": 4, "released": released}]})
    };
    ledger
        .append(vec![
            decided(59_999, of("a", None), "approve", &core),
            decided(60_000, of("a", Some("i")), "approve", &both),
            decided(61_000, of("a", Some("i")), "approve_with_modifications", &core),
            decided(62_000, of("b", None), "deny_with_reason", &both),
            // Of no pool: it counts only where pools do not.
            decided(63_000, of("b", None), "deny_with_reason", &json!([])),
            told(
                Event::UsageObserved,
                119_999,
                of("a", Some("i")),
                &json!({"pools": [{"pool": "core", "key": "k", "held": 3, "used": 7}]}),
            ),
            told(
                Event::UsageObserved,
                119_999,
                of("b", None),
                &json!({"ghost": true, "pools": [{"pool": "core", "key": "k", "used": 11}]}),
            ),
            told(
                Event::HoldExpired,
                3_600_000,
                Subject::default(),
                &json!({"holds": [hold("a", true), hold("b", false), hold("a", true)]}),
            ),
        ])
        .unwrap();
    let sums = |start_ms, sums| TrendRow {
        start_ms,
        pool: None,
        agent_id: None,
        identity_id: None,
        workload_id: None,
        sums,
    };
    let none = TrendSums::default();
    let first = TrendSums { asks: 1, approved: 1, held: 3, ..none };
    let second = TrendSums {
        asks: 4,
        approved: 1,
        waited: 1,
        denied: 2,
        held: 506,
        used: 7,
        ghost: 11,
        ..none
    };
    let last = TrendSums { expired: 4, released: 8, ..none };
    let any = TrendQuery::default();
    assert_eq!(
        trends(&ledger, &any),
        [sums(0, first), sums(60_000, second), sums(3_600_000, last)]
    );
    let hours = TrendQuery { step: TrendStep::Hour, ..any.clone() };
    assert_eq!(trends(&ledger, &hours)[1..], [sums(3_600_000, last)]);
    let days = trends(&ledger, &TrendQuery { step: TrendStep::Day, ..any.clone() });
    assert_eq!((days.len(), days[0].sums.asks, days[0].sums.released), (1, 5, 8));

    let pool = TrendBy { pool: true, ..TrendBy::default() };
    let by_pool =
        TrendQuery { by: pool, from_ms: Some(60_001), to_ms: Some(60_001), ..any.clone() };
    let core = TrendSums {
        asks: 3,
        approved: 1,
        waited: 1,
        denied: 1,
        held: 6,
        used: 7,
        ghost: 11,
        ..none
    };
    let tokens = TrendSums { asks: 2, approved: 1, denied: 1, held: 500, ..none };
    let of_pool = |name: &str, one| TrendRow { pool: Some(name.to_owned()), ..sums(60_000, one) };
    assert_eq!(trends(&ledger, &by_pool), [of_pool("core", core), of_pool("tokens", tokens)]);
    let one_pool = TrendQuery { pool: Some("tokens".to_owned()), ..any.clone() };
    assert_eq!(trends(&ledger, &one_pool), [sums(60_000, tokens)]);

    let agents = TrendBy { agent: true, identity: true, workload: true, pool: false };
    let by_agent = TrendQuery { by: agents, from_ms: Some(3_600_000), ..any.clone() };
    let rows = trends(&ledger, &by_agent);
    assert_eq!(
        rows.iter().map(|row| row.agent_id.as_deref()).collect::<Vec<_>>(),
        [Some("a"), Some("b")]
    );
    assert_eq!(rows[0].workload_id, None);
    assert_eq!(trends(&ledger, &TrendQuery { to_ms: Some(60_000), ..any.clone() }).len(), 1);
    assert_eq!(trends(&ledger, &TrendQuery { limit: 2, ..any.clone() }).len(), 2);
    assert_eq!(trends(&ledger, &TrendQuery { limit: 0, ..any }), []);
    assert_eq!(
        serde_json::to_value(&trends(&ledger, &by_pool)[1]).unwrap(),
        json!({
            "start_ms": 60_000, "pool": "tokens", "agent_id": null, "identity_id": null,
            "workload_id": null, "asks": 2, "approved": 1, "waited": 0, "denied": 1, "held": 500,
            "used": 0, "ghost": 0, "expired": 0, "released": 0,
        })
    );
}

#[test]
fn what_cannot_be_read_says_nothing_and_large_sums_stay_at_the_largest() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    for payload in [
        json!(null),
        json!({"decision": "approve", "pools": [{"pool": "p", "amount": -1}]}),
        json!({"decision": "approve", "pools": [{"pool": "p", "amount": 1.5}]}),
        json!({"decision": "approve", "pools": "p"}),
        json!({"decision": "perhaps"}),
        json!({"pools": []}),
        json!({"holds": [{"pools": [{"amount": 1}]}]}),
    ] {
        for kind in [Event::IntentDecided, Event::HoldExpired] {
            ledger.append(vec![told(kind, 0, of("a", None), &payload)]).unwrap();
        }
    }
    let any = TrendQuery::default();
    assert_eq!(trends(&ledger, &any), []);
    let huge = json!([{"pool": "p", "amount": u64::MAX}]);
    for (agent, times) in [("a", 3), ("b", 2)] {
        for _ in 0..times {
            ledger.append(vec![decided(0, of(agent, None), "approve", &huge)]).unwrap();
            trends(&ledger, &any);
        }
    }
    let rows = trends(&ledger, &any);
    assert_eq!((rows[0].sums.asks, rows[0].sums.held), (5, i64::MAX.unsigned_abs()));
}

/// Not a test of its own: what the test below kills.
#[test]
fn child_that_is_summed_up_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = open(Path::new(&folder));
    let queries = ledger.queries().unwrap();
    for number in 0.. {
        let pools = json!([{"pool": "p", "amount": 1}]);
        ledger.append(vec![decided(number, of("a", None), "approve", &pools); 3]).unwrap();
        if number % 5 == 0 {
            queries.trends(&TrendQuery::default()).unwrap();
        }
        println!("summed {}", ledger.head().seq);
    }
}

#[test]
fn after_kill_9_nothing_is_summed_up_twice() {
    let folder = TempDir::new().unwrap();
    for round in 1..=4 {
        kill_after(
            child("child_that_is_summed_up_until_it_is_killed", folder.path()),
            "summed ",
            round * 19,
        );
        let ledger = open(folder.path());
        let rows = trends(&ledger, &TrendQuery { step: TrendStep::Day, ..TrendQuery::default() });
        assert_eq!((rows[0].sums.asks, rows[0].sums.held), (ledger.head().seq, ledger.head().seq));
        if round == 3 {
            // A file that says wrongly how far it has come is made anew.
            drop(ledger);
            let file = Connection::open(folder.path().join("queries.db")).unwrap();
            file.execute("UPDATE progress SET projected_seq = 0, hash = zeroblob(32)", []).unwrap();
        }
    }
}

/// The same by reading everything.
fn naive(all: &[StoredEvent], wanted: &TrendQuery) -> Vec<TrendRow> {
    let of_pools = wanted.by.pool || wanted.pool.is_some();
    let mut rows = BTreeMap::<(i64, Vec<Option<String>>), TrendSums>::new();
    let mut add = |ts: i64, names: [Option<String>; 4], change: &dyn Fn(&mut TrendSums)| {
        let minute = ts.div_euclid(60_000) * 60_000;
        let filters = [&wanted.pool, &wanted.agent_id, &wanted.identity_id, &wanted.workload_id];
        let fits = filters
            .into_iter()
            .zip(&names)
            .all(|(filter, name)| filter.is_none() || filter == name);
        let in_time = wanted.from_ms.is_none_or(|from| minute + 60_000 > from)
            && wanted.to_ms.is_none_or(|to| minute < to);
        if !fits || !in_time {
            return;
        }
        let step = match wanted.step {
            TrendStep::Minute => 60_000,
            TrendStep::Hour => 3_600_000,
            TrendStep::Day => 86_400_000,
        };
        let by = [wanted.by.pool, wanted.by.agent, wanted.by.identity, wanted.by.workload];
        let names = names.into_iter().zip(by).map(|(name, by)| name.filter(|_| by)).collect();
        change(rows.entry((minute.div_euclid(step) * step, names)).or_default());
    };
    for event in all {
        let payload: Value = serde_json::from_str(&event.payload).unwrap();
        let subject = &event.subject;
        let names = |pool: Option<&str>| {
            [
                pool.map(str::to_owned),
                subject.agent_id.as_deref().map(str::to_owned),
                subject.identity_id.as_deref().map(str::to_owned),
                subject.workload_id.as_deref().map(str::to_owned),
            ]
        };
        let ts = event.ts_ms;
        let pools = payload["pools"].as_array().cloned().unwrap_or_default();
        let name = |pool: &Value| pool["pool"].as_str().unwrap().to_owned();
        let number = |pool: &Value, field: &str| pool[field].as_u64().unwrap_or(0);
        match event.kind.as_str() {
            "intent_decided" => {
                let decision = payload["decision"].as_str().unwrap();
                let count = |sums: &mut TrendSums| {
                    sums.asks += 1;
                    sums.approved += u64::from(decision == "approve");
                    sums.waited += u64::from(decision == "approve_with_modifications");
                    sums.denied += u64::from(decision == "deny_with_reason");
                };
                if of_pools {
                    let different: BTreeSet<_> = pools.iter().map(name).collect();
                    for pool in different {
                        add(ts, names(Some(&pool)), &count);
                    }
                } else {
                    add(ts, names(None), &count);
                }
                for pool in pools.iter().filter(|_| decision != "deny_with_reason") {
                    let of = names(Some(&name(pool)).filter(|_| of_pools).map(String::as_str));
                    add(ts, of, &|sums| sums.held += number(pool, "amount"));
                }
            }
            "usage_observed" => {
                for pool in &pools {
                    let of = names(Some(&name(pool)).filter(|_| of_pools).map(String::as_str));
                    add(ts, of, &|sums| match payload["ghost"] == true {
                        true => sums.ghost += number(pool, "used"),
                        false => sums.used += number(pool, "used"),
                    });
                }
            }
            "hold_expired" => {
                for hold in payload["holds"].as_array().unwrap() {
                    let text = |field: &str| hold[field].as_str().map(str::to_owned);
                    for pool in hold["pools"].as_array().unwrap() {
                        let of = [
                            Some(name(pool)).filter(|_| of_pools),
                            text("agent_id"),
                            text("identity_id"),
                            text("workload_id"),
                        ];
                        add(ts, of, &|sums| match pool["released"] == true {
                            true => sums.released += number(pool, "amount"),
                            false => sums.expired += number(pool, "amount"),
                        });
                    }
                }
            }
            _ => {}
        }
    }
    let rows = rows.into_iter().map(|((start_ms, names), sums)| {
        let [pool, agent_id, identity_id, workload_id] = names.try_into().unwrap();
        TrendRow { start_ms, pool, agent_id, identity_id, workload_id, sums }
    });
    rows.take(usize::try_from(wanted.limit).unwrap()).collect()
}

fn some_name() -> impl Strategy<Value = Option<String>> {
    option::of(select(vec!["a", "b", "ü\"c"]).prop_map(str::to_owned))
}

fn some_pools() -> impl Strategy<Value = Vec<Value>> {
    let pool = (select(vec!["core", "tokens", "mo\"ney"]), 0..9_u64, any::<bool>());
    let pool = pool.prop_map(|(pool, amount, released)| {
        json!({"pool": pool, "key": "k", "amount": amount, "used": amount, "released": released,
               "held": 1})
    });
    vec(pool, 0..4)
}

fn some_event() -> impl Strategy<Value = NewEvent> {
    let decisions = vec!["approve", "approve_with_modifications", "deny_with_reason"];
    let kinds = vec![Event::IntentDecided, Event::UsageObserved, Event::HoldExpired, Event::Halted];
    let names = (some_name(), some_name(), some_name());
    // Around the turn of a day, and before the time that is counted from.
    let time = (select(vec![0_i64, 86_400_000]), -200_000..200_000_i64);
    (select(kinds), names, time, select(decisions), some_pools(), any::<bool>()).prop_map(
        |(kind, (agent, identity, workload), (day, ms), decision, pools, ghost)| {
            let payload = match kind {
                Event::HoldExpired => json!({"holds": [
                    {"agent_id": agent, "identity_id": identity, "pools": pools},
                    {"workload_id": workload, "pools": pools},
                ]}),
                Event::UsageObserved => json!({"ghost": ghost, "pools": pools}),
                _ => json!({"decision": decision, "reason": "r", "pools": pools}),
            };
            let subject = Subject {
                agent_id: agent.map(Into::into),
                identity_id: identity.map(Into::into),
                workload_id: workload.map(Into::into),
                ..Subject::default()
            };
            NewEvent::new(kind, day + ms, subject, &payload).unwrap()
        },
    )
}

fn some_query() -> impl Strategy<Value = TrendQuery> {
    let time = || option::weighted(0.3, -250_000..87_000_000_i64);
    let names = (
        option::weighted(0.3, select(vec!["core", "mo\"ney", "none"]).prop_map(str::to_owned)),
        some_name(),
        some_name(),
    );
    let by = any::<[bool; 4]>().prop_map(|[pool, agent, identity, workload]| TrendBy {
        pool,
        agent,
        identity,
        workload,
    });
    let step = select(vec![TrendStep::Minute, TrendStep::Hour, TrendStep::Day]);
    (time(), time(), names, step, by, 0..40_u64).prop_map(
        |(from_ms, to_ms, (pool, agent_id, workload_id), step, by, limit)| TrendQuery {
            from_ms,
            to_ms,
            pool,
            agent_id,
            identity_id: None,
            workload_id,
            step,
            by,
            limit,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn trends_give_what_a_reading_of_everything_gives(
        batches in vec(vec(some_event(), 0..20), 0..8),
        wanted in vec(some_query(), 20),
    ) {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        let queries = ledger.queries().unwrap();
        for batch in batches {
            ledger.append(batch).unwrap();
        }
        let all = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
        for wanted in wanted {
            prop_assert_eq!(queries.trends(&wanted).unwrap(), naive(&all, &wanted), "{:?}", wanted);
        }
    }
}
