//! `tollgate agent`: one tool as an agent ([`direct`]), or a model that calls tools in a session.
//!
//! [`station`] finds the gate or runs one, [`run`] has turns run and hears them, [`screen`] and [`answer`] show them,
//! [`lines`] reads what is typed meanwhile. [`show`], [`look`] and [`cancel`] are about sessions as they are, [`note`]
//! corrects one; [`words`] writes numbers as people read them.

mod answer;
mod cancel;
pub(crate) mod direct;
mod lines;
mod look;
mod note;
mod run;
mod screen;
mod show;
mod station;
mod words;

use tollgate_protocol::SessionName;

use crate::{
    cli::AgentCommand,
    exit::Exit,
    output::{Failure, Output},
};

pub(crate) fn run(command: AgentCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        AgentCommand::Run(args) => run::run(&args, output),
        AgentCommand::Repl(args) => run::repl(&args, output),
        AgentCommand::Sessions(args) => show::sessions(&args, output),
        AgentCommand::Show(args) => show::run(&args, output),
        AgentCommand::Note(args) => note::run(&args, output),
        AgentCommand::Cancel(args) => cancel::run(&args, output),
        AgentCommand::Replay(args) => look::replay(&args, output),
        AgentCommand::Autopsy(args) => look::autopsy(&args, output),
        AgentCommand::Receipt(args) => look::receipt(&args, output),
    }
}

/// The name of a session, as it was typed.
pub(super) fn session(name: &str) -> Result<SessionName, Failure> {
    SessionName::parse(name).map_err(|error| Failure::usage(error.to_string()))
}
