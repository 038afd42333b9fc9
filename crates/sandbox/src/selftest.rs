//! Tries every guarantee of a tier from inside a real sandbox. What cannot be shown here is not promised.

use std::{
    fmt, fs, io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Extra, Sandbox, VARIABLE},
    error::SandboxError,
    grant::{Ended, Exit, Finished, Grant, Limits, Network, Tier},
    launcher::{Answer, Cgroups, SANDBOX_UID},
    plan::{Layers, Targets, Task},
};

/// What a self-test found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The tier that was tried.
    pub tier: Tier,
    /// Each guarantee, and whether it held.
    pub checks: Vec<Check>,
    /// What this machine offers.
    pub machine: Machine,
}

/// One guarantee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is promised.
    pub guarantee: String,
    /// Did it hold?
    pub held: bool,
    /// What happened when it was tried.
    pub how: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.held { "" } else { "not held: " };
        write!(f, "{not}{} ({})", self.guarantee, self.how)
    }
}

/// What this machine offers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's version.
    pub kernel: String,
    /// The version of Landlock's interface; 0 without it.
    pub landlock_abi: u32,
    /// The namespaces that a confined process has for itself.
    pub namespaces: Vec<String>,
    /// Which control groups can be made: `v1`, `v2` or `none`.
    pub cgroups: String,
    /// How the memory of a tree is bounded.
    pub memory_by: String,
    /// Are the owners of files translated, so that the root may belong to anybody?
    pub idmapped: bool,
    /// Are system calls filtered?
    pub seccomp: bool,
    /// The kernel-side user of a confined process.
    pub uid: String,
}

impl Report {
    /// Did everything hold?
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.held)
    }

    /// What did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.held)
    }

    fn that(&mut self, guarantee: &str, held: bool, how: impl Into<String>) {
        self.checks.push(Check { guarantee: guarantee.to_owned(), held, how: how.into() });
    }
}

/// Tries everything.
pub(crate) async fn run(sandbox: &Sandbox, tier: Tier, extra: &Extra) -> Report {
    let mut report = Report { tier, checks: Vec::new(), machine: machine() };
    let stage = match Stage::set() {
        Ok(stage) => stage,
        Err(error) => {
            report.that("the self-test can be set up", false, error.to_string());
            return report;
        }
    };
    // One after another: without a user namespace their processes count together.
    judge_questions(&mut report, stage.try_task(sandbox, tier, extra, Task::Questions).await);
    judge_memory(&mut report, stage.try_task(sandbox, tier, extra, Task::Memory).await);
    judge_fork(&mut report, stage.try_task(sandbox, tier, extra, Task::Fork).await);
    judge_orphan(&mut report, &stage, sandbox, extra).await;
    let secret = fs::read(stage.outside.join("secret")).ok();
    report.that("what is outside is as it was", secret.as_deref() == Some(SECRET), "compared");
    report
}

const SECRET: &[u8] = b"not for the sandbox";
const PROCESSES: u64 = 16;
/// Every task has a deadline of its own, and none is longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The folders and listeners that a probe tries to get at.
struct Stage {
    folder: TempDir,
    outside: PathBuf,
    tcp: TcpListener,
    unix: PathBuf,
    abstract_name: String,
    _listeners: (UnixListener, UnixListener),
}

