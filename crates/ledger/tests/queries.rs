//! Queries give what a reading of the whole ledger would give, whatever happened to their file.

#![cfg(test)]

mod common;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use common::{CHILD, child, event, kill_after, open, subject, told};
use proptest::{collection::vec, option, prelude::*, sample::select};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{CallQuery, CallRow, EventQuery, Ledger, NewEvent, Queries, StoredEvent};

const SOON: Duration = Duration::from_secs(30);

fn caught_up(ledger: &Ledger) -> Queries {
    let queries = ledger.queries().unwrap();
    assert!(queries.wait_for(ledger.head().seq, SOON));
    queries
}

fn everything() -> EventQuery {
    EventQuery { limit: u64::MAX, ..EventQuery::default() }
}

/// The index has every event of the ledger.
fn complete(ledger: &Ledger, queries: &Queries) {
    let all = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
    assert_eq!(queries.events(&everything()).unwrap(), all);
    assert_eq!(queries.caught_up_to(), ledger.head().seq);
}

#[test]
fn a_call_is_told_by_its_events() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let started =
        |id: &str| json!({"callId": id, "runId": "run_1", "keyId": "key_1", "session": "s"});
    let failed = |id: &str, more: Value| {
        let mut payload = json!({"callId": id, "runId": "run_1", "error": {"code": "TOO_SLOW"}});
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    };
    ledger
        .append(vec![
            told(Event::CallStarted, 10, "a", &started("call_1")),
            told(Event::CallStarted, 11, "b", &started("call_2")),
            told(Event::CallStarted, 12, "b", &started("call_3")),
            told(Event::CallStarted, 13, "b", &started("call_4")),
            told(Event::CallCompleted, 20, "a", &json!({"callId": "call_1", "durationMs": 9})),
            told(Event::CallFailed, 21, "b", &failed("call_2", json!({"durationMs": 8}))),
            told(Event::CallFailed, 22, "b", &failed("call_3", json!({"outcomeUnknown": true}))),
            told(Event::CallFailed, 23, "c", &failed("call_5", json!({"keyId": "key_2"}))),
            // A second end changes nothing.
            told(Event::CallFailed, 24, "a", &failed("call_1", json!({}))),
        ])
        .unwrap();
    let queries = caught_up(&ledger);
    let all = queries.calls(&CallQuery::default()).unwrap();
    let told: Vec<_> = all
        .iter()
        .map(|call| (call.call_id.as_str(), call.outcome.as_str(), call.seq, call.ended_seq))
        .collect();
    assert_eq!(
        told,
        [
            ("call_5", "denied", 8, Some(8)),
            ("call_4", "running", 4, None),
            ("call_3", "unknown", 3, Some(7)),
            ("call_2", "failed", 2, Some(6)),
            ("call_1", "completed", 1, Some(5)),
        ]
    );
    assert_eq!(
        serde_json::to_value(queries.call("call_2").unwrap().unwrap()).unwrap(),
        json!({
            "callId": "call_2", "runId": "run_1", "tool": "b", "keyId": "key_1", "session": "s",
            "seq": 2, "endedSeq": 6, "startedMs": 11, "endedMs": 21, "outcome": "failed",
            "code": "TOO_SLOW", "durationMs": 8,
        })
    );
    assert_eq!(queries.call("call_6").unwrap(), None);
    let of = |wanted: CallQuery| {
        let calls = queries.calls(&wanted).unwrap();
        calls.into_iter().map(|call| call.seq).collect::<Vec<_>>()
    };
    let any = CallQuery::default();
    assert_eq!(of(CallQuery { tool: Some("b".to_owned()), ..any.clone() }), [4, 3, 2]);
    assert_eq!(of(CallQuery { key_id: Some("key_2".to_owned()), ..any.clone() }), [8]);
    assert_eq!(of(CallQuery { outcome: Some("running".to_owned()), ..any.clone() }), [4]);
    assert_eq!(of(CallQuery { before: Some(4), limit: 2, ..any }), [3, 2]);
}

