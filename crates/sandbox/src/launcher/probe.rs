//! The confined side of the self-test: takes the place of the program, tries to get out in every way there is
//! a guarantee against, and writes down what happened.

use std::{
    ffi::CString,
    fmt::Display,
    fs, io,
    io::Write,
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            fs::PermissionsExt,
            net::{SocketAddr, UnixStream},
        },
    },
    path::Path,
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, WaitOptions, getppid, test_kill_process, wait};
use serde::{Deserialize, Serialize};

use super::init;
use crate::{
    grant::Network,
    plan::{Plan, Targets, Task},
    sys::{self, Forked},
};

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) guarantee: String,
    pub(crate) held: bool,
    pub(crate) how: String,
}

/// Does the task; gives the exit code.
pub(super) fn run(plan: &Plan, targets: &Targets, inside: &Path) -> i32 {
    match targets.task {
        Task::Questions => {
            let mut answers = Answers(Vec::new());
            answers.ask_all(plan, targets, inside);
            let written = serde_json::to_vec(&answers.0).map_err(io::Error::from);
            let written = written.and_then(|text| io::stdout().write_all(&text));
            i32::from(written.is_err())
        }
        Task::Orphan(_) => orphan(inside),
        Task::Memory => memory(),
        Task::Fork => fork(),
    }
}

struct Answers(Vec<Answer>);

impl Answers {
    /// It holds when the attempt fails.
    fn refused<T, E: Display>(&mut self, guarantee: &str, attempt: Result<T, E>) {
        let (held, how) = match attempt {
            Ok(_) => (false, "it worked".to_owned()),
            Err(error) => (true, error.to_string()),
        };
        self.0.push(Answer { guarantee: guarantee.to_owned(), held, how });
    }

    fn that(&mut self, guarantee: &str, held: bool, how: impl Into<String>) {
        self.0.push(Answer { guarantee: guarantee.to_owned(), held, how: how.into() });
    }

    fn ask_all(&mut self, plan: &Plan, targets: &Targets, inside: &Path) {
        self.files(targets, inside);
        if plan.grant.network == Network::None {
            self.sockets(targets);
        }
        self.processes(targets);
        self.privileges(inside);
        self.inherited(plan, targets, inside);
        self.executing(targets);
    }

    fn files(&mut self, targets: &Targets, inside: &Path) {
        let secret = targets.outside.join("secret");
        self.refused("a file outside cannot be read", fs::read(&secret));
        self.refused("a folder outside cannot be listed", fs::read_dir(&targets.outside));
        self.refused("the machine's root folder cannot be listed through", fs::read_dir("/root"));
        self.refused("the machine's accounts cannot be read", fs::read("/etc/shadow"));
        self.refused(
            "a file outside cannot be written",
            fs::write(targets.outside.join("new"), "x"),
        );
        self.refused(
            "a file outside cannot be changed",
            fs::OpenOptions::new().append(true).open(&secret),
        );
        self.refused(
            "a file outside cannot be linked in",
            fs::hard_link(&secret, inside.join("linked")),
        );
        let mode = fs::Permissions::from_mode(0o644);
        self.refused(
            "the mode of a file outside cannot be changed",
            fs::set_permissions(&secret, mode),
        );
        let now = std::time::SystemTime::now();
        let times = fs::FileTimes::new().set_modified(now);
        self.refused(
            "the times of a file outside cannot be changed",
            fs::File::open(&secret).and_then(|file| file.set_times(times)),
        );
        self.refused("the system cannot be written", fs::write("/usr/tollgate-probe", "x"));
        self.refused("processes cannot be seen through /proc", fs::read("/proc/1/stat"));
        self.refused("the kernel cannot be seen through /sys", fs::read_dir("/sys/kernel"));
        let own = inside.join("own");
        let wrote = fs::write(&own, "x").and_then(|()| fs::read(&own));
        self.that("the root can be read and written", wrote.is_ok(), describe(&wrote));
        let set_id = fs::Permissions::from_mode(0o4755);
        self.refused("no file can be made to run as its owner", fs::set_permissions(&own, set_id));
        let born = std::os::unix::fs::OpenOptionsExt::mode(
            fs::OpenOptions::new().create(true).write(true),
            0o6755,
        )
        .open(inside.join("born"));
        self.refused("no file can be born to run as its owner", born);
        let link = inside.join("link");
        let through = std::os::unix::fs::symlink(&secret, &link).and_then(|()| fs::read(&link));
        self.refused("a link does not lead outside", through);
        // Last, because nothing is left to try when these work.
        self.refused("a file outside cannot be removed", fs::remove_file(&secret));
        self.refused(
            "a file outside cannot be moved in",
            fs::rename(&secret, inside.join("moved")),
        );
    }

