//! Memory, processes, disk and output: what one command can use up.

use std::{fs, path::Path};

use serde_json::json;
use tollgate_tools::shell::{EndedBy, ShellConfig};

use crate::stage::{Stage, each, each_tier, each_with};

fn small() -> ShellConfig {
    ShellConfig { memory_bytes: 96 << 20, processes: 24, ..ShellConfig::default() }
}

#[test]
fn a_fork_bomb_is_bounded_and_gone() {
    each_tier(|stage| {
        stage.write(
            "program.py",
            "import os, time\nmade = 0\ntry:\n  while made < 2000:\n    if os.fork() == 0:\n      time.sleep(300)\n      os._exit(0)\n    made += 1\nexcept OSError: pass\nprint(made)",
        );
        let mark = format!("bomb-{}-{}-{:?}", std::process::id(), stage.tier, stage.user);
        let output = stage.run(&format!("python3 program.py {mark}"));
        let made: u64 = output.stdout.trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
        assert!(made <= 128, "{made}");
        assert!(!Stage::somebody_runs(&mark), "something is left");
    });
}

#[test]
fn who_never_stops_forking_is_gone_at_the_deadline() {
    each_tier(|stage| {
        stage.write(
            "program.py",
            "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
        );
        let mark = format!("endless-{}-{}-{:?}", std::process::id(), stage.tier, stage.user);
        let output = stage.run_for(&format!("python3 program.py {mark}"), 1);
        assert!(output.timed_out, "{output:?}");
        assert!(!Stage::somebody_runs(&mark), "something is left");
    });
}

#[test]
fn memory_of_one_and_of_many_is_bounded() {
    each_with(&small(), |stage| {
        // One that takes all at once is told no, or ended.
        let output = stage.python("x = bytearray(400 << 20)\nprint('got it')");
        assert!(!output.stdout.contains("got it"), "{output:?}");
        // Many that each take a little are ended together.
        let output = stage.python(
            "import os, time\nfor _ in range(8):\n  if os.fork() == 0:\n    x = bytearray(os.urandom(1 << 20)) * 30\n    time.sleep(300)\n\
             time.sleep(300)",
        );
        assert_eq!(output.ended_by, EndedBy::Memory, "{output:?}");
        // Memory that belongs to nobody alone counts as well.
        let output = stage.python(
            "import mmap, time\nx = mmap.mmap(-1, 300 << 20)\nfor at in range(0, 300 << 20, 4096): x[at] = 1\ntime.sleep(300)",
        );
        assert_eq!(output.ended_by, EndedBy::Memory, "{output:?}");
    });
}

fn size_of(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.metadata().unwrap())
        .map(|found| if found.is_dir() { 0 } else { found.len() })
        .sum()
}

#[test]
fn many_files_do_not_fill_the_disk() {
    each(|stage| {
        stage.write(
            "program.py",
            "import time\nfor n in range(400):\n  open('f%d' % n, 'wb').write(b'x' * (1 << 20))\n  time.sleep(0.004)\ntime.sleep(300)",
        );
        let output = stage.run_within("python3 program.py", 32 << 20, 10_000);
        assert_eq!(output.ended_by, EndedBy::Disk, "{output:?}");
        let size = size_of(&stage.root);
        assert!(size < 200 << 20, "{} MiB", size >> 20);
    });
}

#[test]
fn what_is_in_a_folder_that_nobody_may_look_into_counts() {
    each(|stage| {
        stage.write(
            "program.py",
            "import os, time\nos.mkdir('h')\nos.chdir('h')\nos.chmod('.', 0o300)\nfor n in range(400):\n  open('f%d' % n, 'wb').write(b'x' * (1 << 20))\n  time.sleep(0.004)\ntime.sleep(300)",
        );
        let output = stage.run_within("python3 program.py", 32 << 20, 10_000);
        assert_eq!(output.ended_by, EndedBy::Disk, "{output:?}");
    });
}

#[test]
fn folders_without_end_are_not_walked_without_end() {
    each(|stage| {
        stage.write(
            "program.py",
            "import os, time\nfor n in range(3000):\n  os.mkdir('d')\n  os.chdir('d')\ntime.sleep(300)",
        );
        let output = stage.run_within("python3 program.py", 32 << 20, 10_000);
        assert_eq!(output.ended_by, EndedBy::Files, "{output:?}");
    });
}

#[test]
fn a_file_without_a_name_counts() {
    each(|stage| {
        stage.write(
            "program.py",
            "import os, time\nheld = []\nfor n in range(40):\n  f = open('f', 'wb', buffering=0)\n  os.unlink('f')\n  f.write(os.urandom(1 << 20))\n  held.append(f)\ntime.sleep(300)",
        );
        let output = stage.run_within("python3 program.py", 16 << 20, 10_000);
        assert_eq!(output.ended_by, EndedBy::Disk, "{output:?}");
    });
}

#[test]
fn one_file_does_not_grow_without_end() {
    each_with(&ShellConfig { file_bytes: 8 << 20, ..ShellConfig::default() }, |stage| {
        let output =
            stage.python("f = open('f', 'wb')\nfor _ in range(64): f.write(b'x' * (1 << 20))");
        assert_ne!(output.exit_code, Some(0), "{output:?}");
        assert!(size_of(&stage.root) < 9 << 20);
    });
}

#[test]
fn many_small_files_are_bounded() {
    each(|stage| {
        stage.write(
            "program.py",
            "import os, time\nfor n in range(60000):\n  os.close(os.open('f%d' % n, os.O_CREAT))\n  if n % 500 == 0: time.sleep(0.02)\ntime.sleep(300)",
        );
        let output = stage.run_within("python3 program.py", 1 << 30, 2000);
        assert_eq!(output.ended_by, EndedBy::Files, "{output:?}");
        let files = fs::read_dir(&stage.root).unwrap().count();
        assert!(files < 50_000, "{files}");
    });
}

#[test]
fn output_is_kept_to_a_bound_and_a_flood_is_ended() {
    each_with(&ShellConfig { output_bytes: 1000, ..ShellConfig::default() }, |stage| {
        let output =
            stage.python("import sys\nprint('x' * 5000)\nprint('y' * 500, file=sys.stderr)");
        assert_eq!((output.stdout.len(), output.stdout_truncated), (1000, true), "{output:?}");
        assert_eq!((output.stderr.len(), output.stderr_truncated), (501, false), "{output:?}");
        assert_eq!(output.exit_code, Some(0));
        for stream in ["stdout", "stderr"] {
            let output =
                stage.python(&format!("import sys\nwhile True: sys.{stream}.write('x' * 65536)"));
            assert_eq!(output.ended_by, EndedBy::Output, "{output:?}");
        }
    });
}

#[test]
fn many_commands_at_once_do_not_disturb_each_other() {
    each(|stage| {
        let mut helper = stage.helper.borrow_mut();
        for number in 0..16 {
            helper.send(&stage.root, &format!("echo number {number}"), 60, 1 << 30, 100_000, None);
        }
        let mut seen: Vec<String> = (0..16)
            .map(|_| {
                let answer = helper.receive();
                assert_eq!(answer["output"]["exitCode"], json!(0), "{answer}");
                answer["output"]["stdout"].as_str().unwrap().to_owned()
            })
            .collect();
        seen.sort();
        let mut all: Vec<String> = (0..16).map(|number| format!("number {number}\n")).collect();
        all.sort();
        assert_eq!(seen, all);
    });
}
