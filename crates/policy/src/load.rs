//! Reading policies from a file. A file that does not validate as a whole does not load at all.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tollgate_contract::{
    Quoted,
    json::{self, Position},
    redact::is_sensitive_field,
    text::{Clean, nearest, plain_shape},
};
use toml::de::{DeTable, DeValue};

use crate::policy::Policy;

/// What a policy file holds: the server's policy, and policies by name for keys, sessions and calls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySet {
    /// The server's own policy.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub server: Policy,
    /// Policies by name.
    #[serde(default)]
    pub policies: BTreeMap<String, Policy>,
}

fn is_empty(policy: &Policy) -> bool {
    *policy == Policy::default()
}

/// How a policy file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON
    Json,
    /// TOML
    Toml,
}

/// The name that the policy of a file with only one policy gets.
const ONLY: &str = "key";

/// Why a policy file does not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    field: String,
    message: Clean,
    suggestion: Option<String>,
    position: Option<Position>,
}

impl PolicyError {
    /// An error of this field.
    pub fn of(field: &str, problem: &str) -> Self {
        let message = Clean::new(problem);
        Self { field: field.to_owned(), message, suggestion: None, position: None }
    }

    /// The same with its place in the TOML text that it was found in: that of the field, or of what should
    /// have it where it is missing.
    #[must_use]
    pub fn placed(self, text: &str) -> Self {
        if self.position.is_some() {
            return self;
        }
        let start = start_of(text, &self.field);
        Self { position: start.and_then(|start| position_at(text, start)), ..self }
    }

    /// The field, dotted; empty where the file as a whole is wrong.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        self.message.as_str()
    }

    /// The word that was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }

    /// Where it stands in the file.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(Position { line, column }) = self.position {
            write!(f, " (line {line}, column {column})")?;
        }
        if let Some(name) = &self.suggestion {
            write!(f, "; did you mean `{name}`?")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}

impl PolicySet {
    /// Reads a file: either `server` and `policies`, or the fields of one policy, which is then what
    /// a key carries under the name `key`.
    pub fn parse(text: &str, format: Format) -> Result<Self, PolicyError> {
        if text.trim().is_empty() {
            return Err(shape_error(
                "",
                "the file is empty; a policy states at least a ceiling",
                None,
            ));
        }
        if is_one_policy(text, format)? {
            let only: Policy = read(text, format)?;
            return Ok(Self {
                server: Policy::default(),
                policies: [(ONLY.to_owned(), only)].into(),
            });
        }
        let set: Self = read(text, format)?;
        set.check_names()?;
        Ok(set)
    }

    /// Reads a TOML file that holds `server` and `policies` among other sections: `T` says which. What
    /// holds policies is read as strictly as a file of policies alone.
    pub fn parse_among<T: DeserializeOwned>(text: &str) -> Result<T, PolicyError> {
        let table: toml::Table =
            toml::from_str(text).map_err(|error| toml_error(text, "", &error))?;
        let whole = require_json(&toml::Value::Table(table), "")?;
        require_objects(&whole, "", Part::Whole)?;
        read(text, Format::Toml)
    }

    /// Refuses names that mean something already.
    pub fn check_names(&self) -> Result<(), PolicyError> {
        let is_taken =
            |name: &&String| name.as_str() == "anonymous" || Policy::built_in(name).is_some();
        match self.policies.keys().find(is_taken) {
            None => Ok(()),
            Some(taken) => Err(PolicyError {
                field: format!("policies.{taken}"),
                message: "is a built-in name; choose another".into(),
                suggestion: None,
                position: None,
            }),
        }
    }

    /// The policy of this name: one of the file, or a built-in one.
    pub fn named(&self, name: &str) -> Option<Policy> {
        self.policies.get(name).cloned().or_else(|| Policy::built_in(name))
    }

    /// Every name that [`PolicySet::named`] knows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.policies.keys().map(String::as_str).chain(Policy::BUILT_IN)
    }
}

impl Policy {
    /// Reads one policy, as strictly as from a file.
    pub fn from_json(value: &Value) -> Result<Self, PolicyError> {
        require_objects(value, "", Part::Policy)?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            shape_error(&error.path().to_string(), &error.inner().to_string(), None)
        })
    }
}

/// Does the file hold the fields of one policy at its top?
fn is_one_policy(text: &str, format: Format) -> Result<bool, PolicyError> {
    let whole = match format {
        Format::Json => json::parse(text.as_bytes()).map_err(|error| PolicyError {
            field: Quoted::new(&error.pointer().trim_start_matches('/').replace('/', "."))
                .as_str()
                .to_owned(),
            message: Clean::already(error.kind().to_string()),
            suggestion: None,
            position: error.position(),
        })?,
        Format::Toml => {
            let table: toml::Table =
                toml::from_str(text).map_err(|error| toml_error(text, "", &error))?;
            require_json(&toml::Value::Table(table), "")?
        }
    };
    require_objects(&whole, "", Part::Whole)?;
    // A misspelt `server` is told as one, and not as a field that no policy has.
    let is_of_set = |key: &String| nearest(key, ["server", "policies"]).is_some();
    Ok(!whole.as_object().is_some_and(|members| members.keys().any(is_of_set)))
}

