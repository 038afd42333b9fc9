//! JSON Schema (2020-12) for inputs and outputs.
//!
//! A schema may come from an upstream that nobody here wrote, so nothing is fetched, patterns run on
//! a linear engine, and a message never repeats the value that it is about.

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use serde::Serialize;
use serde_json::Value;

use crate::{redact::redact_text, text::Clean};

/// How many problems of one input are worth telling.
const MOST_PROBLEMS: usize = 20;

/// How much is said about one of them.
const LONGEST_PROBLEM: usize = 300;

/// A schema that is ready to check inputs.
pub struct Schema(Validator);

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be used: {0}")]
pub struct SchemaError(String);

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// JSON pointer to what is wrong; empty for the input as a whole.
    pub pointer: String,
    /// What is wrong with it. Never repeats the value.
    pub message: String,
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.pointer, self.message)
        }
    }
}

impl Schema {
    /// Makes a schema ready.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex())
            .offline()
            .build(schema)
            .map(Self)
            .map_err(|error| SchemaError(redact_text(&error.to_string()).into_owned()))
    }

    /// Everything that is wrong with `input`, up to a bound; empty when it fits.
    pub fn problems(&self, input: &Value) -> Vec<InputProblem> {
        self.0.iter_errors(input).take(MOST_PROBLEMS).map(|error| problem(&error, input)).collect()
    }
}

/// What is wrong, and where, without the value that is.
fn problem(error: &ValidationError<'_>, input: &Value) -> InputProblem {
    let (pointer, message) = match (error.kind(), input.as_object()) {
        // A closed object without members says only that something is not allowed, and not what.
        (ValidationErrorKind::FalseSchema, Some(members)) => {
            let found = members.iter().find(|(_, value)| *value == error.instance().as_ref());
            let pointer = found.map_or_else(
                || error.instance_path().as_str().to_owned(),
                |(name, _)| format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            );
            (pointer, "it is not allowed here".to_owned())
        }
        _ => {
            let path = error.instance_path().as_str().to_owned();
            (path, error.masked_with("the value").to_string())
        }
    };
    InputProblem { pointer: bounded(&pointer), message: bounded(&message) }
}

/// What a caller sent may be in it, as the name of a member: clean, and of a readable length.
fn bounded(text: &str) -> String {
    let clean = Clean::new(text);
    let mut chars = clean.as_str().chars();
    let mut short: String = chars.by_ref().take(LONGEST_PROBLEM).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
