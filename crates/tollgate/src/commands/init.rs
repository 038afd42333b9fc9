//! `tollgate init`: a configuration to start from.

use std::{fs::OpenOptions, io::Write};

use serde_json::json;

use crate::{
    cli::InitArgs,
    config::COMMENTED,
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
    file.write_all(COMMENTED.as_bytes())
        .map_err(|error| Failure::bad_input(format!("cannot write {name}: {error}")))?;
    let data = json!({"file": args.file});
    Ok(output.success(&data, || {
        format!("Wrote {name}. Every setting is in it, commented out, with what holds without it.\nStart the gate with `tollgate serve`.\n")
    }))
}
