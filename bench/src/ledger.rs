//! Appending to the ledger against the plainest loop of inserts into the same table: no chain, no
//! hashes, one thread that already has everything, 64 rows in a transaction.

use std::{
    error::Error,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use serde_json::value::RawValue;
use tollgate_ledger::{Ledger, Sync};

use crate::{
    measure::{Table, count, median, percent, quantile, short, spread},
    sample::{self, EVENTS, Sample},
    serving::child::folder,
};

const ROUNDS: usize = 9;

/// How many threads hand events over, and how many each may have under way.
const PRODUCERS: usize = 4;
const UNDER_WAY: usize = 64;

/// Rows in one transaction of the loop to compare with.
const TOGETHER: usize = 64;

/// The table that the ledger has.
const TABLE: &str = "CREATE TABLE events (
    seq INTEGER PRIMARY KEY, ts INTEGER NOT NULL, kind TEXT NOT NULL, agent_id TEXT, identity_id TEXT,
    workload_id TEXT, scope_id TEXT, tool TEXT, intent_id TEXT, payload TEXT NOT NULL,
    prev_hash BLOB NOT NULL, hash BLOB NOT NULL) STRICT;";

/// Times both, durable against the process's death and against the machine's.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    let sample = Sample::new();
    let mut payloads = Vec::new();
    for number in 0..1000 {
        payloads.extend(sample.payloads(number)?);
    }
    let bytes = payloads.iter().map(|payload| payload.get().len()).sum::<usize>() / payloads.len();
    println!(
        "\n5. Ledger: {PRODUCERS} threads with {UNDER_WAY} events under way each, payloads of {bytes} bytes on average, {ROUNDS} interleaved rounds\n"
    );
    let mut table = Table::new(["", "events/s", "µs/event", "spread", "ratio", "from", "to"]);
    for (title, sync, level, events) in [
        ("sync = \"process\"", Sync::Process, "normal", 20_000),
        ("sync = \"full\"", Sync::Full, "full", 6_000),
    ] {
        table.heading(title);
        compare(&mut table, &payloads, (sync, level), events)?;
    }
    table.print();
    println!(
        "\n  `ratio` is events a second as a part of the plain loop's. An event is acknowledged when its commit\n  is done; the loop waits for nothing else. Each commit of the ledger holds what came in meanwhile."
    );
    Ok(())
}

fn compare(
    table: &mut Table,
    payloads: &[Box<RawValue>],
    (sync, level): (Sync, &str),
    events: usize,
) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    let ledger = Ledger::open(&place.path().join("data"), sync)?;
    let mut plain = Plain::open(&place.path().join("plain.db"), level)?;
    let (mut ours, mut base) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let its = plain.run(payloads, events)?;
        let mine = append(&ledger, payloads, events)?;
        // The first round only warms up.
        if round > 0 {
            base.push(events as f64 / its.as_secs_f64());
            ours.push(events as f64 / mine.as_secs_f64());
        }
    }
    let ratios: Vec<f64> = ours.iter().zip(&base).map(|(mine, its)| mine / its).collect();
    for (name, rates, ratios) in [
        ("  plain inserts, 64 together, no hashes", &base, vec![1.0; ROUNDS]),
        ("  Ledger::append_then", &ours, ratios),
    ] {
        table.row([
            name.to_owned(),
            count(median(rates)),
            short(1e6 / median(rates)),
            percent(spread(rates)),
            short(median(&ratios)),
            short(quantile(ratios.clone(), 0.0)),
            short(quantile(ratios, 1.0)),
        ]);
    }
    Ok(())
}

/// Appends so many events, and gives how long it took until the last was acknowledged.
fn append(
    ledger: &Ledger,
    payloads: &[Box<RawValue>],
    events: usize,
) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|_| scope.spawn(|| produce(ledger, payloads, events / PRODUCERS)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a producer panicked")??;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(start.elapsed())
}

fn produce(ledger: &Ledger, payloads: &[Box<RawValue>], events: usize) -> Result<(), String> {
    let (done, acknowledged) = mpsc::channel();
    let wait = || -> Result<(), String> {
        let stored: Result<(), String> = acknowledged.recv().map_err(|error| error.to_string())?;
        stored
    };
    let made = payloads.iter().zip(EVENTS.iter().cycle()).cycle().take(events);
    for (number, (payload, kind)) in made.enumerate() {
        if number >= UNDER_WAY {
            wait()?;
        }
        let event = sample::event(*kind, 1, payload).map_err(|error| error.to_string())?;
        let done = done.clone();
        ledger.append_then(vec![event], move |result| {
            let _ = done.send(result.map(drop).map_err(|error| error.to_string()));
        });
    }
    (0..events.min(UNDER_WAY)).try_for_each(|_| wait())
}

/// The loop to compare with.
struct Plain {
    connection: Connection,
    seq: i64,
}

impl Plain {
    fn open(file: &Path, level: &str) -> Result<Self, Box<dyn Error>> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", level)?;
        connection.execute_batch(TABLE)?;
        Ok(Self { connection, seq: 0 })
    }

    fn run(
        &mut self,
        payloads: &[Box<RawValue>],
        events: usize,
    ) -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        let mut left = payloads.iter().zip(EVENTS.iter().cycle()).cycle().take(events).peekable();
        while left.peek().is_some() {
            let change = self.connection.transaction()?;
            {
                let mut insert = change.prepare_cached(
                    "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?;
                for (payload, kind) in left.by_ref().take(TOGETHER) {
                    self.seq += 1;
                    let none: Option<&str> = None;
                    let kind = kind.ledger_kind().unwrap_or_default();
                    insert.execute(params![
                        self.seq,
                        1,
                        kind,
                        "admin",
                        none,
                        sample::TOOL,
                        none,
                        sample::TOOL,
                        none,
                        payload.get(),
                        [0_u8; 32],
                        [0_u8; 32],
                    ])?;
                }
            }
            change.commit()?;
        }
        Ok(start.elapsed())
    }
}