impl Stage {
    /// Everything is open to everybody, so that it is the sandbox that refuses.
    fn set() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tollgate-selftest-").tempdir()?;
        open_to_all(folder.path())?;
        let outside = folder.path().join("outside");
        fs::create_dir(&outside)?;
        fs::write(outside.join("secret"), SECRET)?;
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&outside, everybody.clone())?;
        fs::set_permissions(outside.join("secret"), fs::Permissions::from_mode(0o666))?;
        if rustix::process::geteuid().is_root() {
            chown(outside.join("secret"), Some(SANDBOX_UID), Some(SANDBOX_UID))?;
        }
        let unix = outside.join("socket");
        let by_path = UnixListener::bind(&unix)?;
        fs::set_permissions(&unix, everybody)?;
        let name = folder.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let abstract_name = name.to_owned();
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self { folder, outside, tcp, unix, abstract_name, _listeners: (by_path, by_name) })
    }

    fn root(&self, task: Task) -> PathBuf {
        self.folder.path().join(format!("root-{task:?}"))
    }

    async fn try_task(
        &self,
        sandbox: &Sandbox,
        tier: Tier,
        extra: &Extra,
        task: Task,
    ) -> Result<(Finished, Layers), SandboxError> {
        let failed = crate::error::LauncherFailed::when("cannot be tried");
        let root = self.root(task);
        fs::create_dir(&root).map_err(&failed)?;
        open_to_all(&root).map_err(&failed)?;
        if owned_by_the_user(tier, extra) && rustix::process::geteuid().is_root() {
            chown(&root, Some(SANDBOX_UID), Some(SANDBOX_UID)).map_err(&failed)?;
        }
        let mut extra = extra.clone();
        extra.probe = Some(Targets {
            outside: self.outside.clone(),
            tcp: self.tcp.local_addr().map_err(&failed)?,
            unix: self.unix.clone(),
            abstract_name: self.abstract_name.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or(1),
            program: ["/usr/bin/true", "/bin/true", "/usr/bin/env", "/bin/busybox"]
                .into_iter()
                .map(PathBuf::from)
                .find(|path| path.is_file()),
            variable: VARIABLE.to_owned(),
            task,
        });
        let grant = grant(root, task);
        let run = sandbox.run_in(tier, &grant, &[], CancellationToken::new(), &extra);
        match tokio::time::timeout(LONGEST, run).await {
            Ok(tried) => tried,
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        }
    }
}

/// Without a mount that translates owners the root has to belong to the user that works in it.
fn owned_by_the_user(tier: Tier, extra: &Extra) -> bool {
    #[cfg(feature = "weaken")]
    let without_mounts = extra.weaken.contains(&crate::plan::Weaken::Mounts);
    #[cfg(not(feature = "weaken"))]
    let without_mounts = {
        let _ = extra;
        false
    };
    tier == Tier::Landlock || without_mounts
}

fn grant(root: PathBuf, task: Task) -> Grant {
    let wall = match task {
        Task::Orphan(milliseconds) => Duration::from_millis(milliseconds),
        _ => Duration::from_secs(10),
    };
    let limits = Limits {
        wall,
        memory_bytes: 64 << 20,
        processes: PROCESSES,
        output_bytes: 1 << 20,
        ..Limits::default()
    };
    let system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];
    Grant {
        root,
        writable: true,
        read_only: system.into_iter().map(PathBuf::from).collect(),
        execute: Vec::new(),
        environment: Vec::new(),
        limits,
        network: Network::None,
    }
}

fn judge_questions(report: &mut Report, tried: Result<(Finished, Layers), SandboxError>) {
    let (finished, layers) = match tried {
        Ok(tried) => tried,
        Err(error) => return report.that("a process can be confined", false, error.to_string()),
    };
    report.that("a process can be confined", true, "it ran");
    match serde_json::from_slice::<Vec<Answer>>(&finished.stdout.bytes) {
        Ok(answers) => report.checks.extend(answers.into_iter().map(|answer| Check {
            guarantee: answer.guarantee,
            held: answer.held,
            how: answer.how,
        })),
        Err(error) => {
            let said = String::from_utf8_lossy(&finished.stderr.bytes);
            let how = format!("{error}; {:?} {:?} {said}", finished.exit, finished.ended);
            report.that("the probe answers", false, how);
        }
    }
    judge_layers(report, &layers);
}

