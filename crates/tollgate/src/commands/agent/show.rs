//! `tollgate agent show` and `tollgate agent sessions`: sessions as they stand, from the gate if one runs, else from the
//! data folder.

use std::{fmt::Write, path::Path};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_agent::runtime::SessionFolder;
use tollgate_contract::{
    error::NotFound,
    text::{for_terminal, list},
};
use tollgate_memory::Memory;
use tollgate_protocol::SessionName;

use super::words::{ago, line, some, totals};
use crate::{
    cli::{AgentSessionArgs, AgentSessionsArgs},
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output, wrap},
    part::Part,
    place::{GateArgs, agents_in},
    table,
};

pub(crate) fn run(args: &AgentSessionArgs, output: &Output) -> Result<Exit, Failure> {
    let session = super::session(&args.session)?;
    let view = match Client::running(&args.gate)? {
        Some(client) => wait(client.get(&format!("/v1/sessions/{session}")))?,
        None => offline(&args.gate, session)?,
    };
    Ok(output.success(&view, || text(&view)))
}

pub(crate) fn sessions(args: &AgentSessionsArgs, output: &Output) -> Result<Exit, Failure> {
    let all = match Client::running(&args.gate)? {
        Some(client) => wait(client.get("/v1/sessions"))?,
        None => {
            let (folder, _) = agents_in(&args.gate.data.folder()?);
            let names = listed(&folder)?;
            let folders = names.into_iter().map(|name| SessionFolder::new(&folder, name));
            let summaries: Vec<_> = folders.map(|folder| folder.summary()).collect();
            json!({"sessions": summaries})
        }
    };
    Ok(output.success(&all, || table_of(&all)))
}

fn listed(folder: &Path) -> Result<Vec<SessionName>, Failure> {
    let names = SessionFolder::list(folder);
    names.map_err(|error| Failure::bad_input(format!("sessions cannot be listed: {error}")))
}

/// A session's folder, if it is there.
pub(super) fn folder(data: &Path, session: SessionName) -> Result<SessionFolder, Failure> {
    let (all, _) = agents_in(data);
    let folder = SessionFolder::new(&all, session.clone());
    if folder.exists() {
        return Ok(folder);
    }
    let names = listed(&all).unwrap_or_default();
    let known: Vec<&str> = names.iter().map(SessionName::as_str).collect();
    Err(match known.is_empty() {
        false => Failure::not_found("session", session.as_str(), known),
        true => Failure::new(NotFound::new("session", session.as_str()))
            .with_help(format!("{} holds no sessions; name another with --data", data.display())),
    })
}

fn offline(gate: &GateArgs, session: SessionName) -> Result<Value, Failure> {
    let data = gate.data.folder()?;
    let folder = folder(&data, session)?;
    let mut view = folder.view().map_err(|error| Failure::bad_input(error.to_string()))?;
    let (_, memory) = agents_in(&data);
    let name = folder.session().as_str();
    view.memories =
        Memory::open_to_read(&memory).and_then(|memory| memory.count(Some(name))).unwrap_or(0);
    Ok(serde_json::to_value(&view).unwrap_or_default())
}

fn table_of(all: &Value) -> String {
    let sessions: Vec<&Value> = all.part("sessions").as_array().into_iter().flatten().collect();
    if sessions.is_empty() {
        return "There are no sessions.\n".to_owned();
    }
    let mut table = table::new(&["SESSION", "REVISION", "LAST", "OPEN", "GOAL"], &[1, 3]);
    let now = Timestamp::now().as_millisecond();
    for one in sessions {
        let last = ago(one.part("updated_ts").as_f64().unwrap_or(0.0), now);
        let goals = one.part("goals").as_array().map(Vec::as_slice).unwrap_or_default();
        let goal = match one.get("problem").and_then(Value::as_str) {
            Some(problem) => format!("! {problem}"),
            None => goals.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
        };
        table.add_row([
            one.word("session_id").to_owned(),
            one.part("revision").to_string(),
            if *one.part("running") == true { "runs now".to_owned() } else { last },
            one.part("open_loops").to_string(),
            line(&goal, 60),
        ]);
    }
    table::text(&table)
}

/// A session as people read it.
pub(super) fn text(view: &Value) -> String {
    let checkpoint = view.part("checkpoint");
    let state = checkpoint.part("state");
    let last = ago(
        checkpoint.part("updated_ts").as_f64().unwrap_or(0.0),
        Timestamp::now().as_millisecond(),
    );
    let mut text = format!(
        "{} · revision {} · last {last}{}\n",
        checkpoint.word("session_id"),
        checkpoint.part("revision"),
        if *view.part("running") == true { " · a turn runs now" } else { "" }
    );
    for warning in words(view, "warnings") {
        let _ = writeln!(text, "! {}", wrap(warning, 2));
    }
    for (title, name) in [
        ("Goals", "goals"),
        ("Open loops", "open_loops"),
        ("Decisions", "decisions"),
        ("Constraints", "constraints"),
    ] {
        section(&mut text, title, words(state, name).map(|entry| format!("• {}", wrap(entry, 4))));
    }
    let summary = state.word("episode_summary");
    let summary = summary.lines().filter(|line| !line.is_empty()).map(|line| wrap(line, 2));
    section(&mut text, "Summary", summary);
    section(&mut text, "Memory", memory(view).into_iter());
    let granted = words(state, "capabilities_granted").map(|one| format!("granted  {one}"));
    let pending = words(state, "capabilities_pending").map(|one| format!("waits    {one}"));
    section(&mut text, "Capabilities", granted.chain(pending));
    section(&mut text, "Settings", settings(view.part("settings")).into_iter());
    let turns = view.part("turns").as_array().into_iter().flatten();
    section(&mut text, "Last turns", turns.flat_map(turn));
    for_terminal(&text)
}

fn words<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    value.part(name).as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{title}");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn memory(view: &Value) -> Vec<String> {
    let state = view.part("checkpoint").part("state");
    let mut lines = Vec::new();
    match view.part("memories").as_u64() {
        None | Some(0) => {}
        Some(count) => lines.push(some(count, "record", "records")),
    }
    let tags: Vec<&str> = words(state, "memory_tags").collect();
    if !tags.is_empty() {
        lines.push(wrap(&format!("tags {}", list(tags)), 2));
    }
    lines
}

fn settings(settings: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<8} {value}"));
        }
    };
    add("root", settings.word("root").to_owned());
    let model = settings.part("model");
    let own = model.part("own");
    let named = model.word("named").to_owned();
    add("model", if own.is_object() { own.word("url").to_owned() } else { named });
    let budget = settings.part("budget");
    add("budget", if budget.is_object() { budget.to_string() } else { String::new() });
    let policy = settings.part("policy");
    add("policy", if policy.is_object() { policy.to_string() } else { String::new() });
    add("roles", words(settings, "roles").collect::<Vec<_>>().join(", "));
    lines
}

fn turn(turn: &Value) -> Vec<String> {
    let mark = if *turn.part("ok") == true { "✓" } else { "✗" };
    let number = turn.part("turn").as_u64().unwrap_or(0);
    let mut lines = vec![format!("{mark} {number:>3}  {}", line(turn.word("input"), 90))];
    let came = match turn.get("error").and_then(Value::as_str) {
        Some(error) => format!("! {}", wrap(&line(error, 300), 11)),
        None => format!("→ {}", wrap(&line(turn.word("answer"), 200), 11)),
    };
    lines.push(format!("       {came}"));
    lines.push(format!("       {}", totals(turn.part("totals"))));
    lines
}
