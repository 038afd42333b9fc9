//! Strict JSON: what a door accepts.
//!
//! Ordinary parsers let three things pass that make two different requests look the same: repeated
//! keys (the last one silently wins), integers that lose digits, and unbounded nesting. Here each is
//! refused, with a JSON pointer to where it stands.

use std::fmt;

use json_event_parser::{JsonEvent, LowLevelJsonParser};
use serde_json::{Map, Number, Value};

use crate::{
    redact::{Kind, is_sensitive_field},
    text::Quoted,
};

/// The largest integer that every JSON implementation keeps exactly: 2^53 − 1.
pub const MAX_SAFE_INTEGER: i64 = 9_007_199_254_740_991;

/// From here on the canonical form writes a number with an exponent, not as an integer.
const EXPONENT_FROM: f64 = 1e21;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not acceptable JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    kind: JsonErrorKind,
    pointer: String,
    position: Option<Position>,
}

/// A place in a text, counted from 1 as editors do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// What is wrong with a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// It is not JSON.
    Syntax(String),
    /// It is not UTF-8.
    NotUtf8,
    /// An object has a key twice.
    DuplicateKey(Quoted),
    /// An integer beyond ±(2^53 − 1), or a number that the canonical form would write as one.
    UnsafeInteger(Quoted),
    /// A number beyond what a double holds.
    NumberOutOfRange(Quoted),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl JsonErrorKind {
    /// A stable word for this kind, used by the golden vectors.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "syntax",
            Self::NotUtf8 => "not_utf8",
            Self::DuplicateKey(_) => "duplicate_key",
            Self::UnsafeInteger(_) => "unsafe_integer",
            Self::NumberOutOfRange(_) => "number_out_of_range",
            Self::TooDeep => "too_deep",
        }
    }
}

impl JsonError {
    /// What is wrong.
    pub fn kind(&self) -> &JsonErrorKind {
        &self.kind
    }

    /// JSON pointer (RFC 6901) to the value that is wrong; empty for the whole text.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Line and column up to which the text was read; `None` for a value that had no text.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl fmt::Display for JsonErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(message) => write!(f, "not valid JSON: {message}"),
            Self::NotUtf8 => f.write_str("not valid UTF-8"),
            Self::DuplicateKey(key) => write!(f, "the key {key} appears twice"),
            Self::UnsafeInteger(number) => write!(
                f,
                "the integer {number} is beyond ±{MAX_SAFE_INTEGER} and would lose digits; send it as a string"
            ),
            Self::NumberOutOfRange(number) => {
                write!(f, "the number {number} is too large; send it as a string")
            }
            Self::TooDeep => write!(f, "nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "{}: ", Quoted::new(&self.pointer))?;
        }
        write!(f, "{}", self.kind)?;
        if let Some(Position { line, column }) = self.position {
            write!(f, " (line {line}, column {column})")?;
        }
        Ok(())
    }
}

impl std::error::Error for JsonError {}

/// Reads one JSON text, strictly.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let start = bytes.get(..error.valid_up_to()).unwrap_or_default();
        JsonError {
            kind: JsonErrorKind::NotUtf8,
            pointer: String::new(),
            position: Some(position_after(start)),
        }
    })?;
    if text.starts_with('\u{feff}') {
        return Err(JsonError {
            kind: JsonErrorKind::Syntax("it starts with a byte order mark; remove it".to_owned()),
            pointer: String::new(),
            position: Some(Position { line: 1, column: 1 }),
        });
    }
    Reader { text: text.as_bytes(), offset: 0, parser: LowLevelJsonParser::new(), open: Vec::new() }
        .read()
}

/// An array or object that is being read.
enum Frame {
    Array(Vec<Value>),
    Object(Map<String, Value>, Option<String>),
}

