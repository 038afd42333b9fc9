//! Tollgate side by side with what others offer for the same work, in one run on one machine.
//!
//! A policy decision against Cedar and Rego, the JSON and redaction paths against their plainest
//! counterparts, the growth of redaction on hostile input; then the gate as a whole: serving against a
//! bare handler, the ledger against plain inserts, and the daemon's start, memory and restart. Last the
//! governor by itself: what rules and forecasts add to a decision, how fast scenarios are simulated and a
//! history is asked again, and whether forecasts come true as often as they say; and the tools: what a safe read
//! costs more than a plain one, what the cache of pages saves, and what it costs to run a command confined,
//! next to bubblewrap; and what agents remember: how long it takes to find it; and their turns. Absolute
//! numbers are this machine's; the ratios are what can be compared. The run ends with a failure when the
//! engines disagree about a call, when a document is not what its row says, or when an answer is no 200:
//! times of different work would compare nothing.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml`, for one section with its name behind `--`:
//! see [`SECTIONS`].

mod agent;
mod counting;
mod curve;
mod documents;
mod governor;
mod hostile;
mod intent;
mod ledger;
mod lifetime;
mod measure;
mod policy;
mod recall;
mod sample;
mod sandbox;
mod serving;
mod simulate;
mod throughput;
mod tools;

use std::{env, error::Error, path::Path, process::ExitCode, thread, time::Instant};

use measure::{ROUNDS, TURN, WARM_UP};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> ExitCode {
    // As the product's binary does: the launcher of the sandbox is this binary, under another name.
    if tollgate_sandbox::launcher::wanted() {
        return tollgate_sandbox::launcher::main();
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one section.
type Section = fn() -> Result<(), Box<dyn Error>>;

/// What can be asked for by name. Without a name all of them run, in this order.
const SECTIONS: [(&str, Section); 22] = [
    ("policy", policy::section),
    ("throughput", throughput::section),
    ("hostile", hostile),
    ("serve", serving::section),
    ("ledger", ledger::section),
    ("start", lifetime::starts),
    ("memory", lifetime::memory),
    ("restart", lifetime::restarts),
    ("intent", intent::section),
    ("full", intent::full),
    ("decision", governor::section),
    ("growth", governor::growth::section),
    ("rules", governor::rules::section),
    ("forecast", governor::forecast::section),
    ("simulate", simulate::section),
    ("what-if", governor::what_if::section),
    ("calibration", governor::calibration::section),
    ("fs", tools::files),
    ("http-cache", tools::pages),
    ("sandbox", sandbox::section),
    ("recall", recall::section),
    ("agent", agent::section),
];

fn hostile() -> Result<(), Box<dyn Error>> {
    hostile::section();
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let asked: Vec<String> = env::args().skip(1).collect();
    // This binary starts itself as the server that the product's is compared with.
    if let [role, call, manifest] = asked.as_slice()
        && role == "bare-server"
    {
        return serving::bare::serve(Path::new(call), Path::new(manifest));
    }
    if let [role, answers] = asked.as_slice()
        && role == "bare-intents"
    {
        return serving::bare::serve_intents(Path::new(answers));
    }
    if let Some(unknown) = asked.iter().find(|name| !SECTIONS.iter().any(|one| one.0 == *name)) {
        let names = SECTIONS.map(|(name, _)| name).join(", ");
        return Err(format!("there is no section `{unknown}`; there are {names}").into());
    }
    let start = Instant::now();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!(
        "tollgate-bench: {cores} cores seen; sections 1 to 3 use one, {ROUNDS} interleaved rounds,"
    );
    println!(
        "turns of about {} ms after {} ms of warm-up each; medians of rounds",
        TURN.as_millis(),
        WARM_UP.as_millis()
    );
    for (name, section) in SECTIONS {
        if asked.is_empty() || asked.iter().any(|one| one == name) {
            section()?;
        }
    }
    println!("\nwhole run: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
