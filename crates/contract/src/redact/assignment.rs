//! Secrets that are assigned to a name in free text: `password=…`, `"apiKey": "…"`,
//! `Authorization: …`, `--token …`, `<password>…`.
//!
//! One walk over the text. At every `=`, `:`, `-` or `>` the name beside it is read, at most
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
    if !text.bytes().any(|b| matches!(b, b'=' | b':' | b'-' | b'>')) {
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
            b'>' => walk.element(at),
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

/// Where a value ends that is not in quotes itself.
enum Ending {
    /// With the word.
    Word,
    /// With the line, or with the quote that opened before its name.
    Line(Option<Opener>),
}

/// A quote, and the number of backslashes before it.
type Opener = (u8, usize);

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
        let (name_start, name) = self.name_before(at)?;
        if !is_sensitive(name) {
            return None;
        }
        let mut start = at + 1;
        // `:=`, `=>`, `==`
        while matches!(self.byte(start), Some(b'=' | b'>')) {
            start += 1;
        }
        let ending =
            if is_header(name) { Ending::Line(self.opener(name_start)) } else { Ending::Word };
        self.value(start, ending)
    }

    /// The quote that opened directly before a header's name, with the backslashes before it.
    fn opener(&self, name_start: usize) -> Option<Opener> {
        let at = name_start.checked_sub(1).filter(|at| *at >= self.floor)?;
        let quote = self.byte(at).filter(|byte| is_quote(*byte))?;
        let run = self.bytes.iter().take(at).rev().take_while(|b| **b == b'\\').count();
        Some((quote, run))
    }

    /// The text of an element whose tag ends at `at` and has a secret name: `<password>…`.
    fn element(&self, at: usize) -> Option<Value> {
        let (start, name) = self.name_before(at)?;
        let is_tag = start.checked_sub(1).is_some_and(|before| self.byte(before) == Some(b'<'));
        if !is_tag || start + name.len() != at || !is_sensitive(name) {
            return None;
        }
        self.span(at + 1, self.end(at + 1, |at| self.byte(at) == Some(b'<')))
    }

    /// The value after an option such as `--password` or `-token`, if its name is secret.
    fn flag(&self, at: usize) -> Option<Value> {
        let starts_word = at == 0 || !is_name_byte(self.byte(at - 1)?);
        if !starts_word {
            return None;
        }
        let dashes = if self.byte(at + 1) == Some(b'-') { 2 } else { 1 };
        let start = at + dashes;
        let is_named = |b: &&u8| is_name_byte(**b);
        let name = self.bytes.iter().skip(start).take(LONGEST_NAME + 1).take_while(is_named);
        let length = name.count();
        let end = start + length;
        let is_followed_by_space = matches!(self.byte(end), Some(b' ' | b'\t'));
        let name = self.text.get(start..end)?;
        if length > LONGEST_NAME || !is_followed_by_space || !is_sensitive(name) {
            return None;
        }
        self.value(end, if is_header(name) { Ending::Line(None) } else { Ending::Word })
    }

    /// The name that ends before `at`, past blanks, quotes and the backslashes that escape them.
    fn name_before(&self, at: usize) -> Option<(usize, &str)> {
        let skip_back = |from: usize, wanted: fn(u8) -> bool| {
            let mut end = from;
            while from - end < 8 && end > self.floor && self.byte(end - 1).is_some_and(wanted) {
                end -= 1;
            }
            end
        };
        let end = skip_back(at, |b| matches!(b, b' ' | b'\t'));
        let end = skip_back(end, |b| matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']' | b'['));
        let mut start = end;
        while end - start <= LONGEST_NAME
            && start > self.floor
            && self.byte(start - 1).is_some_and(is_name_byte)
        {
            start -= 1;
        }
        if start == end || end - start > LONGEST_NAME {
            return None;
        }
        self.text.get(start..end).map(|name| (start, name))
    }

    /// The value that starts at or after `from`; `None` when there is none.
    fn value(&self, from: usize, ending: Ending) -> Option<Value> {
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
            _ => match ending {
                Ending::Line(opener) => self.line(start, opener),
                Ending::Word => self.span(start, self.end(start, |at| self.ends_word(at))),
            },
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

    /// The value up to the end of the line, or to the quote that closes what `opener` opened.
    fn line(&self, start: usize, opener: Option<Opener>) -> Option<Value> {
        let closes = |at: usize| opener.is_some_and(|(quote, run)| self.closes(at, quote, run));
        let is_end = |at: usize| matches!(self.byte(at), Some(b'\r' | b'\n')) || closes(at);
        let end = self.end(start, is_end);
        let run = opener.filter(|_| closes(end)).map_or(0, |(_, run)| run);
        self.span(start, end.saturating_sub(run))
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

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Headers whose whole line is the value: `Authorization: Basic …`, `Cookie: a=1; b=2`.
pub(super) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}