struct Reader<'a> {
    text: &'a [u8],
    offset: usize,
    parser: LowLevelJsonParser,
    open: Vec<Frame>,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Value, JsonError> {
        loop {
            if let Some(whole) = self.step()? {
                self.expect_end()?;
                return Ok(whole);
            }
        }
    }

    /// Takes one event; gives the whole value when the outermost one is complete.
    fn step(&mut self) -> Result<Option<Value>, JsonError> {
        let value = match self.next_event()? {
            JsonEvent::StartArray => {
                self.open(Frame::Array(Vec::new()))?;
                return Ok(None);
            }
            JsonEvent::StartObject => {
                self.open(Frame::Object(Map::new(), None))?;
                return Ok(None);
            }
            JsonEvent::ObjectKey(key) => {
                self.key(key.into_owned())?;
                return Ok(None);
            }
            JsonEvent::EndArray | JsonEvent::EndObject => match self.open.pop() {
                Some(Frame::Array(items)) => Value::Array(items),
                Some(Frame::Object(map, _)) => Value::Object(map),
                None => return Err(self.syntax("a bracket is closed that was not opened")),
            },
            JsonEvent::String(text) => Value::String(text.into_owned()),
            JsonEvent::Number(literal) => self.number(&literal)?,
            JsonEvent::Boolean(flag) => Value::Bool(flag),
            JsonEvent::Null => Value::Null,
            JsonEvent::Eof => return Err(self.syntax("the text ends too early")),
        };
        Ok(self.place(value))
    }

    fn next_event(&mut self) -> Result<JsonEvent<'static>, JsonError> {
        loop {
            let rest = self.text.get(self.offset..).unwrap_or_default();
            let result = self.parser.parse_next(rest, true);
            let consumed = result.consumed_bytes;
            match result.event {
                Some(Ok(event)) => {
                    let event = owned(event);
                    self.offset += consumed;
                    return Ok(event);
                }
                Some(Err(error)) => {
                    let at = usize::try_from(error.location().start.offset).unwrap_or(usize::MAX);
                    let message = plain_message(error.message());
                    return Err(self.syntax_at(&message, at));
                }
                None if consumed == 0 => return Err(self.syntax("the text ends too early")),
                None => self.offset += consumed,
            }
        }
    }

    fn open(&mut self, frame: Frame) -> Result<(), JsonError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(JsonErrorKind::TooDeep));
        }
        self.open.push(frame);
        Ok(())
    }

    fn key(&mut self, key: String) -> Result<(), JsonError> {
        let repeated = match self.open.last_mut() {
            Some(Frame::Object(map, current)) => {
                let repeated = map.contains_key(&key);
                *current = Some(key.clone());
                repeated
            }
            _ => return Err(self.syntax("a key stands outside an object")),
        };
        if repeated {
            return Err(self.error(JsonErrorKind::DuplicateKey(key.into())));
        }
        Ok(())
    }

    fn number(&self, literal: &str) -> Result<Value, JsonError> {
        let is_secret = self
            .open
            .iter()
            .any(|frame| matches!(frame, Frame::Object(_, Some(key)) if is_sensitive_field(key)));
        let shown = if is_secret { Kind::Field.placeholder() } else { literal };
        number(literal, shown).map_err(|kind| self.error(kind))
    }

    /// Puts a finished value into the array or object around it, or gives it back as the whole.
    fn place(&mut self, value: Value) -> Option<Value> {
        match self.open.last_mut() {
            None => return Some(value),
            Some(Frame::Array(items)) => items.push(value),
            Some(Frame::Object(map, key)) => {
                map.insert(key.take().unwrap_or_default(), value);
            }
        }
        None
    }

    fn expect_end(&mut self) -> Result<(), JsonError> {
        match self.next_event()? {
            JsonEvent::Eof => Ok(()),
            _ => Err(self.syntax("something follows the end of the value")),
        }
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for frame in &self.open {
            match frame {
                Frame::Array(items) => push_index(&mut pointer, items.len()),
                Frame::Object(_, Some(key)) => push_key(&mut pointer, key),
                Frame::Object(_, None) => {}
            }
        }
        pointer
    }

    fn error(&self, kind: JsonErrorKind) -> JsonError {
        let before = self.text.get(..self.offset).unwrap_or(self.text);
        JsonError { kind, pointer: self.pointer(), position: Some(position_after(before)) }
    }

    fn syntax(&self, message: &str) -> JsonError {
        self.syntax_at(message, self.offset)
    }

    fn syntax_at(&self, message: &str, offset: usize) -> JsonError {
        let before = self.text.get(..offset).unwrap_or(self.text);
        JsonError {
            kind: JsonErrorKind::Syntax(message.to_owned()),
            pointer: self.pointer(),
            position: Some(position_after(before)),
        }
    }
}

