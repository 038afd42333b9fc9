//! What agents remember: search by words in one large session and in one of a thousand, against a plain table of
//! FTS5; search by vectors against a full scan; and how fast records are stored.

use std::{error::Error, fmt::Write, hint::black_box, path::Path, time::Instant};

use rusqlite::{Connection, params};
use tollgate_contract::id::MemoryId;
use tollgate_memory::{Limits, Memory, NewRecord, Query};

use crate::{
    measure::{Contender, Table, Timing, count, percent, race, short},
    serving::child::folder,
};

/// How many records there are in all.
const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

/// How many sessions they are spread over, where they are.
const SESSIONS: usize = 1_000;

/// Words in a record.
const LENGTH: usize = 40;

/// Different words. The word of rank n is 1/n times as frequent as the first, as in any language.
const VOCABULARY: usize = 50_000;

/// Questions: the ranks of their words.
const QUESTIONS: [(&str, &[usize]); 4] = [
    ("telling words", &[1_900, 2_400, 3_100]),
    ("words of one record in a hundred", &[290, 330, 370]),
    ("one telling word and common ones", &[2_000, 3, 5, 8, 12, 20]),
    ("common words alone", &[3, 5, 8]),
];

/// How many records one transaction stores at most.
const TOGETHER: usize = 100;

/// Numbers in a vector, and how many vectors there are.
const DIMENSION: usize = 384;
const VECTORS: [usize; 2] = [10_000, 100_000];

/// How many groups of similar vectors there are.
const GROUPS: usize = 200;

const MODEL: &str = "bench";

const WORD_NOTES: &str = "
  `FTS5` is a plain table with the texts and their session, `MATCH … AND session = …`, ranked by its bm25() over
  everything. `rows` is how many records the search gave. Times are of searches that were made before: the file is in
  the system's cache.";

const VECTOR_NOTES: &str = "
  The full scan has all vectors in memory in single precision, and only adds up and picks the ten best; the search
  also reads the hundred best in full and the ten records. `found` is how many of the true ten best it found.";

/// Times all three.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\n21. Memory: search by words, 10 records wanted, 21 interleaved rounds\n");
    let mut table = Table::new(["", "µs", "spread", "time", "rows"]);
    let mut ingest = Table::new(["", "records/s", "MB"]);
    for size in SIZES {
        words(size, &mut table, &mut ingest)?;
    }
    one_by_one(&mut ingest)?;
    table.print();
    println!("{WORD_NOTES}\n\n  Storing\n");
    ingest.print();
    println!(
        "\n22. Memory: search by vectors of {DIMENSION} numbers, 10 records wanted, 21 interleaved rounds\n"
    );
    let mut table = Table::new(["", "µs", "spread", "time", "found"]);
    let mut first = Table::new(["", "vectors/s stored", "first search, ms"]);
    for size in VECTORS {
        vectors(size, &mut table, &mut first)?;
    }
    table.print();
    println!("{VECTOR_NOTES}\n");
    first.print();
    Ok(())
}

fn words(size: usize, table: &mut Table, ingest: &mut Table) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    let one = filled(&place.path().join("one.db"), size, 1, ingest)?;
    let many = filled(&place.path().join("many.db"), size, SESSIONS, ingest)?;
    let plain_one = plain(&place.path().join("plain-one.db"), size, 1, ingest)?;
    let plain_many = plain(&place.path().join("plain-many.db"), size, SESSIONS, ingest)?;
    for (title, ranks) in QUESTIONS {
        let text = ranks.iter().map(|rank| word(*rank)).collect::<Vec<_>>().join(" ");
        let matched = ranks.iter().map(|rank| format!("\"{}\"", word(*rank)));
        let matched = matched.collect::<Vec<_>>().join(" OR ");
        // In the middle: neither the first nor the last that was stored.
        let (all, part) = (session(0), session(SESSIONS / 2));
        let rows = [
            found(&one, &all, &text)?,
            matching(&plain_one, &all, &matched)?,
            found(&many, &part, &text)?,
            matching(&plain_many, &part, &matched)?,
        ];
        let timings = race(vec![
            Contender::new("  one session", || _ = black_box(found(&one, &all, &text))),
            Contender::new("  one session, FTS5", || {
                _ = black_box(matching(&plain_one, &all, &matched));
            }),
            Contender::new("  one of 1,000 sessions", || {
                _ = black_box(found(&many, &part, &text));
            }),
            Contender::new("  one of 1,000 sessions, FTS5", || {
                _ = black_box(matching(&plain_many, &part, &matched));
            }),
        ]);
        table.heading(&format!("{size} records, {title}"));
        print_rows(table, &timings, &rows.map(|rows| rows.to_string()));
    }
    Ok(())
}

