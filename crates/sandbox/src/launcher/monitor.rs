//! One run, from outside: prepares it, lets it start, watches it, ends it, and tells the daemon.

use std::{
    fs, io,
    io::Read,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait},
};

use super::{
    Handed, Shared,
    cgroup::Cgroup,
    init::{self, Born, Problem, Word},
    mounts::{INSIDE_ID, Trees, owner_that_is_not_root},
    receive, tree,
    watch::{self, Disk},
};
use crate::{
    grant::{Ended, Exit, Tier, Usage},
    plan::{Layers, Plan, Report, on, read_frame, write_frame},
    sys::{self, Forked},
};

/// The first that a monitor says.
pub(crate) const THERE: u8 = b't';
/// What the daemon may say while a run goes on. Closing the socket says [`CANCEL`].
pub(crate) const CANCEL: u8 = b'c';
/// More output than anybody reads.
pub(crate) const FLOOD: u8 = b'f';

/// The life of a monitor: prepares what does not depend on the run, waits for one, and sees it through.
pub(super) fn main(control: OwnedFd, tell: OwnedFd, shared: &Shared) -> ! {
    // Whatever is left of the tree comes to this process.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let cgroup = shared.cgroups.make();
    let handed = loop {
        match receive(&control) {
            Err(rustix::io::Errno::INTR) => {}
            handed => break handed,
        }
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let _ = rustix::io::write(&tell, &own.to_le_bytes());
    drop((control, tell));
    if let Ok(Some(handed)) = handed {
        see_through(handed, shared, &cgroup);
    }
    if let Ok(Some(cgroup)) = &cgroup {
        cgroup.remove();
    }
    std::process::exit(0)
}

fn see_through(handed: Handed, shared: &Shared, cgroup: &Result<Option<Cgroup>, Problem>) {
    let Handed { run, stdin, stdout, stderr } = handed;
    let mut daemon = UnixStream::from(run);
    // From here on the run has somebody. Without this word the daemon asks another launcher, or has given up already.
    if rustix::io::write(&daemon, &[THERE]).is_err() {
        return;
    }
    let Ok(plan) = read_frame::<Plan>(&mut daemon) else { return };
    let told = match cgroup {
        Ok(cgroup) => {
            supervise(&plan, shared, &mut daemon, [stdin, stdout, stderr], cgroup.as_ref())
        }
        Err(problem) => Err(problem.clone()),
    };
    let report = match told {
        Ok(report) => report,
        Err(Problem { stage, problem }) => Report::Failed { stage, problem },
    };
    let _ = write_frame(&mut daemon, &report);
}

/// Everything that belongs to a run while it lives.
struct Run<'a> {
    plan: &'a Plan,
    process: Pid,
    ended: OwnedFd,
    status: UnixStream,
    cgroup: Option<&'a Cgroup>,
    deadline: Instant,
}

fn supervise(
    plan: &Plan,
    shared: &Shared,
    daemon: &mut UnixStream,
    stdio: [OwnedFd; 3],
    cgroup: Option<&Cgroup>,
) -> Result<Report, Problem> {
    let cgroup = cgroup.filter(|_| on!(plan, Limits));
    if let Some(cgroup) = cgroup {
        let set = cgroup.bound(&plan.grant.limits);
        set.map_err(|e| Problem::new("cgroup", "limits", e))?;
    }
    let deadline = Instant::now() + plan.grant.limits.wall;
    let Begun { process, status, idmapped } = begin(plan, shared, stdio, cgroup)?;
    let ended = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(ended) => ended,
        Err(error) => {
            // It is this process's child and not waited for yet, so that the number is its own.
            tree::kill_all(&[process]);
            let _ = sys::wait_for(process, true);
            return Err(Problem::new("watch", "pidfd_open", error.into()));
        }
    };
    let mut run = Run { plan, process, ended, status, cgroup, deadline };
    let memory_by = match cgroup {
        Some(_) => format!("cgroup {}", shared.cgroups.kind()),
        None => "watched".to_owned(),
    };
    let finished = run.confined().and_then(|()| {
        let mut layers = Layers { memory_by, idmapped, ..Layers::default() };
        if plan.probe.is_some() {
            look_at(process, &mut layers);
            rustix::io::write(&run.status, b"g")
                .map_err(|e| Problem::new("probe", "begin", e.into()))?;
        }
        write_frame(daemon, &Report::Started { layers })
            .map_err(|e| Problem::new("report", "started", e))?;
        run.watch(daemon)
    });
    if finished.is_err() {
        let _ = run.end();
    }
    finished
}

/// A process that was born.
struct Begun {
    process: Pid,
    status: UnixStream,
    idmapped: bool,
}