/// One layer may hide that another is missing. From outside each can be seen.
fn judge_layers(report: &mut Report, layers: &Layers) {
    let wanted: &[&str] = match report.tier {
        Tier::Full => &["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"],
        Tier::Landlock => &[],
    };
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|name| !layers.namespaces.iter().any(|has| has == name))
        .collect();
    report.that("every namespace is its own", missing.is_empty(), format!("missing: {missing:?}"));
    report.that("system calls are filtered", layers.seccomp == "2", layers.seccomp.clone());
    report.that(
        "privileges cannot be gained",
        layers.no_new_privs == "1",
        layers.no_new_privs.clone(),
    );
    let sets: Vec<&str> = layers.capabilities.split(' ').collect();
    // Who is not root cannot drop what bounds it, and has nothing that it bounds.
    let bounding_too = report.tier == Tier::Full || rustix::process::geteuid().is_root();
    let none = sets.len() == 5
        && sets
            .iter()
            .enumerate()
            .all(|(at, set)| (at == 3 && !bounding_too) || set.bytes().all(|digit| digit == b'0'));
    report.that("no set of capabilities has one", none, layers.capabilities.clone());
    let root = layers.uids.split_ascii_whitespace().any(|uid| uid == "0");
    report.that("its user is not root", !root && !layers.uids.is_empty(), layers.uids.clone());
    report.machine.namespaces = layers.namespaces.clone();
    report.machine.memory_by = layers.memory_by.clone();
    report.machine.idmapped = layers.idmapped;
    report.machine.seccomp = layers.seccomp == "2";
    report.machine.uid = layers.uids.split_ascii_whitespace().next().unwrap_or_default().to_owned();
}

/// Leaves processes behind and lets the deadline come. On a slow machine they may not have begun by then, and are
/// given more time.
async fn judge_orphan(report: &mut Report, stage: &Stage, sandbox: &Sandbox, extra: &Extra) {
    let guarantee = "a tree ends at its deadline, with what left it";
    for milliseconds in [60, 500, 5000] {
        let task = Task::Orphan(milliseconds);
        let ended = match stage.try_task(sandbox, report.tier, extra, task).await {
            Ok((finished, _)) => finished.ended,
            Err(error) => return report.that(guarantee, false, error.to_string()),
        };
        let root = stage.root(task);
        let beats = || ["beat-child", "beat-session"].map(|name| fs::read(root.join(name)).ok());
        let first = beats();
        // Somebody who lives writes every two milliseconds, and on a busy machine now and then.
        let mut silent = true;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            silent = silent && beats() == first;
        }
        if first.iter().any(Option::is_none) && milliseconds < 5000 {
            continue;
        }
        let held = ended == Ended::Deadline && first.iter().all(Option::is_some) && silent;
        return report.that(guarantee, held, format!("ended: {ended:?}, silent: {silent}"));
    }
}

fn judge_memory(report: &mut Report, tried: Result<(Finished, Layers), SandboxError>) {
    let (held, how) = match tried {
        Ok((finished, _)) => {
            (finished.ended == Ended::Memory, format!("{:?}, {:?}", finished.ended, finished.exit))
        }
        Err(error) => (false, error.to_string()),
    };
    report.that("the memory of a tree is bounded", held, how);
}

fn judge_fork(report: &mut Report, tried: Result<(Finished, Layers), SandboxError>) {
    let (held, how) = match tried {
        Ok((finished, _)) => {
            let made = std::str::from_utf8(&finished.stdout.bytes).ok();
            let made: Option<u64> = made.and_then(|text| text.parse().ok());
            // Other processes of the user may end meanwhile, where they count together.
            let held =
                finished.exit == Exit::Code(0) && made.is_some_and(|made| made <= 2 * PROCESSES);
            (held, format!("{made:?} of {PROCESSES}"))
        }
        Err(error) => (false, error.to_string()),
    };
    report.that("the processes of a tree are bounded", held, how);
}

fn machine() -> Machine {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let abi = crate::sys::attempt(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0]);
    Machine {
        kernel: kernel.trim().to_owned(),
        landlock_abi: abi.ok().and_then(|abi| u32::try_from(abi).ok()).unwrap_or(0),
        cgroups: Cgroups::find().kind().to_owned(),
        ..Machine::default()
    }
}

fn open_to_all(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}
