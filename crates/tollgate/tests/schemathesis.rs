//! The HTTP API against its own description, by a client that somebody else wrote. `make test` installs
//! it; without it this test fails.

#![cfg(test)]

mod common;

use std::process::Command;

use common::{daemon::Daemon, root};

#[test]
fn the_api_is_what_its_description_says() {
    let daemon = Daemon::start();
    let client = root().join("target/tools-for-tests/bin/schemathesis");
    assert!(client.exists(), "schemathesis is missing; scripts/tools-for-tests installs it");
    // A stream of events has no end; every other answer is tried.
    let endless = |name: &str| {
        format!("[[operations]]\ninclude-name = \"{name}\"\nparameters = {{ stream = false }}\n\n")
    };
    let config = [endless("GET /v1/events"), endless("GET /v1/approvals")].concat();
    std::fs::write(daemon.folder.path().join("schemathesis.toml"), config).unwrap();
    let ran = Command::new(client.canonicalize().unwrap())
        .current_dir(daemon.folder.path())
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("{}/openapi.json", daemon.url))
        .args(["-H", &format!("Authorization: Bearer {}", daemon.admin())])
        // Whether an input fits its tool is said by the tool's contract, not by the description of the API.
        .args(["--checks", "all", "--exclude-checks", "positive_data_acceptance"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "30"])
        .args(["--request-timeout", "30", "--no-color", "--generation-deterministic"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(told.contains("Tested: 52"), "{told}");
    assert_eq!(daemon.cli(&["ledger", "verify"]).code, 0);
    assert_eq!(daemon.get("/health", None).json()["status"], "ok");
}
