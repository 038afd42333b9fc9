//! The governor by itself, in process: how long a decision takes, what it allocates, and whether that
//! depends on how much there is.

pub(crate) mod calibration;
pub(crate) mod forecast;
pub(crate) mod growth;
pub(crate) mod rules;
pub(crate) mod scene;
pub(crate) mod what_if;

use std::{error::Error, hint::black_box, time::Instant};

use tollgate_governor::{Effect, Event};

use crate::{
    counting::allocations,
    measure::{Table, median, quantile, short},
};
use scene::{DRAWS, Scene, Size, Wanted};

/// How often every scene gets its turn.
const ROUNDS: usize = 7;

/// Decisions in one turn.
const TURN: usize = 10_000;

/// Decisions over which allocations are counted.
const COUNTED: u64 = 2000;

/// Events over which settling, expiring and reading are timed.
const EVENTS: usize = 50_000;

const NOTES: &str = "
  One decision at a time, each timed by itself; the clock's own cost, in the first line, is in every number.
  p50 and p99 are medians of the rounds, `most` is the longest of all rounds, whatever interrupted it.
  `ratio` is the median of the ratios of the p50 within the rounds, `mean` the same of the sums. Whoever
  asks is chosen by chance, so that what is large is also far apart in memory. Target: under 5 µs p99 with
  1,000 pools, and below 1.5 times the smallest.";

/// Times decisions in governors of several sizes, in turns.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n10. Decisions in process, {DRAWS} pools an intent (fixed, sliding, bucket, days), {ROUNDS} interleaved rounds of {TURN}\n"
    );
    println!("  the clock by itself: {} ns\n", short(clock()));
    let least = Size::LEAST;
    let sizes = [
        ("the smallest: 4 pools, 1 identity, 100 holds", least),
        ("1,000 pools", Size { pools: 1000, ..least }),
        ("10,000 pools", Size { pools: 10_000, ..least }),
        ("10,000 routes that do not match", Size { routes: 10_000, ..least }),
        ("100,000 identities", Size { identities: 100_000, ..least }),
        ("10,000 agents", Size { agents: 10_000, ..least }),
        ("100,000 open holds", Size { holds: 100_000, ..least }),
        ("after 1,000,000 decisions", Size { history: 1_000_000, ..least }),
        (
            "10,000 pools, 100,000 identities and holds",
            Size { pools: 10_000, identities: 100_000, holds: 100_000, ..least },
        ),
        ("the smallest, with a wait", Size { answer: Wanted::Wait, ..least }),
        ("the smallest, denied", Size { answer: Wanted::Denial, ..least }),
    ];
    let mut scenes = Vec::new();
    for (name, size) in sizes {
        let mut scene = Scene::new(size)?;
        scene.check().map_err(|error| format!("{name}: {error}"))?;
        scenes.push((name, scene, Taken::default()));
    }
    for _ in 0..ROUNDS {
        for (_, scene, taken) in &mut scenes {
            taken.take(scene, TURN)?;
        }
    }
    let mut table =
        Table::new(["ns", "p50", "p99", "p99.9", "most", "ratio", "mean", "allocations", "bytes"]);
    let base = scenes.first().map(|(_, _, taken)| taken.clone()).unwrap_or_default();
    for (name, scene, taken) in &mut scenes {
        let (result, count, bytes) = count_decisions(scene);
        result?;
        table.row([
            (*name).to_owned(),
            short(median(&taken.p50)),
            short(median(&taken.p99)),
            short(median(&taken.p999)),
            short(taken.most),
            short(ratio(&taken.p50, &base.p50)),
            short(ratio(&taken.mean, &base.mean)),
            short(count),
            short(bytes),
        ]);
    }
    table.print();
    drop(scenes);
    println!();
    events()?;
    println!("{NOTES}");
    Ok(())
}

/// What one look at the clock costs, in nanoseconds.
fn clock() -> f64 {
    let took = (0..10_000).map(|_| Instant::now().elapsed().as_nanos() as f64);
    quantile(took.collect(), 0.5)
}

/// How long decisions took, by round.
#[derive(Default, Clone)]
pub(crate) struct Taken {
    pub(crate) p50: Vec<f64>,
    pub(crate) p99: Vec<f64>,
    p999: Vec<f64>,
    mean: Vec<f64>,
    most: f64,
}

