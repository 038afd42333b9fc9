//! Text for people: quoting what a caller sent, and guessing what was meant.

use std::fmt;

use serde::Serialize;

use crate::{name::ToolName, redact::redact_text};

/// How much of a caller's own text an error repeats.
const QUOTE_LIMIT: usize = 80;

/// How much of a longer message, such as an upstream's, is passed on.
const CLEAN_LIMIT: usize = 2_000;

/// Text that came from outside and is about to be shown in an error, a log line or an event.
///
/// It is redacted (people do paste keys where a tool name belongs), cut to a readable length and has
/// its control characters escaped, so that it can neither leak a secret nor forge a second line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quoted(String);

impl Quoted {
    /// Makes `text` fit to be shown.
    pub fn new(text: &str) -> Self {
        Self(shown(text, QUOTE_LIMIT))
    }

    /// The text, safe to show.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `text` redacted, then cut to `limit` characters, with control characters escaped.
fn shown(text: &str, limit: usize) -> String {
    // Redaction comes before the cut, so that the cut cannot hide the shape of a secret from it.
    // A text far beyond the limit is cut first: its tail is not shown, whatever it holds.
    let head: String = text.chars().take(limit * 50).collect();
    let clean = redact_text(&head);
    let mut shown = String::with_capacity(clean.len().min(limit + 8));
    for (at, c) in clean.chars().enumerate() {
        if at == limit {
            shown.push('…');
            break;
        }
        if is_plain(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

/// Characters shown as they are. Control and bidirectional formatting characters are not: a terminal
/// or a page would act on them.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl From<&ToolName> for Quoted {
    /// A canonical name is short, plain and public: it is shown as it is.
    fn from(name: &ToolName) -> Self {
        Self(name.as_str().to_owned())
    }
}

impl From<&str> for Quoted {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Quoted {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

/// A longer message from outside, such as an upstream's error: redacted, bounded and on one line, but
/// not put into quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Clean(String);

impl Clean {
    /// Makes `text` fit to be shown.
    pub fn new(text: &str) -> Self {
        Self(shown(text, CLEAN_LIMIT))
    }

    /// Takes over a sentence of our own, whose outside parts went through [`Quoted`] already. Redacting
    /// the whole again could take our own words for a secret's name and value.
    pub fn already(sentence: String) -> Self {
        Self(sentence)
    }

    /// The text, safe to show.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Clean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Clean {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Clean {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

/// The candidate most like `word`, if one is near enough to be worth naming.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Edit distance is quadratic; nobody misspells a name of this length.
    let length = word.chars().count();
    if length > 128 {
        return None;
    }
    let reach = |candidate: &str| (length.max(candidate.len()) / 4).max(1);
    candidates
        .into_iter()
        // Names of very different length are far apart, and that is cheap to know.
        .filter(|candidate| length.abs_diff(candidate.len()) <= reach(candidate))
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= reach(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The message of a deserialiser in words that a person who does not know Rust understands.
pub fn plain_shape(message: &str) -> String {
    if message == "expected value" {
        return "expected a word in quotes".to_owned();
    }
    message
        .replace("unknown variant", "unknown word")
        .replace("invalid type: ", "wrong type: ")
        .replace("expected u64", "expected a whole number from 0")
}

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| bytes.chunks(HEX_PIECE).try_for_each(|piece| write_hex(piece, f)))
}

/// How many bytes become digits at a time: a hash, mostly.
const HEX_PIECE: usize = 32;

/// Writes at most [`HEX_PIECE`] bytes. Every call writes a hash several times, so this does not go
/// through the formatting of numbers, which takes ten times as long.
fn write_hex(piece: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
    let mut digits = [[0; 2]; HEX_PIECE];
    for (pair, byte) in digits.iter_mut().zip(piece) {
        *pair = [digit(byte >> 4), digit(byte & 0xf)];
    }
    let written = digits.as_flattened().get(..piece.len() * 2).unwrap_or_default();
    f.write_str(std::str::from_utf8(written).map_err(|_| fmt::Error)?)
}

/// A longer text, such as JSON, with what a terminal would act on escaped. Lines stay lines.
pub fn for_terminal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || is_plain(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

/// JSON with what a terminal would act on escaped as JSON does it: it stays the same JSON.
pub fn json_for_terminal(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || is_plain(c) {
            shown.push(c);
        } else {
            // Such characters stand in strings alone.
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// `items` as a list for a sentence: `a, b, c`, or `nothing` when there is none.
pub fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
