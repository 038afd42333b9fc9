//! How long a commit takes at a fixed rate, from handing work over to being told that it is stored, and what the
//! whole write path costs of the processor's time.
//!
//! `cargo run --release -p tollgate-ledger --example commits -- [events a second] [seconds] [most] [queries] [full] [slow] [retire] [beside]`:
//! without `queries` nobody follows the ledger; with `full` each commit waits for the disk; with `slow` the slowest
//! are listed; with `retire` most events are retired half way; with `beside` something is kept and
//! forgotten with each batch. A rate of 0 is as fast as it goes, with about `most` events under way.

use std::{
    error::Error,
    fs,
    sync::mpsc,
    time::{Duration, Instant},
};

use tollgate_contract::event::Event;
use tollgate_ledger::{
    Appended, Batch, Beside, Ledger, LedgerError, NewEvent, Subject, Sync, Work,
};

/// Work with events of about 500 bytes each, and when it was handed over.
struct Timed {
    events: Vec<NewEvent>,
    beside: Vec<Beside>,
    begun: Instant,
    told: mpsc::Sender<(Instant, Duration, Result<(), LedgerError>)>,
}

impl Work for Timed {
    fn make(&mut self) -> Batch {
        Batch { events: std::mem::take(&mut self.events), beside: std::mem::take(&mut self.beside) }
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        let _ = self.told.send((self.begun, self.begun.elapsed(), result.map(drop)));
    }
}

fn event(number: u64) -> NewEvent {
    let subject = Subject {
        agent_id: Some(format!("agent-{}", number % 50).into()),
        identity_id: Some(format!("idn_{:016x}", number % 20).into()),
        workload_id: Some("github.search".into()),
        scope_id: Some("org/repository".into()),
        tool: None,
        intent_id: Some(format!("int_{number:032x}").into()),
    };
    let amount = number % 7;
    let payload = format!(
        r#"{{"decision":"approve","urgency":"normal","route":"github","pools":[{{"pool":"github:core","key":"idn_{:016x}","amount":{amount},"left":{number},"window":"2026-11-15T12:00:00.000Z"}},{{"pool":"github:search","key":"idn_{:016x}","amount":1,"left":29,"window":"2026-11-15T12:19:00.000Z"}}],"hold":"hold_{number:032x}","expires":1794745189023}}"#,
        number % 20,
        number % 20,
    );
    let ts = 1_794_745_189_023 + i64::try_from(number / 20).unwrap_or_default();
    NewEvent::from_json(Event::IntentDecided, ts, subject, payload).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

/// Keeps something, and forgets what was kept a while ago.
fn beside(number: u64) -> Vec<Beside> {
    let key = |number: u64| number.to_be_bytes().to_vec();
    let put = Beside::Put { space: "s", key: key(number), value: vec![7; 100], expires_ms: None };
    vec![put, Beside::Delete { space: "s", key: key(number.saturating_sub(8)) }]
}

/// One of those that were made before, so that the making does not count.
fn sample(samples: &[NewEvent], number: u64) -> NewEvent {
    let place = usize::try_from(number).unwrap_or_default() % samples.len().max(1);
    samples.get(place).cloned().unwrap_or_else(|| event(number))
}

/// Milliseconds of the processor that this process, or one of its threads, has used.
fn cpu(stat: &std::path::Path) -> Option<f64> {
    let text = fs::read_to_string(stat).ok()?;
    let behind = text.rsplit(')').next()?;
    let mut fields = behind.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) * 10.0)
}

