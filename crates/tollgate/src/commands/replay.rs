//! `tollgate replay`: calls answered from a trace. Nothing is called.

use std::{fmt::Write, path::Path};

use serde_json::{Value, json};
use tollgate_agent::Replayer;
use tollgate_contract::{Quoted, json};
use tollgate_trace::Entry;

use super::trace;
use crate::{
    cli::ReplayArgs,
    exit::Exit,
    output::{Failure, Output, write_out},
    part::Part,
    source,
};

/// One call that the trace is asked for.
struct Asked {
    tool: String,
    input: Value,
}

pub(crate) fn run(args: &ReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let trace = trace::read(&args.trace)?;
    let asked = match &args.calls {
        Some(file) => calls(file)?,
        None => own(trace.entries()),
    };
    let mut replayer = Replayer::new(&trace);
    let mut answered = Vec::new();
    for call in &asked {
        let answer = replayer.call(&call.tool, &call.input, |event| {
            if args.stream_json {
                write_out(format!("{event}\n").as_bytes());
            }
        });
        // What was recorded as an error is answered with it; only a miss is none.
        let missed = answer.as_ref().is_err_and(|error| {
            !trace
                .entries()
                .iter()
                .any(|entry| entry.ended == tollgate_trace::Ended::Error(json!(error)))
        });
        let error = answer.as_ref().err().map(|error| json!(error));
        answered.push(json!({"tool": call.tool, "missed": missed, "error": error}));
    }
    let unused: Vec<Value> = replayer
        .unused()
        .iter()
        .map(|entry| json!({"tool": entry.tool, "inputHash": entry.input_hash, "seq": entry.seq}))
        .collect();
    let missed = answered.iter().filter(|answer| *answer.part("missed") == true).count();
    let data = json!({"calls": answered, "missed": missed, "unused": unused});
    let written = if args.stream_json {
        Exit::Ok
    } else {
        output.success(&data, || told(&answered, &unused))
    };
    Ok(if written == Exit::Ok && (missed > 0 || !unused.is_empty()) {
        Exit::Failed
    } else {
        written
    })
}

fn told(answered: &[Value], unused: &[Value]) -> String {
    let mut text = String::new();
    for answer in answered {
        let tool = Quoted::new(answer.word("tool"));
        let _ = match (*answer.part("missed") == true, answer.part("error").part("code").as_str()) {
            (true, code) => writeln!(text, "✗ {tool}  not recorded ({})", code.unwrap_or_default()),
            (false, Some(code)) => writeln!(text, "✓ {tool}  recorded error {code}"),
            (false, None) => writeln!(text, "✓ {tool}"),
        };
    }
    for entry in unused {
        let _ = writeln!(
            text,
            "! {}  recorded (seq {}) and never asked for",
            entry.word("tool").to_owned(),
            entry.part("seq")
        );
    }
    let missed = answered.iter().filter(|answer| *answer.part("missed") == true).count();
    let _ = writeln!(
        text,
        "\n{} asked, {} answered from the trace, {missed} missed, {} never asked for. Nothing was called.",
        answered.len(),
        answered.len() - missed,
        unused.len()
    );
    text
}

fn own(entries: &[Entry]) -> Vec<Asked> {
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.seq);
    let asked = |entry: &Entry| Asked { tool: entry.tool.to_string(), input: entry.input.clone() };
    entries.into_iter().map(asked).collect()
}

fn calls(file: &Path) -> Result<Vec<Asked>, Failure> {
    let text = source::read_text(file)?;
    let mut asked = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |problem: &str| {
            Failure::bad_input(format!("{}, line {}: {problem}", source::name(file), index + 1))
        };
        let value = json::parse(line.as_bytes()).map_err(|error| wrong(&error.to_string()))?;
        let tool = value.get("tool").and_then(Value::as_str);
        let tool =
            tool.ok_or_else(|| wrong("a call is {\"tool\": NAME, \"input\": {…}}"))?.to_owned();
        let input = value.get("input").cloned().unwrap_or_else(|| json!({}));
        asked.push(Asked { tool, input });
    }
    Ok(asked)
}
