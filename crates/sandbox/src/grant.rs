//! What a confined process is given, and what became of it. Everything that is not in a [`Grant`] is
//! refused.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Everything that one process tree may touch and use up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The folder it works in. Inside it is `/workspace` (tier full) or itself (tier landlock).
    pub root: PathBuf,
    /// May it change what is in the root?
    pub writable: bool,
    /// What it may read besides, files or folders. Paths that do not exist are left out.
    pub read_only: Vec<PathBuf>,
    /// The files that it may execute: real binaries, their loader, helpers.
    pub execute: Vec<PathBuf>,
    /// The whole environment. `HOME`, `TMPDIR` and `PWD` are added and mean the root.
    pub environment: Vec<(String, String)>,
    /// What it may use up.
    pub limits: Limits,
    /// Which network it sees.
    pub network: Network,
}

/// Which network a process sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No sockets of any family.
    None,
    /// The machine's, as a process without privileges sees it.
    Host,
}

/// What a process tree may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time from the start until everything is killed.
    pub wall: Duration,
    /// Processor time of one process.
    pub cpu: Duration,
    /// Memory of the whole tree.
    pub memory_bytes: u64,
    /// Processes and threads of the whole tree.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// The largest file that it may write.
    pub file_bytes: u64,
    /// What everything in the root may take together.
    pub disk_bytes: u64,
    /// How many files and folders may be in the root.
    pub inodes: u64,
    /// How much of stdout, and of stderr, is kept.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(20),
            cpu: Duration::from_secs(600),
            memory_bytes: 512 << 20,
            processes: 64,
            open_files: 256,
            file_bytes: 256 << 20,
            disk_bytes: 1 << 30,
            inodes: 100_000,
            output_bytes: 256 << 10,
        }
    }
}

/// How much is confined by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Namespaces, Landlock and seccomp.
    Full,
    /// Landlock and seccomp, for hosts that allow no namespaces.
    Landlock,
}

/// Which tier to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierChoice {
    /// The best one whose self-test holds.
    #[default]
    Auto,
    /// The full one or none.
    Full,
    /// The lesser one or none.
    Landlock,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Who ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Nobody; it ended itself.
    Itself,
    /// Its time was over.
    Deadline,
    /// The caller gave up.
    Cancelled,
    /// The tree took more memory than granted.
    Memory,
    /// The root grew larger than granted.
    Disk,
    /// The root holds more files than granted.
    Inodes,
    /// It wrote more output than anybody reads.
    OutputFlood,
}

/// What it used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of everything that was waited for.
    pub cpu: Duration,
    /// The most memory: of the tree where a cgroup counts it, of the largest process otherwise.
    pub max_memory_bytes: u64,
}

/// What came out of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The beginning, up to the granted length.
    pub bytes: Bytes,
    /// How much was written in all.
    pub total: u64,
}

impl Output {
    /// Was more written than was kept?
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}

/// What became of a process tree, of which nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How the program ended.
    pub exit: Exit,
    /// Who ended it.
    pub ended: Ended,
    /// What it wrote to stdout.
    pub stdout: Output,
    /// What it wrote to stderr.
    pub stderr: Output,
    /// What it used.
    pub usage: Usage,
    /// How long it took.
    pub took: Duration,
}
