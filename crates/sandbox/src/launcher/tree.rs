//! Processes, seen from outside: who descends from whom, and how much memory they have.

use std::{collections::HashSet, fs, path::Path};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Every process below `pid`, without itself. A process that forks all the time may be missed once.
pub(super) fn descendants(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        let children = children_of(parent);
        found.extend(&children);
        next.extend(children);
    }
    found
}

/// The processes whose parent `pid` is.
pub(super) fn children_of(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|children| {
            children
                .split_ascii_whitespace()
                .filter_map(|child| child.parse().ok().and_then(Pid::from_raw))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// How often is looked for processes that were forked meanwhile.
const MOST_ROUNDS: usize = 10_000;

/// Stops everything below this process, so that nothing forks any more: to end one after the other never catches up
/// with somebody who forks as fast. What is stopped still counts against the limit of processes, so that this ends.
pub(super) fn stop_below(of: Pid) {
    let mut stopped: HashSet<(Pid, String)> = HashSet::new();
    for _ in 0..MOST_ROUNDS {
        let mut is_new = false;
        for pid in descendants(of) {
            // By its descriptor, and only if it is still the one that was found.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let Some(began) = began(pid) else { continue };
            if is_below(pid, of) && stopped.insert((pid, began)) {
                let _ = pidfd_send_signal(&process, Signal::STOP);
                is_new = true;
            }
        }
        if !is_new {
            return;
        }
    }
}

/// When a process began, in the kernel's own words.
fn began(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19).map(str::to_owned)
}

/// Does one process descend from another?
fn is_below(pid: Pid, of: Pid) -> bool {
    let mut at = pid;
    // Nobody has more ancestors than there are processes.
    for _ in 0..MOST_ROUNDS {
        let status = fs::read_to_string(format!("/proc/{}/status", at.as_raw_nonzero()));
        let parent = status.ok().and_then(|status| field(&status, "PPid:")?.parse().ok());
        match parent.and_then(Pid::from_raw) {
            Some(parent) if parent == of => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// Ends these processes.
pub(super) fn kill_all(found: &[Pid]) {
    for pid in found {
        let _ = kill_process(*pid, Signal::KILL);
    }
}

/// Memory that is not files, of these processes together. Pages that a fork shares count for each, so that
/// this is never too little.
pub(super) fn memory_of(pids: &[Pid]) -> u64 {
    pids.iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok())
        .map(|status| {
            ["RssAnon:", "RssShmem:", "VmPTE:", "VmSwap:"]
                .iter()
                .filter_map(|name| field(&status, name)?.split_ascii_whitespace().next())
                .filter_map(|kilobytes| kilobytes.parse::<u64>().ok())
                .sum::<u64>()
                .saturating_mul(1024)
        })
        .sum()
}

/// How many tasks the user of this process has, in all of the machine.
pub(super) fn tasks_of_user() -> u64 {
    let own = rustix::process::getuid().as_raw().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    processes
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        })
        .filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok())
        .filter(|status| {
            field(status, "Uid:").and_then(|ids| ids.split_ascii_whitespace().next())
                == Some(own.as_str())
        })
        .filter_map(|status| field(&status, "Threads:")?.trim().parse::<u64>().ok())
        .sum()
}

/// A line of a status file, without its name.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Is there such a process?
pub(super) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
