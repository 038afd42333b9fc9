//! JSON Schema (2020-12) for inputs and outputs.
//!
//! A schema may come from an upstream that nobody here wrote, so nothing is fetched, patterns run on
//! a linear engine, and a message never repeats the value that it is about.

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::redact::redact_text;

/// How many problems of one input are worth telling.
const MOST_PROBLEMS: usize = 20;

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
        self.0
            .iter_errors(input)
            .take(MOST_PROBLEMS)
            .map(|error| InputProblem {
                pointer: redact_text(error.instance_path().as_str()).into_owned(),
                message: redact_text(&error.masked_with("the value").to_string()).into_owned(),
            })
            .collect()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
