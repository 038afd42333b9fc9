//! `tollgate init`: a configuration to start from.

use std::{fs::OpenOptions, io::Write};

use serde_json::json;

use crate::{
    cli::{ExampleArg, InitArgs},
    config::{COMMENTED, GITHUB},
    exit::Exit,
    output::{Failure, Output},
    source,
};

pub(crate) fn run(args: &InitArgs, output: &Output) -> Result<Exit, Failure> {
    let name = source::name(&args.file);
    // Whatever is there was written by somebody, and stays.
    let made = OpenOptions::new().write(true).create_new(true).open(&args.file);
    let mut file = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::bad_input(format!("{name} is there already, and was not changed"))
                .with_help("remove it first, or name another file")
        }
        _ => Failure::bad_input(format!("cannot write {name}: {error}")),
    })?;
    let (text, said) = match args.example {
        None => (COMMENTED, "Every setting is in it, commented out, with what holds without it."),
        Some(ExampleArg::Github) => (
            GITHUB,
            "It has pools and routes for agents that share one GitHub quota; read it, and change it.",
        ),
    };
    file.write_all(text.as_bytes())
        .map_err(|error| Failure::bad_input(format!("cannot write {name}: {error}")))?;
    let data = json!({"file": args.file});
    Ok(output.success(&data, || {
        format!("Wrote {name}. {said}\nStart the gate with `tollgate serve`.\n")
    }))
}
