//! Documents to work on, the same in every run: JSON records and logs, without and with secrets.
//!
//! The secrets are made up while the benchmark runs. None stands in this file, so that no scanner
//! takes the repository for a leak.

use serde_json::{Map, Value, json};

/// A small generator with a fixed seed (SplitMix64): every run sees the same documents.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let place = self.below(words.len() as u64) as usize;
        words.get(place).copied().unwrap_or_default()
    }

    fn sentence(&mut self, words: usize) -> String {
        let words: Vec<&str> = (0..words).map(|_| self.pick(WORDS)).collect();
        words.join(" ")
    }

    /// `length` letters and digits.
    fn key(&mut self, length: usize) -> String {
        let all = ('a'..='z').chain('A'..='Z').chain('0'..='9');
        let all: Vec<char> = all.collect();
        let mut one = || all.get(self.below(all.len() as u64) as usize).copied();
        (0..length).filter_map(|_| one()).collect()
    }
}

const WORDS: &[&str] = &[
    "the", "market", "opened", "lower", "after", "a", "quiet", "night", "and", "traders", "waited",
    "for", "numbers", "from", "Berlin", "rain", "is", "likely", "to", "last", "until", "morning",
    "volume", "stayed", "thin", "über", "prices", "moved", "by", "two", "cents", "on", "weak",
    "news", "models", "agree", "that", "supply", "will", "recover",
];

/// Does a document hold secrets?
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Secrets {
    None,
    /// One in eight records or lines.
    Some,
}

/// JSON of about `size` bytes: an object with a list of records, as tools give and take them.
pub(crate) fn json(size: usize, secrets: Secrets) -> Value {
    let mut random = Random(1);
    let mut records = Vec::new();
    let mut written = 0;
    while written < size {
        let has_secret = secrets == Secrets::Some && records.len() % 8 == 1;
        let record = Value::Object(record(&mut random, has_secret));
        written += record.to_string().len() + 1;
        records.push(record);
    }
    json!({ "records": records })
}

fn record(random: &mut Random, has_secret: bool) -> Map<String, Value> {
    let mut record = Map::new();
    let mut add = |name: &str, value: Value| record.insert(name.to_owned(), value);
    add("id", format!("rec-{:06}", random.below(1_000_000)).into());
    add("venue", random.pick(&["kalshi", "polymarket", "paper"]).into());
    add("quantity", random.below(10_000).into());
    add("price", (random.below(100_000) as f64 / 1000.0).into());
    add("active", (random.below(2) == 0).into());
    add("note", random.sentence(9).into());
    add("tags", json!([random.pick(WORDS), random.pick(WORDS)]));
    let (feed, sequence) = (random.pick(WORDS), random.below(1 << 40));
    add("source", json!({ "feed": feed, "sequence": sequence, "next": null }));
    if has_secret {
        let name = random.pick(&["apiKey", "password", "accessToken"]);
        add(name, random.key(24).into());
    }
    record
}

/// A log of about `size` bytes, with lines of prose between its lines of fields.
pub(crate) fn log(size: usize, secrets: Secrets) -> String {
    let mut random = Random(2);
    let mut text = String::with_capacity(size + 256);
    for number in 0.. {
        if text.len() >= size {
            break;
        }
        if secrets == Secrets::Some && number % 8 == 1 {
            text.push_str(&secret_line(&mut random));
        } else {
            text.push_str(&plain_line(&mut random, number));
        }
        text.push('\n');
    }
    text
}

fn plain_line(random: &mut Random, number: u64) -> String {
    let (second, milli) = (number / 1000 % 60, number % 1000);
    let took = random.below(900);
    match random.below(4) {
        0 => random.sentence(14),
        1 => format!(
            "2026-03-14T09:26:{second:02}.{milli:03}Z  INFO gate: call finished tool=world.read status=ok took={took}ms"
        ),
        2 => format!(
            "2026-03-14T09:26:{second:02}.{milli:03}Z  WARN upstream: GET https://api.example.com/v2/markets?limit={took} answered 429, {}",
            random.sentence(4)
        ),
        _ => format!(
            r#"{{"level":"debug","at":{number},"tool":"market.read","message":"{}"}}"#,
            random.sentence(6)
        ),
    }
}

/// A line with a secret of one of the shapes that are known.
fn secret_line(random: &mut Random) -> String {
    let key = random.key(40);
    match random.below(6) {
        0 => format!("sent Authorization: Bearer {key}"),
        1 => format!("connecting with user=reader password={key} to the ledger"),
        2 => format!("found gh{}{key} in the environment", "p_"),
        3 => format!("cloning https://bot:{key}@git.example.com/acme/rules"),
        4 => format!(r#"{{"tool":"vault.read","clientSecret":"{key}"}}"#),
        _ => format!("session ey{}{key}.ey{}{key}.{key} opened", "J", "J"),
    }
}
