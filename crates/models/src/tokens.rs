//! How many tokens a text has.
//!
//! OpenAI's models are counted with their own tokenizers, which are made when they are first needed. Everything else is
//! estimated, on the high side: what is held for a call should be enough, and the rest is given back.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{LazyLock, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use tiktoken_rs::CoreBPE;

use crate::chat::{ChatRequest, ChatResponse, NativeCall};

/// A tokenizer takes time that grows with the square of a run of letters or of spaces, so longer ones are cut.
const LONGEST_RUN: usize = 64;

/// How many bytes are counted exactly; the rest of a longer text is estimated.
const MOST_COUNTED: usize = 512 * 1024;

/// The longest word that is counted as one.
const LONGEST_WORD: u32 = 20;

/// What a message costs beyond its text: who says it, and where it begins and ends.
const AROUND_A_MESSAGE: u64 = 5;

/// What a tool costs beyond its text.
const AROUND_A_TOOL: u64 = 10;

/// What the beginning of the answer costs.
const AROUND_A_REQUEST: u64 = 5;

/// A way to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenizer {
    /// What GPT-4o and later are counted with.
    O200k,
    /// What GPT-4 and GPT-3.5 are counted with.
    Cl100k,
    /// A third of a token for each ASCII letter and space, five sixths for other ASCII, two thirds for a character of two
    /// bytes, half a token for each byte of a longer one; rounded up.
    Estimate,
}

static O200K: LazyLock<Option<CoreBPE>> = LazyLock::new(|| tiktoken_rs::o200k_base().ok());
static CL100K: LazyLock<Option<CoreBPE>> = LazyLock::new(|| tiktoken_rs::cl100k_base().ok());

impl Tokenizer {
    /// The one that fits a model, by its name.
    pub fn for_model(name: &str) -> Self {
        // A router may put the maker's name before it.
        let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        let begins = |all: &[&str]| all.iter().any(|word| name.starts_with(word));
        if begins(&["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o", "gpt-oss"])
            || matches!(name.as_bytes(), [b'o', b'1'..=b'9', rest @ ..] if rest.first().is_none_or(|next| *next == b'-'))
        {
            Self::O200k
        } else if begins(&["gpt-4", "gpt-3.5", "text-embedding-3", "text-embedding-ada"]) {
            Self::Cl100k
        } else {
            Self::Estimate
        }
    }

    /// How many tokens a text has. Takes time in proportion to its length, whatever is in it.
    pub fn count(self, text: &str) -> u64 {
        self.count_all([text])
    }

    /// How many tokens texts have together.
    pub fn count_all<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> u64 {
        let mut counter = Counter::new(self);
        texts.into_iter().map(|text| counter.count(text)).sum()
    }

    /// How many tokens a request has.
    pub fn count_request(self, request: &ChatRequest) -> u64 {
        let mut counter = Counter::new(self);
        let mut sum = AROUND_A_REQUEST;
        for message in &request.messages {
            sum += AROUND_A_MESSAGE + counter.count(&message.content);
            sum += message.tool_call_id.as_deref().map_or(0, |id| counter.count(id));
            sum += counter.calls(&message.tool_calls);
        }
        for tool in &request.tools {
            sum += AROUND_A_TOOL + counter.count(&tool.name) + counter.count(&tool.description);
            sum += counter.count(&tool.parameters.to_string());
        }
        sum
    }

    /// How many tokens an answer has, as far as it has come.
    pub fn count_answer(self, answer: &ChatResponse) -> u64 {
        let mut counter = Counter::new(self);
        counter.count(&answer.content)
            + counter.count(&answer.reasoning)
            + counter.calls(&answer.tool_calls)
    }
}

/// Counts several texts, exactly as far as there is time for it.
struct Counter {
    exact: Option<&'static CoreBPE>,
    /// How much may still be counted exactly.
    left: usize,
}

impl Counter {
    fn new(tokenizer: Tokenizer) -> Self {
        let exact = match tokenizer {
            Tokenizer::O200k => O200K.as_ref(),
            Tokenizer::Cl100k => CL100K.as_ref(),
            Tokenizer::Estimate => None,
        };
        Self { exact, left: MOST_COUNTED }
    }

    fn count(&mut self, text: &str) -> u64 {
        let Some(exact) = self.exact else { return estimate(text) };
        let (head, tail) = cut(text, self.left);
        self.left -= head.len();
        let counted: usize = pieces(head).map(|piece| exact.count_ordinary(piece)).sum();
        counted as u64 + estimate(tail)
    }

    fn calls(&mut self, calls: &[NativeCall]) -> u64 {
        let mut call = |call: &NativeCall| {
            AROUND_A_TOOL
                + self.count(&call.id)
                + self.count(&call.name)
                + self.count(&call.arguments)
        };
        calls.iter().map(&mut call).sum()
    }
}

/// How many requests are remembered with their count.
const REMEMBERED: usize = 64;

/// Counts of requests. One call is counted several times on its way, and that takes a while.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    known: Mutex<VecDeque<(u64, u64)>>,
    /// Keyed by chance, so that nobody can make two requests look the same.
    hashes: RandomState,
}

impl Counts {
    pub(crate) fn count(&self, tokenizer: Tokenizer, request: &ChatRequest) -> u64 {
        if tokenizer == Tokenizer::Estimate {
            return tokenizer.count_request(request);
        }
        let hash = self.hash(tokenizer, request);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = known().iter().find(|(known, _)| *known == hash) {
            return *count;
        }
        let count = tokenizer.count_request(request);
        let mut known = known();
        if known.len() >= REMEMBERED {
            known.pop_front();
        }
        known.push_back((hash, count));
        count
    }

    fn hash(&self, tokenizer: Tokenizer, request: &ChatRequest) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        tokenizer.hash(&mut hasher);
        for message in &request.messages {
            message.content.hash(&mut hasher);
            message.tool_call_id.hash(&mut hasher);
            message.tool_calls.hash(&mut hasher);
        }
        request.messages.len().hash(&mut hasher);
        for tool in &request.tools {
            (&tool.name, &tool.description, tool.parameters.to_string()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// See [`Tokenizer::Estimate`].
fn estimate(text: &str) -> u64 {
    let mut run = 0u32;
    let sixths = |c: char| match (c, c.len_utf8()) {
        ('a'..='z' | 'A'..='Z', _) => {
            run += 1;
            // Words are short; what goes on without a space is a code that no vocabulary knows.
            if run > LONGEST_WORD { 4 } else { 2 }
        }
        (' ' | '\n' | '\t' | '\r', _) => {
            run = 0;
            2
        }
        (_, 1) => 5,
        (_, 2) => 4,
        (_, bytes) => 3 * bytes as u64,
    };
    text.chars().map(sixths).sum::<u64>().div_ceil(6)
}

/// Pieces whose runs of letters, or of spaces, are short. Where a run is cut it has a token more at most.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let mut run = 0;
        let mut spaces = false;
        let mut end = text.len();
        for (at, c) in text.char_indices() {
            run = if spaces == c.is_whitespace() { run + c.len_utf8() } else { 0 };
            spaces = c.is_whitespace();
            if run > LONGEST_RUN {
                end = at;
                break;
            }
        }
        let (piece, rest) = cut(text, end);
        text = rest;
        Some(piece)
    })
}

/// A text in two, at a character's boundary.
fn cut(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(text.floor_char_boundary(at)).unwrap_or((text, ""))
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
