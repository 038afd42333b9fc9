//! The daemon's life seen from outside: how soon it answers, how much memory it takes, and how soon it
//! answers again with a million events behind it.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tollgate_ledger::{Ledger, Sync};

use crate::{
    measure::{Table, median, quantile, short},
    sample::{self, EVENTS, Sample},
    serving::{
        child::{Server, call, folder, health, key},
        load::Connection,
    },
};

/// How often a start is timed.
const STARTS: usize = 15;

/// How often a start with many events is timed, in each of its cases.
const RESTARTS: usize = 5;

/// How many events those are.
const EVENTS_BEHIND: u64 = 1_000_000;

/// How many calls are made before the memory is looked at again.
const CALLS: usize = 10_000;

/// How long the daemon is left alone before its memory is looked at.
const REST: Duration = Duration::from_secs(2);

/// Milliseconds from the start of the process to the first answered health, and to the first answered
/// call.
#[derive(Default)]
struct Starts {
    health: Vec<f64>,
    call: Vec<f64>,
}

impl Starts {
    /// Starts the daemon and takes the times.
    fn take(&mut self, data: &Path) -> Result<Server, Box<dyn Error>> {
        let server = Server::tollgate(data)?;
        let until_health = server.first_answer(&health())?;
        let until_call = server.first_answer(&call(&key(data)?))?;
        self.health.push(until_health.as_secs_f64() * 1e3);
        self.call.push(until_call.as_secs_f64() * 1e3);
        Ok(server)
    }

    fn row(&self, table: &mut Table, name: &str, target_ms: f64) {
        table.row(self.cells(name, target_ms));
    }

    fn cells(&self, name: &str, target_ms: f64) -> [String; 7] {
        [
            name.to_owned(),
            short(median(&self.health)),
            short(quantile(self.health.clone(), 1.0)),
            short(median(&self.call)),
            short(quantile(self.call.clone(), 1.0)),
            format!("< {target_ms:.0}"),
            short(quantile(self.health.clone(), 1.0) / target_ms),
        ]
    }
}

const START_HEAD: [&str; 7] =
    ["ms from its start", "health", "worst", "call", "worst", "target", "worst / target"];

/// From the start of the process to its first answer.
pub(crate) fn starts() -> Result<(), Box<dyn Error>> {
    println!("\n6. Start to first answer, {STARTS} runs each, median and worst\n");
    let place = folder()?;
    let mut table = Table::new(START_HEAD);
    let (mut empty, mut existing) = (Starts::default(), Starts::default());
    for number in 0..STARTS {
        let data = place.path().join(format!("data-{number}"));
        empty.take(&data)?.stop()?;
        existing.take(&data)?.stop()?;
    }
    empty.row(&mut table, "an empty folder", 200.0);
    existing.row(&mut table, "an existing folder", 200.0);
    table.print();
    Ok(())
}

/// What the daemon holds when nobody asks anything of it.
pub(crate) fn memory() -> Result<(), Box<dyn Error>> {
    println!("\n7. Memory of the idle daemon, in MB\n");
    let place = folder()?;
    let data = place.path().join("data");
    let server = Server::tollgate(&data)?;
    server.first_answer(&health())?;
    let mut table =
        Table::new(["", "VmRSS", "of it its own", "highest", "target", "VmRSS / target"]);
    let mut row = |name: &str, server: &Server| -> Result<(), Box<dyn Error>> {
        thread::sleep(REST);
        let megabytes = |name| Ok::<_, Box<dyn Error>>(server.memory(name)? as f64 * 1024.0 / 1e6);
        let resident = megabytes("VmRSS")?;
        table.row([
            name.to_owned(),
            short(resident),
            short(megabytes("RssAnon")?),
            short(megabytes("VmHWM")?),
            "< 60".to_owned(),
            short(resident / 60.0),
        ]);
        Ok(())
    };
    row("after the start", &server)?;
    let target = server.target(call(&key(&data)?));
    let mut connection = Connection::open(&target).map_err(|error| error.to_string())?;
    for _ in 0..CALLS {
        connection.exchange(target.request(0)).map_err(|error| error.to_string())?;
    }
    drop(connection);
    row("after 10,000 calls, one by one", &server)?;
    crate::serving::load::saturate(&target, Duration::from_secs(3), || ())?;
    row("after 3 s of 64 connections", &server)?;
    table.print();
    server.stop()
}