/// Forks the process, and lets it go on once everything on this side is ready.
fn begin(
    plan: &Plan,
    shared: &Shared,
    stdio: [OwnedFd; 3],
    cgroup: Option<&Cgroup>,
) -> Result<Begun, Problem> {
    let step = |what: &'static str| move |e: io::Error| Problem::new("begin", what, e);
    let root = rustix::process::geteuid().is_root();
    let trees = match plan.tier {
        Tier::Full if root && on!(plan, Mounts) => {
            Some(Trees::open(&plan.grant, true, shared.roots.as_ref().map(AsFd::as_fd))?)
        }
        _ => None,
    };
    let idmapped = trees.as_ref().is_some_and(|trees| trees.idmapped);
    let ids = match (&trees, root) {
        (Some(trees), _) => Some((trees.uid, trees.gid)),
        (None, true) => {
            let shown = plan.grant.root.display().to_string();
            let owner =
                fs::metadata(&plan.grant.root).map_err(|e| Problem::new("root", &shown, e))?;
            Some(owner_that_is_not_root(&owner, &shown)?)
        }
        (None, false) => None,
    };
    let (status, theirs) = UnixStream::pair().map_err(step("status"))?;
    let theirs = sys::move_to(theirs.into(), init::STATUS).map_err(step("status"))?;
    let (go, ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| step("pipe")(e.into()))?;
    match sys::fork(init::namespaces(plan)).map_err(step("namespaces"))? {
        Forked::Child => {
            // Without these the child would keep its own beginning, and its monitor's end, from being noticed.
            drop((ready, status));
            init::main(Born {
                plan,
                shared,
                counted: cgroup.is_some(),
                trees,
                ids,
                go,
                status: theirs,
                stdio,
            })
        }
        Forked::Parent(process) => {
            drop((stdio, theirs, go, trees));
            let prepared = map_user(plan, process, ids)
                .and_then(|()| rustix::io::write(&ready, b"g").map_err(Into::into));
            match prepared {
                Ok(_) => Ok(Begun { process, status, idmapped }),
                Err(error) => {
                    drop(ready);
                    let _ = sys::wait_for(process, true);
                    Err(step("prepare")(error))
                }
            }
        }
    }
}

/// Says who the users inside are outside.
fn map_user(plan: &Plan, process: Pid, ids: Option<(u32, u32)>) -> io::Result<()> {
    if plan.tier == Tier::Landlock {
        return Ok(());
    }
    let process = format!("/proc/{}", process.as_raw_nonzero());
    let (uid, gid) = match ids {
        Some(ids) => ids,
        None => {
            // The kernel asks this of everybody who is not root before a group can be mapped.
            fs::write(format!("{process}/setgroups"), "deny")?;
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        }
    };
    fs::write(format!("{process}/uid_map"), format!("{INSIDE_ID} {uid} 1"))?;
    fs::write(format!("{process}/gid_map"), format!("{INSIDE_ID} {gid} 1"))
}

