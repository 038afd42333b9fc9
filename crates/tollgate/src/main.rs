//! The `tollgate` command. This file only dispatches: [`cli`] says what can be typed, each command
//! has a file of its own under [`commands`], [`output`] writes what it found.

mod agent_folders;
mod cli;
mod client;
mod commands;
mod config;
mod daemon;
mod exit;
mod local;
mod output;
mod part;
mod place;
mod polling;
mod reload;
mod source;
mod sse;
mod table;

use std::process::ExitCode;

use clap::Parser;
use tollgate_contract::text::Clean;

use crate::{cli::Cli, exit::Exit, output::Output};

/// How commands of agents are confined by this binary.
///
/// The allocator below takes a gigabyte of addresses in advance. In a confined process, whose memory is bounded, they
/// would count as its own, so that the launcher is told to take them one by one.
fn sandbox() -> tollgate_sandbox::Config {
    let mut config = tollgate_sandbox::Config::default();
    config.launcher.environment = vec![("MIMALLOC_ARENA_EAGER_COMMIT".into(), "0".into())];
    config
}

/// An intent makes some dozens of small allocations, and this allocator is the quicker one at those.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else is in memory: this process may be the one that confines others.
    if tollgate_sandbox::launcher::wanted() {
        return tollgate_sandbox::launcher::main();
    }
    panics_without_secrets();
    if let Some(exit) = output::refuse_key_in_arguments() {
        return exit.into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage_error(&error).into(),
    };
    let output = Output::new(cli.json, cli.command.name());
    let exit = match commands::run(cli.command, &output) {
        Ok(exit) => exit,
        Err(failure) => output.failure(&failure),
    };
    exit.into()
}

/// A panic is a mistake of ours; what it tells may hold what somebody else gave us.
fn panics_without_secrets() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        output::note(&mistake(panic.payload_as_str().unwrap_or("no message"), &place));
    }));
}

fn mistake(message: &str, place: &str) -> String {
    format!("tollgate made a mistake at {place}: {}", Clean::new(message))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_tells_no_key() {
        let key = format!("tg_key_{}", "ab12".repeat(16));
        let told = super::mistake(&format!("no entry for {key}"), "here.rs:1:2");
        assert!(told.contains("no entry for") && !told.contains("ab12ab12"), "{told}");
    }
}
