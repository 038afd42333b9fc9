//! A recorded history asked again: from memory, and from a ledger on disk.

use std::{error::Error, time::Instant};

use tollgate_gate::{what_if, written};
use tollgate_governor::{Event, WhatIf};
use tollgate_ledger::{Ledger, LedgerError, NewEvent, Sync};

use super::{
    ratio,
    scene::{START_MS, Scene, Size, Wanted},
};
use crate::{
    measure::{Table, count, median, percent, short, spread},
    serving::child::folder,
};

/// The history in memory, and in how many pieces it is made and asked again, in turns.
const DECISIONS: usize = 1_000_000;
const PIECES: usize = 20;

/// Events in the ledger on disk, and how many are stored together.
const EVENTS: usize = 1_000_000;
const TOGETHER: usize = 1000;

/// How often the ledger is read.
const READINGS: usize = 3;

const NOTES: &str = "
  With the configuration that was recorded: every decision must come out the same, or the run fails. `ratio` in
  memory is the time for asking again over the time for the decisions and settlements themselves, within the
  same piece of the history; on disk it is over reading all events and doing nothing with them.";

/// Times both.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n16. What if: {DECISIONS} decisions in memory, asked again in {PIECES} pieces of the history; {EVENTS} events on disk\n"
    );
    let size = Size { pools: 1000, identities: 1000, agents: 10, ..Size::LEAST };
    let mut table = Table::new([
        "",
        "decisions",
        "events",
        "decisions/s",
        "spread",
        "s for a million",
        "ratio",
        "differ",
    ]);
    memory(&mut table, "in memory, approved and settled", size)?;
    let waits = Size { answer: Wanted::Wait, ..Size::LEAST };
    memory(&mut table, "in memory, later with waits, expired", waits)?;
    disk(&mut table, size)?;
    table.print();
    println!("{NOTES}");
    Ok(())
}

fn memory(table: &mut Table, name: &str, size: Size) -> Result<(), Box<dyn Error>> {
    let mut scene = Scene::begun(size, Vec::new())?;
    let mut again = WhatIf::new(scene.empty()?, None, START_MS)?;
    let (mut made, mut asked) = (Vec::new(), Vec::new());
    let (mut decisions, mut stored) = (0, 0);
    for _ in 0..PIECES {
        let mut events = Vec::new();
        let start = Instant::now();
        for _ in 0..DECISIONS / PIECES {
            scene.record(&mut events)?;
        }
        made.push(start.elapsed().as_secs_f64());
        stored += events.len();
        let (mut same, mut differ) = (0, 0);
        let start = Instant::now();
        for event in &events {
            if let Some(one) = again.next(event) {
                *(if one.is_one() { &mut differ } else { &mut same }) += 1;
            }
        }
        asked.push(start.elapsed().as_secs_f64());
        if differ > 0 || same != DECISIONS / PIECES {
            return Err(format!("{name}: {differ} differ, and {same} do not").into());
        }
        decisions += same;
    }
    // The middle piece says how fast, all of them how long.
    let piece = (DECISIONS / PIECES) as f64;
    let rates: Vec<f64> = asked.iter().map(|seconds| piece / seconds).collect();
    table.row([
        name.to_owned(),
        decisions.to_string(),
        stored.to_string(),
        count(median(&rates)),
        percent(spread(&rates)),
        short(asked.iter().sum::<f64>() / decisions as f64 * 1e6),
        short(ratio(&asked, &made)),
        "0".to_owned(),
    ]);
    Ok(())
}

fn disk(table: &mut Table, size: Size) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    let ledger = Ledger::open(&place.path().join("data"), Sync::Process)?;
    let mut scene = Scene::begun(size, Vec::new())?;
    store(&ledger, &[scene.configured()])?;
    let mut stored = 1;
    while stored < EVENTS {
        let mut events = Vec::new();
        while events.len() < TOGETHER {
            scene.record(&mut events)?;
        }
        store(&ledger, &events)?;
        stored += events.len();
    }
    let reader = ledger.reader()?;
    let (mut plain, mut asked, mut decisions) = (Vec::new(), Vec::new(), 0);
    for _ in 0..READINGS {
        let (mut after, mut seen) = (0, 0);
        let start = Instant::now();
        loop {
            let events = reader.tail(after, 2000)?;
            let Some(last) = events.last() else { break };
            (after, seen) = (last.seq, seen + events.len());
        }
        plain.push(start.elapsed().as_secs_f64());
        let mut differ = 0;
        let start = Instant::now();
        let summary =
            what_if(&reader, None, 0, |_| differ += 1).map_err(|error| format!("{error:?}"))?;
        asked.push(start.elapsed().as_secs_f64());
        if differ > 0 || summary.same != summary.decisions || seen != stored {
            return Err(format!("on disk: {differ} of {} differ", summary.decisions).into());
        }
        decisions = summary.decisions;
    }
    let rates: Vec<f64> = asked.iter().map(|seconds| decisions as f64 / seconds).collect();
    table.row([
        "a ledger on disk, approved and settled".to_owned(),
        decisions.to_string(),
        stored.to_string(),
        count(median(&rates)),
        percent(spread(&rates)),
        short(1e6 / median(&rates)),
        short(ratio(&asked, &plain)),
        "0".to_owned(),
    ]);
    println!(
        "  reading {stored} events from disk, and nothing else: {} s\n",
        short(median(&plain))
    );
    Ok(())
}

fn store(ledger: &Ledger, events: &[Event]) -> Result<(), Box<dyn Error>> {
    let written: Result<Vec<NewEvent>, LedgerError> = events.iter().map(written).collect();
    ledger.append(written?)?;
    Ok(())
}
