#![cfg(all(test, feature = "weaken"))]
//! A self-test that cannot fail shows nothing. Each protection is switched off once, and the self-test says which
//! guarantee is gone.

use tollgate_sandbox::{Config, LauncherProgram, Sandbox, Tier, Weaken};

async fn lost(tier: Tier, weaken: &[Weaken]) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_tollgate-sandbox-launcher").into();
    let sandbox = Sandbox::start(Config {
        launcher: LauncherProgram { program, arguments: Vec::new(), environment: Vec::new() },
        ..Config::default()
    });
    let report = sandbox.weakened_self_test(tier, weaken.to_vec()).await;
    assert!(report.checks.len() > 40, "{weaken:?}: {:?}", report.checks);
    report.failures().map(|check| check.guarantee.clone()).collect()
}

async fn notices(tier: Tier, weaken: &[Weaken], guarantee: &str) {
    let lost = lost(tier, weaken).await;
    assert!(lost.iter().any(|found| found.contains(guarantee)), "{tier:?} {weaken:?}: {lost:?}");
}

#[tokio::test]
async fn with_everything_on_nothing_is_lost() {
    for tier in [Tier::Full, Tier::Landlock] {
        assert_eq!(lost(tier, &[]).await, Vec::<String>::new(), "{tier:?}");
    }
}

#[tokio::test]
async fn each_layer_of_the_full_tier_is_missed() {
    use Weaken::*;
    for (weaken, guarantee) in [
        (&[Mounts][..], "every namespace"),
        (&[Mounts], "the mode of a file outside"),
        (&[Mounts, Landlock], "a file outside cannot be read"),
        (&[Mounts, Landlock], "a file outside cannot be linked in"),
        (&[Mounts, Landlock], "a file outside cannot be removed"),
        (&[Mounts, Landlock], "the times of a file outside"),
        (&[Seccomp, Capabilities, Landlock], "nothing can be mounted"),
        (&[Network], "every namespace"),
        (&[Pids], "every namespace"),
        (&[Ipc], "every namespace"),
        (&[Uts], "every namespace"),
        (&[Landlock], "cannot be executed"),
        (&[Seccomp], "system calls are filtered"),
        (&[Seccomp], "no memory file can be made"),
        (&[Seccomp], "no user namespace can be made"),
        (&[Seccomp], "there is no shared memory"),
        (&[Capabilities], "capabilities"),
        (&[Limits], "the memory of a tree"),
        (&[Limits], "the processes of a tree"),
        (&[Environment], "environment"),
        (&[Descriptors], "no other file is open"),
        (&[Seccomp, Network, Landlock], "reached by TCP"),
        (&[Seccomp, Network, Landlock], "abstract name"),
        (&[Pids, Kill], "a tree ends"),
        (&[Pids, Landlock, Seccomp], "the memory of a process outside"),
    ] {
        notices(Tier::Full, weaken, guarantee).await;
    }
}

/// These need a root that belongs to somebody else than root, which the lesser tier's self-test makes.
#[tokio::test]
async fn each_layer_of_the_lesser_tier_is_missed() {
    use Weaken::*;
    for (weaken, guarantee) in [
        (&[Landlock][..], "a file outside cannot be read"),
        (&[Landlock], "a folder outside cannot be listed"),
        (&[Landlock], "a file outside cannot be written"),
        (&[Landlock], "a file outside cannot be changed"),
        (&[Landlock], "a file outside cannot be removed"),
        (&[Landlock], "/proc"),
        (&[Landlock], "/sys"),
        (&[Landlock], "a link does not lead outside"),
        (&[Landlock], "cannot be executed"),
        (&[Seccomp], "system calls are filtered"),
        (&[Seccomp], "pairs of sockets"),
        (&[Seccomp], "by a socket's path"),
        (&[Seccomp], "UDP"),
        (&[Seccomp, Landlock], "reached by TCP"),
        (&[Seccomp, Landlock], "abstract name"),
        (&[Limits], "the memory of a tree"),
        (&[Limits], "the processes of a tree"),
        (&[Environment], "environment"),
        (&[Descriptors], "no other file is open"),
        (&[Kill], "a tree ends"),
    ] {
        notices(Tier::Landlock, weaken, guarantee).await;
    }
}
