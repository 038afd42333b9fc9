//! Finding the blocks in what a model streams.
//!
//! Text arrives in pieces that may be cut anywhere. What the person may see is passed on at once, but for what could
//! still become a mark; blocks and reasoning are kept back. The extractor never fails: what cannot be read becomes a
//! broken part and a warning. Marks inside the strings of a block are part of the string, marks inside reasoning are
//! part of the reasoning, and blocks do not nest.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::json;

use crate::{
    markers::{self, BlockKind, Mark, closing},
    segment::{Segment, rebuild},
    text::head,
};

/// The most bytes of one answer.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;
/// The most bytes of one block.
const LONGEST_BLOCK: usize = 512 * 1024;
/// The most blocks of one answer; what comes behind them is one broken block.
const MOST_BLOCKS: usize = 64;
/// How much is kept of a block that cannot be read.
const KEPT_OF_BROKEN: usize = 2 * 1024;
/// How deep a block may be nested: what is recorded of it stands some levels deeper, and must be readable again.
const DEEPEST_BLOCK: usize = 64;
/// The most parts of one answer, and the most warnings.
const MOST_PARTS: usize = 2000;
/// How much reasoning is kept.
const KEPT_REASONING: usize = 32 * 1024;

/// A piece of an answer that can be passed on now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// For the person.
    Text(String),
    /// What the model thinks aloud.
    Reasoning(String),
    /// All text so far was reasoning that nobody had announced, and is taken back.
    Retract,
}

/// What was odd about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// A block is no JSON.
    Malformed,
    /// A block did not end.
    Unterminated,
    /// A block is too long.
    TooLong,
    /// There are too many blocks.
    TooMany,
    /// A mark stood alone.
    StrayMark,
    /// Reasoning did not end.
    UnterminatedReasoning,
    /// Reasoning ended that had not begun.
    StrayReasoning,
    /// The answer is too long; the rest of it is not read.
    AnswerTooLong,
}

impl WarningKind {
    /// What it means, for the model that is told.
    pub fn problem(self) -> &'static str {
        match self {
            Self::Malformed => "it is not JSON as RFC 8259 has it",
            Self::Unterminated => "its end mark is missing",
            Self::TooLong => "it is too long",
            Self::TooMany => "there are too many blocks in one answer",
            Self::StrayMark => "a mark stands alone",
            Self::UnterminatedReasoning => "the reasoning did not end",
            Self::StrayReasoning => "reasoning ended that had not begun",
            Self::AnswerTooLong => "the answer is too long",
        }
    }
}

/// What an answer consists of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extracted {
    /// Its parts, in order.
    pub segments: Vec<Segment>,
    /// What was odd, in order.
    pub warnings: Vec<(WarningKind, Option<BlockKind>)>,
}

impl Extracted {
    /// What the person sees.
    pub fn visible(&self) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.segments.iter().filter_map(text).collect()
    }

    /// The answer as it goes into the history: without the reasoning.
    pub fn spoken(&self) -> String {
        let is_said = |segment: &&Segment| !matches!(segment, Segment::Reasoning { .. });
        rebuild(&self.segments.iter().filter(is_said).cloned().collect::<Vec<_>>())
    }

    /// The same without secrets.
    pub fn redacted(&self) -> Self {
        Self {
            segments: self.segments.iter().map(Segment::redacted).collect(),
            warnings: self.warnings.clone(),
        }
    }
}

/// Where in an answer the extractor is.
#[derive(Debug)]
enum At {
    Text,
    Block(Block),
    Reasoning { tag: &'static str, depth: usize, text: String },
}

/// A block that is being read.
#[derive(Debug)]
struct Block {
    kind: BlockKind,
    payload: String,
    /// Inside a string of the payload, and behind a backslash in it.
    in_string: bool,
    escaped: bool,
    /// Where an end mark stands that is inside a string; it counts if no other comes.
    doubtful: Option<usize>,
}

/// Finds the blocks of one answer.
#[derive(Debug)]
pub struct Extractor {
    at: At,
    /// What has arrived and is not used.
    waiting: String,
    read: usize,
    blocks: usize,
    done: Extracted,
    /// The text that is being passed on, of the segment that comes next.
    text: String,
    /// Blank lines around what is taken out are not text.
    skips_newlines: bool,
    /// Where the last text stands among the parts.
    last_text: Option<usize>,
    /// How much more than usual is borne: what is kept of an answer may be longer than the answer.
    leniency: usize,
    is_full: bool,
}

impl Default for Extractor {
    fn default() -> Self {
        Self {
            at: At::Text,
            waiting: String::new(),
            read: 0,
            blocks: 0,
            done: Extracted::default(),
            text: String::new(),
            skips_newlines: false,
            last_text: None,
            leniency: 1,
            is_full: false,
        }
    }
}

/// How a step through the waiting text ended.
enum Step {
    /// So many bytes are used; go on.
    Used(usize),
    /// These bytes are used; the rest needs more text.
    Waits(usize),
}

impl Extractor {
    /// One for what was kept of an answer that was within its bounds.
    pub fn again() -> Self {
        Self { leniency: 16, ..Self::default() }
    }