fn print_rows(table: &mut Table, timings: &[Timing], last: &[String]) {
    let Some(first) = timings.first() else { return };
    for (timing, last) in timings.iter().zip(last) {
        table.row([
            timing.name.clone(),
            short(timing.ns() / 1e3),
            percent(timing.spread()),
            format!("× {}", short(timing.times(first))),
            last.clone(),
        ]);
    }
}

/// A memory with so many records, in turn for each of the sessions.
fn filled(
    file: &Path,
    size: usize,
    sessions: usize,
    ingest: &mut Table,
) -> Result<Memory, Box<dyn Error>> {
    fill(file, size, sessions, TOGETHER.min(size / sessions), ingest)
}

/// Stores each record by itself, as an agent does.
fn one_by_one(ingest: &mut Table) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    fill(&place.path().join("single.db"), 10_000, 1, 1, ingest)?;
    Ok(())
}

fn fill(
    file: &Path,
    size: usize,
    sessions: usize,
    together: usize,
    ingest: &mut Table,
) -> Result<Memory, Box<dyn Error>> {
    let limits = Limits { records_per_session: u64::MAX, ..Limits::default() };
    let memory = Memory::open_with(file, limits)?;
    let mut texts = Texts::new();
    let mut spent = 0.0;
    for batch in 0..size / together {
        let records: Vec<NewRecord> =
            (0..together).map(|number| texts.record(batch * together + number)).collect();
        let start = Instant::now();
        memory.add(&session(batch % sessions), &records)?;
        spent += start.elapsed().as_secs_f64();
    }
    let title = format!("{size} records, {sessions} sessions, {together} at once");
    row(ingest, title, size as f64 / spent, file)?;
    Ok(memory)
}

/// The same texts in a plain table.
fn plain(
    file: &Path,
    size: usize,
    sessions: usize,
    ingest: &mut Table,
) -> Result<Connection, Box<dyn Error>> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.execute_batch(
        "CREATE VIRTUAL TABLE plain USING fts5 (text, session UNINDEXED, tokenize = 'porter unicode61')",
    )?;
    let together = TOGETHER.min(size / sessions);
    let mut texts = Texts::new();
    let mut spent = 0.0;
    for batch in 0..size / together {
        let records: Vec<NewRecord> =
            (0..together).map(|number| texts.record(batch * together + number)).collect();
        let start = Instant::now();
        let change = connection.unchecked_transaction()?;
        let mut insert = change.prepare_cached("INSERT INTO plain VALUES (?1, ?2)")?;
        for record in &records {
            insert.execute(params![record.text, session(batch % sessions)])?;
        }
        drop(insert);
        change.commit()?;
        spent += start.elapsed().as_secs_f64();
    }
    let title = format!("{size} records, {sessions} sessions, FTS5");
    row(ingest, title, size as f64 / spent, file)?;
    Ok(connection)
}

fn row(ingest: &mut Table, title: String, rate: f64, file: &Path) -> Result<(), Box<dyn Error>> {
    let megabytes = std::fs::metadata(file)?.len() as f64 / 1e6;
    ingest.row([title, count(rate), short(megabytes)]);
    Ok(())
}

fn found(memory: &Memory, session: &str, text: &str) -> Result<usize, Box<dyn Error>> {
    let query = Query { session: Some(session), text, limit: 10, ..Query::default() };
    Ok(memory.search(&query)?.len())
}

fn matching(plain: &Connection, session: &str, matched: &str) -> Result<usize, Box<dyn Error>> {
    let sql = "SELECT text FROM plain WHERE plain MATCH ?1 AND session = ?2 ORDER BY rank LIMIT 10";
    let mut query = plain.prepare_cached(sql)?;
    let rows = query.query_map(params![matched, session], |row| row.get::<_, String>(0))?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?.len())
}

fn session(number: usize) -> String {
    format!("session-{number}")
}

