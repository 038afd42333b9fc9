//! Many recorded decisions: does serving slow down with them, and how soon does a restart answer?

use std::{error::Error, fs, path::Path, time::Duration};

use super::mix::APPROVED;
use crate::{
    curve::{Curve, Sheet},
    measure::{Table, count, median, quantile, short},
    serving::{
        child::{Server, folder},
        load::{CONNECTIONS, Target, saturate},
    },
};

/// How many events are stored in the end.
const EVENTS: u64 = 1_000_000;

/// How long the daemon serves between two looks at the bare handler, and how long that is looked at.
const STRETCH: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_secs(1);

/// How often a restart is timed, with the snapshot and without.
const RESTARTS: usize = 5;
const SLOW_RESTARTS: usize = 2;

/// Serves until there are so many events, and tells `look` how many there were and how many came a second.
fn fill(
    ours: &Server,
    mut look: impl FnMut(u64, f64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut stored = 0;
    while stored < EVENTS {
        let (answered, lasted) = saturate(&APPROVED.target(ours, CONNECTIONS), STRETCH, || ())?;
        let rate = answered.count as f64 / lasted.as_secs_f64();
        look(stored, rate)?;
        stored += answered.count.max(1);
    }
    Ok(())
}

/// Requests a second against the number of events that are stored, beside the bare handler.
pub(crate) fn throughput() -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    APPROVED.configure(place.path(), "process")?;
    let ours = Server::tollgate(&place.path().join("data"))?;
    let answers = place.path().join("answers");
    APPROVED.keep_answers(&ours, &answers)?;
    let bare = Server::bare_intents(&answers)?;
    let mut taken = Vec::new();
    fill(&ours, |stored, rate| {
        let target = APPROVED.target(&bare, CONNECTIONS);
        let (answered, lasted) = saturate(&target, LOOK, || ())?;
        taken.push((stored as f64, rate, answered.count as f64 / lasted.as_secs_f64()));
        Ok(())
    })?;
    ours.stop()?;
    println!("\n  POST /v1/intent by events that are stored\n");
    let mut table = Table::new(["events", "requests/s", "bare handler", "ratio"]);
    let mut ratios = Vec::new();
    for (stored, rate, bare) in &taken {
        ratios.push((stored.max(1000.0), rate / bare));
        table.row([count(*stored), short(*rate), short(*bare), short(rate / bare)]);
    }
    table.print();
    Sheet {
        title: "POST /v1/intent against a bare handler, by events in the ledger",
        across: "events in the ledger",
        up: "part of the bare handler's requests a second",
        from: (1e3, 0.1),
        to: (1e6, 1.0),
        curves: vec![Curve { name: "one pool, approved".to_owned(), points: ratios }],
    }
    .write("throughput-by-events.svg")
}

/// From the start of the process to the first answered intent, with so many decisions behind it.
pub(crate) fn restarts() -> Result<(), Box<dyn Error>> {
    println!("\n  With {EVENTS} decisions of the governor in the ledger\n");
    let place = folder()?;
    APPROVED.configure(place.path(), "process")?;
    let data = place.path().join("data");
    let ours = Server::tollgate(&data)?;
    fill(&ours, |_, _| Ok(()))?;
    ours.kill()?;
    let mut table = Table::new(["ms from its start", "runs", "intent", "worst", "target"]);
    let snapshot = data.join("governor.snapshot");
    let size = fs::metadata(&snapshot).map_or(0, |file| file.len());
    for (name, runs, with_snapshot) in
        [("with its snapshot", RESTARTS, true), ("snapshot deleted", SLOW_RESTARTS, false)]
    {
        let mut took = Vec::new();
        for _ in 0..runs {
            if !with_snapshot && snapshot.exists() {
                fs::remove_file(&snapshot)?;
            }
            took.push(restart(&data)?);
        }
        table.row([
            name.to_owned(),
            runs.to_string(),
            short(median(&took)),
            short(quantile(took, 1.0)),
            "< 1000".to_owned(),
        ]);
    }
    table.print();
    println!("  the snapshot: {} MB", short(size as f64 / 1e6));
    Ok(())
}

/// Milliseconds to the first answer; then it is killed, as a crash would.
fn restart(data: &Path) -> Result<f64, Box<dyn Error>> {
    let server = Server::tollgate(data)?;
    let Target { requests, .. } = APPROVED.target(&server, 1);
    let request = requests.first().ok_or("nothing to ask")?;
    let took = server.first_answer(request)?;
    server.kill()?;
    Ok(took.as_secs_f64() * 1e3)
}