fn threads() -> Vec<(String, f64)> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            Some((name.trim().to_owned(), cpu(&task.path().join("stat"))?))
        })
        .collect()
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((last * part).round() as usize).copied().unwrap_or_default()
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, unless: u64| -> u64 {
        asked.get(place).and_then(|text| text.parse().ok()).unwrap_or(unless)
    };
    let (rate, seconds, most) = (number(0, 20_000), number(1, 20), number(2, 256));
    let has = |word: &str| asked.iter().any(|one| one == word);
    let sync = if has("full") { Sync::Full } else { Sync::Process };
    let folder = std::path::Path::new("target").join(format!("commits-{}", std::process::id()));
    let ledger = Ledger::open(&folder, sync)?;
    let queries = if has("queries") { Some(ledger.queries()?) } else { None };

    let (told, tell) = mpsc::channel();
    let start = Instant::now();
    let collecting = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for (begun, took, result) in tell {
            if let Err(error) = result {
                eprintln!("{error}");
            }
            seen.push((begun, took));
        }
        seen
    });
    let samples: Vec<_> = (0..1000).map(event).collect();
    let mut sent = 0_u64;
    let mut size = 1;
    let mut retired = !has("retire");
    while start.elapsed() < Duration::from_secs(seconds) {
        if !retired && start.elapsed() > Duration::from_secs(seconds) / 2 {
            retired = true;
            let ledger = ledger.clone();
            std::thread::spawn(move || {
                let through = ledger.head().seq.saturating_sub(1000);
                if let Err(error) = ledger.retire(0, through, |_| "{}".to_owned()) {
                    eprintln!("{error}");
                }
            });
        }
        size = size % 8 + 1;
        let due = (sent * 1_000_000).checked_div(rate).map(Duration::from_micros);
        match due {
            Some(due) => {
                if let Some(early) = due.checked_sub(start.elapsed()) {
                    std::thread::sleep(early);
                }
            }
            None => {
                while sent.saturating_sub(ledger.head().seq) > most {
                    std::thread::yield_now();
                }
            }
        }
        let events = (sent..sent + size).map(|number| sample(&samples, number)).collect();
        let beside = if has("beside") { beside(sent) } else { Vec::new() };
        let timed = Timed { events, beside, begun: Instant::now(), told: told.clone() };
        ledger.work(Box::new(timed));
        sent += size;
    }
    drop(told);
    let seen = collecting.join().map_err(|_| "the collecting thread panicked")?;
    let took = start.elapsed();
    let threads = threads();
    let caught = Instant::now();
    if let Some(queries) = &queries {
        queries.wait_for(ledger.head().seq, Duration::from_secs(600));
        println!("queries caught up {:.2} s later", caught.elapsed().as_secs_f64());
    }
    let all = cpu(std::path::Path::new("/proc/self/stat")).unwrap_or_default();
    println!(
        "{sent} events in {:.2} s, {:.0} a second; {:.2} µs of the processor each",
        took.as_secs_f64(),
        sent as f64 / took.as_secs_f64(),
        all * 1000.0 / sent as f64
    );
    for (name, ms) in threads {
        println!("  {name:<16} {:>6.2} µs an event", ms * 1000.0 / sent as f64);
    }
    let mut times: Vec<_> = seen.iter().map(|(_, took)| *took).collect();
    times.sort();
    println!(
        "p50 {:.2?}  p99 {:.2?}  p99.9 {:.2?}  max {:.2?}",
        quantile(&times, 0.5),
        quantile(&times, 0.99),
        quantile(&times, 0.999),
        quantile(&times, 1.0)
    );
    if has("slow") {
        let mut last = Duration::ZERO;
        for (begun, took) in seen.iter().filter(|(_, took)| *took > Duration::from_millis(3)) {
            let at = begun.duration_since(start);
            if at > last + Duration::from_millis(30) {
                println!("  slow at {:.3} s: {:.2?}", at.as_secs_f64(), took);
                last = at;
            }
        }
    }
    println!("the first event is {}", ledger.reader()?.first_seq()?);
    let log = fs::metadata(folder.join("tollgate.db-wal"))?.len();
    println!("the log has {} MiB", log / (1024 * 1024));
    drop((queries, ledger));
    fs::remove_dir_all(&folder)?;
    Ok(())
}
