//! `tollgate memory search`: what agents remember, by its words; `tollgate memory forget`: a person takes it back.

use std::fmt::Write;

use serde_json::{Value, json};
use tollgate_contract::text::for_terminal;
use tollgate_memory::{Found, Memory, Query, block};
use tollgate_protocol::SessionName;

use crate::{
    cli::{MemoryForgetArgs, MemorySearchArgs},
    client::{Client, in_path, wait},
    exit::Exit,
    local::LocalGate,
    output::{Failure, Output, note},
    part::Part,
    place::agents_in,
    table,
};

/// The most that is given.
const MOST: usize = 1000;

pub(crate) fn search(args: &MemorySearchArgs, output: &Output) -> Result<Exit, Failure> {
    let session = args.session.as_deref().map(SessionName::parse).transpose();
    let session = session.map_err(|error| Failure::usage(error.to_string()))?;
    if !(1..=MOST).contains(&args.limit) {
        return Err(Failure::usage(format!("--limit is from 1 to {MOST}")));
    }
    let (_, file) = agents_in(&args.data.folder()?);
    let refused = |error: tollgate_memory::MemoryError| Failure::bad_input(error.to_string());
    let memory = Memory::open_to_read(&file).map_err(refused)?;
    let query = Query {
        session: session.as_ref().map(SessionName::as_str),
        text: &args.words,
        limit: args.limit,
        ..Query::default()
    };
    let found = memory.search(&query).map_err(refused)?;
    let shown: Vec<Value> = found.iter().map(shown).collect();
    Ok(output.success(&json!({"memories": shown}), || {
        if args.block { for_terminal(&format!("{}\n", block(&found))) } else { listed(&found) }
    }))
}

fn shown(found: &Found) -> Value {
    json!({
        "id": found.id.to_string(), "score": found.score, "excerpt": found.excerpt,
        "text": found.text, "tags": found.tags, "session": found.session, "turn": found.turn,
        "at": tollgate_gate::rfc3339(found.at_ms),
    })
}

fn listed(found: &[Found]) -> String {
    if found.is_empty() {
        return "Nothing is remembered of that.\n".to_owned();
    }
    let mut table = table::new(&["ID", "SCORE", "SESSION", "TURN", "EXCERPT"], &[1, 3]);
    for one in found {
        let excerpt: String = one.excerpt.chars().take(100).collect();
        table.add_row([
            one.id.to_string(),
            format!("{:.3}", one.score),
            one.session.clone(),
            one.turn.to_string(),
            excerpt,
        ]);
    }
    table::text(&table)
}

/// How much is shown of what was forgotten, in characters.
const SHOWN: usize = 80;

pub(crate) fn forget(args: &MemoryForgetArgs, output: &Output) -> Result<Exit, Failure> {
    if Client::running(&args.gate)?.is_none() {
        // Where there is no memory, none is made.
        let (_, file) = agents_in(&args.gate.data.folder()?);
        drop(Memory::open_to_read(&file).map_err(|error| Failure::bad_input(error.to_string()))?);
    }
    // What is forgotten is on the record of a gate, one that runs or one of this command's own.
    let (client, _gate) = LocalGate::reach(&args.gate)?;
    let mut forgotten = Vec::new();
    if let Err(failure) = wait(ask_for_each(&client, &args.ids, &mut forgotten)) {
        // The error does not hold for those before it.
        if !forgotten.is_empty() {
            note(gone(&forgotten).trim_end());
        }
        return Err(failure);
    }
    Ok(output.success(&json!({"forgotten": forgotten}), || gone(&forgotten)))
}

async fn ask_for_each(
    client: &Client,
    ids: &[String],
    forgotten: &mut Vec<Value>,
) -> Result<(), Failure> {
    for id in ids {
        forgotten.push(client.delete(&format!("/v1/memory/{}", in_path(id))).await?);
    }
    Ok(())
}

fn gone(forgotten: &[Value]) -> String {
    let mut text = String::new();
    for one in forgotten {
        let excerpt: String = one.word("excerpt").chars().take(SHOWN).collect();
        let _ = writeln!(text, "forgotten {}  {excerpt}", one.word("id"));
    }
    for_terminal(&text)
}
