//! The binary, killed in the middle of thousands of calls, and on a disk that is full.

#![cfg(test)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{
    daemon::{Daemon, tollgate},
    disk::{SmallDisk, fill},
};
use serde_json::Value;

/// One call on a connection that is kept; `None` once the gate is gone.
fn call(stream: &mut TcpStream, key: &str, name: &str) -> Option<Value> {
    let body = "{\"input\":{}}";
    let request = format!(
        "POST /v1/tools/system.time/call HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nIdempotency-Key: {name}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut piece).ok()?;
        if count == 0 {
            return None;
        }
        text.extend_from_slice(piece.get(..count)?);
        let whole = String::from_utf8_lossy(&text).into_owned();
        let Some((head, rest)) = whole.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)?
            .split("\r\n")
            .next()?
            .parse::<usize>()
            .ok()?;
        if rest.len() >= length {
            return serde_json::from_str(rest).ok();
        }
    }
}

#[test]
fn kill_9_in_the_middle_of_thousands_of_calls() {
    let mut daemon = Daemon::start();
    let key = daemon.admin();
    let mut acknowledged: BTreeMap<String, Value> = BTreeMap::new();
    for (round, after) in [50, 400, 5, 700, 150, 900].into_iter().enumerate() {
        let told: Mutex<BTreeMap<String, Value>> = Mutex::default();
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (daemon, key, told, count) = (&daemon, &key, &told, &count);
                scope.spawn(move || {
                    let mut stream = daemon.connect();
                    for number in 0.. {
                        let name = format!("{round}-{thread}-{number}");
                        let Some(result) = call(&mut stream, key, &name) else { return };
                        told.lock().unwrap().insert(name, result);
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            daemon.until("enough is acknowledged", || count.load(Ordering::SeqCst) >= after);
            common::daemon::signal(daemon.child.id(), "KILL");
        });
        acknowledged.extend(told.into_inner().unwrap());
        daemon.wait();
        daemon = daemon.again();
        let verified = daemon.cli(&["ledger", "verify"]);
        assert_eq!(verified.code, 0, "round {round}: {}", verified.out);
    }
    assert!(acknowledged.len() >= 2200, "{}", acknowledged.len());
    let events = daemon.events();
    let completed: BTreeSet<&str> = events
        .iter()
        .filter(|event| event["kind"] == "call_completed")
        .filter_map(|event| event["payload"]["callId"].as_str())
        .collect();
    for (name, result) in &acknowledged {
        let id = result["callId"].as_str().unwrap_or_else(|| panic!("{name}: {result}"));
        assert!(completed.contains(id), "{name} was acknowledged and is not recorded");
    }
    // Asked again, each gives what it gave, and none runs again.
    let mut stream = daemon.connect();
    for (name, result) in acknowledged.iter().step_by(7) {
        let again = call(&mut stream, &key, name).unwrap();
        assert_eq!(
            (&again["callId"], &again["output"]),
            (&result["callId"], &result["output"]),
            "{name}"
        );
        assert_eq!(again["replayed"], true);
    }
    let started = |events: &[Value]| events.iter().filter(|e| e["kind"] == "call_started").count();
    assert_eq!(started(&daemon.events()), started(&events));
}

#[test]
fn a_stop_under_load_answers_what_it_took_and_exits_0() {
    let mut daemon = Daemon::start();
    let key = daemon.admin();
    let told: Mutex<Vec<Value>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (daemon, key, told) = (&daemon, &key, &told);
            scope.spawn(move || {
                let mut stream = daemon.connect();
                for number in 0.. {
                    let Some(result) = call(&mut stream, key, &format!("{thread}-{number}")) else {
                        return;
                    };
                    told.lock().unwrap().push(result);
                }
            });
        }
        daemon.until("calls are answered", || told.lock().unwrap().len() >= 500);
        common::daemon::signal(daemon.child.id(), "TERM");
    });
    let status = daemon.wait();
    assert_eq!(status.code(), Some(0), "{}", daemon.logged());
    assert!(!daemon.data().join("tollgate.db-wal").exists());
    let told = told.into_inner().unwrap();
    let events = daemon.events();
    let of_kind = |kind: &str| -> BTreeSet<String> {
        let calls = events.iter().filter(|event| event["kind"] == kind);
        calls.map(|event| event["payload"]["callId"].as_str().unwrap().to_owned()).collect()
    };
    let (started, completed) = (of_kind("call_started"), of_kind("call_completed"));
    assert_eq!(started, completed, "a call was left without an end");
    let answered: BTreeSet<String> =
        told.iter().map(|result| result["callId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(answered, completed, "a call was recorded and its caller never heard of it");
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
}

#[test]
fn a_full_disk_denies_and_recovers() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let disk = folder.path().join(".tollgate");
    let mounted = SmallDisk::mount(&disk, "8m");
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut daemon = Daemon::spawned(Arc::clone(&folder), command);
    let key = daemon.admin();
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    let filler = disk.join("filler");
    fill(&filler);
    let mut answers = Vec::new();
    daemon.until("the gate denies", || {
        let answer = daemon.call("system.time", &key, "{}");
        answers.push(answer.clone());
        answer.status == 503
    });
    let denied = answers.pop().unwrap();
    assert_eq!(denied.code(), "LEDGER_UNAVAILABLE");
    assert_eq!(denied.header("retry-after").as_deref(), Some("1"));
    assert_eq!(daemon.get("/health", None).json()["status"], "degraded");
    std::fs::remove_file(&filler).unwrap();
    daemon.until("the gate lets through again", || {
        daemon.call("system.time", &key, "{}").status == 200
    });
    assert_eq!(daemon.get("/health", None).json()["status"], "ok");
    let acknowledged = answers.len() + 2;
    let completed =
        daemon.events().iter().filter(|event| event["kind"] == "call_completed").count();
    assert!(completed >= acknowledged, "{completed} of {acknowledged}");
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
    let status = daemon.stop();
    assert_eq!(status.code(), Some(0), "{}", daemon.logged());
    drop(mounted);
}
