//! Files: reading, writing and changing what is outside, by every way there.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::stage::{As, NOBODY, SECRET, each, each_tier};

#[test]
fn plain_commands_work() {
    each_tier(|stage| {
        stage.write("a.txt", "one\ntwo\nthree\n");
        let run = |cmd: &str| {
            let output = stage.run(cmd);
            assert_eq!(output.exit_code, Some(0), "{cmd}: {output:?}");
            output.stdout
        };
        assert_eq!(run("echo hello 'wide  world'"), "hello wide  world\n");
        assert_eq!(run("cat a.txt"), "one\ntwo\nthree\n");
        assert_eq!(run("grep -n two a.txt"), "2:two\n");
        assert_eq!(run("rg -n two a.txt"), "2:two\n");
        assert_eq!(run("sed -n 2p a.txt"), "two\n");
        assert_eq!(run("head -n 1 a.txt"), "one\n");
        assert_eq!(run("tail -n 1 a.txt"), "three\n");
        assert_eq!(run("wc -l a.txt"), "3 a.txt\n");
        assert_eq!(run("sort -r a.txt"), "two\nthree\none\n");
        assert_eq!(run("find . -name 'a.*'"), "./a.txt\n");
        assert_eq!(run("python3 -c 'print(6 * 7)'"), "42\n");
        assert_eq!(run("ls"), "a.txt\n");
        let output = stage.run("cat missing");
        assert_eq!(output.exit_code, Some(1), "{output:?}");
    });
}

#[test]
fn pytest_works_in_the_workspace() {
    each_tier(|stage| {
        stage.write("test_it.py", "def test_it(tmp_path): (tmp_path / 'x').write_text('y')\n");
        let output = stage.run("pytest -q test_it.py");
        assert!(output.stdout.contains("1 passed"), "{output:?}");
    });
}

#[test]
fn a_path_does_not_lead_outside() {
    each_tier(|stage| {
        let secret = stage.secret();
        for cmd in [
            format!("cat {secret}"),
            "cat ../outside/secret".to_owned(),
            format!("head -c 100 /workspace/../{secret}"),
            format!("grep -r secret {}", stage.outside.display()),
            format!("rg secret {}", stage.outside.display()),
            format!("ls {}", stage.outside.display()),
            format!("sed -n 1p {secret}"),
            format!("find {} -type f", stage.outside.display()),
            "cat /etc/shadow".to_owned(),
            "cat /proc/self/environ".to_owned(),
            "cat /proc/1/environ".to_owned(),
            "ls /proc/1/root/".to_owned(),
            "ls /sys/kernel".to_owned(),
            "cat /dev/mem".to_owned(),
            "ls /root".to_owned(),
            "ls /home".to_owned(),
        ] {
            stage.fails(&cmd);
        }
    });
}

#[test]
fn a_link_does_not_lead_outside() {
    each_tier(|stage| {
        symlink(&stage.outside, stage.root.join("folder")).unwrap();
        symlink(stage.outside.join("secret"), stage.root.join("file")).unwrap();
        stage.fails("cat file");
        stage.fails("cat folder/secret");
        stage.fails("ls folder/");
        stage.python("open('file', 'a').write('changed')");
        stage.python("import os; os.link('file', 'hard', follow_symlinks=True)");
        stage.untouched();
    });
}

