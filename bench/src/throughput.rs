//! Strict parsing, hashing and redaction in MB/s, over documents of three sizes, each against the
//! plainest thing that does part of the work: serde_json, serde_json and SHA-256, and one look at
//! every byte.

use std::{borrow::Cow, error::Error, hint::black_box};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tollgate_contract::{input_hash, json, redact};

use crate::{
    documents::{self, Secrets},
    measure::{Contender, Table, Timing, percent, race, short},
};

const SIZES: [(&str, usize); 3] = [("1 KiB", 1 << 10), ("64 KiB", 1 << 16), ("1 MiB", 1 << 20)];

const NOTES: &str = "
  `speed` is a part of the baseline's speed over the same bytes: 1 is as fast as it.
  Strict parsing also refuses repeated keys, unsafe integers and deep nesting; serde_json is built with
  the product's features (order of keys, exact floats). The input hash also checks, redacts, sorts keys
  and writes numbers in one way, where its baseline only writes and hashes. The baseline of redaction
  counts one byte value: the least that looks at everything, a mark to measure from and no alternative.
  Where there are secrets, every eighth line or record has one. JSON counts by its bytes when written.";

/// Times all of it.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\n2. Throughput\n");
    let mut table = Table::new(["", "MB/s", "ns", "spread", "speed"]);
    for (label, size) in SIZES {
        let clean = Document::new(size, Secrets::None);
        let dirty = Document::new(size, Secrets::Some);
        clean.check(Secrets::None)?;
        dirty.check(Secrets::Some)?;
        for duel in duels(&clean, &dirty) {
            table.heading(&format!("{label}: {}", duel.title));
            duel.run(&mut table);
        }
    }
    table.print();
    println!("{NOTES}");
    Ok(())
}

/// One document in all the forms that are worked on.
struct Document {
    value: Value,
    bytes: Vec<u8>,
    log: String,
}

impl Document {
    fn new(size: usize, secrets: Secrets) -> Self {
        let value = documents::json(size, secrets);
        Self { bytes: value.to_string().into_bytes(), value, log: documents::log(size, secrets) }
    }

    /// Is the document what its row will say: readable, and with secrets or without?
    fn check(&self, secrets: Secrets) -> Result<(), Box<dyn Error>> {
        if json::parse(&self.bytes)? != self.value {
            return Err("a document does not read back as it was".into());
        }
        input_hash(&self.value)?;
        let log_changes = matches!(redact::redact_text(&self.log), Cow::Owned(_));
        let json_changes = matches!(redact::redacted(&self.value), Cow::Owned(_));
        let wanted = secrets == Secrets::Some;
        if log_changes != wanted || json_changes != wanted {
            return Err(
                "a document has secrets where it should not, or none where it should".into()
            );
        }
        Ok(())
    }
}

/// A function of ours and its baseline, over the same bytes.
struct Duel<'a> {
    title: &'static str,
    bytes: usize,
    /// The baseline comes last.
    contenders: Vec<Contender<'a>>,
}

fn duels<'a>(clean: &'a Document, dirty: &'a Document) -> Vec<Duel<'a>> {
    vec![
        Duel {
            title: "parse",
            bytes: clean.bytes.len(),
            contenders: vec![
                Contender::new("json::parse", || {
                    let _ = black_box(json::parse(black_box(&clean.bytes)));
                }),
                Contender::new("serde_json::from_slice", || {
                    let _ = black_box(serde_json::from_slice::<Value>(black_box(&clean.bytes)));
                }),
            ],
        },
        Duel {
            title: "hash of a value",
            bytes: clean.bytes.len(),
            contenders: vec![
                Contender::new("input_hash", || {
                    let _ = black_box(input_hash(black_box(&clean.value)));
                }),
                Contender::new("serde_json::to_vec + SHA-256", || {
                    black_box(plain_hash(black_box(&clean.value)));
                }),
            ],
        },
        redaction("redaction, text without secrets", &clean.log),
        redaction("redaction, text with secrets", &dirty.log),
        json_redaction("redaction, JSON without secrets", clean),
        json_redaction("redaction, JSON with secrets", dirty),
    ]
}

fn redaction<'a>(title: &'static str, text: &'a str) -> Duel<'a> {
    Duel {
        title,
        bytes: text.len(),
        contenders: vec![
            Contender::new("redact::redact_text", || {
                black_box(redact::redact_text(black_box(text)));
            }),
            byte_scan(text.as_bytes()),
        ],
    }
}

fn json_redaction<'a>(title: &'static str, document: &'a Document) -> Duel<'a> {
    Duel {
        title,
        bytes: document.bytes.len(),
        contenders: vec![
            Contender::new("redact::redacted", || {
                black_box(redact::redacted(black_box(&document.value)));
            }),
            byte_scan(&document.bytes),
        ],
    }
}

fn plain_hash(value: &Value) -> [u8; 32] {
    // A `Value` can always be written.
    let written = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(&written).into()
}

fn byte_scan(bytes: &[u8]) -> Contender<'_> {
    Contender::new("byte scan", move || {
        black_box(black_box(bytes).iter().filter(|byte| **byte == b'=').count());
    })
}

impl Duel<'_> {
    fn run(self, table: &mut Table) {
        let bytes = self.bytes as f64;
        let timings: Vec<Timing> = race(self.contenders);
        let Some(baseline) = timings.last() else {
            return;
        };
        for timing in &timings {
            table.row([
                format!("  {}", timing.name),
                short(bytes / timing.ns() * 1e3),
                short(timing.ns()),
                percent(timing.spread()),
                format!("× {}", short(1.0 / timing.times(baseline))),
            ]);
        }
    }
}
