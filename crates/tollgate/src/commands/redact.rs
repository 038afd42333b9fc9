//! `tollgate redact`: a text as a trace would keep it.

use serde_json::{Value, json};
use tollgate_contract::{
    json,
    redact::{REDACTION_VERSION, redact, redact_text},
};

use crate::{
    cli::RedactArgs,
    exit::Exit,
    output::{Failure, Output},
    source,
};

pub(crate) fn run(args: &RedactArgs, output: &Output) -> Result<Exit, Failure> {
    if args.text {
        let text = source::read_text(&args.file)?;
        let clean = redact_text(&text);
        let data = json!({"redacted": clean, "redaction": REDACTION_VERSION});
        return Ok(output.success(&data, || clean.into_owned()));
    }
    if args.lines {
        return lines(args, output);
    }
    let bytes = source::read(&args.file)?;
    let value = parse(args, &bytes)?;
    let data = json!({"redacted": value, "redaction": REDACTION_VERSION});
    Ok(output.success(&data, || format!("{value:#}\n")))
}

fn lines(args: &RedactArgs, output: &Output) -> Result<Exit, Failure> {
    let text = source::read_text(&args.file)?;
    let mut clean = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut value = json::parse(line.as_bytes()).map_err(|error| {
            Failure::bad_input(format!(
                "{}, line {}: {}",
                source::name(&args.file),
                index + 1,
                error.kind()
            ))
            .with_help("use --text for plain text")
        })?;
        redact(&mut value);
        clean.push(value);
    }
    let data = json!({"redacted": clean, "redaction": REDACTION_VERSION});
    Ok(output.success(&data, || clean.iter().map(|value| format!("{value}\n")).collect()))
}

fn parse(args: &RedactArgs, bytes: &[u8]) -> Result<Value, Failure> {
    let mut value = json::parse(bytes).map_err(|error| {
        Failure::json(&source::name(&args.file), bytes, &error)
            .with_help("use --text for plain text, or --lines for one JSON text a line")
    })?;
    redact(&mut value);
    Ok(value)
}
