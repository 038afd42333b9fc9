//! Reading a trace. A line that cannot be read is an error with its number; nothing is skipped.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tollgate_contract::{
    InputHash, input_hash,
    json::{self, JsonError},
    redact::REDACTION_VERSION,
    text::{Clean, hex, plain_shape},
};

use crate::entry::{Entry, VERSION};

/// A trace that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    entries: Vec<Entry>,
    sha256: String,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not JSON.
    #[error("line {line}: {problem}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: JsonError,
    },
    /// A line is JSON, but no entry.
    #[error("line {line} is no trace entry: {problem}")]
    Shape {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: Clean,
    },
    /// A line has a format that is not known here.
    #[error("line {line} has format {found}; this tollgate reads format {VERSION}")]
    Version {
        /// The line, from 1.
        line: usize,
        /// The format.
        found: u64,
    },
    /// A line was redacted by other rules, so that its hash means something else.
    #[error(
        "line {line} was redacted by version {found} of the rules, and this tollgate has version {REDACTION_VERSION}; replay it with the tollgate that recorded it"
    )]
    Redaction {
        /// The line, from 1.
        line: usize,
        /// The rules' version.
        found: u32,
    },
    /// A line's hash is not that of its input.
    #[error("line {line}: the input hash is not that of the input; the trace was changed")]
    Hash {
        /// The line, from 1.
        line: usize,
    },
}

impl Trace {
    /// Reads a trace from its text.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            entries.push(entry(index + 1, line)?);
        }
        let sha256 = hex(&Sha256::digest(text.as_bytes())).to_string();
        Ok(Self { entries, sha256 })
    }

    /// The entries, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// SHA-256 of the text, in hex.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

fn entry(line: usize, text: &str) -> Result<Entry, TraceError> {
    let value =
        json::parse(text.as_bytes()).map_err(|problem| TraceError::Json { line, problem })?;
    match value.get("v").and_then(Value::as_u64) {
        Some(found) if found != u64::from(VERSION) => {
            return Err(TraceError::Version { line, found });
        }
        _ => {}
    }
    let entry = Entry::deserialize(value).map_err(|error| TraceError::Shape {
        line,
        problem: plain_shape(&error.to_string()).into(),
    })?;
    if entry.redaction != REDACTION_VERSION {
        return Err(TraceError::Redaction { line, found: entry.redaction });
    }
    let computed: Option<InputHash> = input_hash(&entry.input).ok();
    if computed != Some(entry.input_hash) {
        return Err(TraceError::Hash { line });
    }
    Ok(entry)
}