#[test]
fn a_payload_that_is_not_as_expected_stops_nothing() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let odd = [
        json!(null),
        json!("text"),
        json!([1, 2]),
        json!({}),
        json!({"callId": 7}),
        json!({"callId": "call_odd", "durationMs": "long"}),
        json!({"callId": "call_odd", "error": "no object"}),
    ];
    for payload in &odd {
        for kind in [Event::CallStarted, Event::CallCompleted, Event::CallFailed] {
            ledger.append(vec![told(kind, 0, "t", payload)]).unwrap();
        }
    }
    ledger.append(vec![told(Event::CallStarted, 0, "t", &json!({"callId": "call_1"}))]).unwrap();
    // Not even what somebody has written there behind the ledger's back.
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other
        .execute("UPDATE events SET payload = CAST(x'ff' AS TEXT), hash = x'00' WHERE seq = 3", [])
        .unwrap();
    let queries = caught_up(&ledger);
    let wanted = CallQuery { outcome: Some("running".to_owned()), ..CallQuery::default() };
    let calls = queries.calls(&wanted).unwrap();
    assert_eq!(calls.iter().map(|call| call.call_id.as_str()).collect::<Vec<_>>(), ["call_1"]);
    let wanted = EventQuery { after: Some(3), ..everything() };
    assert_eq!(queries.events(&wanted).unwrap().len(), odd.len() * 3 + 1 - 3);
}

#[test]
fn a_query_that_does_not_say_how_many_gives_a_hundred() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append((1..=150).map(event).collect::<Vec<_>>()).unwrap();
    let queries = caught_up(&ledger);
    assert_eq!(queries.events(&EventQuery::default()).unwrap().len(), 100);
    let newest = EventQuery { newest_first: true, limit: 2, ..EventQuery::default() };
    let seqs: Vec<_> = queries.events(&newest).unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [150, 149]);
}

#[test]
fn queries_follow_while_events_come_and_never_stop_the_writer() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let asking = queries.clone();
        scope.spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let known = asking.caught_up_to();
                let events = asking.events(&everything()).unwrap();
                assert!(u64::try_from(events.len()).unwrap() >= known);
            }
        });
        for number in 0..300 {
            ledger.append(vec![event(number); 5]).unwrap();
        }
        drop(end);
    });
    assert!(queries.wait_for(1500, SOON));
    complete(&ledger, &queries);
    assert!(!queries.wait_for(1501, Duration::ZERO), "there is no such event yet");
}

#[test]
fn queries_end_with_the_ledger_and_nobody_waits_in_vain() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(vec![event(1)]).unwrap();
    let queries = caught_up(&ledger);
    std::thread::scope(|scope| {
        let waiting = queries.clone();
        let waiter = scope.spawn(move || waiting.wait_for(2, Duration::from_secs(600)));
        drop(ledger);
        assert!(!waiter.join().unwrap());
    });
    assert_eq!(queries.events(&everything()).unwrap().len(), 1, "what is there can be asked");
    let again = open(folder.path());
    again.append(vec![event(2)]).unwrap();
    complete(&again, &caught_up(&again));
}

