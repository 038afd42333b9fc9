//! `tollgate agent replay`, `autopsy` and `receipt`: what the traces of a session say. They read the data folder,
//! whether a gate runs or not, and call nothing.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_agent::runtime::{Autopsy, Event, Replayed, RunReceipt, Severity, replay_turn};
use tollgate_contract::text::{for_terminal, list};

use super::{
    show,
    words::{brief, lasted, line, some, totals},
};
use crate::{
    cli::{AgentReplayArgs, AgentTraceArgs},
    client,
    exit::Exit,
    output::{Failure, Output, wrap},
    part::Part,
};

/// The longest line about an event.
const LONGEST: usize = 140;

/// The longest line about a difference.
const LONGEST_DIFFERENCE: usize = 2000;

pub(crate) fn replay(args: &AgentReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let data = args.data.folder()?;
    let folder = show::folder(&data, super::session(&args.session)?)?;
    let turn = match args.turn {
        Some(turn) => turn,
        None => {
            let view = folder.view().map_err(|error| Failure::bad_input(error.to_string()))?;
            let last = view.turns.last().map(|line| line.turn);
            last.ok_or_else(|| {
                Failure::bad_input(format!("there is no trace of a turn of {}", folder.session()))
            })?
        }
    };
    let replayed =
        client::wait(async { replay_turn(&folder, turn).await.map_err(Failure::bad_input) })?;
    let is_same = replayed.iter().all(Replayed::is_same);
    let differs: Vec<Value> = replayed
        .iter()
        .filter(|one| !one.is_same())
        .map(|one| json!({"turn": one.turn, "divergence": one.divergence}))
        .collect();
    let last = replayed.last();
    let shown = json!({"same": is_same, "differs": differs, "turn": last});
    let written =
        output.success(&shown, || last.map(|last| again(&replayed, last)).unwrap_or_default());
    Ok(if written == Exit::Ok && !is_same { Exit::Failed } else { written })
}

fn again(all: &[Replayed], last: &Replayed) -> String {
    let mut text = format!("turn {}: {}\n\n", last.turn, line(&last.input, LONGEST));
    for line in last.events.iter().filter_map(told) {
        let _ = writeln!(text, "  {line}");
    }
    if last.recovered {
        text.push_str("  (the gate stopped during this turn; it is closed again as it was then)\n");
    }
    if !last.visible.is_empty() {
        let _ = write!(text, "\n{}\n", for_terminal(&last.visible));
    }
    text.push('\n');
    for one in all.iter().filter(|one| !one.is_same()) {
        let _ = match &one.divergence {
            Some(divergence) => writeln!(
                text,
                "✗ turn {} differs at {}",
                one.turn,
                line(&divergence.to_string(), LONGEST_DIFFERENCE)
            ),
            None => writeln!(
                text,
                "✗ turn {} comes to another checkpoint (sha256 {}, recorded {})",
                one.turn, one.checkpoint_sha256, one.recorded_sha256
            ),
        };
    }
    if all.iter().all(Replayed::is_same) {
        let _ = writeln!(text, "✓ the same, byte for byte (sha256 {})", last.checkpoint_sha256);
    }
    text
}

/// An event on one line; nothing for what says no more than the one before.
fn told(event: &Event) -> Option<String> {
    let data = &event.data;
    let number = |name: &str| data.part(name).as_u64().unwrap_or(0);
    let count = |name: &str| data.part(name).as_array().map_or(0, Vec::len);
    let text = match event.kind.as_str() {
        "turn_start" => format!("with the model {}", data.part("model").word("name")),
        "retrieval" => format!("{} recalled", count("items")),
        "llm_req" => format!(
            "{}, round {}: {} messages, {} tokens",
            data.word("role"),
            number("round"),
            number("messages"),
            number("prompt_tokens")
        ),
        "llm_done" => match data.part("error").get("message").and_then(Value::as_str) {
            Some(problem) => format!("✗ {problem}"),
            None => {
                let usage = data.part("usage");
                format!("✓ {} tokens, {}", usage.part("output_tokens"), data.word("finish"))
            }
        },
        "llm_retry" => format!("asked again after {} ms", number("in_ms")),
        "tool_plan" => {
            let calls = data.part("calls").as_array().into_iter().flatten();
            list(calls.map(|call| format!("{} {}", call.word("tool"), brief(call.part("args")))))
        }
        "tool_start" => return None,
        "tool_done" if *data.part("ok") == true => format!("✓ {}", data.word("tool")),
        "tool_done" => format!("✗ {} {}", data.word("tool"), data.word("error")),
        "notes_patch" => format!("changed {}", list(words(data, "changed"))),
        "memory_write" => format!("{} kept", count("ids")),
        "turn_done" => totals(data.part("totals")),
        _ => {
            let mut data = data.clone();
            if let Some(members) = data.as_object_mut() {
                // What every event of a turn has says nothing here.
                members.remove("turn");
            }
            data.to_string()
        }
    };
    Some(format!("{:<13} {}", line(&event.kind, 13), line(&text, LONGEST)))
}

