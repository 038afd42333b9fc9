//! `tollgate simulate`: agents, sabotage and a policy through the governor, on virtual time.

use std::{fmt::Write, fs};

use tollgate_simulate::{Outcome, Scenario, Table};

use crate::{
    cli::SimulateArgs,
    exit::Exit,
    output::{Failure, Output, wrap},
    source,
    table::{self, count},
};

pub(crate) fn run(args: &SimulateArgs, output: &Output) -> Result<Exit, Failure> {
    let text = source::read_text(&args.scenario)?;
    let name = source::name(&args.scenario);
    let scenario = Scenario::parse(&text)
        .map_err(|error| Failure::bad_input(format!("{name} is no scenario: {error}")))?;
    let outcome = scenario.run(args.seed);
    if let Some(file) = &args.plot {
        fs::write(file, outcome.svg()).map_err(|error| {
            Failure::bad_input(format!("cannot write {}: {error}", file.display()))
        })?;
    }
    let written = output.success(&outcome, || shown(&outcome));
    Ok(if outcome.holds() { written } else { Exit::Failed })
}

fn shown(outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {} s of virtual time, {} decisions, seed {}",
        outcome.name,
        outcome.seconds,
        count(outcome.decisions),
        outcome.seed
    );
    let _ = writeln!(text, "{}", wrap(&outcome.about, 0));
    for Table { title, head, rows } in outcome.table() {
        let numbers: Vec<usize> = match title {
            "invariants" => Vec::new(),
            _ => (1..head.len()).collect(),
        };
        let mut table = table::new(&head, &numbers);
        for row in rows {
            table.add_row(row);
        }
        let _ = write!(text, "\n{}", table::text(&table));
    }
    let broken = outcome.invariants.iter().filter(|one| !one.holds).count();
    let _ = match broken {
        0 if outcome.invariants.len() == 1 => writeln!(text, "\nThe invariant holds."),
        0 => writeln!(text, "\nAll {} invariants hold.", outcome.invariants.len()),
        1 => writeln!(text, "\n1 invariant is broken."),
        many => writeln!(text, "\n{many} invariants are broken."),
    };
    text
}