/// The value as JSON. What JSON cannot say would turn into something else without a word: a number that is
/// not finite into null, a date into an object.
fn require_json(value: &toml::Value, path: &str) -> Result<Value, PolicyError> {
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        toml::Value::Float(float) if !float.is_finite() => {
            Err(shape_error(path, "must be a number that is finite", None))
        }
        toml::Value::Datetime(_) => {
            Err(shape_error(path, "is a date; write it as a text in quotes", None))
        }
        toml::Value::Table(table) => table
            .iter()
            .map(|(name, value)| Ok((name.clone(), require_json(value, &below(name))?)))
            .collect::<Result<serde_json::Map<_, _>, _>>()
            .map(Value::Object),
        toml::Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, item)| require_json(item, &format!("{path}[{at}]")))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        toml::Value::String(text) => Ok(Value::from(text.as_str())),
        toml::Value::Integer(number) => Ok(Value::from(*number)),
        toml::Value::Float(number) => Ok(Value::from(*number)),
        toml::Value::Boolean(flag) => Ok(Value::from(*flag)),
    }
}

/// A part of a policy file whose members have names.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    Policy,
    Policies,
    Ask,
    Trade,
    Condition,
}

/// Every part that has named members is written with their names. A deserialiser would also take a
/// list, by the places of its items, and an empty one would then be a section that says nothing.
fn require_objects(value: &Value, path: &str, part: Part) -> Result<(), PolicyError> {
    let Value::Object(members) = value else {
        return Err(shape_error(path, "must be a table (an object) with named members", None));
    };
    for (name, value) in members {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // Something that writes policies and leaves a null where a list should be must not open a gate.
        // Only a test such as `equals` can mean one.
        if value.is_null() && !matches!(part, Part::Condition) {
            return Err(shape_error(&path, "is null; leave it out if nothing is meant", None));
        }
        match (part, name.as_str()) {
            (Part::Whole, "server") | (Part::Policies, _) => {
                require_objects(value, &path, Part::Policy)?
            }
            (Part::Whole, "policies") => require_objects(value, &path, Part::Policies)?,
            (Part::Whole | Part::Policy, "trade") => require_objects(value, &path, Part::Trade)?,
            (Part::Ask, "input") => require_objects(value, &path, Part::Condition)?,
            (Part::Whole | Part::Policy, "ask") => {
                for (at, entry) in value.as_array().into_iter().flatten().enumerate() {
                    require_objects(entry, &format!("{path}[{at}]"), Part::Ask)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn read<'de, T: Deserialize<'de>>(text: &'de str, format: Format) -> Result<T, PolicyError> {
    match format {
        Format::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            serde_path_to_error::deserialize(&mut reader).map_err(|error| {
                let inner = error.inner();
                let position = Position { line: inner.line(), column: inner.column() };
                let message = inner.to_string();
                let plain = message.split(" at line ").next().unwrap_or_default();
                shape_error(&error.path().to_string(), plain, Some(position))
            })
        }
        Format::Toml => {
            let reader =
                toml::Deserializer::parse(text).map_err(|error| toml_error(text, "", &error))?;
            serde_path_to_error::deserialize(reader)
                .map_err(|error| toml_error(text, &error.path().to_string(), error.inner()))
        }
    }
}

fn toml_error(text: &str, path: &str, error: &toml::de::Error) -> PolicyError {
    let position = error.span().and_then(|span| position_at(text, span.start));
    shape_error(path, error.message(), position)
}

fn position_at(text: &str, start: usize) -> Option<Position> {
    let before = text.get(..start)?;
    Some(Position {
        line: before.matches('\n').count() + 1,
        column: before.rsplit('\n').next().unwrap_or_default().chars().count() + 1,
    })
}

/// Where a field such as `pools[0].window.every` stands, or the last part of its path that is there.
fn start_of(text: &str, field: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut found = None;
    for part in field.split('.') {
        let (name, place) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, place)) => (name, place.parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else { break };
        found = Some(key.span().start);
        let mut value = value.get_ref();
        if let (DeValue::Array(array), Some(place)) = (value, place) {
            let Some(element) = array.get(place) else { break };
            found = Some(element.span().start);
            value = element.get_ref();
        }
        let DeValue::Table(inner) = value else { break };
        table = inner;
    }
    found
}

/// An error of the shape of the file, with the nearest of the words that would have fitted.
fn shape_error(path: &str, message: &str, position: Option<Position>) -> PolicyError {
    // The message of an unknown word is "unknown field `x`, expected one of `a`, `b`".
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let suggestion = match words.split_first() {
        Some((wrong, known)) if message.starts_with("unknown") => {
            nearest(wrong, known.iter().copied()).map(str::to_owned)
        }
        _ => None,
    };
    // The names of fields are whatever somebody wrote.
    let field = if path == "." { String::new() } else { Quoted::new(path).as_str().to_owned() };
    // A message may repeat the value that it is about.
    let message = if is_sensitive_field(&field) {
        Clean::already("does not have the form that it should; it is a text in quotes".to_owned())
    } else {
        plain_shape(message).into()
    };
    PolicyError { field, message, suggestion, position }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