    /// Takes in what has arrived, and gives what can be passed on.
    pub fn feed(&mut self, arrived: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let room = (LONGEST_ANSWER * self.leniency).saturating_sub(self.read);
        let is_done = self.done.segments.len() >= MOST_PARTS;
        let room = if is_done { 0 } else { room };
        let arrived = if arrived.len() > room {
            if !self.is_full {
                self.is_full = true;
                self.warn(WarningKind::AnswerTooLong, None);
            }
            head(arrived, room)
        } else {
            arrived
        };
        self.read += arrived.len();
        self.waiting.push_str(arrived);
        self.advance(&mut pieces, false);
        pieces
    }

    /// The answer is over.
    pub fn finish(mut self) -> (Vec<Piece>, Extracted) {
        let mut pieces = Vec::new();
        if matches!(self.at, At::Text)
            && let Some(kind) = cut_mark(&self.waiting)
        {
            // A mark that broke off is no text that anybody wants to see.
            self.waiting.clear();
            self.warn(WarningKind::Unterminated, Some(kind));
        }
        loop {
            self.advance(&mut pieces, true);
            // A block that only ended inside of a string is read again as one that ended there.
            let at = std::mem::replace(&mut self.at, At::Text);
            match at {
                At::Text => break,
                At::Reasoning { tag, text, .. } => {
                    self.warn(WarningKind::UnterminatedReasoning, None);
                    self.reasoned(tag, text, false);
                    break;
                }
                At::Block(block) => match block.doubtful.filter(|_| self.blocks < MOST_BLOCKS) {
                    Some(end) => {
                        let (payload, rest) =
                            block.payload.split_at_checked(end).unwrap_or_default();
                        let rest = rest.strip_prefix(block.kind.end()).unwrap_or(rest).to_owned();
                        self.broken(block.kind, payload, true, WarningKind::Malformed);
                        self.waiting = rest;
                    }
                    None => {
                        self.broken(block.kind, &block.payload, false, WarningKind::Unterminated);
                        break;
                    }
                },
            }
        }
        self.end_text();
        (pieces, self.done)
    }

    fn advance(&mut self, pieces: &mut Vec<Piece>, is_last: bool) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut at = 0;
        loop {
            let rest = waiting.get(at..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            if self.done.segments.len() >= MOST_PARTS {
                // Nobody writes like this; what comes behind is not read.
                if !self.is_full {
                    self.is_full = true;
                    self.warn(WarningKind::AnswerTooLong, None);
                }
                self.at = At::Text;
                return;
            }
            let step = match &self.at {
                At::Text => self.step_text(rest, pieces, is_last),
                At::Block(_) => self.step_block(rest, is_last),
                At::Reasoning { .. } => self.step_reasoning(rest, pieces, is_last),
            };
            match step {
                Step::Used(bytes) => at += bytes,
                Step::Waits(bytes) => {
                    at += bytes;
                    break;
                }
            }
        }
        self.waiting = waiting.get(at..).unwrap_or_default().to_owned();
    }

    fn step_text(&mut self, rest: &str, pieces: &mut Vec<Piece>, is_last: bool) -> Step {
        let plain = rest.find('<').unwrap_or(rest.len());
        if plain > 0 {
            self.pass_on(rest.get(..plain).unwrap_or_default(), pieces);
            return Step::Used(plain);
        }
        match markers::at_start(rest) {
            Some((mark, length)) => {
                self.mark(mark, rest.get(..length).unwrap_or_default(), pieces);
                Step::Used(length)
            }
            None if !is_last && markers::may_become(rest) => Step::Waits(0),
            None => {
                self.pass_on("<", pieces);
                Step::Used(1)
            }
        }
    }

