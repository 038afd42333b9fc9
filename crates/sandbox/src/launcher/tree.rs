//! Processes, seen from outside: who descends from whom, and how much memory they have.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

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