#[test]
fn python_cannot_touch_what_is_outside() {
    each_tier(|stage| {
        let secret = stage.secret();
        let folder = stage.outside.display().to_string();
        for attempt in [
            format!("print(open({secret:?}).read())"),
            format!("open({secret:?}, 'w').write('x')"),
            format!("open({folder:?} + '/new', 'w').write('x')"),
            format!("print(os.listdir({folder:?}))"),
            format!("os.chmod({secret:?}, 0o600)"),
            format!("os.chown({secret:?}, os.getuid(), os.getgid())"),
            format!("os.utime({secret:?}, (1, 1))"),
            format!("os.setxattr({secret:?}, 'user.x', b'x')"),
            format!("os.truncate({secret:?}, 0)"),
            format!("os.unlink({secret:?})"),
            format!("os.rename({secret:?}, 'mine')"),
            format!("os.link({secret:?}, 'mine')"),
            format!("os.mkdir({folder:?} + '/new')"),
            format!("os.mknod({folder:?} + '/new')"),
            format!("os.symlink('x', {folder:?} + '/new')"),
            "os.mknod('node', 0o20666, os.makedev(1, 3))".to_owned(),
            "open('/dev/sda', 'rb')".to_owned(),
            "open('/dev/vda', 'rb')".to_owned(),
            "open('/usr/x', 'w')".to_owned(),
            "os.chroot('.')".to_owned(),
            "os.setuid(0)".to_owned(),
            "os.setgroups([0])".to_owned(),
        ] {
            let output = stage.python(&format!("import os\n{attempt}"));
            assert_eq!(output.exit_code, Some(1), "{attempt}: {output:?}");
            assert!(output.stderr.contains("Error"), "{attempt}: {output:?}");
            stage.nothing_leaked(&attempt, &output);
        }
    });
}

#[test]
fn tools_that_write_and_execute_stay_inside() {
    each(|stage| {
        stage.write("a", "x\n");
        let outside = stage.outside.display();
        stage.fails(&format!("sed 'w {outside}/new' a"));
        stage.run(&format!("sed 'r {outside}/secret' a"));
        let output = stage.run(&format!("sed 'r {outside}/secret' a"));
        stage.nothing_leaked("sed r", &output);
        stage.run("sed '1e echo executed' a");
        let output = stage.run("sed '1e cat /etc/hostname' a");
        assert!(!output.stdout.contains("executed"), "{output:?}");
        stage.fails(&format!("find {outside} -delete"));
        let output = stage.run("find a -exec sh -c 'echo executed' ';'");
        assert!(!output.stdout.contains("executed"), "{output:?}");
        let output = stage.run("find a -exec python3 -c 'print(\"executed\")' ';'");
        assert!(!output.stdout.contains("executed"), "{output:?}");
        stage.untouched();
    });
}

