//! A workspace, something outside that nobody may get at, and a gate's worth of `shell.exec` in another process.

use std::{
    cell::RefCell,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tools::shell::{EndedBy, ExecOutput, ShellConfig};

pub(crate) const NOBODY: u32 = 65534;
pub(crate) const SECRET: &str = "the-secret-outside";
/// A variable of the gate that no command may see.
const CANARY: (&str, &str) = ("TOLLGATE_CANARY", "canary-in-the-environment");

/// Who runs the gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum As {
    Root,
    Nobody,
}

/// One place to try things in.
pub(crate) struct Stage {
    pub(crate) user: As,
    pub(crate) tier: &'static str,
    folder: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) helper: RefCell<Helper>,
}

pub(crate) struct Helper {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn users() -> Vec<As> {
    // Who is not root can only be itself, which is nobody special.
    if is_root() { vec![As::Root, As::Nobody] } else { vec![As::Nobody] }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Tries something as each user, in the tier that the product uses.
pub(crate) fn each(attempt: impl Fn(&Stage)) {
    for user in users() {
        attempt(&Stage::set(user, "full", ShellConfig::default()));
    }
}

/// Tries something as each user and in each tier.
pub(crate) fn each_tier(attempt: impl Fn(&Stage)) {
    for tier in ["full", "landlock"] {
        for user in users() {
            attempt(&Stage::set(user, tier, ShellConfig::default()));
        }
    }
}

/// Tries something as each user, with another configuration.
pub(crate) fn each_with(config: &ShellConfig, attempt: impl Fn(&Stage)) {
    for user in users() {
        attempt(&Stage::set(user, "full", config.clone()));
    }
}

impl Stage {
    pub(crate) fn set(user: As, tier: &'static str, config: ShellConfig) -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-escape-").tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        // Open to everybody, so that it is the sandbox that refuses.
        open(&outside, 0o777);
        open(&outside.join("secret"), 0o666);
        if is_root() && (user == As::Nobody || tier == "landlock") {
            chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
            chown(outside.join("secret"), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let helper = Helper::start(user, tier, &config, folder.path());
        Self { user, tier, folder, root, outside, helper: RefCell::new(helper) }
    }

    pub(crate) fn secret(&self) -> String {
        self.outside.join("secret").display().to_string()
    }

    /// Writes a file into the workspace, as its owner.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::write(&path, text).unwrap();
        let owner = fs::metadata(&self.root).unwrap();
        if is_root() {
            chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }

    /// Runs a Python program in the sandbox.
    pub(crate) fn python(&self, program: &str) -> ExecOutput {
        self.write("program.py", program);
        self.run("python3 program.py")
    }

    pub(crate) fn run(&self, cmd: &str) -> ExecOutput {
        self.run_for(cmd, 60)
    }

    pub(crate) fn run_for(&self, cmd: &str, timeout_s: u32) -> ExecOutput {
        self.output(&self.ask(cmd, timeout_s, 1 << 30, 100_000, None))
    }

    pub(crate) fn run_within(&self, cmd: &str, disk_bytes: u64, inodes: u64) -> ExecOutput {
        self.output(&self.ask(cmd, 60, disk_bytes, inodes, None))
    }

    /// The error of a command that is refused.
    pub(crate) fn refused(&self, cmd: &str) -> String {
        let answer = self.ask(cmd, 20, 1 << 30, 100_000, None);
        assert_eq!(answer["error"]["code"], "INVALID_INPUT", "{cmd}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn ask(
        &self,
        cmd: &str,
        timeout_s: u32,
        disk_bytes: u64,
        inodes: u64,
        cancel_when: Option<&Path>,
    ) -> Value {
        let mut helper = self.helper.borrow_mut();
        let id = helper.send(&self.root, cmd, timeout_s, disk_bytes, inodes, cancel_when);
        let answer = helper.receive();
        assert_eq!(answer["id"], id);
        answer
    }

    pub(crate) fn output(&self, answer: &Value) -> ExecOutput {
        let context = format!("{:?} {}: {answer}", self.user, self.tier);
        serde_json::from_value(answer["output"].clone()).expect(&context)
    }

    /// A command that ended by itself and did not do what it was meant to.
    pub(crate) fn fails(&self, cmd: &str) -> ExecOutput {
        let output = self.run(cmd);
        assert_eq!(output.ended_by, EndedBy::Itself, "{cmd}: {output:?}");
        assert_ne!(output.exit_code, Some(0), "{:?} {} {cmd}: {output:?}", self.user, self.tier);
        self.nothing_leaked(cmd, &output);
        output
    }

    /// Nothing that is outside shows up inside, and what is outside is as it was.
    pub(crate) fn nothing_leaked(&self, what: &str, output: &ExecOutput) {
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.contains(SECRET), "{what}: {output:?}");
            assert!(!text.contains(CANARY.1), "{what}: {output:?}");
        }
        self.untouched();
    }

    pub(crate) fn untouched(&self) {
        let secret = self.outside.join("secret");
        assert_eq!(fs::read_to_string(&secret).unwrap(), SECRET);
        let found = fs::metadata(&secret).unwrap();
        assert_eq!((found.mode() & 0o7777, found.nlink()), (0o666, 1));
        let names: Vec<_> = fs::read_dir(&self.outside).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(self.folder.path().exists());
    }

    /// Is there a process that has this text in its command line?
    pub(crate) fn somebody_runs(mark: &str) -> bool {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit())
                && fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
    }
}

impl Helper {
    fn start(user: As, tier: &str, config: &ShellConfig, folder: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_tollgate-shell-helper"));
        let program = match user {
            As::Nobody if is_root() && !reachable(program) => {
                let copy = folder.join("helper");
                fs::copy(program, &copy).unwrap();
                copy
            }
            _ => program.to_owned(),
        };
        let mut command = Command::new(program);
        command.env(CANARY.0, CANARY.1).stdin(Stdio::piped()).stdout(Stdio::piped());
        if user == As::Nobody && is_root() {
            // The test's own programs may lie where only root gets at.
            command.uid(NOBODY).gid(NOBODY).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        if tier == "landlock" {
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut config = serde_json::to_value(config).unwrap();
        config["tier"] = json!(tier);
        writeln!(stdin, "{config}").unwrap();
        Self { child, stdin, stdout, next: 0 }
    }

    pub(crate) fn send(
        &mut self,
        root: &Path,
        cmd: &str,
        timeout_s: u32,
        disk_bytes: u64,
        inodes: u64,
        cancel_when: Option<&Path>,
    ) -> u64 {
        self.next += 1;
        let request = json!({
            "id": self.next, "root": root, "cmd": cmd, "timeout_s": timeout_s,
            "disk_bytes": disk_bytes, "inodes": inodes, "cancel_when": cancel_when,
        });
        writeln!(self.stdin, "{request}").unwrap();
        self.next
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

/// Can everybody get at it?
fn reachable(path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .all(|folder| fs::metadata(folder).is_ok_and(|found| found.mode() & 0o001 != 0))
}

/// Waits for something that happens sooner or later.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
