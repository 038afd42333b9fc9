//! `tollgate call`: one call through the gate.

use std::{fmt::Write, time::Duration};

use serde_json::Value;
use tollgate_contract::{
    Secret,
    text::{Clean, json_for_terminal},
};

use super::own_key::CLI;
use crate::{
    cli::CallArgs,
    client::{self, Client},
    exit::Exit,
    output::{Failure, Output, note, wrap},
    part::Part,
    place::GateArgs,
};

/// How much longer than the call itself its answer may take.
const LEEWAY: Duration = Duration::from_secs(10);

pub(crate) fn run(args: CallArgs, output: &Output) -> Result<Exit, Failure> {
    let mut body = client::call_body(super::input(&args.input)?);
    let policy = args.policy.as_deref().map(super::one_policy).transpose()?;
    let timeout = args.timeout.as_deref().map(super::duration_ms).transpose()?;
    if let Some(body) = body.as_object_mut() {
        let words = [("scope", args.scope), ("urgency", args.urgency), ("session", args.session)];
        for (name, value) in words {
            if let Some(value) = value {
                body.insert(name.to_owned(), value.into());
            }
        }
        if let Some(policy) = policy {
            body.insert("policy".to_owned(), policy);
        }
        if let Some(text) = &args.wait {
            body.insert("wait".to_owned(), ((super::duration_ms(text)? + 999) / 1000).into());
        }
        if let Some(id) = args.approval {
            body.insert("approval".to_owned(), id.into());
        }
        if let Some(ms) = timeout {
            body.insert("timeoutMs".to_owned(), ms.into());
        }
    }
    let key = client::wait(CLI.get(&args.gate))?;
    let client = match timeout.and_then(|ms| u64::try_from(ms).ok()) {
        // The gate itself keeps the time; this is for one that says nothing at all.
        Some(ms) => Client::with_patience(&args.gate, key, Duration::from_millis(ms) + LEEWAY)?,
        None => Client::new(&args.gate, key)?,
    };
    let path = client::tool_path(&args.tool, "call");
    let key = args.idempotency_key.as_deref();
    let result = client::wait(client.post_once(&path, &body, key))?;
    let approval = result.part("approval");
    if !approval.is_null() && result.part("output").is_null() {
        output.success(&result, String::new);
        if !output.is_json() {
            note(&waits(approval));
        }
        return Ok(Exit::Pending);
    }
    if !result.part("callId").is_string() {
        return Err(Failure::interrupted(
            &args.gate.address()?,
            "it does not answer as a gate does",
        ));
    }
    let written = output.success(&result, || {
        let steps = if args.explain { steps(result.part("verdict")) } else { String::new() };
        format!("{steps}{}\n", json_for_terminal(&format!("{:#}", result.part("output"))))
    });
    if !output.is_json() {
        note(&done(&result));
    }
    Ok(written)
}

/// What to do about a call that waits for a person.
pub(super) fn waits(approval: &Value) -> String {
    let id = Clean::new(approval.word("id"));
    format!(
        "… a person must answer first, until {}\n  to answer: tollgate approve {id}\n  then make the same call again, or wait for it with --wait",
        Clean::new(approval.word("expiresAt"))
    )
}

/// The key that calls from the command line are made with.
pub(super) async fn own_key(gate: &GateArgs) -> Result<Secret, Failure> {
    CLI.get(gate).await?.ok_or_else(|| {
        Failure::new(tollgate_contract::error::MissingApiKey::new(None))
            .with_help("set TOLLGATE_API_KEY, or name the data folder of a gate with --data")
    })
}

/// One line about a call that was let through.
pub(super) fn done(result: &Value) -> String {
    let text = |name: &str| Clean::new(result.word(name));
    let again = if *result.part("replayed") == true { ", recorded earlier" } else { "" };
    format!(
        "✓ {} in {} ms{again} ({})",
        text("tool"),
        result.part("durationMs").as_u64().unwrap_or(0),
        text("callId")
    )
}

/// The steps of a decision.
fn steps(verdict: &Value) -> String {
    let mut text = String::new();
    for step in verdict.part("explain").as_array().into_iter().flatten() {
        let word = |name: &str| step.word(name);
        let mark = match word("outcome") {
            "pass" => "✓",
            "ask" => "?",
            _ => "✗",
        };
        let _ = writeln!(
            text,
            "{mark} {:<17} {}",
            Clean::new(word("step")).as_str(),
            wrap(Clean::new(word("because")).as_str(), 20)
        );
    }
    text.push('\n');
    text
}