    fn sockets(&mut self, targets: &Targets) {
        let soon = Duration::from_millis(500);
        self.refused(
            "nobody can be reached by TCP",
            TcpStream::connect_timeout(&targets.tcp, soon),
        );
        self.refused("nobody can be listened for by TCP", TcpListener::bind("127.0.0.1:0"));
        self.refused("nothing can be sent by UDP", UdpSocket::bind("127.0.0.1:0"));
        self.refused(
            "nobody can be reached by a socket's path",
            UnixStream::connect(&targets.unix),
        );
        let reached = SocketAddr::from_abstract_name(&targets.abstract_name)
            .and_then(|name| UnixStream::connect_addr(&name));
        self.refused("nobody can be reached by an abstract name", reached);
        self.refused("there are no pairs of sockets", UnixStream::pair());
        for (family, name) in
            [(libc::AF_NETLINK, "netlink"), (libc::AF_VSOCK, "vsock"), (libc::AF_PACKET, "packet")]
        {
            let made = sys::attempt(libc::SYS_socket, [family.into(), libc::SOCK_RAW.into(), 0, 0]);
            self.refused(&format!("there are no {name} sockets"), made);
        }
    }

    fn processes(&mut self, targets: &Targets) {
        if let Some(pid) = Pid::from_raw(targets.pid) {
            self.refused("a process outside cannot be signalled", test_kill_process(pid));
            let pid = libc::c_long::from(targets.pid);
            let trace = [i64::from(libc::PTRACE_SEIZE), pid, 0, 0];
            self.refused(
                "a process outside cannot be traced",
                sys::attempt(libc::SYS_ptrace, trace),
            );
            self.refused(
                "limits of a process outside cannot be read",
                sys::attempt(libc::SYS_prlimit64, [pid, libc::RLIMIT_CORE.into(), 0, 0]),
            );
            self.refused(
                "the memory of a process outside cannot be read",
                sys::attempt(libc::SYS_process_vm_readv, [pid, 0, 0, 0]),
            );
        }
        if let Some(parent) = getppid() {
            let pid = libc::c_long::from(parent.as_raw_nonzero().get());
            let trace = [i64::from(libc::PTRACE_SEIZE), pid, 0, 0];
            self.refused("its parent cannot be traced", sys::attempt(libc::SYS_ptrace, trace));
        }
    }

    fn privileges(&mut self, inside: &Path) {
        let target = CString::new(inside.as_os_str().as_bytes()).unwrap_or_default();
        let mount = [
            c"tmpfs".as_ptr() as libc::c_long,
            target.as_ptr() as libc::c_long,
            c"tmpfs".as_ptr() as libc::c_long,
            0,
        ];
        self.refused("nothing can be mounted", sys::attempt(libc::SYS_mount, mount));
        let user = libc::CLONE_NEWUSER.into();
        self.refused(
            "no user namespace can be made",
            sys::attempt(libc::SYS_unshare, [user, 0, 0, 0]),
        );
        let forked = sys::fork(libc::CLONE_NEWUSER);
        if let Ok(Forked::Child) = forked {
            std::process::exit(0);
        }
        self.refused("no process can be made in a new user namespace", forked.map(|_| ()));
        self.refused("it cannot become root", sys::attempt(libc::SYS_setuid, [0, 0, 0, 0]));
        let node = CString::new(inside.join("node").as_os_str().as_bytes()).unwrap_or_default();
        let kind = i64::from(libc::S_IFCHR | 0o666);
        let device = i64::try_from(libc::makedev(1, 3)).unwrap_or_default();
        let node = [i64::from(libc::AT_FDCWD), node.as_ptr() as libc::c_long, kind, device];
        self.refused("no device can be made", sys::attempt(libc::SYS_mknodat, node));
        self.refused(
            "no memory file can be made",
            sys::attempt(libc::SYS_memfd_create, [c"x".as_ptr() as libc::c_long, 0, 0, 0]),
        );
        let mut parameters = [0_u64; 15];
        let ring = [1, parameters.as_mut_ptr() as libc::c_long, 0, 0];
        self.refused("there is no io_uring", sys::attempt(libc::SYS_io_uring_setup, ring));
        self.refused(
            "there is no shared memory",
            sys::attempt(libc::SYS_shmget, [0, 4096, 0o1600, 0]),
        );
        let effective = rustix::thread::capabilities(None);
        let none = effective.as_ref().is_ok_and(|sets| {
            sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty()
        });
        self.that("it has no capabilities", none, describe(&effective));
    }

