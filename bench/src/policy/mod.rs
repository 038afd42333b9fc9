//! A policy decision, per call: Tollgate, Cedar and Rego on one rule set and one mix of calls.

mod cedar;
mod ours;
mod rego;
mod scenario;
mod tools;

use std::{error::Error, hint::black_box};

use crate::measure::{Contender, Table, Timing, count, percent, race, short};
use cedar::{Cedar, Style};
use ours::{Extent, Ours};
use rego::{Compiled, Machine};
use scenario::{Call, Scenario};

/// Something that decides calls.
trait Engine {
    fn name(&self) -> &'static str;

    /// Does it let the call at this place of the mix through?
    fn allows(&mut self, call: usize) -> Result<bool, Box<dyn Error>>;
}

/// Which calls of the mix are timed together.
type Wanted = fn(&Call) -> bool;

const SLICES: [(&str, Wanted); 4] = [
    ("the whole mix", |_| true),
    ("calls that pass", Call::passes),
    ("refused, known tool", |call| !call.passes() && !call.names_no_tool()),
    ("refused, unknown tool", Call::names_no_tool),
];

const NOTES: &str = "
  Same rules for all: the tool exists, is active and callable, the caller has a key with scope `call`,
  no forbidden risk, deny and allow lists and both ceilings of two layers, user data needs a key.
  Tollgate also gives the record of every step and, on refusal, the typed error; the others give yes
  or no (cedar also the ids of the policies that decided). Cedar's requests and regorus' inputs are
  made before the clock starts. `policy + trade + approval` also checks seven trade guardrails where
  a call is an order, and three `ask` entries; the others are not asked for that.
  `time` is how many times as long as `tollgate, policy` it takes: above 1 is slower than we are.";

/// Checks that all engines agree on every call, then times them.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::new()?;
    let mut engines = engines(&scenario)?;
    check_steps(&scenario)?;
    check_agreement(&scenario, &mut engines)?;

    println!(
        "\n1. Policy decision: {} tools, {} calls, all {} engines agree on every one\n",
        scenario.manifest.entries().len(),
        scenario.calls.len(),
        engines.len(),
    );
    let mut table = Table::new(["", "ns/call", "calls/s", "spread", "time"]);
    for (title, wanted) in SLICES {
        let calls = scenario.calls.iter().enumerate();
        let places: Vec<usize> =
            calls.filter(|(_, call)| wanted(call)).map(|(place, _)| place).collect();
        table.heading(&format!("{title} ({} calls)", places.len()));
        add_rows(&mut table, &time(&mut engines, &places), places.len());
    }
    table.print();
    println!("{NOTES}");
    Ok(())
}

fn engines(scenario: &Scenario) -> Result<Vec<Box<dyn Engine + '_>>, Box<dyn Error>> {
    Ok(vec![
        Box::new(Ours::new(scenario, Extent::Policy)),
        Box::new(Ours::new(scenario, Extent::Whole)),
        Box::new(Cedar::new(scenario, Style::Rules)?),
        Box::new(Cedar::new(scenario, Style::OnePermit)?),
        Box::new(Compiled::new(scenario)?),
        Box::new(Machine::new(scenario)?),
    ])
}

/// Every call must end at the step that it is in the mix for.
fn check_steps(scenario: &Scenario) -> Result<(), Box<dyn Error>> {
    let ours = Ours::new(scenario, Extent::Policy);
    for (place, call) in scenario.calls.iter().enumerate() {
        let found = ours.refused_at(place);
        if found != call.refused_at {
            let (tool, wanted) = (&call.tool, call.refused_at);
            return Err(format!("`{tool}` ends at {found:?}, not at {wanted:?}").into());
        }
    }
    Ok(())
}

fn check_agreement(
    scenario: &Scenario,
    engines: &mut [Box<dyn Engine + '_>],
) -> Result<(), Box<dyn Error>> {
    for (place, call) in scenario.calls.iter().enumerate() {
        for engine in engines.iter_mut() {
            let allows = engine.allows(place)?;
            if allows != call.passes() {
                let (name, tool) = (engine.name(), &call.tool);
                return Err(format!("{name}: `{tool}`: allows: {allows}").into());
            }
        }
    }
    Ok(())
}

/// The time of one pass over the calls at `places`, for every engine.
fn time(engines: &mut [Box<dyn Engine + '_>], places: &[usize]) -> Vec<Timing> {
    let contenders = engines.iter_mut().map(|engine| {
        Contender::new(engine.name(), move || {
            for place in places {
                // An error cannot come up any more: every call has been answered before.
                let _ = black_box(engine.allows(black_box(*place)));
            }
        })
    });
    race(contenders.collect())
}

fn add_rows(table: &mut Table, timings: &[Timing], calls: usize) {
    let Some(ours) = timings.first() else { return };
    for timing in timings {
        let ns = timing.ns() / calls as f64;
        table.row([
            format!("  {}", timing.name),
            short(ns),
            count(1e9 / ns),
            percent(timing.spread()),
            format!("× {}", short(timing.times(ours))),
        ]);
    }
}
