//! `tollgate trace`: what a trace holds, and how two differ.

use std::{fmt::Write, path::Path};

use serde_json::json;
use tollgate_contract::text::list;
use tollgate_trace::{Difference, Receipt, Trace, diff};

use crate::{
    cli::TraceCommand,
    exit::Exit,
    output::{Failure, Output},
    source,
};

pub(crate) fn run(command: &TraceCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        TraceCommand::Receipt(args) => {
            let receipt = Receipt::of(&read(&args.trace)?);
            Ok(output.success(&receipt, || summed_up(&receipt)))
        }
        TraceCommand::Diff(args) => {
            let found = diff(&read(&args.first)?, &read(&args.second)?);
            let data = json!({"same": found.is_empty(), "differences": found});
            let written = output.success(&data, || differences(&found));
            Ok(if written == Exit::Ok && !found.is_empty() { Exit::Failed } else { written })
        }
    }
}

/// Reads a trace.
pub(super) fn read(file: &Path) -> Result<Trace, Failure> {
    let text = source::read_text(file)?;
    Trace::parse(&text)
        .map_err(|error| Failure::bad_input(format!("{} is no trace: {error}", source::name(file))))
}

fn summed_up(receipt: &Receipt) -> String {
    let none = || "nothing".to_owned();
    let rows = [
        ("calls", format!("{} ({} failed)", receipt.calls, receipt.failed)),
        ("replayable", format!("{} of {}", receipt.replayable, receipt.calls)),
        ("runs", receipt.runs.len().to_string()),
        ("highest side effect", receipt.max_side_effect.to_string()),
        ("highest cost effect", receipt.max_cost_effect.to_string()),
        ("took together", format!("{} ms", receipt.duration_ms)),
        ("first", receipt.first.clone().unwrap_or_else(none)),
        ("last", receipt.last.clone().unwrap_or_else(none)),
        ("sha256", receipt.sha256.clone()),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<20} {value}");
    }
    if !receipt.tools.is_empty() {
        text.push('\n');
    }
    for (tool, count) in &receipt.tools {
        let failed =
            if count.failed > 0 { format!(", {} failed", count.failed) } else { String::new() };
        let _ = writeln!(
            text,
            "{tool:<20} {} call{}{failed}",
            count.calls,
            if count.calls == 1 { "" } else { "s" }
        );
    }
    text
}

fn differences(found: &[Difference]) -> String {
    if found.is_empty() {
        return "The same calls came to the same.\n".to_owned();
    }
    let mut text = String::new();
    for difference in found {
        let _ = match difference {
            Difference::OnlyInFirst { tool, input_hash, seq } => {
                writeln!(text, "- {tool}  only in the first trace (seq {seq}, input {input_hash})")
            }
            Difference::OnlyInSecond { tool, input_hash, seq } => {
                writeln!(text, "+ {tool}  only in the second trace (seq {seq}, input {input_hash})")
            }
            Difference::EndedOtherwise { tool, input_hash, seqs, .. } => writeln!(
                text,
                "~ {tool}  came to something else (seq {}, input {input_hash})",
                list([seqs.0, seqs.1])
            ),
        };
    }
    let count = found.len();
    let _ = writeln!(
        text,
        "\n{count} difference{}; --json shows what came of each call.",
        if count == 1 { "" } else { "s" }
    );
    text
}
