//! Somebody sets the clock of the machine while the gate runs. The wall clock of the process under test goes
//! through a small library of this test, which adds as many seconds as a file says.

#![cfg(test)]

mod common;

use std::{path::Path, process::Command, sync::Arc};

use common::{
    asking::{intent, is_approved, ms, now_ms, with},
    daemon::{Daemon, finish, tollgate},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Adds the seconds that stand in the file of `CLOCK_OFFSET_FILE` to everything that tells the wall's time.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    long count = read(file, text, sizeof text - 1);
    close(file);
    return count > 0 ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

const HOUR: i64 = 3600;

/// Windows that an hour on the clock would end.
const POOLS: &str = r#"
[[pools]]
id = "t:fixed"
limit = 5
window = { kind = "fixed", every = "1h" }
valid_for = "1s"

[[pools]]
id = "t:sliding"
limit = 5
window = { kind = "sliding", every = "30m" }
valid_for = "1s"

[[pools]]
id = "t:bucket"
limit = 5
window = { kind = "bucket", refill = 5, every = "30m" }
valid_for = "1s"

[[pools]]
id = "t:day"
limit = 5
window = { kind = "calendar", every = "day" }
valid_for = "1s"

[[routes]]
workload = "fixed"
pools = [{ id = "t:fixed" }]

[[routes]]
workload = "sliding"
pools = [{ id = "t:sliding" }]

[[routes]]
workload = "bucket"
pools = [{ id = "t:bucket" }]

[[routes]]
workload = "day"
pools = [{ id = "t:day" }]

[governor]
horizon_seconds = { high = 1, normal = 1, background = 1 }
"#;

const WORK: [&str; 4] = ["fixed", "sliding", "bucket", "day"];

/// A gate whose wall clock can be set.
struct Clocked {
    folder: Arc<TempDir>,
    daemon: Daemon,
    /// What is added at the beginning, so that no window ends by itself.
    base: i64,
}

impl Clocked {
    /// Its clock shows noon and ten minutes, so that a window of an hour or a day has long to go.
    fn start() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let source = folder.path().join("clock.c");
        std::fs::write(&source, SHIM).unwrap();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("clock.so"))
            .arg(source);
        let compiled = finish(compiler, b"");
        assert_eq!(compiled.code, 0, "{}", compiled.err);
        std::fs::write(folder.path().join("tollgate.toml"), POOLS).unwrap();
        let base = 12 * HOUR + 600 - (now_ms() / 1000).rem_euclid(24 * HOUR);
        set(folder.path(), base);
        let daemon = spawn(&folder);
        Self { folder, daemon, base }
    }

    /// Sets the clock this much ahead of what it showed at the beginning.
    fn step(&self, seconds: i64) {
        set(self.folder.path(), self.base + seconds);
    }

    fn again(self) -> Self {
        let Self { folder, mut daemon, base } = self;
        daemon.kill();
        let daemon = spawn(&folder);
        Self { folder, daemon, base }
    }
}

fn set(folder: &Path, seconds: i64) {
    // In one step, so that no look at it finds half of it.
    std::fs::write(folder.join("offset.new"), seconds.to_string()).unwrap();
    std::fs::rename(folder.join("offset.new"), folder.join("offset")).unwrap();
}

fn spawn(folder: &Arc<TempDir>) -> Daemon {
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.env("LD_PRELOAD", folder.path().join("clock.so"));
    command.env("CLOCK_OFFSET_FILE", folder.path().join("offset"));
    Daemon::spawned(Arc::clone(folder), command)
}

/// Everything is spent, in every pool.
fn spend(daemon: &Daemon) {
    for work in WORK {
        let decision = daemon.ask(&with(intent("a", work), &json!({"expected_cost": 5})));
        assert_eq!(decision["status"], "approve", "{decision}");
        let id = json!({"intent_id": decision["intent_id"]});
        assert_eq!(daemon.report(&id).status, 200);
    }
}

/// Nothing is to be had anywhere.
fn is_spent(daemon: &Daemon, when: &str) {
    for work in WORK {
        for urgency in ["high", "normal", "background"] {
            let decision = daemon.ask(&with(intent("b", work), &json!({"urgency": urgency})));
            assert!(!is_approved(&decision), "{when}: {decision}");
        }
        let pool = daemon.pool(&format!("t:{work}"), None);
        assert_eq!(pool["left"], 0, "{when}: {pool}");
    }
}

