//! The scenarios of the examples: simulated decisions a second, and how much faster than real time.

use std::{error::Error, fs, path::Path, time::Instant};

use tollgate_simulate::Scenario;

use crate::{
    governor::{
        ratio,
        scene::{Scene, Size},
    },
    measure::{Table, count, median, percent, short, spread},
};

const ROUNDS: usize = 5;

/// Decisions of one turn of the governor alone.
const ALONE: usize = 100_000;

const NOTES: &str = "
  One thread. A run has everything in it: the agents, the provider, the observer beside them, and the verdict on
  every invariant, all of which must hold. `ratio` is decisions a second as a part of the governor's alone,
  which decides on four pools and settles; median of the ratios within the rounds.";

/// Times every scenario, in turns.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\n15. Simulation: the scenarios of the examples, {ROUNDS} interleaved rounds\n");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios");
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|file| Ok(file?.path()))
        .collect::<Result<_, Box<dyn Error>>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "toml"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let scenario = Scenario::parse(&fs::read_to_string(&file)?)?;
        let outcome = scenario.run(None);
        if !outcome.holds() {
            return Err(format!("{}: an invariant does not hold", scenario.name()).into());
        }
        all.push((scenario, outcome.decisions, outcome.seconds, Vec::new()));
    }
    let mut scene = Scene::new(Size::LEAST)?;
    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..ALONE {
            scene.step()?;
        }
        alone.push(ALONE as f64 / start.elapsed().as_secs_f64());
        for (scenario, decisions, _, rates) in &mut all {
            let start = Instant::now();
            let outcome = scenario.run(None);
            rates.push(*decisions as f64 / start.elapsed().as_secs_f64());
            if outcome.decisions != *decisions {
                return Err(format!("{}: two runs differ", scenario.name()).into());
            }
        }
    }
    let mut table = Table::new([
        "",
        "decisions",
        "simulated s",
        "real s",
        "decisions/s",
        "spread",
        "ratio",
        "× real time",
    ]);
    table.row([
        "the governor alone".to_owned(),
        ALONE.to_string(),
        String::new(),
        short(ALONE as f64 / median(&alone)),
        count(median(&alone)),
        percent(spread(&alone)),
        "1.00".to_owned(),
        String::new(),
    ]);
    for (scenario, decisions, seconds, rates) in &all {
        let took = *decisions as f64 / median(rates);
        table.row([
            scenario.name().to_owned(),
            decisions.to_string(),
            short(*seconds),
            short(took),
            count(median(rates)),
            percent(spread(rates)),
            short(ratio(rates, &alone)),
            short(seconds / took),
        ]);
    }
    table.print();
    println!("{NOTES}");
    Ok(())
}
