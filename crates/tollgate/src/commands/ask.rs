//! `tollgate ask`: may this be done now, later, or not?

use std::time::Duration;

use serde_json::{Map, Value};
use tollgate_contract::text::for_terminal;

use crate::{
    cli::AskArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    table::{self, count},
};

/// How long a decision may take. Nobody who wants to act can wait for ever.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: AskArgs, output: &Output) -> Result<Exit, Failure> {
    let mut body = Map::new();
    let texts = [
        ("agent_id", Some(args.agent)),
        ("identity_id", Some(args.identity)),
        ("workload_id", Some(args.workload)),
        ("scope_id", Some(args.scope)),
        ("urgency", args.urgency),
        ("expected_cost", args.cost),
        ("duration_hint", args.duration),
        ("renew", args.renew),
    ];
    for (name, text) in texts {
        body.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    }
    for (name, wanted) in [("can_switch", args.can_switch), ("debug", args.debug)] {
        body.extend(wanted.then(|| (name.to_owned(), Value::from(true))));
    }
    let unanswered = |failure: Failure| match failure.exit() {
        Exit::Unavailable => {
            failure.with_help("nobody decided: take it for a deny, and do not act")
        }
        _ => failure,
    };
    let client =
        Client::with_patience(&args.gate, args.gate.key()?, PATIENCE).map_err(unanswered)?;
    let decision = wait(client.post("/v1/intent", &Value::Object(body))).map_err(unanswered)?;
    let written = output.success(&decision, || for_terminal(&told(&decision)));
    let denied = decision.word("decision") == "deny_with_reason";
    Ok(if denied && written == Exit::Ok { Exit::Denied } else { written })
}

/// A decision in a few lines.
fn told(decision: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<12}{value}\n"));
        }
    };
    let modifications = decision.part("modifications");
    let waits = modifications.part("wait_seconds").as_f64();
    let headline = match (decision.word("decision"), waits) {
        ("approve", _) => "✓ approve: act now".to_owned(),
        ("deny_with_reason", _) => format!("✗ deny: {}", decision.word("reason")),
        (_, Some(seconds)) => format!("✓ approve, but wait {seconds} s first"),
        _ => "✓ approve, with another credential".to_owned(),
    };
    line("intent", decision.word("intent_id"));
    line("use", modifications.word("identity_switch"));
    line("why", decision.part("evaluation").word("risk_summary"));
    line("valid until", decision.word("valid_until"));
    match (decision.part("retryable").as_bool(), decision.word("retry_at")) {
        (Some(false), _) => line("ask again", "it does not help"),
        (_, at) => line("ask again", at),
    }
    for (number, pool) in decision.part("pools").as_array().into_iter().flatten().enumerate() {
        let left = pool.part("remaining").as_u64().zip(pool.part("limit").as_u64());
        let left = left.map_or("limit not known yet".to_owned(), |(left, limit)| {
            format!("{} of {} {} left", count(left), count(limit), pool.word("unit"))
        });
        let amount = count(pool.part("amount").as_u64().unwrap_or(0));
        let held = if decision.word("decision") == "deny_with_reason" { "asked" } else { "held" };
        let name = if number == 0 { "pools" } else { "" };
        line(name, &format!("{}  {amount} {held}, {left}", pool.word("pool")));
    }
    for (number, step) in decision.part("trace").as_array().into_iter().flatten().enumerate() {
        let name = if number == 0 { "steps" } else { "" };
        let why = match step.word("reason") {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        let said = format!(
            "{:<8}{}: {}{why}",
            step.word("result"),
            step.word("policy_id"),
            step.word("condition")
        );
        line(name, &said);
    }
    format!("{headline}\n{}", table::wrapped(&text))
}