fn owned(event: JsonEvent<'_>) -> JsonEvent<'static> {
    match event {
        JsonEvent::String(text) => JsonEvent::String(text.into_owned().into()),
        JsonEvent::Number(text) => JsonEvent::Number(text.into_owned().into()),
        JsonEvent::ObjectKey(text) => JsonEvent::ObjectKey(text.into_owned().into()),
        JsonEvent::Boolean(flag) => JsonEvent::Boolean(flag),
        JsonEvent::Null => JsonEvent::Null,
        JsonEvent::StartArray => JsonEvent::StartArray,
        JsonEvent::EndArray => JsonEvent::EndArray,
        JsonEvent::StartObject => JsonEvent::StartObject,
        JsonEvent::EndObject => JsonEvent::EndObject,
        JsonEvent::Eof => JsonEvent::Eof,
    }
}

/// The parser's message, in the house style: lower case, and with nothing a terminal would act on.
fn plain_message(message: &str) -> String {
    let quoted = Quoted::new(message);
    let mut chars = quoted.as_str().chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Turns a number's text into a value, refusing what the canonical form could not tell apart.
fn number(literal: &str, shown: &str) -> Result<Value, JsonErrorKind> {
    if literal.contains(['.', 'e', 'E']) {
        let float: f64 = literal.parse().map_err(|_| {
            JsonErrorKind::Syntax(format!("{} is not a number", Quoted::new(shown)))
        })?;
        if is_unsafe_float(float) {
            return Err(JsonErrorKind::UnsafeInteger(shown.into()));
        }
        return Number::from_f64(float)
            .map(Value::Number)
            .ok_or_else(|| JsonErrorKind::NumberOutOfRange(shown.into()));
    }
    match literal.parse::<i64>() {
        Ok(integer) if integer.abs_diff(0) <= MAX_SAFE_INTEGER.unsigned_abs() => {
            Ok(Value::from(integer))
        }
        _ => Err(JsonErrorKind::UnsafeInteger(shown.into())),
    }
}

/// A double at or beyond 2^53 that the canonical form would write as an integer.
fn is_unsafe_float(float: f64) -> bool {
    let size = float.abs();
    // 2^53 itself is a double; what lies between 2^53 − 1 and it is not.
    (9_007_199_254_740_992.0..EXPONENT_FROM).contains(&size)
}

/// Checks a value that did not come through [`parse`], by the same rules.
pub fn check(value: &Value) -> Result<(), JsonError> {
    check_below(value, &mut String::new(), 0)
}

fn check_below(value: &Value, pointer: &mut String, depth: usize) -> Result<(), JsonError> {
    let refuse =
        |kind, pointer: &str| Err(JsonError { kind, pointer: pointer.to_owned(), position: None });
    match value {
        Value::Number(number) if is_unsafe(number) => {
            refuse(JsonErrorKind::UnsafeInteger(number.to_string().into()), pointer)
        }
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => {
            refuse(JsonErrorKind::TooDeep, pointer)
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let length = pointer.len();
            push_index(pointer, index);
            check_below(item, pointer, depth + 1)?;
            pointer.truncate(length);
            Ok(())
        }),
        Value::Object(map) => map.iter().try_for_each(|(key, item)| {
            let length = pointer.len();
            push_key(pointer, key);
            check_below(item, pointer, depth + 1)?;
            pointer.truncate(length);
            Ok(())
        }),
        _ => Ok(()),
    }
}

fn is_unsafe(number: &Number) -> bool {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.unsigned_abs() > MAX_SAFE_INTEGER.unsigned_abs(),
        (None, Some(_), _) => true,
        (None, None, float) => float.is_none_or(is_unsafe_float),
    }
}

fn push_index(pointer: &mut String, index: usize) {
    pointer.push('/');
    pointer.push_str(&index.to_string());
}

/// Adds a key to a JSON pointer, escaped as RFC 6901 says.
pub fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for c in key.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// The position that follows `before`.
fn position_after(before: &[u8]) -> Position {
    let text = String::from_utf8_lossy(before);
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