/// Changes the file of the queries while nobody has it.
fn tamper(folder: &Path, sql: &str) {
    Connection::open(folder.join("queries.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn the_file_is_made_anew_when_it_is_missing_damaged_or_of_another_format() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("queries.db");
    let mut number = 0;
    let mut round = |what: &str, spoil: &dyn Fn()| {
        spoil();
        let ledger = open(folder.path());
        // More than one turn of the thread.
        ledger.append((0..1100).map(|n| event(number + n)).collect::<Vec<_>>()).unwrap();
        number += 1100;
        let queries = caught_up(&ledger);
        assert_eq!(queries.events(&everything()).unwrap().len() as u64, number, "{what}");
        complete(&ledger, &queries);
    };
    round("new", &|| {});
    round("as it was", &|| {});
    round("missing", &|| std::fs::remove_file(&file).unwrap());
    round("text", &|| std::fs::write(&file, "this is a text\n".repeat(500)).unwrap());
    round("empty", &|| std::fs::write(&file, "").unwrap());
    round("another format", &|| {
        tamper(folder.path(), "PRAGMA user_version = 7; DELETE FROM blocks WHERE block < 1")
    });
    round("another program's", &|| {
        tamper(folder.path(), "PRAGMA application_id = 7; DELETE FROM blocks WHERE block < 1")
    });
    round("without a table", &|| tamper(folder.path(), "DROP TABLE progress"));
    round("without progress", &|| tamper(folder.path(), "DELETE FROM progress"));
    round("without events", &|| tamper(folder.path(), "DROP TABLE blocks"));
    round("ahead", &|| tamper(folder.path(), "UPDATE progress SET projected_seq = 1000000"));
    round("behind its own events", &|| {
        tamper(folder.path(), "UPDATE progress SET projected_seq = 0, hash = zeroblob(32)");
    });
    round("a damaged page", &|| {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 4096 / 2 * 4096;
        bytes[middle..].fill(0x5a);
        std::fs::write(&file, bytes).unwrap();
    });
}

#[test]
fn a_ledger_that_was_replaced_is_not_mixed_with_the_earlier_one() {
    for (earlier, later) in [(20, 5), (5, 20), (5, 5)] {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        ledger.append((0..earlier).map(event).collect::<Vec<_>>()).unwrap();
        caught_up(&ledger);
        drop(ledger);
        for name in ["tollgate.db", "tollgate.db-wal", "tollgate.db-shm"] {
            let _ = std::fs::remove_file(folder.path().join(name));
        }
        let ledger = open(folder.path());
        let other = |n| told(Event::CallCompleted, 5, "other", &json!({ "other": n }));
        ledger.append((0..later).map(other).collect::<Vec<_>>()).unwrap();
        let queries = caught_up(&ledger);
        complete(&ledger, &queries);
        let old = EventQuery { tool: Some("system.time".to_owned()), ..everything() };
        assert_eq!(queries.events(&old).unwrap(), []);
    }
}

#[test]
fn a_file_that_is_deleted_while_it_is_asked_comes_back() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append((1..=50).map(event).collect::<Vec<_>>()).unwrap();
    let queries = caught_up(&ledger);
    for name in ["queries.db", "queries.db-wal", "queries.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    let deadline = Instant::now() + SOON;
    while !queries.events(&everything()).is_ok_and(|events| events.len() == 50)
        || !folder.path().join("queries.db").exists()
    {
        assert!(Instant::now() < deadline);
        ledger.queries().unwrap();
        std::thread::yield_now();
    }
}

/// Not a test of its own: what the test below kills.
#[test]
fn child_that_is_followed_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = open(Path::new(&folder));
    let queries = ledger.queries().unwrap();
    for number in 0.. {
        ledger.append(vec![event(number); 3]).unwrap();
        println!("known {}", queries.caught_up_to());
    }
}

#[test]
fn queries_catch_up_after_kill_9() {
    let folder = TempDir::new().unwrap();
    for round in 1..=5 {
        let killed = child("child_that_is_followed_until_it_is_killed", folder.path());
        let known = kill_after(killed, "known ", round * 23);
        if round == 3 {
            // With the log of a file that is gone left over.
            std::fs::remove_file(folder.path().join("queries.db")).unwrap();
        }
        let ledger = open(folder.path());
        let queries = ledger.queries().unwrap();
        assert!(round == 3 || queries.caught_up_to() >= known, "it goes on from where it was");
        assert!(queries.wait_for(ledger.head().seq, SOON));
        complete(&ledger, &queries);
    }
}

/// The same as the queries, by reading everything.
fn naive_events(all: &[StoredEvent], wanted: &EventQuery) -> Vec<StoredEvent> {
    let fits = |event: &&StoredEvent| {
        wanted.kind.as_ref().is_none_or(|kind| *kind == event.kind)
            && (wanted.tool.is_none() || wanted.tool.as_deref() == event.subject.tool.as_deref())
            && wanted.from_ms.is_none_or(|from| event.ts_ms >= from)
            && wanted.to_ms.is_none_or(|to| event.ts_ms < to)
            && wanted.after.is_none_or(|after| event.seq > after)
            && wanted.before.is_none_or(|before| event.seq < before)
    };
    let mut found: Vec<_> = all.iter().filter(fits).cloned().collect();
    if wanted.newest_first {
        found.reverse();
    }
    found.truncate(usize::try_from(wanted.limit).unwrap());
    found
}

fn naive_calls(all: &[StoredEvent]) -> BTreeMap<String, CallRow> {
    let mut calls = BTreeMap::<String, CallRow>::new();
    for event in all {
        let payload: Value = serde_json::from_str(&event.payload).unwrap();
        let text = |name: &str| payload[name].as_str().map(str::to_owned);
        let Some(call_id) = text("callId") else { continue };
        let end = match event.kind.as_str() {
            "call_started" => None,
            "call_completed" => Some("completed"),
            "call_failed" if payload["outcomeUnknown"] == true => Some("unknown"),
            "call_failed" if calls.contains_key(&call_id) => Some("failed"),
            "call_failed" => Some("denied"),
            _ => continue,
        };
        let call = calls.entry(call_id.clone()).or_insert_with(|| CallRow {
            call_id,
            run_id: None,
            tool: None,
            key_id: None,
            session: None,
            seq: event.seq,
            ended_seq: None,
            started_ms: event.ts_ms,
            ended_ms: None,
            outcome: "running".to_owned(),
            code: None,
            duration_ms: None,
        });
        let first = call.seq == event.seq;
        if !first && (end.is_none() || call.ended_seq.is_some()) {
            continue;
        }
        call.run_id = call.run_id.take().or(text("runId"));
        call.tool = call.tool.take().or(event.subject.tool.as_deref().map(str::to_owned));
        call.key_id = call.key_id.take().or(text("keyId"));
        call.session = call.session.take().or(text("session"));
        if let Some(end) = end {
            call.outcome = end.to_owned();
            call.ended_seq = Some(event.seq);
            call.ended_ms = Some(event.ts_ms);
            call.code = payload["error"]["code"].as_str().map(str::to_owned);
            call.duration_ms = payload["durationMs"].as_i64();
        }
    }
    calls
}

fn some_tool() -> impl Strategy<Value = Option<String>> {
    option::of(select(vec!["a", "b", "c.d"]).prop_map(str::to_owned))
}

fn some_event() -> impl Strategy<Value = NewEvent> {
    let kinds = vec![
        Event::CallStarted,
        Event::CallStarted,
        Event::CallCompleted,
        Event::CallFailed,
        Event::KeyCreated,
        Event::Halted,
    ];
    let payload = (
        option::weighted(0.9, 0..12_u8),
        option::of(0..3_u8),
        option::of(0..3_u8),
        option::of(0..1000_i64),
        option::of(any::<bool>()),
    );
    // Clocks go backwards too.
    (select(kinds), -20..20_i64, some_tool(), payload).prop_map(
        |(kind, ts_ms, tool, (call, key, code, duration, unknown))| {
            let mut payload = serde_json::Map::new();
            let mut put = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    payload.insert(name.to_owned(), value);
                }
            };
            put("callId", call.map(|call| json!(format!("call_{call}"))));
            put("runId", key.map(|key| json!(format!("run_{key}"))));
            put("keyId", key.map(|key| json!(format!("key_{key}"))));
            put("session", code.map(|code| json!(format!("s{code}"))));
            put("error", code.map(|code| json!({ "code": format!("CODE_{code}") })));
            put("durationMs", duration.map(Value::from));
            put("outcomeUnknown", unknown.map(Value::from));
            NewEvent::new(kind, ts_ms, subject(tool.as_deref()), &payload).unwrap()
        },
    )
}

