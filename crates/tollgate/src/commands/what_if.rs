//! `tollgate what-if`: the recorded history, asked again of another configuration.

use std::{
    fs::File,
    io::{BufWriter, Write},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_gate::{WhatIfCount, WhatIfSummary, answer_word, rfc3339, what_if};
use tollgate_governor::{Difference, Different, duration};

use crate::{
    cli::WhatIfArgs,
    config::Config,
    exit::Exit,
    output::{Failure, Output},
    table::{self, count},
};

/// How many differences are told with `--json`; all of them go to the file of `--diff`.
const MOST_TOLD: usize = 1000;

/// How many are shown.
const MOST_SHOWN: usize = 10;

pub(crate) fn run(args: &WhatIfArgs, output: &Output) -> Result<Exit, Failure> {
    let config = args.policy.as_deref().map(Config::read).transpose()?;
    let since = since(&args.since)?;
    let reader = super::ledger::open(&args.data)?;
    let mut file = match &args.diff {
        None => None,
        Some(path) => {
            let unwritable = |error: std::io::Error| {
                Failure::bad_input(format!("cannot write {}: {error}", path.display()))
            };
            Some(BufWriter::new(File::create(path).map_err(unwritable)?))
        }
    };
    let mut told: Vec<Value> = Vec::new();
    let mut wrote = Ok(());
    let config = config.map(|config| config.governor_config());
    let summary = what_if(&reader, config, since, |one| {
        let line = difference(one);
        if let Some(file) = file.as_mut().filter(|_| wrote.is_ok()) {
            wrote = writeln!(file, "{line}");
        }
        if told.len() < MOST_TOLD {
            told.push(line);
        }
    })
    .map_err(Failure::new)?;
    let flushed = wrote.and_then(|()| file.as_mut().map_or(Ok(()), Write::flush));
    flushed.map_err(|error| {
        Failure::bad_input(format!("the differences were not all written: {error}"))
    })?;
    let data = json!({"summary": summary, "differences": told});
    Ok(output.success(&data, || shown(&summary, &told, args.policy.is_some())))
}

/// A length of time before now, or a time.
fn since(text: &str) -> Result<i64, Failure> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let ago = duration(text).map_err(|problem| {
        Failure::usage(format!("--since {problem}; or a time such as 2026-01-31T12:00:00Z"))
    })?;
    Ok(Timestamp::now().as_millisecond().saturating_sub(ago))
}

fn side(it: &Different) -> Value {
    json!({
        "decision": answer_word(it.answer, it.wait_ms),
        "reason": it.reason,
        "pool": it.pool,
        "wait_ms": it.wait_ms,
        "rules": it.rules,
    })
}

fn difference(it: &Difference) -> Value {
    json!({
        "ts": rfc3339(it.ts),
        "intent_id": it.intent,
        "agent_id": it.agent,
        "identity_id": it.identity,
        "workload_id": it.workload,
        "scope_id": it.scope,
        "urgency": it.urgency,
        "before": side(&it.before),
        "after": side(&it.after),
        "why": it.why,
    })
}

fn shown(summary: &WhatIfSummary, told: &[Value], is_changed: bool) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let (Some(from), Some(to)) = (&summary.from, &summary.to) else {
        return "No decision was recorded in that time.\n".to_owned();
    };
    let differ = summary.decisions - summary.same;
    let _ = writeln!(text, "{} decisions, from {from} to {to}", count(summary.decisions));
    if differ == 0 {
        text.push_str(if is_changed {
            "None of them would differ.\n"
        } else {
            "None of them would differ: this is the recorded configuration. --policy tries another one.\n"
        });
    } else {
        #[expect(clippy::cast_precision_loss, reason = "a part of a hundred")]
        let percent = differ as f64 * 100.0 / summary.decisions as f64;
        let _ = writeln!(text, "{} would differ ({percent:.1}%):", count(differ));
        for (number, what) in [
            (summary.stopped, "approved, and would be denied"),
            (summary.allowed, "denied, and would be approved"),
            (summary.delayed, "would wait longer"),
            (summary.sped_up, "would wait less"),
            (summary.other_reason, "denied, for another reason"),
        ] {
            if number > 0 {
                let _ = writeln!(text, "{:>10}  {what}", count(number));
            }
        }
        counts(&mut text, "AGENT", &summary.agents);
        counts(&mut text, "WORK", &summary.workloads);
    }
    pools(&mut text, summary);
    if !summary.rules.is_empty() {
        let mut table = table::new(&["RULE", "MATCHES"], &[1]);
        for rule in &summary.rules {
            table.add_row([rule.id.clone(), count(rule.matched)]);
        }
        let _ = write!(text, "\n{}", table::text(&table));
    }
    if !told.is_empty() {
        text.push_str("\nThe first differences:\n");
        for one in told.iter().take(MOST_SHOWN) {
            let word = |path: &str| one.pointer(path).and_then(Value::as_str).unwrap_or("-");
            let _ = writeln!(
                text,
                "  {} {} {}: {} -> {}\n    {}",
                word("/ts"),
                word("/agent_id"),
                word("/workload_id"),
                word("/before/decision"),
                word("/after/decision"),
                word("/why"),
            );
        }
    }
    tollgate_contract::text::for_terminal(&text)
}

fn counts(text: &mut String, what: &str, names: &[WhatIfCount]) {
    let mut table = table::new(&[what, "STOPPED", "ALLOWED", "OTHER"], &[1, 2, 3]);
    for one in names.iter().take(MOST_SHOWN) {
        table.add_row([one.name.clone(), count(one.stopped), count(one.allowed), count(one.other)]);
    }
    text.push('\n');
    text.push_str(&table::text(&table));
}

/// What would have been saved, or taken in addition.
fn pools(text: &mut String, summary: &WhatIfSummary) {
    let changed: Vec<_> = summary.pools.iter().filter(|p| p.approved != p.would_be).collect();
    if changed.is_empty() {
        return;
    }
    let mut table = table::new(&["POOL", "APPROVED", "WOULD BE", "CHANGE"], &[1, 2, 3]);
    for pool in changed {
        let (sign, change) = if pool.would_be < pool.approved {
            ("-", pool.approved - pool.would_be)
        } else {
            ("+", pool.would_be - pool.approved)
        };
        table.add_row([
            pool.id.clone(),
            count(pool.approved),
            count(pool.would_be),
            format!("{sign}{}", count(change)),
        ]);
    }
    text.push('\n');
    text.push_str(&table::text(&table));
}
