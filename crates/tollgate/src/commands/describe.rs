//! `tollgate describe`: the manifest of this program's own commands, made from its parser.

use std::fmt::Write;

use clap::{ArgAction, CommandFactory};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cli::{Cli, DescribeArgs},
    exit::Exit,
    output::{Failure, Output},
};

/// The version of this description's format.
const FORMAT: &str = "1";

#[derive(Serialize)]
struct Description {
    name: String,
    about: String,
    usage: String,
    args: Vec<Argument>,
    examples: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    name: String,
    /// As it is typed: `--tool`, or the place holder of a positional argument.
    written: String,
    required: bool,
    takes_value: bool,
    values: Vec<String>,
    default: Option<String>,
    help: String,
}

pub(crate) fn run(args: &DescribeArgs, output: &Output) -> Result<Exit, Failure> {
    let mut root = Cli::command();
    root.build();
    let mut commands = Vec::new();
    collect(&root, "", &mut commands);
    if args.command.is_empty() {
        let whole = manifest(&root, &commands);
        return Ok(output.success(&whole, || overview(&commands)));
    }
    let wanted = args.command.join(" ");
    let Some(found) = commands.iter().find(|command| command.name == wanted) else {
        return Err(Failure::not_found(
            "command",
            &wanted,
            commands.iter().map(|command| command.name.as_str()),
        ));
    };
    Ok(output.success(found, || detail(found)))
}

fn manifest(root: &clap::Command, commands: &[Description]) -> Value {
    let exit_codes: Vec<Value> = Exit::ALL
        .iter()
        .map(|exit| json!({"code": exit.code(), "name": exit, "meaning": exit.meaning()}))
        .collect();
    json!({
        "formatVersion": FORMAT,
        "name": root.get_name(),
        "version": env!("CARGO_PKG_VERSION"),
        "about": text(root.get_about()),
        "globalArgs": arguments(root),
        "exitCodes": exit_codes,
        "commands": commands,
    })
}

/// Every command that does something, under its full name.
fn collect(command: &clap::Command, path: &str, into: &mut Vec<Description>) {
    for sub in command.get_subcommands() {
        let name = if path.is_empty() {
            sub.get_name().to_owned()
        } else {
            format!("{path} {}", sub.get_name())
        };
        if !sub.is_subcommand_required_set() {
            into.push(Description {
                about: text(sub.get_about()),
                usage: usage(sub),
                args: arguments(sub),
                examples: examples(&text(sub.get_after_help())),
                name: name.clone(),
            });
        }
        collect(sub, &name, into);
    }
}

fn arguments(command: &clap::Command) -> Vec<Argument> {
    let is_ours = |arg: &&clap::Arg| {
        !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
    };
    command.get_arguments().filter(is_ours).map(argument).collect()
}

fn argument(arg: &clap::Arg) -> Argument {
    let place: Vec<String> =
        arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect();
    Argument {
        name: arg.get_id().to_string(),
        written: arg.get_long().map_or_else(|| place.join(" "), |long| format!("--{long}")),
        required: arg.is_required_set(),
        takes_value: !matches!(
            arg.get_action(),
            ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count
        ),
        values: match arg.get_action() {
            ArgAction::SetTrue | ArgAction::SetFalse => Vec::new(),
            _ => {
                arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
            }
        },
        default: match arg.get_action() {
            ArgAction::SetTrue | ArgAction::SetFalse => None,
            _ => arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned()),
        },
        help: text(arg.get_help()),
    }
}

fn usage(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_owned()
}

/// The lines of the help that can be typed, with continued lines joined.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace("\\\n", " ");
    joined
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| line.starts_with("tollgate ") || line.contains("| tollgate "))
        .collect()
}

fn text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default()
}

fn overview(commands: &[Description]) -> String {
    let mut text = String::new();
    for command in commands {
        let _ = writeln!(text, "{:<14} {}", command.name, command.about);
    }
    text.push_str("\nExit codes\n");
    for exit in Exit::ALL {
        let _ = writeln!(text, "  {}  {}", exit.code(), exit.meaning());
    }
    text
}

fn detail(command: &Description) -> String {
    let mut text = format!("{}\n\n{}\n", command.about, command.usage);
    for arg in &command.args {
        let _ = writeln!(text, "  {:<12} {}", arg.written, arg.help);
    }
    text.push('\n');
    for example in &command.examples {
        let _ = writeln!(text, "  {example}");
    }
    text
}