fn some_event_query() -> impl Strategy<Value = EventQuery> {
    let kind = option::of(select(vec!["call_started", "call_failed", "halted", "nothing"]));
    let time = || option::weighted(0.3, -25..25_i64);
    let place = || option::weighted(0.3, prop_oneof![0..130_u64, Just(u64::MAX)]);
    (kind, some_tool(), time(), time(), place(), place(), any::<bool>(), 0..200_u64).prop_map(
        |(kind, tool, from_ms, to_ms, after, before, newest_first, limit)| EventQuery {
            kind: kind.map(str::to_owned),
            tool,
            from_ms,
            to_ms,
            after,
            before,
            newest_first,
            limit,
        },
    )
}

fn some_call_query() -> impl Strategy<Value = CallQuery> {
    let outcomes = vec!["running", "completed", "failed", "denied", "unknown"];
    let key = option::of((0..3_u8).prop_map(|key| format!("key_{key}")));
    let outcome = option::of(select(outcomes).prop_map(str::to_owned));
    (some_tool(), key, outcome, option::of(0..130_u64), 0..15_u64).prop_map(
        |(tool, key_id, outcome, before, limit)| CallQuery { tool, key_id, outcome, before, limit },
    )
}

/// Events of several blocks: kinds, tools and times that stand together in some, apart in others, or are rare.
fn of_many_blocks() -> Vec<NewEvent> {
    let kinds = [Event::CallStarted, Event::CallFailed, Event::Halted, Event::IntentDecided];
    let tools = [Some("a"), Some("b"), None];
    (0..7000_i64)
        .map(|number| {
            let stretch = number / 700;
            let kind = match number {
                1234 | 5555 => Event::KeyCreated,
                _ => kinds[usize::try_from((number * 7 + stretch) % 4).unwrap()],
            };
            let tool = match number {
                4321 => Some("c.d"),
                _ => tools[usize::try_from(stretch % 3).unwrap()],
            };
            // Time goes on, with a step back in the middle.
            let ts = if number < 3500 { number } else { number - 1000 };
            NewEvent::new(kind, ts, subject(tool), &json!({ "n": number })).unwrap()
        })
        .collect()
}

