#![cfg(test)]
//! The sandbox by itself, on the real kernel. Where the kernel lacks what it needs, these fail.

use std::{path::PathBuf, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tollgate_sandbox::{
    Config, Ended, Exit, Grant, LauncherProgram, Limits, Network, Sandbox, SandboxError, Tier, elf,
};

fn sandbox() -> Sandbox {
    let program = env!("CARGO_BIN_EXE_tollgate-sandbox-launcher").into();
    Sandbox::start(Config {
        launcher: LauncherProgram { program, arguments: Vec::new(), environment: Vec::new() },
        ..Config::default()
    })
}

fn grant(root: &std::path::Path, program: &str) -> (Grant, Vec<String>) {
    let real = std::fs::canonicalize(program).unwrap();
    let loader = elf::interpreter(&real).unwrap().unwrap();
    let execute = vec![real.clone(), std::fs::canonicalize(loader).unwrap()];
    let system = ["/usr", "/bin", "/lib", "/lib64"];
    let grant = Grant {
        root: root.to_owned(),
        writable: true,
        read_only: system.into_iter().map(PathBuf::from).collect(),
        execute,
        environment: vec![("LANG".to_owned(), "C.UTF-8".to_owned())],
        limits: Limits::default(),
        network: Network::None,
    };
    (grant, vec![real.display().to_string()])
}

async fn holds(tier: Tier) {
    let report = sandbox().self_test(tier).await;
    let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
    assert_eq!(failures, Vec::<String>::new());
    assert!(report.checks.len() > 40, "{}", report.checks.len());
    assert!(report.machine.landlock_abi >= 6 && report.machine.seccomp, "{:?}", report.machine);
}

#[tokio::test]
async fn the_full_tier_holds_in_everything() {
    holds(Tier::Full).await;
}

#[tokio::test]
async fn the_lesser_tier_holds_in_everything() {
    holds(Tier::Landlock).await;
}

#[tokio::test]
async fn a_program_can_be_talked_with_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (grant, argv) = grant(folder.path(), "/bin/cat");
    let sandbox = sandbox();
    let mut started = sandbox.spawn(&grant, &argv).await.unwrap();
    let mut stdin = started.stdin.take().unwrap();
    stdin.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    started.stdout.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    started.stop.kill();
    let (exit, ended, _) = started.wait().await.unwrap();
    assert_eq!((exit, ended), (Exit::Signal(9), Ended::Cancelled));

    let mut started = sandbox.spawn(&grant, &argv).await.unwrap();
    drop(started.stdin.take());
    let (exit, ended, _) = started.wait().await.unwrap();
    assert_eq!((exit, ended), (Exit::Code(0), Ended::Itself));
}

#[tokio::test]
async fn dropping_a_run_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let (grant, mut argv) = grant(folder.path(), "/bin/sleep");
    let mark = format!("{}.25", 1_000_000 + std::process::id());
    argv.push(mark.clone());
    let runs = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&mark))
        })
    };
    let sandbox = sandbox();
    let cancel = CancellationToken::new();
    {
        let run = sandbox.run(&grant, &argv, cancel);
        tokio::pin!(run);
        while !runs() {
            tokio::select! {
                finished = &mut run => panic!("{finished:?}"),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }
    for _ in 0..1000 {
        if !runs() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it still runs");
}

#[tokio::test]
async fn a_program_that_is_not_granted_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let (mut grant, argv) = grant(folder.path(), "/bin/cat");
    grant.execute.clear();
    let refused = sandbox().run(&grant, &argv, CancellationToken::new()).await;
    assert!(
        matches!(&refused, Err(SandboxError::NotStarted(why)) if why.stage() == "exec"),
        "{refused:?}"
    );
    grant.root = folder.path().join("missing");
    let refused = sandbox().run(&grant, &argv, CancellationToken::new()).await;
    assert!(
        matches!(&refused, Err(SandboxError::NotStarted(why)) if why.stage() == "root"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_root_that_is_not_writable_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (mut grant, mut argv) = grant(folder.path(), "/bin/touch");
    argv.push("new".to_owned());
    let sandbox = sandbox();
    grant.writable = false;
    let finished = sandbox.run(&grant, &argv, CancellationToken::new()).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(1));
    assert!(!folder.path().join("new").exists());
    grant.writable = true;
    let finished = sandbox.run(&grant, &argv, CancellationToken::new()).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
    assert!(folder.path().join("new").exists());
}

#[tokio::test]
async fn without_a_launcher_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (grant, argv) = grant(folder.path(), "/bin/cat");
    let program = folder.path().join("missing");
    let config = Config {
        launcher: LauncherProgram { program, arguments: Vec::new(), environment: Vec::new() },
        ..Config::default()
    };
    let refused = Sandbox::start(config).run(&grant, &argv, CancellationToken::new()).await;
    assert!(matches!(refused, Err(SandboxError::Unavailable(_))), "{refused:?}");
}
