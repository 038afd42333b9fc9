//! What crosses between the daemon and its launcher: a plan to it, and reports back, each one frame of
//! JSON after its length.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::grant::{Ended, Exit, Grant, Tier, Usage};

/// No plan and no report is longer.
const LONGEST_FRAME: u32 = 4 << 20;

/// One thing to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) tier: Tier,
    pub(crate) grant: Grant,
    pub(crate) argv: Vec<String>,
    /// Instead of a program, try to get out. For the self-test.
    pub(crate) probe: Option<Targets>,
    /// What a test switched off.
    #[cfg(feature = "weaken")]
    pub(crate) weaken: Vec<Weaken>,
}

/// A protection that a test switches off.
#[cfg(feature = "weaken")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weaken {
    /// No mount namespace of its own and no root of its own.
    Mounts,
    /// The machine's network.
    Network,
    /// The machine's processes.
    Pids,
    /// The machine's System V objects.
    Ipc,
    /// The machine's name.
    Uts,
    /// No Landlock.
    Landlock,
    /// No seccomp.
    Seccomp,
    /// Capabilities are kept.
    Capabilities,
    /// No limits, neither of a process nor of a tree.
    Limits,
    /// The environment of the launcher.
    Environment,
    /// An open file more.
    Descriptors,
    /// Nothing is killed at the end.
    Kill,
}

impl Plan {
    /// Is this protection on?
    #[cfg(feature = "weaken")]
    pub(crate) fn has(&self, protection: Weaken) -> bool {
        !self.weaken.contains(&protection)
    }
}

/// Is this protection on? Without the feature `weaken` it always is, and no code is left to ask.
macro_rules! on {
    ($plan:expr, $protection:ident) => {{
        #[cfg(feature = "weaken")]
        let on = $plan.has($crate::plan::Weaken::$protection);
        #[cfg(not(feature = "weaken"))]
        let on = {
            let _: &$crate::plan::Plan = $plan;
            true
        };
        on
    }};
}
pub(crate) use on;

/// Where a probe tries to get at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// A folder that is not granted, open to everybody, with a file `secret` in it.
    pub(crate) outside: PathBuf,
    /// Somebody listens there.
    pub(crate) tcp: SocketAddr,
    /// Somebody listens there.
    pub(crate) unix: PathBuf,
    /// Somebody listens at this abstract address.
    pub(crate) abstract_name: String,
    /// A process that is not part of the sandbox.
    pub(crate) pid: i32,
    /// A program that is readable and not granted.
    pub(crate) program: Option<PathBuf>,
    /// The name of a variable in the launcher's environment.
    pub(crate) variable: String,
    /// Which probe: the questions, or one that has to be ended from outside.
    pub(crate) task: Task,
}

/// What a probe does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Tries each thing and writes what happened as JSON.
    Questions,
    /// Leaves processes behind that write to a file on and on, and sleeps until its deadline, in milliseconds.
    Orphan(u64),
    /// Takes memory until it is stopped.
    Memory,
    /// Makes processes until it is stopped.
    Fork,
}

/// What the launcher tells of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Confined and running.
    Started { layers: Layers },
    /// It was never started.
    Failed { stage: String, problem: String },
    /// Over, and nothing is left.
    Finished { exit: Exit, ended: Ended, usage: Usage },
}

/// What the launcher sees of a confined process from outside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layers {
    /// The namespaces that are not the launcher's.
    pub(crate) namespaces: Vec<String>,
    /// The mode of seccomp: 2 is a filter.
    pub(crate) seccomp: String,
    pub(crate) no_new_privs: String,
    /// Every set of capabilities, joined.
    pub(crate) capabilities: String,
    /// The kernel-side ids.
    pub(crate) uids: String,
    /// How memory is bounded.
    pub(crate) memory_by: String,
    /// Is the root an idmapped mount?
    pub(crate) idmapped: bool,
}

/// Writes one frame.
pub(crate) fn write_frame(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(value)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= LONGEST_FRAME);
    let Some(length) = length else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a plan of more than 4 MiB"));
    };
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

/// Reads one frame.
pub(crate) fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = frame_length(length)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// The length that a frame announces, if it is one that is ever sent.
pub(crate) fn frame_length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes);
    if length > LONGEST_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of more than 4 MiB"));
    }
    Ok(length as usize)
}
