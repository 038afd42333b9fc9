//! Processes: seeing, signalling and tracing others, and outliving the command.

use std::{fs, process::Command, time::Duration};

use tollgate_tools::shell::EndedBy;

use crate::stage::{As, NOBODY, Stage, each, each_tier, until};

#[test]
fn other_processes_cannot_be_touched() {
    each_tier(|stage| {
        let mut victim = {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new("sleep");
            command.arg("300");
            if stage.user == As::Nobody
                && fs::metadata("/proc/self").is_ok_and(|found| {
                    use std::os::unix::fs::MetadataExt;
                    found.uid() == 0
                })
            {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.spawn().unwrap()
        };
        let output = stage.python(&format!(
            "import os, ctypes, signal, resource\nlibc = ctypes.CDLL(None, use_errno=True)\nvictim = {victim}\ndef attempt(what, f):\n  try:\n    r = f()\n    print('OUT', what, r)\n  except OSError: print('refused', what)\n\
             def call(*a):\n  r = libc.syscall(*a)\n  if r < 0: raise OSError(ctypes.get_errno(), 'x')\n  return r\n\
             for pid in (victim, os.getppid(), {helper}):\n  if pid in (0, 1): pid = victim\n  \
             attempt('kill', lambda: os.kill(pid, signal.SIGKILL))\n  \
             attempt('trace', lambda: call(101, 16, pid, 0, 0))\n  \
             attempt('memory', lambda: open('/proc/%d/mem' % pid, 'rb').read(1))\n  \
             attempt('environment', lambda: open('/proc/%d/environ' % pid, 'rb').read(1))\n  \
             attempt('vm', lambda: call(310, pid, 0, 0, 0, 0, 0))\n  \
             attempt('limits', lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)))\n  \
             attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n",
            victim = victim.id(),
            helper = stage.helper.borrow().child.id(),
        ));
        assert_eq!(output.stdout.matches("refused").count(), 21, "{output:?}");
        assert!(!output.stdout.contains("OUT"), "{output:?}");
        assert!(victim.try_wait().unwrap().is_none(), "the victim was ended");
        victim.kill().unwrap();
        victim.wait().unwrap();
    });
}

#[test]
fn everybody_at_once_is_only_oneself() {
    each_tier(|stage| {
        // Ends itself and what it started, and nobody else: the helper still answers.
        stage.python("import os, signal\nos.kill(-1, signal.SIGKILL)");
        assert_eq!(stage.run("echo alive").stdout, "alive\n");
    });
}

#[test]
fn namespaces_mounts_and_memory_files_are_not_for_the_sandboxed() {
    each_tier(|stage| {
        let output = stage.python(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor name, args in {'unshare': (272, 0x10000000), 'setns': (308, 0, 0), 'mount': (165, b'x', b'/workspace', b'tmpfs', 0, 0), \
             'clone': (56, 0x10000000 | 17, 0, 0, 0, 0), 'clone3': (435, 0, 0), 'memfd': (319, b'x', 0), 'uring': (425, 1, 0), 'bpf': (321, 0, 0, 0), 'keyctl': (250, 0, 0, 0), 'userfaultfd': (323, 0), \
             'perf': (298, 0, 0, 0, 0, 0), 'shmget': (29, 0, 4096, 0o1600), 'personality': (135, 0x40000), 'pivot': (155, b'.', b'.'), 'handle': (304, 0, 0, 0), 'inotify': (253,), 'mq': (240, b'x', 0x42, 0o600, 0), \
             'pidfd_getfd': (438, 0, 0, 0), 'open_tree': (428, -100, b'/', 1), 'landlock_off': (157, 22, 0, 0, 0), 'x32': (0x40000000 + 41, 2, 1, 0)}.items():\n  \
             r = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])\n  print('OUT' if r >= 0 else 'refused', name)\n",
        );
        assert_eq!(output.stdout.matches("refused").count(), 21, "{output:?}");
    });
}