/// The word of this rank. No stemmer changes what ends so.
fn word(rank: usize) -> String {
    let mut word = String::from("q");
    let mut rest = rank;
    while rest > 0 {
        word.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    word.push('k');
    word
}

/// Texts whose words are as frequent as in a language. The same every time.
struct Texts {
    random: Random,
    /// Up to which part of one each rank reaches.
    reach: Vec<f64>,
}

impl Texts {
    fn new() -> Self {
        let mut sum = 0.0;
        let mut reach: Vec<f64> = (1..=VOCABULARY)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        reach.iter_mut().for_each(|part| *part /= sum);
        Self { random: Random(0x9e37_79b9_7f4a_7c15), reach }
    }

    fn record(&mut self, number: usize) -> NewRecord {
        let mut text = String::new();
        for _ in 0..LENGTH {
            let part = self.random.part();
            let rank = self.reach.partition_point(|reach| *reach < part) + 1;
            _ = write!(text, "{} ", word(rank));
        }
        let mut random = [0; 10];
        if let Some(tail) = random.last_chunk_mut::<8>() {
            *tail = (number as u64).to_be_bytes();
        }
        NewRecord {
            id: MemoryId::from_parts(1_700_000_000_000, random),
            text,
            tags: Vec::new(),
            turn: number as u64,
            at_ms: 1_700_000_000_000,
        }
    }
}

/// Numbers that are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn vectors(size: usize, table: &mut Table, first: &mut Table) -> Result<(), Box<dyn Error>> {
    let place = folder()?;
    let memory = Memory::open(&place.path().join("memory.db"))?;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let groups: Vec<Vec<f32>> = (0..GROUPS).map(|_| direction(&mut random, None)).collect();
    let mut texts = Texts::new();
    let (mut scanned, mut spent) = (Vec::with_capacity(size * DIMENSION), 0.0);
    for batch in 0..size / 1_000 {
        let records: Vec<NewRecord> =
            (0..1_000).map(|number| texts.record(batch * 1_000 + number)).collect();
        let ids = memory.add("one", &records)?.ids;
        let vectors = ids.into_iter().enumerate();
        let vectors: Vec<(MemoryId, Vec<f32>)> = vectors
            .map(|(number, id)| (id, direction(&mut random, groups.get(number % GROUPS))))
            .collect();
        vectors.iter().for_each(|(_, vector)| scanned.extend(vector));
        let start = Instant::now();
        memory.set_vectors(MODEL, &vectors)?;
        spent += start.elapsed().as_secs_f64();
    }
    let questions: Vec<Vec<f32>> =
        (0..20).map(|number| direction(&mut random, groups.get(number * 7))).collect();
    let start = Instant::now();
    nearest(&memory, questions.first().ok_or("no question")?)?;
    let made = start.elapsed().as_secs_f64() * 1e3;
    first.row([format!("{size} vectors"), count(size as f64 / spent), short(made)]);
    let mut right = 0;
    for question in &questions {
        let true_best = scan(&scanned, question);
        right += nearest(&memory, question)?.iter().filter(|one| true_best.contains(one)).count();
    }
    let mut turn = questions.iter().cycle();
    let mut turns = questions.iter().cycle();
    let timings = race(vec![
        Contender::new("  full scan", || _ = black_box(turn.next().map(|one| scan(&scanned, one)))),
        Contender::new("  search", || _ = black_box(turns.next().map(|one| nearest(&memory, one)))),
    ]);
    table.heading(&format!("{size} vectors"));
    let share = percent(right as f64 / (questions.len() * 10) as f64);
    print_rows(table, &timings, &[percent(1.0), share]);
    Ok(())
}

/// A vector of length one, near to another or anywhere.
fn direction(random: &mut Random, near: Option<&Vec<f32>>) -> Vec<f32> {
    let mut anywhere = || random.part() as f32 * 2.0 - 1.0;
    let mut vector: Vec<f32> = match near {
        // A group's own vector has numbers of about 0.05.
        Some(near) => near.iter().map(|number| number + anywhere() * 0.04).collect(),
        None => (0..DIMENSION).map(|_| anywhere()).collect(),
    };
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|number| *number /= length);
    vector
}

/// The turns of the ten nearest records.
fn nearest(memory: &Memory, question: &[f32]) -> Result<Vec<u64>, Box<dyn Error>> {
    let vector = Some((MODEL, question));
    let query = Query { session: Some("one"), vector, limit: 10, ..Query::default() };
    Ok(memory.search(&query)?.iter().map(|found| found.turn).collect())
}

/// The ten nearest by looking at all.
fn scan(vectors: &[f32], question: &[f32]) -> Vec<u64> {
    let mut near: Vec<(f32, u64)> = vectors
        .chunks_exact(DIMENSION)
        .zip(0..)
        .map(|(vector, number)| (product(vector, question), number))
        .collect();
    near.select_nth_unstable_by(9, |one, other| other.0.total_cmp(&one.0));
    near.into_iter().take(10).map(|(_, number)| number).collect()
}

/// In sixteen sums, so that the compiler can use the processor's registers.
fn product(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (one, other) in one.as_chunks::<16>().0.iter().zip(other.as_chunks::<16>().0) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    sums.iter().sum()
}