    fn inherited(&mut self, plan: &Plan, targets: &Targets, inside: &Path) {
        let has = init::environment(plan, inside);
        let leaks = has.iter().any(|(name, _)| name.to_str() == Some(targets.variable.as_str()));
        self.that("the environment is clean", !leaks, format!("{} variables", has.len()));
        let left: Vec<i32> = (3..1024)
            .filter(|number| {
                let flags =
                    sys::attempt(libc::SYS_fcntl, [i64::from(*number), libc::F_GETFD.into(), 0, 0]);
                flags.is_ok_and(|flags| flags & i64::from(libc::FD_CLOEXEC) == 0)
            })
            .collect();
        self.that("no other file is open", left.is_empty(), format!("left open: {left:?}"));
    }

    fn executing(&mut self, targets: &Targets) {
        if let Some(program) = &targets.program {
            let ran = Command::new(program).env_clear().status();
            // Any other error, want of memory for one, would show nothing.
            let held =
                matches!(&ran, Err(error) if error.kind() == io::ErrorKind::PermissionDenied);
            self.that("what is not granted cannot be executed", held, describe(&ran));
        }
    }
}

fn describe<T, E: Display>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "it worked".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// How often a process that was left behind writes, every two milliseconds.
const LONGEST_BEAT: u32 = 5000;

/// Leaves two processes behind that keep writing, one of them in a session of its own, and waits to be ended.
fn orphan(inside: &Path) -> i32 {
    // Whoever reads these would wait for what is left behind.
    for number in [0, 1, 2, init::STATUS] {
        drop(sys::own(number));
    }
    for name in ["beat-child", "beat-session"] {
        if let Ok(Forked::Child) = sys::fork(0) {
            if name == "beat-session" {
                let _ = rustix::process::setsid();
                // Twice, so that its parent is gone.
                if let Ok(Forked::Parent(_)) = sys::fork(0) {
                    std::process::exit(0);
                }
            }
            // Not without end, for the case that nobody ends them.
            for beat in 0..LONGEST_BEAT {
                let _ = fs::write(inside.join(name), beat.to_string());
                std::thread::sleep(Duration::from_millis(2));
            }
            std::process::exit(0);
        }
    }
    std::thread::sleep(Duration::from_secs(8));
    0
}

/// Takes memory and touches it, in two processes so that no limit of one is enough.
fn memory() -> i32 {
    let _ = sys::fork(0);
    let mut held = Vec::new();
    // More than any self-test grants, and not without end: a machine without a bound must survive this.
    for _ in 0..48 {
        let mut block: Vec<u8> = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() {
            return 3;
        }
        block.resize(1 << 20, 1);
        held.push(block);
    }
    std::thread::sleep(Duration::from_millis(500));
    i32::from(held.is_empty())
}

/// Makes processes that stay, and says how many.
fn fork() -> i32 {
    let mut made = 0;
    for _ in 0..200 {
        match sys::fork(0) {
            Ok(Forked::Child) => {
                std::thread::sleep(Duration::from_secs(4));
                std::process::exit(0);
            }
            Ok(Forked::Parent(_)) => made += 1,
            Err(_) => break,
        }
    }
    let _ = wait(WaitOptions::NOHANG);
    let _ = write!(io::stdout(), "{made}");
    0
}
