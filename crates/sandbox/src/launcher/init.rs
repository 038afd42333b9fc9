//! The first process inside: makes the file system, gives up everything, starts the program and reaps what
//! is left behind. It ends when the program ends, and the kernel ends everything else with it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, chdir, set_parent_process_death_signal, setsid, wait},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use serde::{Deserialize, Serialize};

use super::{
    Shared, confine,
    mounts::{INSIDE, INSIDE_ID, Trees},
    probe,
};
use crate::{
    grant::{Network, Tier},
    plan::{Plan, on, write_frame},
    sys::{self, Forked},
};

/// The number of the way to the monitor, out of the way of everything else.
pub(super) const STATUS: i32 = 100;

/// Why something could not be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Problem {
    /// What was being done.
    pub(super) stage: String,
    /// With what, and what the kernel said.
    pub(super) problem: String,
}

impl Problem {
    pub(super) fn new(stage: &str, what: &str, error: io::Error) -> Self {
        Self { stage: stage.to_owned(), problem: format!("{what}: {error}") }
    }
}

/// What init tells its monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Everything is given up; the program is next.
    Confined,
    /// It could not be done.
    Failed(Problem),
    /// The program ended, with this status.
    Ended(i32),
}

/// What a process is born with by its monitor.
pub(super) struct Born<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shared: &'a Shared,
    /// Does a control group bound the processes?
    pub(super) counted: bool,
    /// Opened by the monitor where only it can.
    pub(super) trees: Option<Trees>,
    /// The kernel-side ids to take without a user namespace, where the monitor is root.
    pub(super) ids: Option<(u32, u32)>,
    /// Says when the monitor has prepared its side.
    pub(super) go: OwnedFd,
    pub(super) status: OwnedFd,
    pub(super) stdio: [OwnedFd; 3],
}

/// Life inside, from the fork on.
pub(super) fn main(born: Born<'_>) -> ! {
    let Born { plan, shared, counted, trees, ids, go, status, stdio } = born;
    // The monitor closes its end without a word when it fails.
    if File::from(go).read(&mut [0; 1]).ok() != Some(1) {
        std::process::exit(1);
    }
    let mut status = File::from(status);
    // Where memory runs out this tree is ended, and not the monitor that shares its control group.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let code = match enter(plan, shared, counted, trees, ids, stdio, &status) {
        Ok(inside) => start(plan, &inside, &mut status),
        Err(problem) => {
            let _ = write_frame(&mut status, &Word::Failed(problem));
            1
        }
    };
    std::process::exit(code)
}

/// Gives up everything, in an order in which each step can still be done. Gives where the root is.
fn enter(
    plan: &Plan,
    shared: &Shared,
    counted: bool,
    trees: Option<Trees>,
    ids: Option<(u32, u32)>,
    stdio: [OwnedFd; 3],
    status: &File,
) -> Result<PathBuf, Problem> {
    if plan.tier == Tier::Landlock {
        confine::bounds(plan)?;
    }
    become_user(plan, ids)?;
    let inside = own_root(plan, trees)?;
    settle(&inside)?;
    only_these_descriptors(plan, stdio)?;
    watch_over(status)?;
    confine::limits(plan, counted)?;
    confine::bounds(plan)?;
    confine::privileges(plan)?;
    confine::landlock(plan, &inside)?;
    confine::seccomp(plan, shared.filters.for_run(plan.tier, plan.grant.network))?;
    Ok(inside)
}

/// Takes the ids of the user that everything runs as.
fn become_user(plan: &Plan, ids: Option<(u32, u32)>) -> Result<(), Problem> {
    let step =
        |what: &'static str| move |e: rustix::io::Errno| Problem::new("user", what, e.into());
    let (uid, gid) = match (plan.tier, ids) {
        // An ordinary user is mapped to this one already, and may not set its groups.
        (Tier::Full, None) => return Ok(()),
        (Tier::Landlock, None) => return Ok(()),
        (Tier::Full, Some(_)) => (INSIDE_ID, INSIDE_ID),
        (Tier::Landlock, Some(ids)) => ids,
    };
    let uid = rustix::process::Uid::from_raw(uid);
    let gid = rustix::process::Gid::from_raw(gid);
    set_thread_groups(&[]).map_err(step("setgroups"))?;
    set_thread_res_gid(gid, gid, gid).map_err(step("setresgid"))?;
    set_thread_res_uid(uid, uid, uid).map_err(step("setresuid"))
}

/// Makes the file system, where there is one to make.
fn own_root(plan: &Plan, trees: Option<Trees>) -> Result<PathBuf, Problem> {
    if plan.tier == Tier::Landlock || !on!(plan, Mounts) {
        return Ok(plan.grant.root.clone());
    }
    let trees = match trees {
        Some(trees) => trees,
        None => Trees::open(&plan.grant, false, None)?,
    };
    trees.enter()?;
    if on!(plan, Uts) {
        rustix::system::sethostname(b"sandbox")
            .map_err(|e| Problem::new("host name", "sandbox", e.into()))?;
    }
    Ok(PathBuf::from(INSIDE))
}

