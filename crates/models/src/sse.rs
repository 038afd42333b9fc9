//! Reading server-sent events, whatever pieces they come in.
//!
//! Bytes go in, events come out. Lines end with LF, CR or CRLF; pieces may end anywhere, also inside of a character and
//! between CR and LF. What is no UTF-8 is replaced and counted.

use std::mem;

/// The most bytes of one line, and of the data of one event.
pub const LARGEST_EVENT: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; empty for the usual one.
    pub event: String,
    /// Its data, lines joined by LF.
    pub data: String,
}

/// An event that is too large to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {LARGEST_EVENT} bytes")]
pub struct TooLarge;

/// What has arrived and is not yet a whole event.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// A line was read: a byte order mark is only one before.
    begun: bool,
    replaced: u64,
}

impl Events {
    /// Takes a piece, and adds every event that is whole with it to `out`.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<Event>) -> Result<(), TooLarge> {
        let mut rest = piece;
        if !rest.is_empty() && mem::take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, ending) = rest.split_at(end);
            self.add(line)?;
            self.line_ended(out)?;
            rest = match ending {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.add(rest)
    }

    /// The stream is over. Gives what was left, had it ended as an event should.
    pub fn finish(&mut self) -> Option<Event> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            self.line_ended(&mut out).ok()?;
        }
        self.dispatch(&mut out);
        out.pop()
    }

    /// How many lines had something in them that is no UTF-8.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + bytes.len() > LARGEST_EVENT {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ended(&mut self, out: &mut Vec<Event>) -> Result<(), TooLarge> {
        let line = mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if !mem::replace(&mut self.begun, true) {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.dispatch(out);
        } else {
            let text = String::from_utf8_lossy(bytes);
            if matches!(text, std::borrow::Cow::Owned(_)) {
                self.replaced += 1;
            }
            self.field(&text)?;
        }
        // The memory serves the next line.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn field(&mut self, line: &str) -> Result<(), TooLarge> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.event.data.len() + value.len() >= LARGEST_EVENT {
                    return Err(TooLarge);
                }
                if mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.event),
            // A comment, an id, a time to try again: nobody here needs them.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, out: &mut Vec<Event>) {
        let event = mem::take(&mut self.event);
        if mem::take(&mut self.has_data) {
            out.push(event);
        }
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
