//! An outcome as tables of text, for whoever prints them.

use crate::outcome::Outcome;

/// A table of text: a title, a head and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: &'static str,
    /// The names of its columns.
    pub head: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

impl Outcome {
    /// What was measured and what held: pools, agents, invariants.
    pub fn table(&self) -> Vec<Table> {
        vec![self.pool_table(), self.agent_table(), self.invariant_table()]
    }

    fn pool_table(&self) -> Table {
        let rows = self.pools.iter().map(|pool| {
            vec![
                pool.pool.clone(),
                format!("{} {}", grouped(pool.limit as f64), pool.unit),
                number(pool.overshoot),
                share(pool.utilization),
                share(pool.kept_waits),
                number(pool.provider_refusals),
                number(pool.drift),
            ]
        });
        Table {
            title: "pools",
            head: vec!["pool", "limit", "overshoot", "used", "kept waits", "refusals", "drift"],
            rows: rows.collect(),
        }
    }

    fn agent_table(&self) -> Table {
        let rows = self.agents.iter().map(|agents| {
            vec![
                format!("{} x{}", agents.agents, agents.count),
                agents.urgency.clone(),
                number(agents.asks),
                number(agents.approvals),
                number(agents.waits),
                number(agents.denials),
                number(agents.acted),
                format!("{} / {}", seconds(agents.wait_p50), seconds(agents.wait_p99)),
                share(agents.fairness),
                seconds(agents.starved),
            ]
        });
        Table {
            title: "agents",
            head: vec![
                "agents",
                "urgency",
                "asks",
                "approved",
                "waits",
                "denied",
                "acted",
                "wait p50 / p99",
                "fairness",
                "starved",
            ],
            rows: rows.collect(),
        }
    }

    fn invariant_table(&self) -> Table {
        let rows = self.invariants.iter().map(|verdict| {
            let of = if verdict.of.is_empty() { "everything" } else { &verdict.of };
            vec![
                if verdict.holds { "pass" } else { "FAIL" }.to_owned(),
                verdict.metric.clone(),
                of.to_owned(),
                verdict.bound.to_string(),
                verdict.measured.map_or_else(|| "nothing".to_owned(), |value| value.to_string()),
                verdict.because.clone(),
            ]
        });
        Table {
            title: "invariants",
            head: vec!["", "metric", "of", "must be", "was", "because"],
            rows: rows.collect(),
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), grouped)
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}%", value * 100.0))
}

fn seconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2} s"),
        Some(value) => format!("{value:.0} s"),
    }
}

/// A whole number with its thousands apart.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}
