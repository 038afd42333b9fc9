//! Redaction of hostile input. Somebody who can send text must not be able to make it slow: eight
//! times as much of the same may take eight times as long, and not more.

use std::hint::black_box;

use serde_json::{Map, Value};
use tollgate_contract::redact;

use crate::measure::{Contender, ROUNDS, Table, race, short};

/// Each is [`FACTOR`] times the one before.
const SIZES: [usize; 3] = [8 << 10, 64 << 10, 512 << 10];
const FACTOR: f64 = 8.0;

/// Above this the time per byte grows with the input, whatever the noise.
const LINEAR_BELOW: f64 = 2.0;

/// Above this there is no doubt, and the next size would only take its time.
const CERTAIN_FROM: f64 = 6.0;

const NOTES: &str = "
  `growth` is the time per byte over that of the size before: 1 is linear, and 8 is quadratic. A growth
  that does not go on is a step, such as a search that changes its method where a match gets too long;
  the last one counts. After a growth of 6 the next size is left out: it would take very long.";

/// Makes an input of about this many bytes.
type Make = fn(usize) -> Input;

enum Input {
    Text(String),
    Json(Value),
}

impl Input {
    fn redact(&self) {
        match self {
            Self::Text(text) => {
                black_box(redact::redact_text(black_box(text)));
            }
            Self::Json(value) => {
                black_box(redact::redacted(black_box(value)));
            }
        }
    }
}

const SHAPES: [(&str, Make); 15] = [
    ("`password=` …", |size| repeat("password=", size)),
    ("`password=\"` …", |size| repeat("password=\"", size)),
    ("`-----BEGIN X-----` …", |size| repeat("-----BEGIN X-----", size)),
    ("`\"` …", |size| repeat("\"", size)),
    ("`\\` …", |size| repeat("\\", size)),
    ("`password=\"`, then `\\\"` …", |size| behind("password=\"", "\\\"", size)),
    ("`a=` …", |size| repeat("a=", size)),
    ("`://u:` …", |size| repeat("://u:", size)),
    ("`://u:`, then `a@` …", |size| behind("://u:", "a@", size)),
    ("`eyJ` …", |size| repeat("eyJ", size)),
    ("`[redacted:` …", |size| repeat("[redacted:", size)),
    ("`bearer ` …", |size| repeat("bearer ", size)),
    ("a key in what may yet be a token …", key_in_token),
    ("a quote behind very many backslashes", deep_quote),
    ("an object whose keys are all secrets", secret_keys),
];

fn repeat(piece: &str, size: usize) -> Input {
    behind("", piece, size)
}

fn behind(start: &str, piece: &str, size: usize) -> Input {
    Input::Text(start.to_owned() + &piece.repeat(size / piece.len().max(1)))
}

/// Every piece starts like a JSON web token, whose end only the end of the text decides, and holds a
/// key of another format, which is found at once.
fn key_in_token(size: usize) -> Input {
    let piece = format!("ey{}-AK{}{}-", "J", "IA", "0123456789ABCDEF");
    repeat(&piece, size)
}

/// The quote opens behind half of the text in backslashes, and the other half nearly closes it.
fn deep_quote(size: usize) -> Input {
    let half = "\\".repeat(size / 2);
    Input::Text(format!("password={half}\"x{}", "\\".repeat(size / 2 - 1)))
}

/// All keys are replaced by the same placeholder and have to be told apart.
fn secret_keys(size: usize) -> Input {
    let entry = |number: usize| (format!("tg_{}_{number:010}", "key"), Value::Null);
    let entries: Map<String, Value> = (0..size / 25).map(entry).collect();
    Input::Json(Value::Object(entries))
}

/// Times every shape in every size, two sizes at a time.
pub(crate) fn section() {
    println!("\n3. Redaction of hostile input, {ROUNDS} rounds: ns/byte by size\n");
    let mut table = Table::new(["", "8 KiB", "64 KiB", "growth", "512 KiB", "growth", ""]);
    for (name, make) in SHAPES {
        let [small, middle, large] = SIZES;
        let first = Step::time(make, small, middle);
        let (second, last) = if first.growth < CERTAIN_FROM {
            let second = Step::time(make, middle, large);
            ([short(second.to), short(second.growth)], second.growth)
        } else {
            (["-".to_owned(), "-".to_owned()], first.growth)
        };
        let [to, growth] = second;
        let word = if last < LINEAR_BELOW { "linear" } else { "NOT LINEAR" };
        table.row([
            name.to_owned(),
            short(first.from),
            short(first.to),
            short(first.growth),
            to,
            growth,
            word.to_owned(),
        ]);
    }
    table.print();
    println!("{NOTES}");
}

/// From one size to the next, in nanoseconds a byte.
struct Step {
    from: f64,
    to: f64,
    growth: f64,
}

impl Step {
    fn time(make: Make, from: usize, to: usize) -> Self {
        let inputs = [make(from), make(to)];
        let contenders = inputs.iter().map(|input| Contender::new("", || input.redact()));
        let timings = race(contenders.collect());
        let [small, large] = timings.as_slice() else {
            return Self { from: f64::NAN, to: f64::NAN, growth: f64::NAN };
        };
        Self {
            from: small.ns() / from as f64,
            to: large.ns() / to as f64,
            growth: large.times(small) / FACTOR,
        }
    }
}