impl Run<'_> {
    /// Waits until everything is given up.
    fn confined(&mut self) -> Result<(), Problem> {
        match read_frame::<Word>(&mut self.status) {
            Ok(Word::Confined) => Ok(()),
            Ok(Word::Failed(problem)) => Err(problem),
            Ok(Word::Ended(_)) | Err(_) => Err(Problem {
                stage: "begin".to_owned(),
                problem: "the confined process died before it was one".to_owned(),
            }),
        }
    }

    /// Watches until it is over, and ends what is left.
    fn watch(&mut self, daemon: &mut UnixStream) -> Result<Report, Problem> {
        let limits = &self.plan.grant.limits;
        let mut disk = match self.plan.grant.writable && on!(self.plan, Limits) {
            true => Some(Disk::new(&self.plan.grant.root, limits).map_err(|e| {
                Problem::new("watch", &self.plan.grant.root.display().to_string(), e.into())
            })?),
            false => None,
        };
        let by = loop {
            match self.wait_a_little(daemon) {
                Happened::Over => break Ended::Itself,
                Happened::Said(ended) => break ended,
                Happened::Nothing => {}
            }
            if Instant::now() >= self.deadline {
                break Ended::Deadline;
            }
            if let Some(ended) = self.too_much(disk.as_mut()) {
                break ended;
            }
        };
        let (exit, usage, by) = self.finish(by)?;
        Ok(Report::Finished { exit, ended: by, usage })
    }

    fn wait_a_little(&self, daemon: &UnixStream) -> Happened {
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN), PollFd::new(daemon, PollFlags::IN)];
        let left = self.deadline.saturating_duration_since(Instant::now());
        let wait = left.min(watch::EVERY) + Duration::from_micros(100);
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(0),
            tv_nsec: wait.subsec_nanos().into(),
        };
        if poll(&mut fds, Some(&wait)).is_err() {
            return Happened::Nothing;
        }
        let [over, said] = fds;
        if !over.revents().is_empty() {
            return Happened::Over;
        }
        if said.revents().is_empty() {
            return Happened::Nothing;
        }
        let mut byte = [0];
        match (&mut &*daemon).read(&mut byte) {
            Ok(1) if byte == [FLOOD] => Happened::Said(Ended::OutputFlood),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Happened::Nothing,
            _ => Happened::Said(Ended::Cancelled),
        }
    }

    /// Is more used than granted, by what the kernel does not stop by itself?
    fn too_much(&self, disk: Option<&mut Disk>) -> Option<Ended> {
        if !on!(self.plan, Limits) {
            return None;
        }
        let limits = &self.plan.grant.limits;
        let tree = || {
            let mut all = tree::descendants(self.process);
            all.push(self.process);
            all
        };
        match &self.cgroup {
            Some(cgroup) if cgroup.ran_out() => return Some(Ended::Memory),
            Some(_) => {}
            None => {
                let all = tree();
                if tree::memory_of(&all) > limits.memory_bytes {
                    return Some(Ended::Memory);
                }
            }
        }
        disk?.look(tree)
    }

    /// Ends what is left, and says how the program ended.
    fn finish(&mut self, by: Ended) -> Result<(Exit, Usage, Ended), Problem> {
        let waited = self.end()?;
        let mut usage = Usage { cpu: waited.cpu, max_memory_bytes: waited.largest };
        let mut by = by;
        if let Some(cgroup) = &self.cgroup {
            usage.max_memory_bytes = cgroup.peak().unwrap_or(usage.max_memory_bytes);
            if by == Ended::Itself && cgroup.ran_out() {
                by = Ended::Memory;
            }
        }
        // Everybody who could write is gone, so that this ends.
        let mut told = None;
        while let Ok(word) = read_frame::<Word>(&mut self.status) {
            match word {
                Word::Failed(problem) => return Err(problem),
                Word::Ended(status) => told = Some(status),
                Word::Confined => {}
            }
        }
        let status = match self.plan.tier {
            Tier::Full => told,
            Tier::Landlock => Some(waited.status),
        };
        let exit = match (status, by) {
            (Some(status), _) if libc::WIFSIGNALED(status) => Exit::Signal(libc::WTERMSIG(status)),
            (Some(status), _) => Exit::Code(libc::WEXITSTATUS(status)),
            // Init did not live to say it.
            (None, _) => Exit::Signal(libc::SIGKILL),
        };
        Ok((exit, usage, by))
    }

    /// Ends the tree and waits until nothing of it is left.
    fn end(&self) -> Result<sys::Waited, Problem> {
        let gone = |e: io::Error| Problem::new("end", "wait", e);
        if self.plan.tier == Tier::Landlock && on!(self.plan, Kill) {
            tree::stop_below(rustix::process::getpid());
        }
        // By its descriptor: the number may be somebody else's if this is asked twice.
        let _ = pidfd_send_signal(&self.ended, Signal::KILL);
        let waited = sys::wait_for(self.process, true).map_err(gone)?;
        if let Some(cgroup) = self.cgroup {
            cgroup.stop_forks();
        }
        // A process namespace ends with its first process. Without one, whoever is left is handed to this process when
        // its parent dies. Only own children are ended: their numbers are theirs until they are waited for.
        while on!(self.plan, Kill) {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => {
                    tree::kill_all(&tree::children_of(rustix::process::getpid()));
                    std::thread::sleep(Duration::from_micros(50));
                }
                Err(_) => break,
            }
        }
        waited.ok_or_else(|| gone(io::ErrorKind::Other.into()))
    }
}

/// What happened in a little while.
enum Happened {
    Nothing,
    Over,
    Said(Ended),
}

/// What can be seen of a confined process.
fn look_at(process: Pid, layers: &mut Layers) {
    let process = format!("/proc/{}", process.as_raw_nonzero());
    for name in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let theirs = fs::read_link(format!("{process}/ns/{name}"));
        let ours = fs::read_link(format!("/proc/self/ns/{name}"));
        if let (Ok(theirs), Ok(ours)) = (theirs, ours)
            && theirs != ours
        {
            layers.namespaces.push(name.to_owned());
        }
    }
    let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    let line = |name| tree::field(&status, name).unwrap_or_default().to_owned();
    layers.seccomp = line("Seccomp:");
    layers.no_new_privs = line("NoNewPrivs:");
    layers.uids = line("Uid:");
    layers.capabilities =
        ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].map(line).join(" ");
}
