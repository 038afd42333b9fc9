//! `tollgate approve`: what waits for a person, answered one by one.

use std::{
    fmt::Write as _,
    io::{self, BufRead, IsTerminal},
};

use serde_json::{Map, Value, json};
use tollgate_contract::text::{Clean, for_terminal};

use crate::{
    cli::ApproveArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output, note, write_out},
    part::Part,
    table,
};

pub(crate) fn run(args: &ApproveArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let lasts = args.lasts.as_deref().map(seconds).transpose()?;
    if let Some(id) = &args.id {
        let item = send(&client, id, !args.deny, args.reason.as_deref(), lasts)?;
        return Ok(output.success(&item, || told(&item)));
    }
    let path = if args.all { "/v1/approvals?state=all" } else { "/v1/approvals" };
    let all = wait(client.get(path))?;
    let items: Vec<&Value> = all.part("approvals").as_array().into_iter().flatten().collect();
    let asks = !args.all && !args.list && !output.is_json() && io::stdin().is_terminal();
    if !asks || items.is_empty() {
        return Ok(output.success(&all, || listed(&items)));
    }
    one_by_one(&client, &items, lasts)
}

/// Shows one after the other and asks.
fn one_by_one(client: &Client, items: &[&Value], lasts: Option<u64>) -> Result<Exit, Failure> {
    let mut lines = io::stdin().lock().lines();
    for (at, item) in items.iter().enumerate() {
        write_out(format!("\n{} of {}\n{}", at + 1, items.len(), shown(item)).as_bytes());
        loop {
            note("approve (a), deny (d), skip (s), quit (q); a reason may follow: ");
            let Some(Ok(line)) = lines.next() else { return Ok(Exit::Ok) };
            let (word, reason) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
            let approves = match word {
                "a" | "approve" | "y" | "yes" => true,
                "d" | "deny" | "n" | "no" => false,
                "s" | "skip" => break,
                "q" | "quit" => return Ok(Exit::Ok),
                _ => continue,
            };
            // One that cannot be answered does not keep the others waiting.
            match send(client, item.word("id"), approves, reason, lasts) {
                Ok(answered) => drop(write_out(told(&answered).as_bytes())),
                Err(failure) => note(&format!("! {failure}")),
            }
            break;
        }
    }
    Ok(Exit::Ok)
}

fn send(
    client: &Client,
    id: &str,
    approves: bool,
    reason: Option<&str>,
    lasts: Option<u64>,
) -> Result<Value, Failure> {
    let mut body = Map::new();
    body.insert("decision".to_owned(), if approves { "approve" } else { "deny" }.into());
    body.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    body.extend(lasts.map(|seconds| ("forSeconds".to_owned(), json!(seconds))));
    let path = format!("/v1/approvals/{}", crate::client::in_path(id));
    wait(client.post(&path, &Value::Object(body)))
}

/// Says yes or no.
pub(super) async fn answer(client: &Client, id: &str, approves: bool) -> Result<Value, Failure> {
    let body = json!({"decision": if approves { "approve" } else { "deny" }});
    client.post(&format!("/v1/approvals/{}", crate::client::in_path(id)), &body).await
}

/// A time as whole seconds.
pub(super) fn seconds(text: &str) -> Result<u64, Failure> {
    let ms = super::duration_ms(text)?;
    Ok(u64::try_from(ms).unwrap_or(0).div_ceil(1000))
}

fn what(item: &Value) -> String {
    match item.word("kind") {
        "call" => item.word("tool").to_owned(),
        _ => format!("capability {}", item.word("capability")),
    }
}

fn listed(items: &[&Value]) -> String {
    if items.is_empty() {
        return "Nothing waits.\n".to_owned();
    }
    let mut table = table::new(&["ID", "WHAT", "KEY", "SESSION", "STATE", "UNTIL"], &[]);
    for item in items {
        table.add_row([
            item.word("id"),
            &what(item),
            item.word("key"),
            item.word("session"),
            item.word("state"),
            item.word("expiresAt"),
        ]);
    }
    table::text(&table)
}

/// One of them, with all that somebody who answers must know.
pub(super) fn shown(item: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<12}{}", Clean::new(value));
        }
    };
    line("what", &what(item));
    if item.word("capability").starts_with("net:") && !item.word("capability").contains('*') {
        line("reaches", "this host wherever its name leads, inside your network too");
    }
    line("asked by", item.word("key"));
    line("session", item.word("session"));
    let effects = format!("{} / {}", item.word("sideEffect"), item.word("costEffect"));
    line("effects", if item.word("kind") == "call" { &effects } else { "" });
    let input = item.part("input");
    line("input", &if input.is_null() { String::new() } else { input.to_string() });
    if *item.part("inputHidden") == true {
        line(
            "! hidden",
            "parts of the input are not shown: they look like secrets, or are too long",
        );
    }
    for because in item.part("because").as_array().into_iter().flatten() {
        line("why asked", because.as_str().unwrap_or_default());
    }
    line("it says", item.word("reason"));
    let wanted = item.part("approvers").as_u64().unwrap_or(1);
    if wanted > 1 {
        let given = item.part("answers").as_array().map_or(0, Vec::len);
        line("answers", &format!("{given} of {wanted} given"));
    }
    line("until", item.word("expiresAt"));
    line("id", item.word("id"));
    for_terminal(&text)
}

fn told(item: &Value) -> String {
    let answers = item.part("answers").as_array().map_or(0, Vec::len);
    let text = match item.word("state") {
        "approved" => format!("Approved: {}.\n", what(item)),
        "denied" => format!("Denied: {}.\n", what(item)),
        "pending" => format!(
            "Noted: {answers} of {} have said yes to {}.\n",
            item.part("approvers").as_u64().unwrap_or(1),
            what(item)
        ),
        state => format!("{}: {state}.\n", what(item)),
    };
    for_terminal(&text)
}
