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
        table.row([
            name.to_owned(),
            short(median(&self.health)),
            short(quantile(self.health.clone(), 1.0)),
            short(median(&self.call)),
            short(quantile(self.call.clone(), 1.0)),
            format!("< {target_ms:.0}"),
            short(quantile(self.health.clone(), 1.0) / target_ms),
        ]);
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
        connection.exchange(&target.request).map_err(|error| error.to_string())?;
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
    let mut table = Table::new(START_HEAD);
    let mut log_left = 0;
    // Without the file of the queries last: what was begun of it then is not the whole of it.
    for with_queries in [true, false] {
        let (mut clean, mut killed) = (Starts::default(), Starts::default());
        for _ in 0..RESTARTS {
            let prepare = || if with_queries { Ok(()) } else { remove(&queries) };
            prepare()?;
            let server = clean.take(&data)?;
            leave_log(&server, &data)?;
            server.kill()?;
            log_left = size("tollgate.db-wal");
            if log_left == 0 {
                return Err("a killed daemon left no log behind".into());
            }
            prepare()?;
            killed.take(&data)?.stop()?;
        }
        let file = if with_queries { "queries.db there" } else { "queries.db deleted" };
        clean.row(&mut table, &format!("stopped, {file}"), 1000.0);
        killed.row(&mut table, &format!("killed, {file}"), 1000.0);
    }
    table.print();
    println!("\n  the log that the last killed daemon left: {:.1} MB", log_left as f64 / 1e6);
    Ok(())
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
    let start = Instant::now();
    if !ledger.queries()?.wait_for(EVENTS_BEHIND, Duration::from_secs(600)) {
        return Err("the queries did not catch up".into());
    }
    println!("  queries.db made from them in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Makes calls, so that there is something in the log when the daemon is killed.
fn leave_log(server: &Server, data: &Path) -> Result<(), Box<dyn Error>> {
    let target = server.target(call(&key(data)?));
    crate::serving::load::saturate(&target, Duration::from_millis(700), || ())?;
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