/// How soon it answers with a million events in the ledger.
pub(crate) fn restarts() -> Result<(), Box<dyn Error>> {
    println!("\n8. Restart with {EVENTS_BEHIND} events in the ledger, {RESTARTS} runs each\n");
    let place = folder()?;
    let data = place.path().join("data");
    fill(&data)?;
    // A first start makes the key.
    Starts::default().take(&data)?.stop()?;
    let queries = data.join("queries.db");
    let size = |name: &str| fs::metadata(data.join(name)).map_or(0, |file| file.len());
    println!(
        "  tollgate.db {} MB, queries.db {} MB\n",
        size("tollgate.db") / 1_000_000,
        size("queries.db") / 1_000_000
    );
    let cases =
        [(End::Stopped, true), (End::Killed, true), (End::Stopped, false), (End::Killed, false)];
    let mut taken = cases.map(|_| (Starts::default(), Vec::new()));
    for _ in 0..RESTARTS {
        for ((end, with_queries), (starts, logs)) in cases.into_iter().zip(&mut taken) {
            // Every case begins with a ledger that is all in its database, so that none inherits the
            // log of the one before.
            drop(Ledger::open(&data, Sync::Process)?);
            leave_behind(&data, end)?;
            if !with_queries {
                remove(&queries)?;
            }
            logs.push(size("tollgate.db-wal") as f64 / 1e6);
            let server = starts.take(&data)?;
            server.stop()?;
            if !with_queries {
                // The next case needs the whole of it again.
                catch_up(&data)?;
            }
        }
    }
    let mut table = Table::new([
        "ms from its start",
        "log before, MB",
        "most",
        "health",
        "worst",
        "call",
        "worst",
        "target",
        "worst / target",
    ]);
    for ((end, with_queries), (starts, logs)) in cases.into_iter().zip(&taken) {
        let end = if end == End::Stopped { "stopped" } else { "killed" };
        let file = if with_queries { "queries.db there" } else { "queries.db deleted" };
        let [name, rest @ ..] = starts.cells(&format!("{end}, {file}"), 1000.0);
        let log = [short(median(logs)), short(quantile(logs.clone(), 1.0))];
        let mut row = vec![name];
        row.extend(log.into_iter().chain(rest));
        table.row_of(row);
    }
    table.print();
    crate::intent::history::restarts()
}

/// How a daemon ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    Killed,
}

/// Lets a daemon serve calls for a moment and end like this.
fn leave_behind(data: &Path, end: End) -> Result<(), Box<dyn Error>> {
    let server = Server::tollgate(data)?;
    let target = server.target(call(&key(data)?));
    crate::serving::load::saturate(&target, Duration::from_millis(700), || ())?;
    match end {
        End::Stopped => server.stop(),
        End::Killed => server.kill(),
    }
}

/// Makes the file of the queries whole.
fn catch_up(data: &Path) -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::open(data, Sync::Process)?;
    let queries = ledger.queries()?;
    if queries.wait_for(ledger.head().seq, Duration::from_secs(600)) {
        Ok(())
    } else {
        Err("the queries did not catch up".into())
    }
}

/// Makes so many events, and the file that queries are answered from.
fn fill(data: &Path) -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::open(data, Sync::Process)?;
    let sample = Sample::new();
    let start = Instant::now();
    let (done, acknowledged) = mpsc::channel();
    // A thousand events a commit, and a few commits under way.
    let together = 500;
    let mut under_way = 0;
    for first in (0..EVENTS_BEHIND / 2).step_by(together) {
        let mut batch = Vec::new();
        for number in first..first + together as u64 {
            for (kind, payload) in EVENTS.into_iter().zip(sample.payloads(number)?) {
                batch.push(sample::event(kind, i64::try_from(number)?, &payload)?);
            }
        }
        let done = done.clone();
        ledger.append_then(batch, move |result| {
            let _ = done.send(result.map(drop));
        });
        under_way += 1;
        if under_way > 4 {
            acknowledged.recv()??;
            under_way -= 1;
        }
    }
    for _ in 0..under_way {
        acknowledged.recv()??;
    }
    println!("  events made in {:.1} s", start.elapsed().as_secs_f64());
    drop(ledger);
    let start = Instant::now();
    catch_up(data)?;
    println!("  queries.db made from them in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Removes the file of the queries and what the database keeps beside it.
fn remove(queries: &Path) -> Result<(), Box<dyn Error>> {
    for suffix in ["-wal", "-shm", ""] {
        let mut name = queries.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