/// A session without a terminal, the working folder, signals and modes as a new program expects them.
fn settle(inside: &Path) -> Result<(), Problem> {
    let _ = setsid();
    chdir(inside).map_err(|e| Problem::new("chdir", &inside.display().to_string(), e.into()))?;
    rustix::process::umask(rustix::fs::Mode::from_bits_retain(0o022));
    sys::default_signals();
    Ok(())
}

/// The three standard streams, and the way to the monitor, which an exec closes. Nothing else stays open.
fn only_these_descriptors(plan: &Plan, stdio: [OwnedFd; 3]) -> Result<(), Problem> {
    let step = |e: rustix::io::Errno| Problem::new("descriptors", "standard streams", e.into());
    let [stdin, stdout, stderr] = stdio;
    rustix::stdio::dup2_stdin(&stdin).map_err(step)?;
    rustix::stdio::dup2_stdout(&stdout).map_err(step)?;
    rustix::stdio::dup2_stderr(&stderr).map_err(step)?;
    // Closed below, by number.
    std::mem::forget((stdin, stdout, stderr));
    sys::close_all_but(STATUS).map_err(|e| Problem::new("descriptors", "close_range", e))?;
    if !on!(plan, Descriptors) {
        let left = rustix::io::dup(rustix::stdio::stdout()).map_err(step)?;
        std::mem::forget(left);
    }
    Ok(())
}

/// Dies with its monitor. The monitor may have died before this was said, which its end of the pipe tells.
fn watch_over(status: &File) -> Result<(), Problem> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Problem::new("death signal", "prctl", e.into()))?;
    let mut fds = [PollFd::new(status, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = poll(&mut fds, Some(&now));
    if fds.iter().any(|fd| fd.revents().contains(PollFlags::ERR)) {
        std::process::exit(1);
    }
    Ok(())
}

/// Starts the program and gives its own exit code. In the lesser tier this process becomes the program.
fn start(plan: &Plan, inside: &Path, status: &mut File) -> i32 {
    if write_frame(status, &Word::Confined).is_err() {
        return 1;
    }
    // A probe is looked at before it begins; it might be over too soon otherwise.
    if plan.probe.is_some() && status.read(&mut [0; 1]).ok() != Some(1) {
        return 1;
    }
    if plan.tier == Tier::Landlock {
        return become_program(plan, inside, status);
    }
    match sys::fork(0) {
        Ok(Forked::Child) => {
            let _ = setsid();
            become_program(plan, inside, status)
        }
        Ok(Forked::Parent(program)) => {
            // Whoever reads these streams waits until the last copy is closed.
            for stream in 0..3 {
                drop(sys::own(stream));
            }
            let ended = reap_until(program);
            let _ = write_frame(status, &Word::Ended(ended));
            0
        }
        Err(error) => {
            let _ = write_frame(status, &Word::Failed(Problem::new("fork", "init", error)));
            1
        }
    }
}

/// Waits for whatever ends, until it is the program.
fn reap_until(program: Pid) -> i32 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => return status.as_raw(),
            Err(rustix::io::Errno::CHILD) => return 127 << 8,
            _ => {}
        }
    }
}

/// Turns into the program; comes back only when that fails.
fn become_program(plan: &Plan, inside: &Path, status: &mut File) -> i32 {
    if let Some(targets) = &plan.probe {
        return probe::run(plan, targets, inside);
    }
    let Some((program, arguments)) = plan.argv.split_first() else { return 127 };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment(plan, inside));
    let error = command.exec();
    let _ = write_frame(status, &Word::Failed(Problem::new("exec", program, error)));
    127
}

/// The whole environment of the program.
pub(super) fn environment(plan: &Plan, inside: &Path) -> Vec<(OsString, OsString)> {
    let launchers: Vec<_> =
        if on!(plan, Environment) { Vec::new() } else { std::env::vars_os().collect() };
    let granted = plan.grant.environment.iter().map(|(name, value)| (name.into(), value.into()));
    let root = ["HOME", "TMPDIR", "PWD"].map(|name| (name.into(), inside.as_os_str().to_owned()));
    launchers.into_iter().chain(granted).chain(root).collect()
}

/// The namespaces of a run.
pub(super) fn namespaces(plan: &Plan) -> i32 {
    if plan.tier == Tier::Landlock {
        return 0;
    }
    let mut flags = libc::CLONE_NEWUSER | libc::CLONE_NEWCGROUP;
    for (wanted, flag) in [
        (on!(plan, Mounts), libc::CLONE_NEWNS),
        (on!(plan, Pids), libc::CLONE_NEWPID),
        (on!(plan, Ipc), libc::CLONE_NEWIPC),
        (on!(plan, Uts), libc::CLONE_NEWUTS),
        (on!(plan, Network) && plan.grant.network == Network::None, libc::CLONE_NEWNET),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    flags
}