impl Taken {
    pub(crate) fn take(&mut self, scene: &mut Scene, turn: usize) -> Result<(), Box<dyn Error>> {
        let mut took = Vec::with_capacity(turn);
        // What the other scenes left in the caches is gone after a few.
        for _ in 0..turn / 10 {
            scene.step()?;
        }
        for _ in 0..turn {
            took.push(scene.step()? as f64);
        }
        self.mean.push(took.iter().sum::<f64>() / took.len() as f64);
        took.sort_by(f64::total_cmp);
        let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied();
        self.p50.push(at(0.5).unwrap_or(f64::NAN));
        self.p99.push(at(0.99).unwrap_or(f64::NAN));
        self.p999.push(at(0.999).unwrap_or(f64::NAN));
        self.most = self.most.max(took.last().copied().unwrap_or(0.0));
        Ok(())
    }
}

/// The median of the ratios within the rounds.
pub(crate) fn ratio(mine: &[f64], its: &[f64]) -> f64 {
    median(&mine.iter().zip(its).map(|(mine, its)| mine / its).collect::<Vec<f64>>())
}

/// Allocations and bytes of one decision, with what it gives and the end of it.
fn count_decisions(scene: &mut Scene) -> (Result<(), Box<dyn Error>>, f64, f64) {
    let (mut count, mut bytes) = (0, 0);
    for _ in 0..COUNTED {
        let (decided, made, size) = allocations(|| scene.ask());
        (count, bytes) = (count + made, bytes + size);
        if let Err(error) = decided {
            return (Err(error), f64::NAN, f64::NAN);
        }
    }
    (Ok(()), count as f64 / COUNTED as f64, bytes as f64 / COUNTED as f64)
}

/// What happens around decisions: settling, expiring, writing an event, and reading it back.
fn events() -> Result<(), Box<dyn Error>> {
    let size = Size { identities: 1000, agents: 10, holds: EVENTS, ..Size::LEAST };
    let mut table = Table::new(["one event", "ns", "allocations", "bytes of JSON"]);
    let mut row = |name: &str, ns: f64, made: f64, bytes: f64| {
        let bytes = if bytes > 0.0 { short(bytes) } else { String::new() };
        table.row([name.to_owned(), short(ns), short(made), bytes]);
    };
    let each = |from: Instant, count: usize| from.elapsed().as_nanos() as f64 / count as f64;
    let part = |all: u64, count: usize| all as f64 / count as f64;

    let mut scene = Scene::new(size)?;
    let mut decided: Vec<Event> = Vec::with_capacity(EVENTS);
    for _ in 0..EVENTS {
        decided.extend(scene.ask()?.events);
    }
    let (took, made, _) = allocations(|| -> Result<f64, Box<dyn Error>> {
        let took = (0..EVENTS).map(|_| scene.settle());
        Ok(took.sum::<Result<u64, _>>()? as f64 / EVENTS as f64)
    });
    row("settle a hold", took?, part(made, EVENTS), 0.0);

    let start = Instant::now();
    let ((held, expired), made, _) = allocations(|| scene.expire_all());
    row("expire a hold", each(start, held), part(made, held), 0.0);

    let start = Instant::now();
    let (written, made, _) = allocations(|| payloads(&decided));
    let (took, written) = (each(start, decided.len()), written?);
    let bytes = written.iter().map(String::len).sum::<usize>() as f64 / written.len() as f64;
    row("write a decision as JSON", took, part(made, written.len()), bytes);

    let start = Instant::now();
    let (read, made, _) = allocations(|| {
        for payload in &written {
            black_box(Effect::read("intent_decided", payload));
        }
    });
    row("read a decision from JSON", each(start, written.len()), part(made, written.len()), bytes);
    black_box(read);

    let mut governor = scene.empty()?;
    let start = Instant::now();
    let ((), made, _) = allocations(|| {
        for (event, payload) in decided.iter().zip(&written) {
            if let Some(Ok(effect)) = Effect::read("intent_decided", payload) {
                let about = event.about.clone();
                governor.apply(&Event { ts: event.ts, about, effect });
            }
        }
    });
    row(
        "fold a decision: read and apply",
        each(start, written.len()),
        part(made, written.len()),
        bytes,
    );

    let start = Instant::now();
    let (written, made, _) = allocations(|| payloads(&expired));
    let (took, written) = (each(start, held), written?);
    let bytes = written.iter().map(String::len).sum::<usize>() as f64 / held as f64;
    row("write an expiry as JSON, for each hold in it", took, part(made, held), bytes);

    let start = Instant::now();
    let (state, made, _) = allocations(|| governor.snapshot());
    let open = governor.open_holds();
    row("copy for a snapshot, for each open hold", each(start, open), part(made, open), 0.0);
    let start = Instant::now();
    let (text, made, _) = allocations(|| serde_json::to_vec(&state));
    let bytes = text?.len() as f64 / open as f64;
    row("write a snapshot, for each open hold", each(start, open), part(made, open), bytes);
    table.print();
    Ok(())
}

fn payloads(events: &[Event]) -> serde_json::Result<Vec<String>> {
    events.iter().map(|event| event.effect.payload()).collect()
}