#[test]
fn queries_over_many_blocks_give_what_a_reading_of_everything_gives() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    // In pieces that do not end where blocks do.
    for piece in of_many_blocks().chunks(300) {
        ledger.append(piece.to_vec()).unwrap();
        queries.wait_for(ledger.head().seq, SOON);
    }
    let all = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
    let owned = |text: &str| Some(text.to_owned());
    let (mut asked, mut found) = (0, 0);
    for kind in [None, owned("call_started"), owned("key_created"), owned("halted"), owned("none")]
    {
        for tool in [None, owned("a"), owned("c.d"), owned("none")] {
            for (from_ms, to_ms) in
                [(None, None), (Some(2400), Some(2600)), (Some(5900), None), (None, Some(3))]
            {
                for (after, before) in
                    [(None, None), (Some(511), Some(1025)), (Some(2000), None), (None, Some(512))]
                {
                    for (newest_first, limit) in
                        [(false, u64::MAX), (true, u64::MAX), (false, 3), (true, 600)]
                    {
                        let (kind, tool) = (kind.clone(), tool.clone());
                        let wanted = EventQuery {
                            kind,
                            tool,
                            from_ms,
                            to_ms,
                            after,
                            before,
                            newest_first,
                            limit,
                        };
                        let given = queries.events(&wanted).unwrap();
                        let expected = {
                            let limit = limit.min(all.len() as u64);
                            naive_events(&all, &EventQuery { limit, ..wanted.clone() })
                        };
                        assert!(given == expected, "{wanted:?}");
                        (asked, found) = (asked + 1, found + given.len());
                    }
                }
            }
        }
    }
    assert!(asked == 1280 && found > 50_000, "{asked} {found}");
}

#[test]
fn a_query_knows_what_was_stored_before_it_was_asked() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    for number in 1..=300 {
        ledger.append(vec![event(number)]).unwrap();
        let newest = EventQuery { newest_first: true, limit: 1, ..EventQuery::default() };
        assert_eq!(queries.events(&newest).unwrap()[0].seq, number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn queries_give_what_a_reading_of_everything_gives(
        batches in vec(vec(some_event(), 0..12), 0..12),
        event_queries in vec(some_event_query(), 12),
        call_queries in vec(some_call_query(), 12),
    ) {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        // Half of them come before anybody asks.
        let half = batches.len() / 2;
        for (number, batch) in batches.into_iter().enumerate() {
            if number == half {
                ledger.queries().unwrap();
            }
            ledger.append(batch).unwrap();
        }
        let queries = caught_up(&ledger);
        let all = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
        for wanted in event_queries {
            prop_assert_eq!(
                queries.events(&wanted).unwrap(), naive_events(&all, &wanted), "{:?}", wanted
            );
        }
        let calls = naive_calls(&all);
        for wanted in call_queries {
            let mut found: Vec<_> = calls
                .values()
                .filter(|call| {
                    (wanted.tool.is_none() || wanted.tool == call.tool)
                        && (wanted.key_id.is_none() || wanted.key_id == call.key_id)
                        && wanted.outcome.as_ref().is_none_or(|outcome| *outcome == call.outcome)
                        && wanted.before.is_none_or(|before| call.seq < before)
                })
                .cloned()
                .collect();
            found.sort_by_key(|call| std::cmp::Reverse(call.seq));
            found.truncate(usize::try_from(wanted.limit).unwrap());
            prop_assert_eq!(queries.calls(&wanted).unwrap(), found, "{:?}", wanted);
        }
        for (id, call) in calls {
            prop_assert_eq!(queries.call(&id).unwrap(), Some(call));
        }
    }
}
