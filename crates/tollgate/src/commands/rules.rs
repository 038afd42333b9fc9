//! `tollgate policy check FILE`: every rule, its examples, and what it would have matched lately.

use std::{fmt::Write, path::Path, time::Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_gate::{WhatIfSummary, what_if};
use tollgate_governor::{DuringConfig, GovernorConfig, Rule, RuleConfig};
use tollgate_ledger::Reader;

use crate::{
    config::Config,
    exit::Exit,
    output::{Failure, Output},
    source,
    table::{self, count},
};

/// How far back it is looked what rules would have matched.
const LATELY_MS: i64 = 24 * 60 * 60 * 1000;

/// How often a rule is evaluated to tell what that costs.
const TIMES: u32 = 1000;

pub(crate) fn check(file: &Path, output: &Output) -> Result<Exit, Failure> {
    let text = source::read_text(file)?;
    // Whoever reads it here has run every example: what loads, holds.
    let config = Config::parse(&text)
        .map_err(|error| Failure::policy(&source::name(file), &text, &error))?;
    let governor = config.governor_config();
    let now = Timestamp::now().as_millisecond();
    let setup = governor.build(now).map_err(|error| Failure::bad_input(error.to_string()))?;
    let lately = recorded(&config, file, &governor, now);
    let rules: Vec<Value> = governor
        .rules
        .iter()
        .zip(setup.rules().all())
        .map(|(written, rule)| told(written, rule, lately.as_ref()))
        .collect();
    let data = json!({
        "rules": rules,
        "pools": governor.pools.len(),
        "routes": governor.routes.len(),
        "decisions_lately": lately.as_ref().map(|lately| lately.decisions),
        "would_differ_lately": lately.as_ref().map(|lately| lately.decisions - lately.same),
    });
    Ok(output.success(&data, || shown(&governor, &rules, lately.as_ref())))
}

/// What the last day would have come to, where there is a record of it.
fn recorded(
    config: &Config,
    file: &Path,
    governor: &GovernorConfig,
    now: i64,
) -> Option<WhatIfSummary> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let reader = Reader::of_folder(&folder.join(config.data())).ok()?;
    what_if(&reader, Some(governor.clone()), now.saturating_sub(LATELY_MS), |_| {}).ok()
}

fn told(written: &RuleConfig, rule: &Rule, lately: Option<&WhatIfSummary>) -> Value {
    let matched = lately.map(|lately| {
        let found = lately.rules.iter().find(|one| one.id == rule.id());
        found.map_or(0, |found| found.matched)
    });
    json!({
        "id": rule.id(),
        "action": rule.action(),
        "condition": rule.condition(),
        "during": written.during.as_ref().map(hours),
        "because": rule.because(),
        "examples": written.expect.len(),
        "microseconds": cost(rule),
        "matched_lately": matched,
    })
}

/// Hours in words.
fn hours(during: &DuringConfig) -> String {
    let days = during.days.as_ref().map_or(String::new(), |days| format!("{} ", days.join(" ")));
    let zone = during.zone.as_deref().unwrap_or("UTC");
    format!("{days}{} to {} {zone}", during.from, during.to)
}

/// How long an evaluation takes, about.
fn cost(rule: &Rule) -> Option<f64> {
    rule.condition()?;
    let facts = tollgate_governor::sample_facts();
    let start = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(rule.evaluate(std::hint::black_box(&facts)));
    }
    Some((start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES) * 100.0).round() / 100.0)
}

fn shown(governor: &GovernorConfig, rules: &[Value], lately: Option<&WhatIfSummary>) -> String {
    let (pools, routes) = (governor.pools.len(), governor.routes.len());
    let mut text = String::new();
    let _ = writeln!(
        text,
        "It loads: {pools} {}, {routes} {}, {} {}.",
        plural("pool", pools),
        plural("route", routes),
        rules.len(),
        plural("rule", rules.len()),
    );
    if !rules.is_empty() {
        let mut table =
            table::new(&["RULE", "ACTION", "EXAMPLES", "COST", "LAST 24 H", "WHEN"], &[2, 3, 4]);
        for rule in rules {
            let word = |name: &str| rule.get(name).and_then(Value::as_str);
            let number = |name: &str| rule.get(name).and_then(Value::as_u64);
            let cost = rule.get("microseconds").and_then(Value::as_f64);
            table.add_row([
                word("id").unwrap_or_default().to_owned(),
                word("action").unwrap_or_default().to_owned(),
                match number("examples").unwrap_or(0) {
                    0 => "none".to_owned(),
                    some => format!("{some} hold"),
                },
                cost.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} µs")),
                number("matched_lately").map_or_else(|| "-".to_owned(), count),
                match (word("condition"), word("during")) {
                    (None, None) => "always".to_owned(),
                    (Some(condition), None) => condition.replace('\n', " "),
                    (None, Some(hours)) => hours.to_owned(),
                    (Some(condition), Some(hours)) => {
                        format!("{hours}, {}", condition.replace('\n', " "))
                    }
                },
            ]);
        }
        let _ = write!(text, "\n{}", table::text(&table));
    }
    match lately {
        None => text.push_str("\nThere is no record here to try it on.\n"),
        Some(lately) => {
            let _ = writeln!(
                text,
                "\nOf {} decisions of the last 24 hours {} would differ; `tollgate what-if --policy` tells which.",
                count(lately.decisions),
                count(lately.decisions - lately.same),
            );
        }
    }
    text
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
