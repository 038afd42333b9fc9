//! The commands, one file each.

mod agent;
mod approve;
mod ask;
mod call;
mod completions;
mod describe;
mod doctor;
mod explain;
mod fake_model;
mod forecast;
mod grant;
mod halt;
mod hash;
mod identities;
mod init;
mod key;
mod ledger;
mod memory;
mod own_key;
mod policy;
mod pools;
mod redact;
mod replay;
mod rules;
mod serve;
mod simulate;
mod tools;
mod trace;
mod what_if;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate_contract::{Manifest, Quoted, Violations, json};

use crate::{
    cli::{Command, MemoryCommand, PolicyCommand},
    exit::Exit,
    output::{Failure, Output},
    source,
};

/// Runs one command.
pub(crate) fn run(command: Command, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Init(args) => init::run(&args, output),
        Command::Key { command } => key::run(command, output),
        Command::Ask(args) => ask::run(args, output),
        Command::Pools(args) => pools::run(&args, output),
        Command::Forecast(args) => forecast::run(&args, output),
        Command::Simulate(args) => simulate::run(&args, output),
        Command::WhatIf(args) => what_if::run(&args, output),
        Command::Identities { command, gate } => identities::run(command, &gate, output),
        Command::Halt(args) => halt::run(args, false, output),
        Command::Resume(args) => halt::run(args, true, output),
        Command::Approve(args) => approve::run(&args, output),
        Command::Grant(args) => grant::grant(args, output),
        Command::Revoke(args) => grant::revoke(&args, output),
        Command::Request(args) => grant::request(args, output),
        Command::Capabilities(args) => grant::capabilities(&args, output),
        Command::Call(args) => call::run(args, output),
        Command::Agent { command: None, direct } => agent::direct::run(&direct, output),
        Command::Agent { command: Some(command), .. } => agent::run(command, output),
        Command::Memory { command: MemoryCommand::Search(args) } => memory::search(&args, output),
        Command::Memory { command: MemoryCommand::Forget(args) } => memory::forget(&args, output),
        Command::FakeModel(args) => fake_model::run(&args),
        Command::Replay(args) => replay::run(&args, output),
        Command::Trace { command } => trace::run(&command, output),
        Command::Ledger { command } => ledger::run(&command, output),
        Command::Doctor(args) => doctor::run(&args, output),
        Command::Completions(args) => Ok(completions::run(&args, output)),
        Command::Tools(args) => tools::run(&args, output),
        Command::Explain(args) => explain::run(&args, output),
        Command::Describe(args) => describe::run(&args, output),
        Command::Policy { command: PolicyCommand::Check(args) } => policy::check(&args, output),
        Command::Hash(args) => hash::run(&args, output),
        Command::Redact(args) => redact::run(&args, output),
    }
}

/// Reads an input: JSON, `@FILE`, or `-` for the standard input.
fn input(text: &str) -> Result<Value, Failure> {
    let (name, bytes) = match (text, text.strip_prefix('@')) {
        ("-", _) => ("the standard input".to_owned(), source::read(Path::new("-"))?),
        (_, Some(file)) => {
            let path = PathBuf::from(file);
            (source::name(&path), source::read(&path)?)
        }
        (inline, None) => ("the input".to_owned(), inline.as_bytes().to_vec()),
    };
    json::parse(&bytes).map_err(|error| Failure::json(&name, &bytes, &error))
}

/// Reads the policy file of an agent or a call: the fields of one policy.
fn one_policy(file: &Path) -> Result<Value, Failure> {
    let set = policy::policies(file)?;
    let mut all = set.policies.into_values();
    match (all.next(), all.next()) {
        (Some(only), None) if set.server == Default::default() => {
            Ok(serde_json::to_value(only).unwrap_or_default())
        }
        _ => Err(Failure::bad_input(format!(
            "{} does not hold exactly one policy",
            source::name(file)
        ))),
    }
}

/// Reads a time such as `90s`, `15m`, `12h`, `30d`, in milliseconds.
fn duration_ms(text: &str) -> Result<i64, Failure> {
    let wrong = || {
        Failure::usage(format!("{} is not a time", Quoted::new(text)))
            .with_help("write it as 500ms, 90s, 15m, 12h or 30d")
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let factor: i64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(wrong()),
    };
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|ms| *ms > 0).ok_or_else(wrong)
}

/// The manifest of a file, or the built-in one.
fn manifest(file: Option<&Path>) -> Result<Manifest, Failure> {
    match file {
        None => {
            built_in().map_err(|violations| Failure::manifest("the built-in manifest", &violations))
        }
        Some(path) => Manifest::parse(&source::read(path)?)
            .map_err(|violations| Failure::manifest(&source::name(path), &violations)),
    }
}

/// The tools that every gate has.
fn built_in() -> Result<Manifest, Violations> {
    let mut declared = tollgate_tools::declarations()?;
    declared.push(tollgate_models::chat_declaration()?.erase());
    declared.push(tollgate_models::embed_declaration()?.erase());
    Manifest::from_declarations(declared)
}
