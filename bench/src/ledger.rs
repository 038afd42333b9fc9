//! Appending to the ledger against the plainest loop of inserts into the same table: no chain, no
//! hashes, one thread that already has everything, 64 rows in a transaction.

use std::{error::Error, path::Path, sync::mpsc, thread, time::Instant};

use rusqlite::{Connection, params};
use serde_json::value::RawValue;
use tollgate_ledger::{Ledger, Sync};

use crate::{
    measure::{Table, count, median, percent, quantile, short, spread},
    sample::{self, EVENTS, Sample},
    serving::child::folder,
};

const ROUNDS: usize = 5;

/// How many events one turn stores.
const TURN: usize = 100_000;

/// How many threads hand events over, and how many each may have under way.
const PRODUCERS: usize = 4;
const UNDER_WAY: usize = 64;

/// Rows in one transaction of the loop to compare with; and as many as the ledger could have under way.
const TOGETHER: [usize; 2] = [64, PRODUCERS * UNDER_WAY];

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
    for (title, sync, level) in
        [("sync = \"process\"", Sync::Process, "normal"), ("sync = \"full\"", Sync::Full, "full")]
    {
        table.heading(title);
        compare(&mut table, &payloads, sync, level)?;
    }
    table.print();
    println!("{NOTES}");
    Ok(())
}

const NOTES: &str = "
  `ratio` is events a second as a part of the first loop's. Every turn has files of its own and lasts until
  they are closed with everything in the database: what the ledger leaves to another thread, moving the
  log, counts for it too. A ratio above 1 is no free hash: the ledger has a second core, and larger commits
  than the first loop. What a full commit costs is the disk's; see how far the two levels are apart here.";

fn compare(
    table: &mut Table,
    payloads: &[Box<RawValue>],
    sync: Sync,
    level: &str,
) -> Result<(), Box<dyn Error>> {
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (which, rates) in rates.iter_mut().enumerate() {
            let place = folder()?;
            let start = Instant::now();
            match TOGETHER.get(which) {
                Some(together) => {
                    Plain::open(&place.path().join("plain.db"), level)?.run(payloads, *together)?;
                }
                None => append(&Ledger::open(&place.path().join("data"), sync)?, payloads)?,
            }
            // The first round only warms up.
            if round > 0 {
                rates.push(TURN as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    let [base, ..] = &rates;
    let names =
        ["  plain inserts, 64 together", "  plain inserts, 256 together", "  Ledger::append_then"];
    for (name, rates) in names.into_iter().zip(&rates) {
        let ratios: Vec<f64> = rates.iter().zip(base).map(|(mine, its)| mine / its).collect();
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

/// Appends the events of a turn, and waits until the last is acknowledged.
fn append(ledger: &Ledger, payloads: &[Box<RawValue>]) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|_| scope.spawn(|| produce(ledger, payloads, TURN / PRODUCERS)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a producer panicked")??;
        }
        Ok(())
    })
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

    fn run(&mut self, payloads: &[Box<RawValue>], together: usize) -> Result<(), Box<dyn Error>> {
        let mut left = payloads.iter().zip(EVENTS.iter().cycle()).cycle().take(TURN).peekable();
        while left.peek().is_some() {
            let change = self.connection.transaction()?;
            {
                let mut insert = change.prepare_cached(
                    "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?;
                for (payload, kind) in left.by_ref().take(together) {
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
        Ok(())
    }
}
