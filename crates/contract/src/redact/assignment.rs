//! Secrets that are assigned to a name in free text: `password=…`, `"apiKey": "…"`,
//! `Authorization: …`, `--token …`.
//!
//! One walk over the text. At every `=`, `:` or `--` the name beside it is read, at most
//! [`LONGEST_NAME`] bytes of it; only when that name is secret is the value read, and then the walk
//! goes on behind it. A placeholder is stepped over as one piece.

use std::borrow::Cow;

use super::{
    field::is_sensitive,
    placeholder::{self, Kind},
};

const LONGEST_NAME: usize = 64;

/// Takes out values that are assigned to a secret name.
pub(super) fn assignments(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| matches!(b, b'=' | b':' | b'-')) {
        return Cow::Borrowed(text);
    }
    let mut walk = Walk { text, bytes: text.as_bytes(), floor: 0 };
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(byte) = walk.byte(at) {
        if let Some(length) = walk.placeholder(at) {
            at += length;
            walk.floor = at;
            continue;
        }
        let value = match byte {
            b'=' | b':' => walk.assigned(at),
            b'-' => walk.flag(at),
            _ => None,
        };
        let Some(value) = value else {
            at += 1;
            continue;
        };
        if !value.is_done {
            out.push_str(text.get(copied..value.start).unwrap_or_default());
            out.push_str(Kind::Field.placeholder());
            copied = value.end;
        }
        at = value.end;
        walk.floor = at;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// Where a secret value stands; `is_done` when nothing but our placeholder stands there.
struct Value {
    start: usize,
    end: usize,
    is_done: bool,
}

struct Walk<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// The end of the last value or placeholder: no name is read from before it.
    floor: usize,
}

impl Walk<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// The length of the placeholder that starts here.
    fn placeholder(&self, at: usize) -> Option<usize> {
        if self.byte(at) != Some(b'[') {
            return None;
        }
        self.text.get(at..).and_then(placeholder::leading)
    }

    /// The value after the separator at `at`, if the name before it is secret.
    fn assigned(&self, at: usize) -> Option<Value> {
        let is_colon = |byte| byte == Some(b':');
        // `std::secret::Key` assigns nothing.
        if is_colon(self.byte(at))
            && (is_colon(self.byte(at + 1))
                || is_colon(at.checked_sub(1).and_then(|i| self.byte(i))))
        {
            return None;
        }
        let name = self.name_before(at)?;
        if !is_sensitive(name) {
            return None;
        }
        let mut start = at + 1;
        // `:=`, `=>`, `==`
        while matches!(self.byte(start), Some(b'=' | b'>')) {
            start += 1;
        }
        self.value(start, is_header(name))
    }

    /// The value after a long option such as `--password`, if its name is secret.
    fn flag(&self, at: usize) -> Option<Value> {
        let starts_word = at == 0 || !is_name_byte(self.byte(at - 1)?);
        if !starts_word || self.byte(at + 1) != Some(b'-') {
            return None;
        }
        let start = at + 2;
        let length = self
            .bytes
            .iter()
            .skip(start)
            .take(LONGEST_NAME + 1)
            .take_while(|b| is_name_byte(**b))
            .count();
        let end = start + length;
        let is_followed_by_space = matches!(self.byte(end), Some(b' ' | b'\t'));
        let name = self.text.get(start..end)?;
        if length > LONGEST_NAME || !is_followed_by_space || !is_sensitive(name) {
            return None;
        }
        self.value(end, is_header(name))
    }

    /// The name that ends before `at`, past blanks, quotes and the backslashes that escape them.
    fn name_before(&self, at: usize) -> Option<&str> {
        let skip_back = |from: usize, wanted: fn(u8) -> bool| {
            let mut end = from;
            while from - end < 8 && end > self.floor && self.byte(end - 1).is_some_and(wanted) {
                end -= 1;
            }
            end
        };
        let end = skip_back(at, |b| matches!(b, b' ' | b'\t'));
        let end = skip_back(end, |b| matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']'));
        let mut start = end;
        while end - start <= LONGEST_NAME
            && start > self.floor
            && self.byte(start - 1).is_some_and(is_name_byte)
        {
            start -= 1;
        }
        (start < end && end - start <= LONGEST_NAME).then(|| self.text.get(start..end)).flatten()
    }

    /// The value that starts at or after `from`; `None` when there is none.
    fn value(&self, from: usize, is_header: bool) -> Option<Value> {
        let mut start = from;
        while matches!(self.byte(start), Some(b' ' | b'\t')) {
            start += 1;
        }
        let mut backslashes = 0;
        while self.byte(start + backslashes) == Some(b'\\') {
            backslashes += 1;
        }
        match self.byte(start + backslashes) {
            Some(quote @ (b'"' | b'\'' | b'`')) => {
                let start = start + backslashes + 1;
                let end = self.end(start, |at| self.closes(at, quote, backslashes));
                // The backslashes before the closing quote belong to it.
                let is_closed = self.byte(end).is_some();
                self.span(start, if is_closed { end.saturating_sub(backslashes) } else { end })
            }
            _ if is_header => self.span(start, self.end(start, |at| self.ends_line(at))),
            _ => self.span(start, self.end(start, |at| self.ends_word(at))),
        }
    }

    /// Where what starts at `start` ends, as `is_end` says; placeholders are stepped over.
    fn end(&self, start: usize, is_end: impl Fn(usize) -> bool) -> usize {
        let mut end = start;
        while end < self.bytes.len() {
            match self.placeholder(end) {
                Some(length) => end += length,
                None if is_end(end) => break,
                None => end += 1,
            }
        }
        end
    }

    fn span(&self, start: usize, end: usize) -> Option<Value> {
        let is_done = self.placeholder(start) == Some(end.saturating_sub(start));
        (end > start).then_some(Value { start, end, is_done })
    }

    /// What ends a header's value.
    fn ends_line(&self, at: usize) -> bool {
        matches!(self.byte(at), Some(b'\r' | b'\n' | b'"' | b'\'')) || self.escapes_quote(at)
    }

    /// What ends a value that is not quoted.
    fn ends_word(&self, at: usize) -> bool {
        self.byte(at).is_some_and(|byte| b" \t\r\n\"'`&,;)}]<>|".contains(&byte))
            || self.escapes_quote(at)
    }

    /// Does a backslash stand here that escapes a quote?
    fn escapes_quote(&self, at: usize) -> bool {
        self.byte(at) == Some(b'\\') && matches!(self.byte(at + 1), Some(b'"' | b'\'' | b'`'))
    }

    /// Does the quote that was opened behind `opened` backslashes close with the one at `at`?
    ///
    /// A quote at nesting level 0, 1, 2 is written behind 0, 1, 3 backslashes; one that belongs to the
    /// value has twice as many and one more, and a backslash of the value doubles too. So the run
    /// before a closing quote is `opened`, and any number of times `2 · (opened + 1)` more.
    fn closes(&self, at: usize, quote: u8, opened: usize) -> bool {
        if self.byte(at) != Some(quote) {
            return false;
        }
        let run = self.bytes.iter().take(at).rev().take_while(|b| **b == b'\\').count();
        run % (2 * (opened + 1)) == opened
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Headers whose whole line is the value: `Authorization: Basic …`, `Cookie: a=1; b=2`.
fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}
