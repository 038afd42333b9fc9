//! The launcher: a process with clean memory, one thread and no environment, which confines others.
//!
//! The daemon has many threads and holds secrets, so that nothing is ever forked from it. It starts one
//! launcher, which is the same binary under another name, and keeps it: each run is a fork of the launcher,
//! the run's *monitor*, which makes the confined process, watches it and ends it. Starting the binary anew
//! for each run would cost more than the whole confining (see `docs/sandbox.md` for the numbers).
//!
//! Each run has a socket between daemon and monitor. When the daemon closes it, by choice or because it
//! was killed, the monitor ends the run. Nothing needs to be done in time by anybody else.

mod cgroup;
mod confine;
mod init;
mod monitor;
mod mounts;
mod probe;
mod rules;
mod tree;
mod watch;

use std::{
    io::IoSliceMut,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
};

use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::sys::{self, Children, Forked};

pub(crate) use cgroup::Cgroups;
pub(crate) use monitor::{CANCEL, FLOOD, THERE};
pub(crate) use probe::Answer;
pub(crate) use rules::Filters;

/// The first argument that makes a binary the launcher.
pub const MARKER: &str = "__sandbox-launcher";

/// The kernel-side user and group of confined processes where the launcher is root. No account has it: it is
/// above the ranges that containers and services are given.
pub const SANDBOX_UID: u32 = 2_016_112_207;

/// Was this process started to be the launcher? To be asked at the very start of `main`, before there is a
/// second thread and before anything secret is in memory.
pub fn wanted() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == MARKER)
}

/// What every run shares, made once.
struct Shared {
    filters: Filters,
    cgroups: Cgroups,
}

/// Serves runs until the daemon is gone. Its socket is stdin.
pub fn main() -> ExitCode {
    // A terminal's signals go to the daemon, which decides what they mean.
    let _ = rustix::process::setsid();
    let control = sys::own(0);
    let filters = match Filters::compile() {
        Ok(filters) => filters,
        Err(_) => return ExitCode::FAILURE,
    };
    let shared = Shared { filters, cgroups: Cgroups::find() };
    shared.cgroups.sweep();
    sys::set_children(Children::Forgotten);
    loop {
        match receive(&control) {
            Ok(Some(handed)) => match sys::fork(0) {
                Ok(Forked::Child) => {
                    drop(control);
                    sys::set_children(Children::WaitedFor);
                    monitor::main(handed, &shared);
                }
                // The daemon sees its socket close, and says that it could not be started.
                Ok(Forked::Parent(_)) | Err(_) => drop(handed),
            },
            Ok(None) => return ExitCode::SUCCESS,
            Err(Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// What the daemon hands over for a run.
struct Handed {
    run: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// The next run; `None` when the daemon is gone.
fn receive(control: &OwnedFd) -> Result<Option<Handed>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        control.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    match (fds.next(), fds.next(), fds.next(), fds.next()) {
        (Some(run), Some(stdin), Some(stdout), Some(stderr)) => {
            Ok(Some(Handed { run, stdin, stdout, stderr }))
        }
        _ => Err(Errno::BADMSG),
    }
}
