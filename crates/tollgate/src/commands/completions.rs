//! `tollgate completions`: what a shell needs to complete commands.

use clap::CommandFactory;

use crate::{
    cli::{Cli, CompletionsArgs},
    exit::Exit,
    output::Output,
};

pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tollgate", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let data = serde_json::json!({"shell": args.shell.to_string(), "script": script});
    output.success(&data, || script)
}