    fn mark(&mut self, mark: Mark, text: &str, pieces: &mut Vec<Piece>) {
        match mark {
            Mark::Begin(kind) => {
                self.end_text();
                self.blocks += 1;
                self.at = At::Block(Block {
                    kind,
                    payload: String::new(),
                    in_string: false,
                    escaped: false,
                    doubtful: None,
                });
            }
            Mark::End(kind) => {
                self.end_text();
                self.warn(WarningKind::StrayMark, Some(kind));
                self.done.segments.push(Segment::Stray(text.to_owned()));
            }
            Mark::Think(tag) => {
                self.end_text();
                self.at = At::Reasoning { tag, depth: 1, text: String::new() };
            }
            Mark::Unthink => {
                self.end_text();
                self.warn(WarningKind::StrayReasoning, None);
                let thought = |s: &Segment| matches!(s, Segment::Reasoning { .. });
                if self.done.segments.iter().any(thought) {
                    self.done.segments.push(Segment::Stray(text.to_owned()));
                    return;
                }
                // Some servers leave out the tag that begins: everything so far was reasoning, and nothing in it counts.
                let before = rebuild(&std::mem::take(&mut self.done.segments));
                self.last_text = None;
                pieces.push(Piece::Retract);
                self.reasoned("<think>", before, true);
            }
        }
    }

    fn step_block(&mut self, rest: &str, is_last: bool) -> Step {
        let is_past = self.blocks > MOST_BLOCKS;
        let At::Block(block) = &mut self.at else { return Step::Used(0) };
        let end = block.kind.end();
        let bytes = rest.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'<' if !is_past => {
                    let here = rest.get(at..).unwrap_or_default();
                    if here.starts_with(end) {
                        if !block.in_string {
                            block.payload.push_str(rest.get(..at).unwrap_or_default());
                            self.end_block();
                            return Step::Used(at + end.len());
                        }
                        block.doubtful.get_or_insert(block.payload.len() + at);
                    } else if !is_last && end.starts_with(here) {
                        block.payload.push_str(rest.get(..at).unwrap_or_default());
                        return Step::Waits(at);
                    }
                    block.escaped = false;
                }
                b'\\' if block.in_string => block.escaped = !block.escaped,
                b'"' => {
                    if !block.escaped {
                        block.in_string = !block.in_string;
                    }
                    block.escaped = false;
                }
                _ => block.escaped = false,
            }
            at += 1;
        }
        block.payload.push_str(rest);
        Step::Used(rest.len())
    }

    fn end_block(&mut self) {
        let At::Block(block) = std::mem::replace(&mut self.at, At::Text) else { return };
        self.skips_newlines = true;
        let payload = unfenced(&block.payload);
        if block.payload.len() > LONGEST_BLOCK * self.leniency {
            return self.broken(block.kind, payload, true, WarningKind::TooLong);
        }
        match json::parse(payload.as_bytes()) {
            Ok(payload) if is_deeper(&payload, DEEPEST_BLOCK) => {
                self.broken(block.kind, &payload.to_string(), true, WarningKind::Malformed);
            }
            Ok(payload) => self.done.segments.push(Segment::Json { kind: block.kind, payload }),
            Err(_) => self.broken(block.kind, payload, true, WarningKind::Malformed),
        }
    }

    /// A block that cannot be read. What is kept of it can be read again as just that, so it holds no string and no mark.
    fn broken(&mut self, kind: BlockKind, payload: &str, ended: bool, why: WarningKind) {
        let why = if self.blocks > MOST_BLOCKS { WarningKind::TooMany } else { why };
        self.warn(why, Some(kind));
        let text = cut(payload.trim(), KEPT_OF_BROKEN).trim_end();
        let text = text.replace(['"', '`'], "'").replace('<', "(");
        self.done.segments.push(Segment::Broken { kind, text, ended });
        self.skips_newlines = true;
    }

    fn step_reasoning(&mut self, rest: &str, pieces: &mut Vec<Piece>, is_last: bool) -> Step {
        let At::Reasoning { tag, depth, text } = &mut self.at else { return Step::Used(0) };
        let (tag, close) = (*tag, closing(tag));
        let plain = rest.find('<').unwrap_or(rest.len());
        let length = if plain > 0 {
            plain
        } else if rest.starts_with(close) {
            *depth -= 1;
            if *depth == 0 {
                let text = std::mem::take(text);
                self.at = At::Text;
                self.reasoned(tag, text, true);
                return Step::Used(close.len());
            }
            close.len()
        } else if rest.starts_with(tag) {
            *depth += 1;
            tag.len()
        } else if !is_last && (close.starts_with(rest) || tag.starts_with(rest)) {
            return Step::Waits(0);
        } else {
            1
        };
        let thought = rest.get(..length).unwrap_or_default();
        pieces.push(Piece::Reasoning(thought.to_owned()));
        text.push_str(thought);
        Step::Used(length)
    }

    fn reasoned(&mut self, tag: &str, text: String, ended: bool) {
        let kept = cut(&text, KEPT_REASONING);
        // What is cut off may have closed tags: none is left open or closed.
        let text = if kept.len() < text.len() { kept.replace('<', "(") } else { text };
        self.done.segments.push(Segment::Reasoning { tag: tag.to_owned(), text, ended });
        self.skips_newlines = true;
    }

    fn pass_on(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let mut text = text;
        if self.skips_newlines {
            if self.is_at_line_start() {
                text = text.trim_start_matches(['\n', '\r']);
            }
            self.skips_newlines = text.is_empty();
        }
        if text.is_empty() {
            return;
        }
        // What stood on both sides of something that was taken out must not make a mark together.
        let joins = self.text.is_empty()
            && !text.starts_with(char::is_whitespace)
            && self.text_before().is_some_and(ends_like_a_mark);
        for part in [if joins { " " } else { "" }, text].into_iter().filter(|p| !p.is_empty()) {
            self.text.push_str(part);
            match pieces.last_mut() {
                Some(Piece::Text(last)) => last.push_str(part),
                _ => pieces.push(Piece::Text(part.to_owned())),
            }
        }
    }

    /// The text before what was taken out last.
    fn text_before(&self) -> Option<&str> {
        match self.done.segments.get(self.last_text?) {
            Some(Segment::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Does what the person sees so far end with a line, or not begin yet?
    fn is_at_line_start(&self) -> bool {
        self.text.is_empty() && self.text_before().is_none_or(|text| text.ends_with('\n'))
    }

    fn end_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.last_text = Some(self.done.segments.len());
            self.done.segments.push(Segment::Text(text));
        }
    }

    fn warn(&mut self, kind: WarningKind, block: Option<BlockKind>) {
        if self.done.warnings.len() < MOST_PARTS {
            self.done.warnings.push((kind, block));
        }
    }
}

