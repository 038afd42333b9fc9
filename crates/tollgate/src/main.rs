//! The `tollgate` command. This file only dispatches: [`cli`] says what can be typed, each command
//! has a file of its own under [`commands`], [`output`] writes what it found.

mod cli;
mod client;
mod commands;
mod config;
mod exit;
mod output;
mod part;
mod place;
mod source;
mod sse;

use std::process::ExitCode;

use clap::Parser;

use crate::{cli::Cli, exit::Exit, output::Output};

fn main() -> ExitCode {
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

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
