//! `tollgate grant`, `revoke`, `request` and `capabilities`: what sessions and keys may reach.

use serde_json::{Map, Value, json};
use tollgate_contract::text::for_terminal;

use super::approve::seconds;
use crate::{
    cli::{CapabilitiesArgs, GrantArgs, RequestArgs, RevokeArgs},
    client::{Client, in_path, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    table,
};

pub(crate) fn grant(args: GrantArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let mut body = Map::new();
    body.insert("capability".to_owned(), args.capability.into());
    body.extend(args.session.map(|session| ("session".to_owned(), session.into())));
    body.extend(args.key.map(|key| ("key".to_owned(), key.into())));
    body.extend(args.reason.map(|reason| ("reason".to_owned(), reason.into())));
    if let Some(text) = &args.lasts {
        body.insert("forSeconds".to_owned(), json!(seconds(text)?));
    }
    let granted = wait(client.post("/v1/capabilities", &Value::Object(body)))?;
    Ok(output.success(&granted, || {
        let until = match granted.word("expiresAt") {
            "" => "until it is withdrawn".to_owned(),
            at => format!("until {at}"),
        };
        let id = granted.word("id");
        let text = format!(
            "Granted {} to {} {until}.\n{id}\n",
            granted.word("capability"),
            holder(&granted)
        );
        for_terminal(&text)
    }))
}

/// Whom a grant is for.
fn holder(grant: &Value) -> String {
    match (grant.word("session"), grant.word("key")) {
        ("", key) => format!("the key {key}"),
        (session, "") => format!("the session {session}"),
        (session, key) => format!("the session {session} of the key {key}"),
    }
}

pub(crate) fn revoke(args: &RevokeArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    wait(client.delete(&format!("/v1/capabilities/{}", in_path(&args.id))))?;
    Ok(output.success(&json!({"id": args.id}), || "Withdrawn.\n".to_owned()))
}

pub(crate) fn request(args: RequestArgs, output: &Output) -> Result<Exit, Failure> {
    let asked = wait(async {
        let key = super::call::own_key(&args.gate).await?;
        let client = Client::new(&args.gate, Some(key))?;
        let mut body = Map::new();
        body.insert("capability".to_owned(), args.capability.into());
        body.extend(args.session.map(|session| ("session".to_owned(), session.into())));
        body.extend(args.reason.map(|reason| ("reason".to_owned(), reason.into())));
        client.post("/v1/capabilities/requests", &Value::Object(body)).await
    })?;
    let granted = !asked.part("granted").is_null();
    let exit = output.success(&asked, || {
        if granted {
            return "It is granted already.\n".to_owned();
        }
        let id = asked.part("approval").word("id");
        for_terminal(&format!("It waits for a person. To answer it: tollgate approve {id}\n"))
    });
    Ok(if granted { exit } else { Exit::Pending })
}

pub(crate) fn capabilities(args: &CapabilitiesArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let wanted = [("session", &args.session), ("key", &args.key)];
    let wanted: Vec<String> = wanted
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", in_path(value.as_deref()?))))
        .collect();
    let path = if wanted.is_empty() {
        "/v1/capabilities".to_owned()
    } else {
        format!("/v1/capabilities?{}", wanted.join("&"))
    };
    let all = wait(client.get(&path))?;
    Ok(output.success(&all, || listed(&all)))
}

fn listed(all: &Value) -> String {
    let rows = |name: &str| all.part(name).as_array().cloned().unwrap_or_default();
    let (granted, pending) = (rows("granted"), rows("pending"));
    if granted.is_empty() && pending.is_empty() {
        return "Nothing is granted, and nothing waits.\n".to_owned();
    }
    let header = ["CAPABILITY", "SESSION", "KEY", "STATE", "UNTIL", "ID"];
    let mut table = table::new(&header, &[]);
    for grant in &granted {
        let until = match grant.word("expiresAt") {
            "" => "withdrawn",
            at => at,
        };
        let by = format!("granted by {}", grant.word("by"));
        table.add_row([
            grant.word("capability"),
            grant.word("session"),
            grant.word("key"),
            &by,
            until,
            grant.word("id"),
        ]);
    }
    for item in &pending {
        table.add_row([
            item.word("capability"),
            item.word("session"),
            item.word("key"),
            "waits",
            item.word("expiresAt"),
            item.word("id"),
        ]);
    }
    table::text(&table)
}
