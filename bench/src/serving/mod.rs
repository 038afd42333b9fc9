//! The gate over HTTP against a bare handler of the same stack that parses the same body and writes the
//! same bytes.
//!
//! Both servers are processes of their own and run all the time; the load is made here and goes to one
//! of them at a time, in turns.

mod answer;
pub(crate) mod bare;
pub(crate) mod child;
pub(crate) mod load;

use std::{error::Error, fs, path::Path, time::Duration};

use crate::measure::{Table, median, percent, quantile, short, spread};
use child::{Server, call, folder, key, manifest};
use load::{CONNECTIONS, once, paced, saturate};

/// How often each server gets its turn.
const ROUNDS: usize = 9;

/// How long one turn is.
const TURN: Duration = Duration::from_millis(1500);

const NOTES: &str = "
  Targets, which the design sets for a call that is recorded before its answer: at least 0.7 of the bare
  handler's requests a second, and a p99 of at most twice its own, at half of the most.
  Ratios are medians of the ratios within the rounds; `from` and `to` are the lowest and the highest of
  them. CPU is the server's own, user and system, for one request; the load takes its share of the same
  cores beside it. Latencies are of a timetable that does not wait for answers; they are set against the
  bare handler's at the same rate, and against its own at half of its most, where it is as busy.";

/// Times all of it.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n4. Serving: {CONNECTIONS} keep-alive connections on loopback, {ROUNDS} interleaved rounds"
    );
    let place = folder()?;
    let data = place.path().join("data");
    let ours = Server::tollgate(&data)?;
    let key = key(&data)?;
    let answers = [("call", call(&key)), ("manifest", manifest())];
    let mut files = Vec::new();
    for (name, request) in &answers {
        let file = place.path().join(name);
        fs::write(&file, once(&ours.target(request.clone()))?)?;
        files.push(file);
    }
    let [call_file, manifest_file] = files.as_slice() else { return Err("two answers".into()) };
    let bare = Server::bare(call_file, manifest_file)?;
    let titles = ["POST /v1/tools/system.time/call, recorded", "GET /api/contracts/tools, no key"];
    for (title, (_, request)) in titles.into_iter().zip(answers) {
        compare(title, &request, &ours, &bare, &data)?;
    }
    println!("{NOTES}");
    ours.stop()
}

/// One request, to both.
fn compare(
    title: &str,
    request: &[u8],
    ours: &Server,
    bare: &Server,
    data: &Path,
) -> Result<(), Box<dyn Error>> {
    let (mut our_most, mut bare_most) = (Most::default(), Most::default());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            our_most.take(ours, request)?;
            bare_most.take(bare, request)?;
        } else {
            bare_most.take(bare, request)?;
            our_most.take(ours, request)?;
        }
    }
    println!("\n  {title}\n");
    let mut table =
        Table::new(["the most", "requests/s", "spread", "CPU µs", "ratio", "from", "to", "target"]);
    let one = vec![1.0; ROUNDS];
    let ratios: Vec<f64> =
        our_most.rates.iter().zip(&bare_most.rates).map(|(mine, its)| mine / its).collect();
    for (name, most, ratios, target) in
        [("bare handler", &bare_most, &one, ""), ("tollgate", &our_most, &ratios, "≥ 0.70")]
    {
        table.row([
            name.to_owned(),
            format!("{:.0}", median(&most.rates)),
            percent(spread(&most.rates)),
            short(median(&most.cpu)),
            short(median(ratios)),
            short(quantile(ratios.clone(), 0.0)),
            short(quantile(ratios.clone(), 1.0)),
            target.to_owned(),
        ]);
    }
    table.print();
    latencies(request, ours, bare, (median(&our_most.rates), median(&bare_most.rates)))?;
    let log = fs::metadata(data.join("tollgate.db-wal")).map_or(0, |log| log.len());
    println!("  the ledger's log after that: {} MB", log / 1_000_000);
    Ok(())
}

/// The most that a server gave, in each of its turns.
#[derive(Default)]
struct Most {
    rates: Vec<f64>,
    /// Microseconds of the server's processors for one request.
    cpu: Vec<f64>,
}

impl Most {
    fn take(&mut self, server: &Server, request: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut before = None;
        let begin = || before = server.cpu().ok();
        let (answered, lasted) = saturate(&server.target(request.to_vec()), TURN, begin)?;
        let cpu = server.cpu()?.saturating_sub(before.ok_or("the server is gone")?);
        let answered = answered.count;
        self.rates.push(answered as f64 / lasted.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() * 1e6 / answered as f64);
        Ok(())
    }
}

/// How long answers take at half of the most: ours, the bare handler's at the same rate, and the bare
/// handler's at half of its own most.
fn latencies(
    request: &[u8],
    ours: &Server,
    bare: &Server,
    (our_most, bare_most): (f64, f64),
) -> Result<(), Box<dyn Error>> {
    let rows = [
        ("bare handler, half of its own", bare, bare_most / 2.0),
        ("bare handler, tollgate's rate", bare, our_most / 2.0),
        ("tollgate, half of its own", ours, our_most / 2.0),
    ];
    let mut taken = rows.each_ref().map(|_| (Vec::new(), Vec::new()));
    for _ in 0..ROUNDS {
        for ((_, server, rate), (halves, most)) in rows.iter().zip(&mut taken) {
            let took = paced(&server.target(request.to_vec()), *rate, TURN)?.answered;
            let took: Vec<f64> = took.into_iter().map(|ns| ns as f64 / 1e3).collect();
            halves.push(quantile(took.clone(), 0.5));
            most.push(quantile(took, 0.99));
        }
    }
    println!();
    let [(_, own), (_, same), _] = &taken;
    let mut table = Table::new([
        "at half of the most",
        "requests/s",
        "p50 µs",
        "p99 µs",
        "spread",
        "p99 × same rate",
        "from",
        "to",
        "p99 × own half",
        "target",
    ]);
    for ((name, server, rate), (p50, p99)) in rows.iter().zip(&taken) {
        let of = |its: &[f64]| -> Vec<f64> {
            p99.iter().zip(its).map(|(mine, its)| mine / its).collect()
        };
        let at_same_rate = of(same);
        let target = if std::ptr::eq(*server, ours) { "≤ 2.0" } else { "" };
        table.row([
            (*name).to_owned(),
            format!("{rate:.0}"),
            short(median(p50)),
            short(median(p99)),
            percent(spread(p99)),
            short(median(&at_same_rate)),
            short(quantile(at_same_rate.clone(), 0.0)),
            short(quantile(at_same_rate, 1.0)),
            short(median(&of(own))),
            target.to_owned(),
        ]);
    }
    table.print();
    Ok(())
}