#[test]
fn what_lies_in_the_workspace_is_not_executed() {
    each(|stage| {
        fs::copy("/bin/echo", stage.root.join("own")).unwrap();
        fs::set_permissions(stage.root.join("own"), fs::Permissions::from_mode(0o6755)).unwrap();
        stage.write("script", "#!/usr/bin/python3\nprint('executed')\n");
        fs::set_permissions(stage.root.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
        let output = stage.python(
            "import subprocess\nfor what in ['./own', './script', '/bin/sh', '/usr/bin/env', '/usr/bin/su']:\n  \
             try:\n    print(subprocess.run([what, 'executed']))\n  except OSError as error:\n    print('refused', error.errno)\n",
        );
        assert_eq!(output.stdout.matches("refused 13").count(), 5, "{output:?}");
    });
}

#[test]
fn devices_are_the_four_harmless_ones() {
    each(|stage| {
        let output = stage.python(
            "open('/dev/null', 'w').write('x')\nassert open('/dev/zero', 'rb').read(2) == b'\\0\\0'\n\
             assert len(open('/dev/urandom', 'rb').read(2)) == 2\nimport os\n\
             for name in ['tty', 'console', 'mem', 'kmsg', 'fuse', 'kvm', 'shm/x', 'pts/0', 'loop0']:\n  \
             assert not os.path.lexists('/dev/' + name), name\nprint('done')",
        );
        assert_eq!(output.stdout, "done\n", "{output:?}");
    });
}

#[test]
fn nothing_can_be_written_but_the_workspace() {
    each(|stage| {
        let output = stage.python(
            "import os\nfor folder in ['/', '/tmp', '/etc', '/dev', '/usr', '/var/tmp', '/dev/shm', '/run', '/root', '/home']:\n  \
             try:\n    open(folder + '/x', 'w'); print('wrote', folder)\n  except OSError: pass\n\
             for path in ['/etc/passwd', '/etc/group']:\n  try:\n    open(path, 'a'); print('wrote', path)\n  except OSError: pass\n\
             print('done')",
        );
        assert_eq!(output.stdout, "done\n", "{output:?}");
    });
}

#[test]
fn files_that_are_made_belong_to_the_owner_of_the_workspace() {
    each(|stage| {
        let output =
            stage.python("import os\nopen('made', 'w')\nos.mkdir('folder')\nprint(os.getuid())");
        assert_eq!(output.stdout, "1000\n", "{output:?}");
        let owner = fs::metadata(&stage.root).unwrap();
        for name in ["made", "folder"] {
            let found = fs::metadata(stage.root.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (owner.uid(), owner.gid()), "{name}");
        }
        if stage.user == As::Nobody && fs::metadata("/proc/self").unwrap().uid() == 0 {
            assert_eq!(owner.uid(), NOBODY);
        }
    });
}

#[test]
fn odd_names_are_only_names() {
    each(|stage| {
        for name in ["a b", "-x", "quote'd", "dollar$HOME", "new\nline", "\u{202e}txt", "*"] {
            stage.write(name, "content");
            let quoted = format!("'{}'", name.replace('\'', r"'\''"));
            let output = stage.run(&format!("cat -- {quoted}"));
            assert_eq!(output.stdout, "content", "{name:?}: {output:?}");
        }
    });
}

/// Links and folders are swapped under a reader's feet, inside, where the sandboxed program may do as it likes.
#[test]
fn a_race_of_links_and_renames_gets_nowhere() {
    each(|stage| {
        let output = stage.python(&format!(
            "import os, threading, time\nos.mkdir('real'); open('real/secret', 'w').write('inside')\n\
             end = time.time() + 1.0\ndef swap():\n  while time.time() < end:\n    for step in (lambda: os.rename('real', 'way'), lambda: os.rename('way', 'real'), \
             lambda: os.symlink({outside:?}, 'way'), lambda: os.unlink('way')):\n      try: step()\n      except OSError: pass\n\
             threads = [threading.Thread(target=swap) for _ in range(3)]\n[t.start() for t in threads]\nseen = set()\n\
             while time.time() < end:\n  for path in ('way/secret', 'real/secret'):\n    try: seen.add(open(path).read())\n    except OSError: pass\n\
             print(seen)\n",
            outside = stage.outside.display().to_string(),
        ));
        assert_eq!(output.exit_code, Some(0), "{output:?}");
        assert!(!output.stdout.contains(SECRET), "{output:?}");
        stage.untouched();
    });
}

/// The same from outside: whoever swaps the files of the workspace does not make a command reach further.
#[test]
fn a_race_of_hard_links_gets_nowhere() {
    each(|stage| {
        let stop = AtomicBool::new(false);
        let (path, secret) = (stage.root.join("swapped"), stage.outside.join("secret"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::write(&path, "inside");
                    let _ = fs::remove_file(&path);
                    let _ = symlink(&secret, &path);
                    let _ = fs::remove_file(&path);
                }
            });
            for _ in 0..20 {
                let output = stage.run("cat swapped");
                stage.nothing_leaked("cat", &output);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn nothing_is_made_that_would_run_as_its_owner_outside() {
    use std::os::unix::fs::MetadataExt;
    each_tier(|stage| {
        let output = stage.python(
            "import os, shutil\nshutil.copyfile('/usr/bin/id', 'a')\n\
             tries = [lambda: os.chmod('a', 0o4755), lambda: os.chmod('a', 0o2755), lambda: os.fchmod(os.open('a', os.O_RDONLY), 0o6755),\n\
             lambda: os.open('b', os.O_CREAT | os.O_WRONLY, 0o4755), lambda: os.mknod('c', 0o104755), lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)]\n\
             for number, one in enumerate(tries):\n  try:\n    one()\n    print('did', number)\n  except OSError: pass",
        );
        assert!(!output.stdout.contains("did"), "{output:?}");
        for entry in std::fs::read_dir(&stage.root).unwrap().flatten() {
            let mode = entry.metadata().unwrap().mode();
            assert_eq!(mode & 0o6000, 0, "{:?} {mode:o}", entry.file_name());
        }
    });
}
