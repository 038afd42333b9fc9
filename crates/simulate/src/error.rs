//! What is wrong with a scenario file, where, and what to write instead.

use std::{fmt, ops::Range};

use tollgate_contract::text::{list, nearest, plain_shape};

/// A scenario that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{problem}", Place(.position.as_ref()), Field(.field))]
pub struct ScenarioError {
    /// The field, such as `agents[0].takes`; empty where it is the file as a whole.
    pub field: String,
    /// What is wrong, and what to do.
    pub problem: String,
    /// Line and column, from 1, where they are known.
    pub position: Option<(usize, usize)>,
}

/// Where it is, for the beginning of a sentence.
struct Place<'a>(Option<&'a (usize, usize)>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |(line, column)| write!(f, "line {line}, column {column}: "))
    }
}

/// Which field it is, for the beginning of a sentence.
struct Field<'a>(&'a str);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

impl ScenarioError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), position: None }
    }

    /// The same, at a place in the file.
    pub(crate) fn at(mut self, text: &str, span: &Range<usize>) -> Self {
        self.position = Some(position(text, span.start));
        self
    }

    /// What the reader of the file stumbled over.
    pub(crate) fn shape(text: &str, path: &str, error: &toml::de::Error) -> Self {
        let message = error.message();
        // The message of an unknown word is "unknown field `x`, expected one of `a`, `b`".
        let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let near = match words.split_first() {
            Some((wrong, known)) if message.starts_with("unknown") => {
                nearest(wrong, known.iter().copied())
            }
            _ => None,
        };
        let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        // Where a place in the file is asked for, the reader's own name for that comes in between.
        let path = path.replace(".$__serde_spanned_private_value", "");
        let field = if path == "." { String::new() } else { path };
        let problem = format!("{}{meant}", plain_shape(message.trim()));
        let position = error.span().map(|span| position(text, span.start));
        Self { field, problem, position }
    }
}

/// Line and column of a byte, both from 1.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

/// There is no such thing: what was probably meant, or what there is.
pub(crate) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let meant = match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.clone().next().is_none() => "there is none".to_owned(),
        None => format!("there are {}", list(known.map(|name| format!("`{name}`")))),
    };
    format!("there is no {what} `{name}`; {meant}")
}
