//! Running the binary as a person or a script would.

#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) mod daemon;

#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) mod asking;

#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) mod agents;

#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) mod disk;

#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) mod receiver;

use std::path::PathBuf;

use serde_json::Value;

/// What a run of the binary gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The envelope of a run with `--json`.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// The root of the repository, where the examples are.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the binary in the root of the repository.
#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) fn run(args: &[&str]) -> Ran {
    run_with(args, b"")
}

/// Runs the binary with something on its standard input.
#[allow(dead_code, reason = "each test file uses its own part")]
pub(crate) fn run_with(args: &[&str], stdin: &[u8]) -> Ran {
    let mut command = daemon::tollgate(&root());
    command.args(args);
    daemon::finish(command, stdin)
}
