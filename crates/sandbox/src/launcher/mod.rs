//! The launcher: a process with clean memory, one thread and no environment, which confines others.
//!
//! The daemon has many threads and holds secrets, so that nothing is ever forked from it. It starts one
//! launcher, which is the same binary under another name, and keeps it: each run has a fork of the launcher,
//! its *monitor*, which makes the confined process, watches it and ends it. A few monitors are forked ahead and
//! wait at the launcher's socket; whoever takes a run says so and is replaced.
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
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, wait},
};

use crate::sys::{self, Forked};

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
    /// For workspaces of root's, where the launcher is root: the translation of their owner.
    roots: Option<OwnedFd>,
}

/// So many monitors wait for work. Putting a process into a control group takes the kernel some ten
/// milliseconds, which nobody has to wait for when it is done ahead.
const SPARES: usize = 2;

/// How often the launcher looks for monitors that died.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Serves runs until the daemon is gone. Its socket is stdin.
pub fn main() -> ExitCode {
    // A terminal's signals go to the daemon, which decides what they mean.
    let _ = rustix::process::setsid();
    // What the daemon was started with, and did not open itself, is not for this process to hold.
    let _ = sys::close_all_but(2);
    let control = sys::own(0);
    // The number must not be taken by something that matters.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty());
    std::mem::forget(null);
    match serve(control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(control: OwnedFd) -> io::Result<()> {
    let shared =
        Shared { filters: Filters::make(), cgroups: Cgroups::find(), roots: mounts::of_root() };
    shared.cgroups.sweep();
    let (taken, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut spares: Vec<Pid> = Vec::new();
    loop {
        while spares.len() < SPARES {
            match sys::fork(0) {
                Ok(Forked::Child) => {
                    drop(taken);
                    monitor::main(control, tell, &shared);
                }
                Ok(Forked::Parent(pid)) => spares.push(pid),
                // Tried again in a while.
                Err(_) => break,
            }
        }
        let mut fds =
            [PollFd::new(&taken, PollFlags::IN), PollFd::new(&control, PollFlags::empty())];
        let _ = poll(&mut fds, Some(&LOOK));
        let [_, gone] = fds;
        if gone.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
        let mut number = [0; 4];
        while rustix::io::read(&taken, &mut number) == Ok(number.len()) {
            spares.retain(|pid| pid.as_raw_nonzero().get() != i32::from_le_bytes(number));
        }
        while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
            spares.retain(|pid| *pid != ended);
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
