//! The commands, one file each.

mod describe;
mod explain;
mod hash;
mod policy;
mod redact;
mod tools;

use std::path::Path;

use tollgate_contract::Manifest;

use crate::{
    cli::{Command, PolicyCommand},
    exit::Exit,
    output::{Failure, Output},
    source,
};

/// Runs one command.
pub(crate) fn run(command: Command, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Tools(args) => tools::run(&args, output),
        Command::Explain(args) => explain::run(&args, output),
        Command::Describe(args) => describe::run(&args, output),
        Command::Policy { command: PolicyCommand::Check(args) } => policy::check(&args, output),
        Command::Hash(args) => hash::run(&args, output),
        Command::Redact(args) => redact::run(&args, output),
    }
}

/// The manifest of a file, or the built-in one.
fn manifest(file: Option<&Path>) -> Result<Manifest, Failure> {
    match file {
        None => tollgate_tools::built_in()
            .map_err(|violations| Failure::manifest("the built-in manifest", &violations)),
        Some(path) => Manifest::parse(&source::read(path)?)
            .map_err(|violations| Failure::manifest(&source::name(path), &violations)),
    }
}
