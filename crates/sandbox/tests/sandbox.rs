#![cfg(test)]
//! The sandbox by itself, on the real kernel. Where the kernel lacks what it needs, these fail.

use tollgate_sandbox::{Config, LauncherProgram, Sandbox, Tier};

fn sandbox() -> Sandbox {
    let program = env!("CARGO_BIN_EXE_tollgate-sandbox-launcher").into();
    Sandbox::start(Config {
        launcher: LauncherProgram { program, arguments: Vec::new() },
        ..Config::default()
    })
}

#[tokio::test]
async fn the_full_tier_holds_in_everything() {
    let report = sandbox().self_test(Tier::Full).await;
    for check in &report.checks {
        println!("{check}");
    }
    println!("{:?}", report.machine);
    let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
    assert_eq!(failures, Vec::<String>::new());
    assert!(report.holds());
}

#[tokio::test]
async fn the_lesser_tier_holds_in_everything() {
    let report = sandbox().self_test(Tier::Landlock).await;
    for check in &report.checks {
        println!("{check}");
    }
    println!("{:?}", report.machine);
    let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
    assert_eq!(failures, Vec::<String>::new());
    assert!(report.holds());
}
