//! Tollgate side by side with what others offer for the same work, in one run on one machine.
//!
//! Three sections: a policy decision against Cedar and Rego, the JSON and redaction paths against
//! their plainest counterparts, and the growth of redaction on hostile input. Absolute numbers are
//! this machine's; the ratios are what can be compared. The run ends with a failure when the engines
//! disagree about a call, or when a document is not what its row says: times of different work would
//! compare nothing.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml`

mod documents;
mod hostile;
mod measure;
mod policy;
mod throughput;

use std::{error::Error, process::ExitCode, thread, time::Instant};

use measure::{ROUNDS, TURN, WARM_UP};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("tollgate-bench: {cores} cores seen, one used; {ROUNDS} interleaved rounds,");
    println!(
        "turns of about {} ms after {} ms of warm-up each; medians of rounds",
        TURN.as_millis(),
        WARM_UP.as_millis()
    );
    policy::section()?;
    throughput::section()?;
    hostile::section();
    println!("\nwhole run: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