/// Is a value nested deeper than this?
pub fn is_deeper(value: &Value, most: usize) -> bool {
    // An explicit stack: how deep it is must not matter.
    let mut pending = vec![(value, 0usize)];
    while let Some((value, depth)) = pending.pop() {
        if depth > most {
            return true;
        }
        match value {
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => pending.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

/// Could the end of this text be the beginning of a mark?
fn ends_like_a_mark(text: &str) -> bool {
    let from = text.len().saturating_sub(markers::LONGEST);
    let mut ends = text.match_indices('<').rev().take_while(|(at, _)| *at >= from);
    ends.any(|(at, _)| text.get(at..).is_some_and(markers::may_become))
}

/// The beginning of a text that is far too long. What is a little too long stays: redaction may lengthen what was cut,
/// and it must not be cut again when it is read again.
fn cut(text: &str, most: usize) -> &str {
    if text.len() <= most * 8 { text } else { head(text, most) }
}

/// The payload without the fence that some models put around JSON.
fn unfenced(payload: &str) -> &str {
    let inner = payload.trim();
    let Some(fenced) = inner.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else {
        return inner;
    };
    fenced.strip_prefix("json").unwrap_or(fenced).trim()
}

/// The block whose first mark a text is the beginning of, and plainly so.
fn cut_mark(text: &str) -> Option<BlockKind> {
    let is_cut = |kind: &BlockKind| text.len() > PLAIN && kind.begin().starts_with(text);
    [BlockKind::Notes, BlockKind::ToolCalls].into_iter().find(is_cut)
}

/// So much of a mark may be anything.
const PLAIN: usize = "<<<".len();

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