fn shown(daemon: &Daemon) -> Value {
    // Any answer says what the gate takes the time for; this one takes nothing.
    daemon.ask(&intent("c", "unmapped"))["evaluation"]["as_of_ts"].clone()
}

#[test]
fn a_clock_that_jumps_ahead_gives_no_window_back_before_time_confirms_it() {
    let clocked = Clocked::start();
    let before = ms(&shown(&clocked.daemon));
    let noon = (before / 1000).rem_euclid(24 * HOUR);
    assert!((12 * HOUR..13 * HOUR).contains(&noon), "the library is not used: {before}");
    spend(&clocked.daemon);
    is_spent(&clocked.daemon, "spent");
    for jump in [HOUR, 2 * HOUR, 26 * HOUR, HOUR] {
        clocked.step(jump);
        is_spent(&clocked.daemon, "after a jump");
        let after = ms(&shown(&clocked.daemon));
        assert!(after >= before && after - before < 60_000, "{before} {after}");
    }
    clocked.step(0);
    is_spent(&clocked.daemon, "after it was taken back");
    clocked.daemon.verifies();
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_free() {
    let clocked = Clocked::start();
    let before = ms(&shown(&clocked.daemon));
    spend(&clocked.daemon);
    clocked.step(-HOUR);
    is_spent(&clocked.daemon, "an hour back");
    assert!(ms(&shown(&clocked.daemon)) >= before, "time does not go back");
    clocked.step(-30 * HOUR);
    is_spent(&clocked.daemon, "a day back");
    // Holds of before run out all the same.
    let hold = clocked.daemon.pool("t:fixed", None);
    assert_eq!(hold["used"], 5);
    clocked.step(0);
    is_spent(&clocked.daemon, "and forth");
    let events = clocked.daemon.events();
    let times: Vec<i64> = events
        .iter()
        .filter(|event| event["kind"] == "intent_decided")
        .map(|event| event["ts"].as_i64().unwrap())
        .collect();
    assert!(times.len() > 30 && times.is_sorted(), "{times:?}");
    clocked.daemon.verifies();
}

#[test]
fn a_clock_that_is_set_while_the_gate_is_down_gives_nothing_back() {
    let clocked = Clocked::start();
    let before = ms(&shown(&clocked.daemon));
    spend(&clocked.daemon);
    clocked.step(-HOUR);
    let clocked = clocked.again();
    is_spent(&clocked.daemon, "an hour back over a restart");
    assert!(ms(&shown(&clocked.daemon)) >= before);
    clocked.step(-2 * 24 * HOUR);
    let clocked = clocked.again();
    is_spent(&clocked.daemon, "two days back over a restart");
    clocked.step(0);
    is_spent(&clocked.daemon, "right again");
    let clocked = clocked.again();
    is_spent(&clocked.daemon, "right again over a restart");
    clocked.step(HOUR);
    is_spent(&clocked.daemon, "a jump behind a restart");
    clocked.daemon.verifies();
}

#[test]
fn holds_are_neither_lost_nor_kept_for_ever_when_the_clock_steps() {
    let clocked = Clocked::start();
    let daemon = &clocked.daemon;
    let hold = daemon.ask(&with(intent("a", "fixed"), &json!({"expected_cost": 3})));
    assert_eq!(hold["status"], "approve");
    clocked.step(HOUR);
    // It is still held after the jump, or counts as spent once its second is over; never is it free.
    daemon.until("the hold is over", || {
        let pool = daemon.pool("t:fixed", None);
        assert_eq!(pool["left"], 2, "{pool}");
        pool["held"] == 0
    });
    assert_eq!(daemon.pool("t:fixed", None)["estimated"], 3);
    let hold = daemon.ask(&with(intent("a", "sliding"), &json!({"expected_cost": 3})));
    assert_eq!(hold["status"], "approve");
    clocked.step(-HOUR);
    daemon.until("the hold is over although the clock went back", || {
        let pool = daemon.pool("t:sliding", None);
        assert_eq!(pool["left"], 2, "{pool}");
        pool["held"] == 0
    });
}