#[test]
fn the_environment_and_the_descriptors_are_clean() {
    each_tier(|stage| {
        let output = stage.python(
            "import os, fcntl\nprint(sorted(os.environ))\nleft = []\nfor fd in range(3, 512):\n  try: fcntl.fcntl(fd, fcntl.F_GETFD); left.append(fd)\n  except OSError: pass\n\
             print(left, os.read(0, 1), os.getsid(0) == os.getpid(), oct(os.umask(0)))",
        );
        stage.nothing_leaked("environment", &output);
        let mut lines = output.stdout.lines();
        let names = lines.next().unwrap();
        assert!(
            !names.contains("TOLLGATE") && names.contains("HOME") && names.contains("PATH"),
            "{names}"
        );
        assert_eq!(lines.next(), Some("[] b'' True 0o22"), "{output:?}");
    });
}

/// A process in a session of its own, whose parent is gone, that writes on and on.
const ORPHAN: &str = "import os, sys, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    \
    for name in (0, 1, 2): os.close(name)\n    n = 0\n    while True:\n      n += 1\n      open('beat', 'w').write(str(n))\n      time.sleep(0.002)\n  os._exit(0)\n\
    while not os.path.exists('beat'): time.sleep(0.001)\n";

fn is_silent(stage: &Stage) {
    let beat = || fs::read(stage.root.join("beat")).unwrap();
    let first = beat();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(first, beat(), "it still writes");
}

#[test]
fn nothing_outlives_the_command() {
    each_tier(|stage| {
        let output = stage.python(ORPHAN);
        assert_eq!(output.exit_code, Some(0), "{output:?}");
        is_silent(stage);
    });
}

#[test]
fn nothing_outlives_the_deadline() {
    each_tier(|stage| {
        stage.write("program.py", &format!("{ORPHAN}print('so far', flush=True)\ntime.sleep(300)"));
        let output = stage.run_for("python3 program.py", 2);
        assert!(output.timed_out && output.ended_by == EndedBy::Timeout, "{output:?}");
        assert_eq!((output.exit_code, output.signal), (None, Some(9)), "{output:?}");
        assert_eq!(output.stdout, "so far\n");
        assert!(output.duration_ms >= 2000, "{output:?}");
        is_silent(stage);
    });
}

#[test]
fn nothing_outlives_a_caller_who_gives_up() {
    each_tier(|stage| {
        stage.write("program.py", &format!("{ORPHAN}time.sleep(300)"));
        let beat = stage.root.join("beat");
        let answer = stage.ask("python3 program.py", 60, 1 << 30, 100_000, Some(&beat));
        assert_eq!(answer["error"]["code"], "CANCELLED", "{answer}");
        is_silent(stage);
    });
}

#[test]
fn nothing_outlives_a_gate_that_is_killed() {
    each_tier(|stage| {
        let mark = format!("marked-{}-{}-{:?}", std::process::id(), stage.tier, stage.user);
        stage.write("program.py", &format!("{ORPHAN}time.sleep(300)"));
        let mut helper = stage.helper.borrow_mut();
        helper.send(
            &stage.root,
            &format!("python3 program.py {mark}"),
            300,
            1 << 30,
            100_000,
            None,
        );
        until("the program runs", || {
            stage.root.join("beat").exists() && Stage::somebody_runs(&mark)
        });
        helper.child.kill().unwrap();
        helper.child.wait().unwrap();
        until("the program is gone", || !Stage::somebody_runs(&mark));
        is_silent(stage);
    });
}

#[test]
fn a_dead_launcher_is_replaced() {
    each(|stage| {
        assert_eq!(stage.run("echo one").stdout, "one\n");
        let helper = stage.helper.borrow().child.id();
        let children =
            fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).unwrap();
        for launcher in children.split_ascii_whitespace() {
            let status = Command::new("sh").arg("-c").arg(format!("kill -9 {launcher}")).status();
            assert!(status.unwrap().success());
        }
        assert_eq!(stage.run("echo two").stdout, "two\n");
    });
}
