//! The examples that the author of a rule wrote down, as samples. What an example does not say is completed, so
//! that what it says of a pool fits together.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::{
    check::{Type, a},
    config::{ExampleConfig, Said},
    facts::{Kind, Known, VARIABLES, place_of, share},
    samples::{Sample, Value},
};
use crate::config::meant;

/// What an example does not say itself.
pub(crate) struct Unsaid<'a> {
    /// Names that the rule's head matches.
    pub(crate) names: [(&'static str, String); 6],
    /// A time at which the rule applies.
    pub(crate) at: i64,
    pub(crate) zone: &'a TimeZone,
}

/// The sample that an example describes, and its time; or the field that is wrong, and what about it.
pub(crate) fn of_example(
    example: &ExampleConfig,
    unsaid: &Unsaid<'_>,
) -> Result<(Sample, i64), (String, String)> {
    let mut sample = Sample::usual();
    for (name, value) in &unsaid.names {
        sample.put(name, Known::Text(value));
    }
    let at = match &example.at {
        Some(text) => {
            text.parse::<jiff::Timestamp>().map(|at| at.as_millisecond()).map_err(|_| {
                let problem = format!("`{text}` is no time; write it as 2026-11-13T23:30:00+01:00");
                ("at".to_owned(), problem)
            })?
        }
        None => unsaid.at,
    };
    sample.put_time(at, unsaid.zone);
    let mut said = Vec::new();
    let sections = [
        ("intent", &example.intent),
        ("identity", &example.identity),
        ("agent", &example.agent),
        ("pool", &example.pool),
        ("forecast", &example.forecast),
    ];
    for (root, section) in sections {
        take(&mut sample, root, section, &mut said)?;
    }
    let cost = example.cost.map(|cost| i64::try_from(cost).unwrap_or(i64::MAX));
    if let Some(cost) = cost {
        sample.put("cost", Known::Int(cost));
    }
    let unknown = unknown_places(example)?;
    for (name, of) in [("agent.name", "intent.agent_id"), ("identity.name", "intent.identity_id")] {
        if !said.contains(&name.to_owned()) {
            let text = sample.text(of).to_owned();
            sample.put(name, Known::Text(&text));
        }
    }
    if said.contains(&"forecast.p_exhaust".to_owned())
        && !said.contains(&"forecast.p_exhaust_with".to_owned())
    {
        let same = sample.double("forecast.p_exhaust").map(Known::Double);
        sample.put("forecast.p_exhaust_with", same);
    }
    complete_pool(&mut sample, &said);
    for name in &unknown {
        sample.put(name, None);
        // Shares of a limit are not known without it.
        if matches!(*name, "pool.limit" | "pool.remaining") {
            for share in ["pool.remaining_percent", "pool.utilization"] {
                if !said.contains(&share.to_owned()) {
                    sample.put(share, None);
                }
            }
        }
    }
    Ok((sample, at))
}

fn unknown_places(example: &ExampleConfig) -> Result<Vec<&'static str>, (String, String)> {
    let can_be = || VARIABLES.iter().filter(|v| v.can_be_unknown).map(|v| v.name);
    let find = |name: &String| {
        can_be().find(|known| known == name).ok_or_else(|| {
            let near = meant(name, can_be());
            ("unknown".to_owned(), format!("`{name}` is nothing that can be unknown{near}"))
        })
    };
    example.unknown.iter().map(find).collect()
}

/// Takes what one table of an example says.
fn take(
    sample: &mut Sample,
    root: &str,
    section: &BTreeMap<String, Said>,
    names: &mut Vec<String>,
) -> Result<(), (String, String)> {
    for (field, said) in section {
        let at = format!("{root}.{field}");
        let name = if at == "intent.expected_cost" { "cost" } else { at.as_str() };
        let Some((place, variable)) =
            place_of(name).and_then(|place| Some((place, VARIABLES.get(place)?)))
        else {
            let fields = VARIABLES.iter().filter_map(|variable| {
                variable.name.split_once('.').filter(|(of, _)| *of == root).map(|(_, f)| f)
            });
            return Err((at.clone(), format!("`{root}` has no `{field}`{}", meant(field, fields))));
        };
        let value = match (variable.kind, said) {
            (Kind::Bool, Said::Bool(value)) => Value::Bool(*value),
            (Kind::Int, Said::Int(value)) => Value::Int(*value),
            (Kind::Double, Said::Double(value)) => Value::Double(*value),
            (Kind::Double, Said::Int(value)) =>
            {
                #[expect(clippy::cast_precision_loss, reason = "nobody writes so many digits")]
                Value::Double(*value as f64)
            }
            (Kind::Double, Said::Text(text)) if text == "inf" => Value::Double(f64::INFINITY),
            (Kind::Text, Said::Text(text)) => Value::Text(text.clone()),
            (kind, _) => return Err((at, format!("is to be {}", a(Type::One(kind))))),
        };
        sample.set(place, Some(value));
        names.push(name.to_owned());
    }
    Ok(())
}

/// What is said of a pool is completed so that it fits together: what is left, used, and their shares.
fn complete_pool(sample: &mut Sample, said: &[String]) {
    let is_said = |name: &str| said.iter().any(|other| other == name);
    let Some(limit) = sample.int("pool.limit") else { return };
    let of_limit = |share: f64| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sample need not be exact"
        )]
        Some((limit as f64 * share.clamp(0.0, 1.0)).round() as u64)
    };
    let sum = |sample: &Sample| {
        let of = |name| sample.int(name).filter(|_| is_said(name)).unwrap_or(0);
        of("pool.used").saturating_add(of("pool.held")).saturating_add(of("pool.booked"))
    };
    let remaining = if is_said("pool.remaining") {
        sample.int("pool.remaining")
    } else if is_said("pool.remaining_percent") {
        sample.double("pool.remaining_percent").and_then(|percent| of_limit(percent / 100.0))
    } else if is_said("pool.utilization") {
        sample.double("pool.utilization").and_then(|used| of_limit(1.0 - used))
    } else if ["pool.used", "pool.held", "pool.booked"].iter().any(|name| is_said(name)) {
        Some(limit.saturating_sub(sum(sample)))
    } else {
        of_limit(0.5)
    };
    let Some(remaining) = remaining else { return };
    let whole = |amount: u64| Known::Int(i64::try_from(amount).unwrap_or(i64::MAX));
    let gone = limit.saturating_sub(remaining);
    let others = sum(sample)
        .saturating_sub(sample.int("pool.used").filter(|_| is_said("pool.used")).unwrap_or(0));
    let left = share(remaining, limit);
    let completed = [
        ("pool.remaining", whole(remaining)),
        ("pool.used", whole(gone.saturating_sub(others))),
        ("pool.held", Known::Int(0)),
        ("pool.booked", Known::Int(0)),
        ("pool.remaining_percent", Known::Double(left * 100.0)),
        ("pool.utilization", Known::Double(1.0 - left)),
    ];
    for (name, value) in completed {
        if !is_said(name) {
            sample.put(name, value);
        }
    }
}
