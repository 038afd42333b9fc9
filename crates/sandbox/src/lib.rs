//! Confines a process: what it may read, write, run and use up, and that nothing of it is left afterwards.
//!
//! A [`Sandbox`] runs programs under a [`Grant`]. What is granted is in the grant; everything else is
//! refused by the kernel: namespaces, Landlock and seccomp in the full tier, the last two in the lesser one. Which
//! tier this machine can give is not guessed but tried: a [`self-test`](Sandbox::self_test) attempts every
//! escape from inside, and where one succeeds nothing is run at all.
//!
//! The confining is done by a [`launcher`], the same binary in another process. What is run, and which paths a
//! program needs, is the caller's business.

mod client;
pub mod elf;
mod error;
mod grant;
pub mod launcher;
mod plan;
mod selftest;
mod sys;

pub use client::{Config, LauncherProgram, Sandbox, Started, Stop};
pub use error::{LauncherFailed, NotStarted, SandboxError, Unavailable};
pub use grant::{Ended, Exit, Finished, Grant, Limits, Network, Output, Tier, TierChoice, Usage};
#[cfg(feature = "weaken")]
pub use plan::Weaken;
pub use selftest::{Check, Machine, Report};
