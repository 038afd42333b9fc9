//! Why nothing was run.

use std::io;

/// Why nothing was run, or nobody knows how it ended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SandboxError {
    /// This machine cannot give the guarantees.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The launcher cannot be started or reached.
    #[error(transparent)]
    Launcher(#[from] LauncherFailed),
    /// This one program could not be started.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
}

/// This machine cannot give the guarantees.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("this machine cannot give the sandbox's guarantees: {}", .reasons.join("; "))]
pub struct Unavailable {
    pub(crate) reasons: Vec<String>,
}

impl Unavailable {
    /// What did not hold, tier by tier.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

/// The launcher cannot be started or reached.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the sandbox's launcher {doing}: {problem}")]
pub struct LauncherFailed {
    doing: &'static str,
    problem: String,
}

impl LauncherFailed {
    pub(crate) fn when(doing: &'static str) -> impl Fn(io::Error) -> SandboxError {
        move |error| Self { doing, problem: error.to_string() }.into()
    }
}

/// A program could not be started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{stage}: {problem}")]
pub struct NotStarted {
    pub(crate) stage: String,
    pub(crate) problem: String,
}

impl NotStarted {
    /// What was being done.
    pub fn stage(&self) -> &str {
        &self.stage
    }
}
