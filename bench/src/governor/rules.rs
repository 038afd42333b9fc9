//! What rules add to a decision: those that are about other work, and those whose condition is worked out.

use std::error::Error;

use serde_json::{Value, json};

use super::{
    Taken, count_decisions, ratio,
    scene::{DRAWS, Scene, Size},
};
use crate::measure::{Table, median, percent, short, spread};

/// How often every scene gets its turn, and decisions in one turn.
const ROUNDS: usize = 9;
const TURN: usize = 10_000;

const NOTES: &str = "
  1,000 pools, four pools an intent, all approved: no rule matches, and all must be looked at to know it.
  p50 and p99 are medians of the rounds, and the clock's own cost is in both; `spread` is how far the p50 of
  the middle half of the rounds lie apart. `ratio` and `p99 ×` are medians of the ratios to no rules within
  the rounds, `÷ tenth` of those to a tenth of the rules above it. A condition that reads a pool or a forecast
  is worked out for each of the four; `each` is what one adds. Targets: 100 rules of which none applies, under
  5000 ns p99; ten times the rules, less than 1.5 times the time.";

/// One scene with rules.
struct Row {
    name: String,
    scene: Scene,
    taken: Taken,
    /// How many conditions are worked out for one decision.
    evaluated: usize,
    /// The row with a tenth of the rules.
    tenth: Option<usize>,
}

/// Times decisions with rules and without, in turns.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n13. Decisions with rules: 1,000 pools, {DRAWS} an intent, {ROUNDS} interleaved rounds of {TURN}\n"
    );
    let mut rows = vec![row("no rules", Vec::new(), 0, None)?];
    for (place, count) in [10, 100, 1000].into_iter().enumerate() {
        let tenth = (place > 0).then_some(place);
        rows.push(row(format!("{count} about other work"), others(count), 0, tenth)?);
    }
    for (place, count) in [10, 100, 1000].into_iter().enumerate() {
        let tenth = (place > 0).then_some(place + 3);
        let name = format!("{count} that name only another urgency");
        rows.push(row(name, nameless(count), 0, tenth)?);
    }
    for (name, when, each) in [
        ("a pool's rest and the urgency", USUAL, DRAWS),
        ("a forecast", FORECAST, DRAWS),
        ("a pattern", PATTERN, 1),
    ] {
        for count in [1, 10] {
            let tenth = (count > 1).then(|| rows.len() - 1);
            let rules = (0..count).map(|number| rule(number, &json!({"when": when})));
            let name = format!("{count} reading {name}");
            rows.push(row(name, rules.collect(), count * each, tenth)?);
        }
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.taken.take(&mut row.scene, TURN)?;
        }
    }
    print(&mut rows)?;
    println!("{NOTES}");
    Ok(())
}

const USUAL: &str = "pool.remaining_percent < 5.0 && intent.urgency == 'background'";
const FORECAST: &str = "forecast.p_exhaust_with > 0.9";
const PATTERN: &str = "intent.scope_id.matches('^repo:(owner|team)/private-[0-9]+$')";

fn row(
    name: impl Into<String>,
    rules: Vec<Value>,
    evaluated: usize,
    tenth: Option<usize>,
) -> Result<Row, Box<dyn Error>> {
    let name = name.into();
    let mut scene = Scene::ruled(Size { pools: 1000, ..Size::LEAST }, rules)?;
    scene.check().map_err(|error| format!("{name}: {error}"))?;
    Ok(Row { name, scene, taken: Taken::default(), evaluated, tenth })
}

/// A rule with a name of its own.
fn rule(number: usize, said: &Value) -> Value {
    let mut rule = json!({"id": format!("rule-{number}"), "action": "defer", "because": "no"});
    if let (Some(rule), Some(said)) = (rule.as_object_mut(), said.as_object()) {
        rule.extend(said.clone());
    }
    rule
}

/// Rules about other work, other agents, other credentials, other places and other pools; half of them by
/// the beginning of a name.
fn others(count: usize) -> Vec<Value> {
    let one = |number: usize| {
        let star = if number % 2 == 0 { "*" } else { "" };
        let head = match number / 2 % 5 {
            0 => json!({"workload": format!("work-x{number}{star}")}),
            1 => json!({"agent": format!("crawler-x{number}{star}")}),
            2 => json!({"identity": format!("pat:somebody-x{number}{star}")}),
            3 => json!({"scope": format!("repo:owner/name-x{number}{star}")}),
            _ => json!({"pool": format!("provider-x{number}:{star}")}),
        };
        let mut rule = rule(number, &head);
        if let Some(rule) = rule.as_object_mut() {
            rule.insert("when".to_owned(), USUAL.into());
        }
        rule
    };
    (0..count).map(one).collect()
}

/// Rules whose head names nobody: everyone must look at them.
fn nameless(count: usize) -> Vec<Value> {
    let said = json!({"urgency": "background", "when": USUAL});
    (0..count).map(|number| rule(number, &said)).collect()
}

fn print(rows: &mut [Row]) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new([
        "ns",
        "p50",
        "p99",
        "spread",
        "ratio",
        "p99 ×",
        "÷ tenth",
        "each",
        "allocations",
        "target",
    ]);
    let all: Vec<Taken> = rows.iter().map(|row| row.taken.clone()).collect();
    let base = all.first().cloned().unwrap_or_default();
    for row in rows {
        let (result, allocated, _) = count_decisions(&mut row.scene);
        result?;
        let taken = &row.taken;
        let tenth = row.tenth.and_then(|place| all.get(place));
        let more = |its: &Taken| ratio(&taken.p50, &its.p50);
        let added = (median(&taken.p50) - median(&base.p50)) / row.evaluated as f64;
        let is_bound = row.name == "100 about other work";
        table.row([
            row.name.clone(),
            short(median(&taken.p50)),
            short(median(&taken.p99)),
            percent(spread(&taken.p50)),
            short(ratio(&taken.p50, &base.p50)),
            short(ratio(&taken.p99, &base.p99)),
            tenth.map(|its| short(more(its))).unwrap_or_default(),
            if row.evaluated > 0 { short(added) } else { String::new() },
            short(allocated),
            if is_bound { "p99 < 5000".to_owned() } else { String::new() },
        ]);
    }
    table.print();
    Ok(())
}
