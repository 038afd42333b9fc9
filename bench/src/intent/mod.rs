//! `POST /v1/intent` of the daemon, every decision recorded before its answer, against a bare handler that
//! reads the same body into a struct and writes an answer of the same size.
//!
//! Both are processes of their own; the load goes to one of them at a time, in turns.

pub(crate) mod history;
pub(crate) mod mix;

use std::{collections::BTreeMap, error::Error, fs, path::Path, time::Duration};

use crate::{
    measure::{Table, median, percent, quantile, short, spread},
    serving::{
        child::{Server, cpu_of, folder},
        load::{CONNECTIONS, paced, saturate},
    },
};
use mix::{APPROVED, MIXED, Mix};

/// How often each server gets its turn, and how long it is.
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(3);

/// The same where answers leave by a timetable.
const PACED_ROUNDS: usize = 5;
const PACED_TURN: Duration = Duration::from_millis(1500);

const NOTES: &str = "
  Targets: at least 0.7 of the bare handler's requests a second, and a p99 of at most twice its own at the
  same rate, half of the daemon's most. Ratios are medians of the ratios within the rounds, `from` and `to`
  the lowest and the highest. CPU is of the server, for one request; `load` is what making the load takes
  of the same cores, for one request. Latencies count from the moment that the timetable gives, whatever
  kept the request from leaving; `sent` is the p99 from when it really left. `answers` are approvals, waits
  and denials, of a sample.";

/// Times both mixes.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n9. POST /v1/intent: {CONNECTIONS} keep-alive connections on loopback, sync = \"process\", {ROUNDS} interleaved rounds of {} s",
        TURN.as_secs()
    );
    for mix in [&APPROVED, &MIXED] {
        compare(mix)?;
    }
    println!("{NOTES}");
    Ok(())
}

fn compare(mix: &Mix) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    mix.configure(place.path(), "process")?;
    let data = place.path().join("data");
    let ours = Server::tollgate(&data)?;
    let answers = place.path().join("answers");
    mix.keep_answers(&ours, &answers)?;
    let bare = Server::bare_intents(&answers)?;
    let (mut our_most, mut bare_most) = (Most::default(), Most::default());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            our_most.take(&ours, mix, CONNECTIONS)?;
            bare_most.take(&bare, mix, CONNECTIONS)?;
        } else {
            bare_most.take(&bare, mix, CONNECTIONS)?;
            our_most.take(&ours, mix, CONNECTIONS)?;
        }
    }
    println!("\n  {}\n", mix.title);
    most_table(&[
        ("bare handler", &bare_most, &bare_most, ""),
        ("tollgate", &our_most, &bare_most, "≥ 0.70"),
    ]);
    println!("\n  CPU by thread, µs for one request: {}\n", our_most.by_thread());
    latencies(mix, &ours, &bare, (median(&our_most.rates), median(&bare_most.rates)))?;
    println!("  the ledger's log after that: {} MB", log_size(&data) / 1_000_000);
    ours.stop()
}

fn log_size(data: &Path) -> u64 {
    fs::metadata(data.join("tollgate.db-wal")).map_or(0, |log| log.len())
}

/// The most that a server gave, in each of its turns.
#[derive(Default)]
struct Most {
    rates: Vec<f64>,
    /// Microseconds of the server's processors for one request, and of the load's.
    cpu: Vec<f64>,
    load: Vec<f64>,
    threads: BTreeMap<String, Duration>,
    count: u64,
    words: [u64; 3],
}

impl Most {
    fn take(
        &mut self,
        server: &Server,
        mix: &Mix,
        connections: usize,
    ) -> Result<(), Box<dyn Error>> {
        let mut before = None;
        let look = || -> Result<_, Box<dyn Error>> {
            Ok((server.cpu()?, server.cpu_by_thread()?, cpu_of("self")?))
        };
        let begin = || before = look().ok();
        let (answered, lasted) = saturate(&mix.target(server, connections), TURN, begin)?;
        let (cpu, threads, load) = look()?;
        let (cpu_before, threads_before, load_before) = before.ok_or("the server is gone")?;
        let each = |spent: Duration| spent.as_secs_f64() * 1e6 / answered.count as f64;
        self.rates.push(answered.count as f64 / lasted.as_secs_f64());
        self.cpu.push(each(cpu.saturating_sub(cpu_before)));
        self.load.push(each(load.saturating_sub(load_before)));
        for (name, spent) in threads {
            let before = threads_before.get(&name).copied().unwrap_or_default();
            *self.threads.entry(name).or_default() += spent.saturating_sub(before);
        }
        self.count += answered.count;
        for (mine, its) in self.words.iter_mut().zip(answered.words) {
            *mine += its;
        }
        Ok(())
    }

    fn answers(&self) -> String {
        let all = self.words.iter().sum::<u64>().max(1) as f64;
        self.words.map(|word| percent(word as f64 / all)).join(" / ")
    }