fn words<'a>(data: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    data.part(name).as_array().into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn autopsy(args: &AgentTraceArgs, output: &Output) -> Result<Exit, Failure> {
    let folder = show::folder(&args.data.folder()?, super::session(&args.session)?)?;
    let autopsy = Autopsy::of(&folder).map_err(Failure::bad_input)?;
    Ok(output.success(&autopsy, || examined(&autopsy)))
}

fn examined(autopsy: &Autopsy) -> String {
    let mut text = format!(
        "{} · {}, {} failed · {}\n",
        autopsy.session_id,
        some(number(autopsy.turns), "turn", "turns"),
        autopsy.failed_turns,
        totals(&json!(autopsy.totals))
    );
    if autopsy.findings.is_empty() {
        text.push_str("\n✓ nothing went wrong\n");
    }
    for (severity, title) in [
        (Severity::Look, "Somebody must look"),
        (Severity::Failure, "Turns that failed"),
        (Severity::Trouble, "What the model was refused or got wrong"),
        (Severity::Note, "Worth knowing"),
    ] {
        let mut found = autopsy.findings.iter().filter(|one| one.severity == severity).peekable();
        if found.peek().is_some() {
            let _ = writeln!(text, "\n{title}");
        }
        for one in found {
            let times =
                if one.times > 1 { format!(" ({} times)", one.times) } else { String::new() };
            let what = format!("{}{times}", line(&one.what, 400));
            let _ = writeln!(text, "  turn {:<3} {}", one.turn, wrap(&what, 11));
        }
    }
    if !autopsy.slowest.is_empty() {
        text.push_str("\nSlowest\n");
    }
    for (what, ms) in &autopsy.slowest {
        let _ = writeln!(text, "  {:>10}  {}", lasted(*ms), line(what, LONGEST));
    }
    text
}

pub(crate) fn receipt(args: &AgentTraceArgs, output: &Output) -> Result<Exit, Failure> {
    let folder = show::folder(&args.data.folder()?, super::session(&args.session)?)?;
    let receipt = RunReceipt::of(&folder).map_err(Failure::bad_input)?;
    Ok(output.success(&receipt, || summed_up(&receipt)))
}

fn summed_up(receipt: &RunReceipt) -> String {
    let totals = &receipt.totals;
    let rows = [
        ("session", receipt.session_id.to_string()),
        ("turns", receipt.turns.to_string()),
        ("model calls", totals.model_calls.to_string()),
        ("tool calls", format!("{} ({} failed)", totals.tool_calls, totals.failed_calls)),
        ("in the ledger", some(number(receipt.ledger_calls), "call", "calls")),
        ("tokens", format!("{} in, {} out", totals.input_tokens, totals.output_tokens)),
        ("cost", receipt.cost()),
        ("first", time(receipt.from_ts)),
        ("last", time(receipt.to_ts)),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<14} {value}");
    }
    if !receipt.tools.is_empty() {
        text.push('\n');
    }
    for (tool, (calls, failed)) in &receipt.tools {
        let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
        let calls = some(number(*calls), "call", "calls");
        let _ = writeln!(text, "{:<14} {calls}{failed}", line(tool, 60));
    }
    text.push('\n');
    for (name, sha256) in &receipt.files {
        let _ = writeln!(text, "{name:<14} sha256 {sha256}");
    }
    text
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Seconds since 1970 as a time.
fn time(ts: f64) -> String {
    // Milliseconds of this millennium are exact.
    let at = Timestamp::from_millisecond((ts * 1000.0).round() as i64);
    at.map_or_else(|_| "nothing".to_owned(), |at| at.to_string())
}
