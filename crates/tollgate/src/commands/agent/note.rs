//! `tollgate agent note`: a person corrects what a session's agent noted.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use tollgate_contract::text::for_terminal;

use super::show;
use crate::{
    cli::AgentNoteArgs,
    client::{Client, wait},
    exit::Exit,
    local::LocalGate,
    output::{Failure, Output, note, wrap},
    part::Part,
};

pub(crate) fn run(args: &AgentNoteArgs, output: &Output) -> Result<Exit, Failure> {
    let session = super::session(&args.session)?;
    let body = body(args)?;
    if Client::running(&args.gate)?.is_none() {
        // A gate is not run for a session that is not there.
        show::folder(&args.gate.data.folder()?, session.clone())?;
    }
    let (client, _gate) = LocalGate::reach(&args.gate)?;
    let told = wait(client.post(&format!("/v1/sessions/{session}/notes"), &body))?;
    for warning in told.part("warnings").as_array().into_iter().flatten() {
        note(&for_terminal(&format!("! {}", warning.as_str().unwrap_or_default())));
    }
    Ok(output.success(&told, || text(&told)))
}

/// What is asked for.
fn body(args: &AgentNoteArgs) -> Result<Value, Failure> {
    let lists = [
        ("add_goals", &args.add_goal),
        ("add_open_loops", &args.add_open_loop),
        ("add_decisions", &args.add_decision),
        ("add_constraints", &args.add_constraint),
        ("remove", &args.remove),
    ];
    let given = lists.into_iter().filter(|(_, texts)| !texts.is_empty());
    let mut body: Map<String, Value> =
        given.map(|(name, texts)| (name.to_owned(), json!(texts))).collect();
    if let Some(summary) = &args.summary {
        body.insert("set_episode_summary".to_owned(), summary.as_str().into());
    }
    if body.is_empty() {
        return Err(Failure::usage("nothing is to be noted".to_owned()).with_help(
            "say what with --add-constraint, --add-goal, --add-open-loop, --add-decision, --remove or --summary",
        ));
    }
    Ok(Value::Object(body))
}

/// What changed, as people read it.
fn text(told: &Value) -> String {
    let mut text = String::new();
    let entries = |name: &str| told.part(name).as_array().cloned().unwrap_or_default();
    for (mark, name) in [("-", "removed"), ("+", "added")] {
        for entry in entries(name) {
            let _ = writeln!(
                text,
                "{mark} {:<11} {}",
                entry.word("list"),
                wrap(entry.word("text"), 14)
            );
        }
    }
    if *told.part("summary_changed") == true {
        let summary = told.part("state").word("episode_summary");
        let _ = match summary.is_empty() {
            true => writeln!(text, "- summary"),
            false => {
                writeln!(text, "+ {:<11} {}", "summary", wrap(&summary.replace('\n', " "), 14))
            }
        };
    }
    let session = told.word("session_id");
    if text.is_empty() {
        return for_terminal(&format!("Nothing changed: {session} holds that already.\n"));
    }
    let _ = writeln!(text, "{session} is at revision {} now.", told.part("revision"));
    for_terminal(&text)
}
