//! `tollgate memory search`: what agents remember, by its words.

use serde_json::{Value, json};
use tollgate_contract::text::for_terminal;
use tollgate_memory::{Found, Memory, Query, block};
use tollgate_protocol::SessionName;

use crate::{
    cli::MemorySearchArgs,
    exit::Exit,
    output::{Failure, Output},
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