    fn by_thread(&self) -> String {
        let each = |spent: &Duration| spent.as_secs_f64() * 1e6 / self.count.max(1) as f64;
        let mut threads: Vec<_> = self.threads.iter().map(|(name, s)| (name, each(s))).collect();
        threads.sort_by(|one, other| other.1.total_cmp(&one.1));
        let shown = threads.iter().filter(|(_, us)| *us >= 0.01);
        shown.map(|(name, us)| format!("{name} {}", short(*us))).collect::<Vec<_>>().join(", ")
    }
}

/// A row for each, set against the second of its pair.
fn most_table(rows: &[(&str, &Most, &Most, &str)]) {
    let mut table = Table::new([
        "the most",
        "requests/s",
        "spread",
        "CPU µs",
        "load µs",
        "ratio",
        "from",
        "to",
        "target",
        "answers",
    ]);
    for (name, most, beside, target) in rows {
        let pairs = most.rates.iter().zip(&beside.rates);
        let ratios: Vec<f64> = pairs.map(|(mine, its)| mine / its).collect();
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(&most.rates)),
            percent(spread(&most.rates)),
            short(median(&most.cpu)),
            short(median(&most.load)),
            short(median(&ratios)),
            short(quantile(ratios.clone(), 0.0)),
            short(quantile(ratios, 1.0)),
            (*target).to_owned(),
            most.answers(),
        ]);
    }
    table.print();
}

/// How long answers took, by round, in microseconds.
#[derive(Default)]
struct Latency {
    p50: Vec<f64>,
    p99: Vec<f64>,
    p999: Vec<f64>,
    sent: Vec<f64>,
}

/// How long answers take at half of the daemon's most, and the bare handler's at the same rate and at half
/// of its own most.
fn latencies(
    mix: &Mix,
    ours: &Server,
    bare: &Server,
    (our_most, bare_most): (f64, f64),
) -> Result<(), Box<dyn Error>> {
    let rows = [
        ("bare handler, half of its own", bare, bare_most / 2.0),
        ("bare handler, tollgate's rate", bare, our_most / 2.0),
        ("tollgate, half of its own", ours, our_most / 2.0),
    ];
    let mut taken = rows.each_ref().map(|_| Latency::default());
    for _ in 0..PACED_ROUNDS {
        for ((_, server, rate), latency) in rows.iter().zip(&mut taken) {
            let took = paced(&mix.target(server, CONNECTIONS), *rate, PACED_TURN)?;
            let at = |sorted: &[u64], part: f64| {
                let place = (sorted.len() as f64 * part) as usize;
                sorted.get(place).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
            };
            latency.p50.push(at(&took.scheduled, 0.5));
            latency.p99.push(at(&took.scheduled, 0.99));
            latency.p999.push(at(&took.scheduled, 0.999));
            latency.sent.push(at(&took.answered, 0.99));
        }
    }
    let mut table = Table::new([
        "at half of the most",
        "requests/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "p99 spread",
        "sent",
        "p99 × same rate",
        "from",
        "to",
        "p99 × own half",
        "target",
    ]);
    let [own, same, _] = &taken;
    for ((name, server, rate), latency) in rows.iter().zip(&taken) {
        let of = |its: &Latency| -> Vec<f64> {
            latency.p99.iter().zip(&its.p99).map(|(mine, its)| mine / its).collect()
        };
        let at_same = of(same);
        let target = if std::ptr::eq(*server, ours) { "≤ 2.0" } else { "" };
        table.row([
            (*name).to_owned(),
            format!("{rate:.0}"),
            short(median(&latency.p50)),
            short(median(&latency.p99)),
            short(median(&latency.p999)),
            percent(spread(&latency.p99)),
            short(median(&latency.sent)),
            short(median(&at_same)),
            short(quantile(at_same.clone(), 0.0)),
            short(quantile(at_same, 1.0)),
            short(median(&of(own))),
            target.to_owned(),
        ]);
    }
    table.print();
    Ok(())
}

/// How many connections ask where every commit waits for the disk.
const MANY: usize = 256;

/// What durability against the loss of power costs.
pub(crate) fn full() -> Result<(), Box<dyn Error>> {
    println!(
        "\n12. POST /v1/intent with {MANY} connections: sync = \"full\" against sync = \"process\", {ROUNDS} interleaved rounds\n"
    );
    let mix = &APPROVED;
    let places = [folder()?, folder()?];
    let mut servers = Vec::new();
    for (place, sync) in places.iter().zip(["process", "full"]) {
        mix.configure(place.path(), sync)?;
        servers.push((Server::tollgate(&place.path().join("data"))?, Most::default()));
    }
    for _ in 0..ROUNDS {
        for (server, most) in &mut servers {
            most.take(server, mix, MANY)?;
        }
    }
    if let [(_, process), (_, full)] = servers.as_slice() {
        most_table(&[
            ("sync = \"process\"", process, process, ""),
            ("sync = \"full\"", full, process, "≥ 0.50"),
        ]);
    }
    for (server, _) in servers {
        server.stop()?;
    }
    Ok(())
}
