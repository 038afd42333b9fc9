//! Splits a command into words as a POSIX shell does, and refuses whatever a shell would expand or act on: there
//! is no shell, and a command that means something else with one should not quietly mean nothing.
//!
//! Blanks (space and tab) part words. Single quotes keep everything; double quotes keep everything but `\`
//! before `$`, `` ` ``, `"` and `\`; a backslash outside quotes keeps the next character. Refused:
//!
//! - outside quotes: `| & ; < > ( ) $ `` ` `` * ? [ { }` anywhere, `#` and `~` at the start of a word, a new line, and
//!   every blank of Unicode that is not space or tab (a shell would take it for a letter);
//! - inside double quotes: `$` and `` ` `` without a backslash;
//! - anywhere: NUL and the other control characters, but for tab and new line inside quotes;
//! - `NAME=value` before the program, a quote without its end, a backslash at the end, nothing at all.
//!
//! `!`, `=`, `]`, `^` and `%` mean nothing to a shell where arguments are, and pass.

use std::fmt;

/// No command is longer, in bytes.
pub const LONGEST: usize = 16 << 10;

/// Why a command was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A shell would act on it.
    #[error("`{}` at character {at} means something to a shell, and there is none here; quote it if it is meant as it stands", Shown(*.found))]
    Meta {
        /// The character.
        found: char,
        /// Its place, counted from 1.
        at: usize,
    },
    /// A shell would replace it, also inside double quotes.
    #[error(
        "`{found}` at character {at} would be replaced by a shell, and nothing is replaced here; put it in single quotes, or write `\\{found}`"
    )]
    Expansion {
        /// The character.
        found: char,
        /// Its place, counted from 1.
        at: usize,
    },
    /// It cannot be seen.
    #[error("the character U+{:04X} at {at} is not allowed in a command; leave it out", u32::from(*.found))]
    Control {
        /// The character.
        found: char,
        /// Its place, counted from 1.
        at: usize,
    },
    /// It looks like a blank and is none.
    #[error("the character U+{:04X} at {at} looks like a blank and does not part words; write a space, or quote it", u32::from(*.found))]
    Blank {
        /// The character.
        found: char,
        /// Its place, counted from 1.
        at: usize,
    },
    /// A quote without its end.
    #[error(
        "the quote {quote} at character {at} has no end; add the closing one, or write \\{quote}"
    )]
    Unterminated {
        /// The quote.
        quote: char,
        /// Its place, counted from 1.
        at: usize,
    },
    /// Nothing after the last backslash.
    #[error("the command ends with a backslash; write `\\\\` for one")]
    Dangling,
    /// A variable is set before the program.
    #[error("variables cannot be set in front of the program; start with the program")]
    Assignment,
    /// Nothing to run.
    #[error("the command is empty; name a program and its arguments")]
    Empty,
    /// Too long.
    #[error(
        "the command is longer than {LONGEST} bytes; write what is long into a file of the workspace"
    )]
    TooLong,
}

struct Shown(char);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            '\n' => f.write_str("\\n"),
            '`' => f.write_str("backtick"),
            other => write!(f, "{other}"),
        }
    }
}

/// Where the reader is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outside,
    Single(usize),
    Double(usize),
}

/// Splits a command.
pub fn split(command: &str) -> Result<Vec<String>, WordsError> {
    if command.len() > LONGEST {
        return Err(WordsError::TooLong);
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut assigned = false;
    let mut place = Place::Outside;
    let mut chars = command.chars().enumerate().map(|(at, found)| (at + 1, found)).peekable();
    while let Some((at, found)) = chars.next() {
        allowed(found, at, place)?;
        match (place, found) {
            (Place::Outside, ' ' | '\t') => words.extend(word.take()),
            (Place::Outside, '\'') => {
                place = Place::Single(at);
                word.get_or_insert_default();
            }
            (Place::Outside, '"') => {
                place = Place::Double(at);
                word.get_or_insert_default();
            }
            (Place::Single(_), '\'') | (Place::Double(_), '"') => place = Place::Outside,
            (Place::Outside, '\\') => {
                let (at, next) = chars.next().ok_or(WordsError::Dangling)?;
                allowed(next, at, Place::Single(at))?;
                if next == '\n' {
                    return Err(WordsError::Meta { found: next, at });
                }
                word.get_or_insert_default().push(next);
            }
            (Place::Double(_), '\\') => {
                let kept = chars.next_if(|(_, next)| matches!(next, '$' | '`' | '"' | '\\'));
                // Before anything else it stands for itself, but for a new line, which it would join.
                if let Some((at, '\n')) = chars.peek() {
                    return Err(WordsError::Meta { found: '\n', at: *at });
                }
                word.get_or_insert_default().push(kept.map_or('\\', |(_, next)| next));
            }
            (Place::Double(_), '$' | '`') => return Err(WordsError::Expansion { found, at }),
            (Place::Outside, found) => {
                if is_meta(found, word.is_none()) {
                    return Err(WordsError::Meta { found, at });
                }
                assigned |=
                    found == '=' && words.is_empty() && word.as_deref().is_some_and(is_name);
                word.get_or_insert_default().push(found);
            }
            (_, found) => word.get_or_insert_default().push(found),
        }
    }
    match place {
        Place::Outside => words.extend(word),
        Place::Single(at) => return Err(WordsError::Unterminated { quote: '\'', at }),
        Place::Double(at) => return Err(WordsError::Unterminated { quote: '"', at }),
    }
    match words.first() {
        _ if assigned => Err(WordsError::Assignment),
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err(WordsError::Empty),
    }
}

fn allowed(found: char, at: usize, place: Place) -> Result<(), WordsError> {
    match found {
        '\t' => Ok(()),
        '\n' if place != Place::Outside => Ok(()),
        '\n' => Err(WordsError::Meta { found, at }),
        _ if found.is_control() => Err(WordsError::Control { found, at }),
        ' ' => Ok(()),
        _ if place == Place::Outside && found.is_whitespace() => {
            Err(WordsError::Blank { found, at })
        }
        _ => Ok(()),
    }
}

fn is_meta(found: char, starts_word: bool) -> bool {
    match found {
        '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | '{' | '}' => true,
        '#' | '~' => starts_word,
        _ => false,
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
