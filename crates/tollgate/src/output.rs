//! Writing what a command found: text for people, or one JSON envelope.
//!
//! `{"ok": true, "command", "data", "meta"}` or `{"ok": false, "command", "error", "meta"}`. In JSON
//! mode the envelope is all there is on the standard output. People get results on the standard
//! output and errors on the standard error.

use std::{
    borrow::Cow,
    fmt,
    io::{self, IsTerminal, Write},
};

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};
use serde::Serialize;
use serde_json::{Value, json};
use tollgate_contract::{
    Error, Violations,
    error::{ErrorObject, GateUnavailable, InvalidRequest, NotFound, PayloadTooLarge},
    json::{JsonError, Position},
    redact::redact_text,
    text::{self, Clean, nearest},
};
use tollgate_ledger::LedgerError;
use tollgate_policy::PolicyError;

use crate::exit::Exit;

/// Where and how a command writes.
pub(crate) struct Output {
    json: bool,
    command: &'static str,
}

impl Output {
    pub(crate) fn new(json: bool, command: &'static str) -> Self {
        Self { json, command }
    }

    /// Writes a result: `data` as an envelope, or the text that `human` makes.
    pub(crate) fn success(&self, data: &impl Serialize, human: impl FnOnce() -> String) -> Exit {
        let text = if self.json {
            let envelope =
                json!({"ok": true, "command": self.command, "data": data, "meta": meta()});
            text::json_for_terminal(&format!("{envelope:#}\n"))
        } else {
            human()
        };
        write_out(text.as_bytes())
    }

    /// Writes bytes as they are, with a line end only where a person reads them.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Exit {
        let exit = write_out(bytes);
        if io::stdout().is_terminal() { write_out(b"\n") } else { exit }
    }

    /// Does the command write an envelope?
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a failure and says how the command ends.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        if self.json {
            let error = &failure.error;
            let envelope =
                json!({"ok": false, "command": self.command, "error": error, "meta": meta()});
            write_out(format!("{envelope:#}\n").as_bytes());
        } else {
            write_err(&failure.report());
        }
        failure.exit
    }
}

fn meta() -> Value {
    json!({"version": env!("CARGO_PKG_VERSION")})
}

/// Writes to the standard output, and says whether anyone still reads it.
pub(crate) fn is_read(bytes: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).is_ok()
}

/// Writes to the standard output. A reader that went away is no error: `tollgate tools | head -1`.
pub(crate) fn write_out(bytes: &[u8]) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Exit::Ok,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            write_err(&format!("error: cannot write to the standard output: {error}\n"));
            Exit::Failed
        }
    }
}

/// Says something beside the result, to people.
pub(crate) fn note(line: &str) {
    write_err(&format!("{line}\n"));
}

/// Asks for something that is typed behind it.
pub(crate) fn prompt(text: &str) {
    write_err(text);
}

/// Writes to the standard error. If that fails there is nobody left to tell.
fn write_err(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Is colour wanted on this stream?
pub(crate) fn wants_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The width to which text for people is wrapped; `None` where no person reads and lines stay whole.
pub(crate) fn width() -> Option<usize> {
    io::stdout().is_terminal().then(|| usize::from(termimad::terminal_size().0).max(40))
}

/// Breaks `text` between words so that, behind an `indent`, it fits the terminal.
pub(crate) fn wrap(text: &str, indent: usize) -> String {
    let Some(width) = width() else { return text.to_owned() };
    wrap_to(text, indent, width.saturating_sub(indent).max(20))
}

fn wrap_to(text: &str, indent: usize, room: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

/// A key among the arguments is refused before anything is done with it: every process of this machine
/// can read them, and shells keep them.
pub(crate) fn refuse_key_in_arguments() -> Option<Exit> {
    let is_key = |text: &str| {
        ["tg_key_", "tg_tok_"].iter().any(|prefix| {
            text.split(prefix)
                .skip(1)
                .any(|rest| rest.chars().take_while(char::is_ascii_hexdigit).count() >= 16)
        })
    };
    let holds_key = std::env::args_os().skip(1).any(|arg| is_key(&arg.to_string_lossy()));
    if !holds_key {
        return None;
    }
    let failure = Failure::usage(
        "a key on the command line can be read by every process of this machine, and shells keep it"
            .to_owned(),
    )
    .with_help("set TOLLGATE_API_KEY, or name a file with --key-file; and rotate this key");
    Some(Output::new(wants_json(), "tollgate").failure(&failure))
}

/// Was JSON asked for? Read from the arguments directly, for when they cannot be parsed.
fn wants_json() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Answers a command line that cannot be understood; help and version are answers too.
pub(crate) fn usage_error(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => Exit::Ok,
            Err(_) => Exit::Failed,
        };
    }
    // What was typed is repeated in the message, and people do type keys.
    let rendered = error.render().to_string();
    let text = redact_text(&rendered);
    if wants_json() {
        let problem = text.split("\n\nUsage:").next().unwrap_or_default();
        let words: Vec<&str> = problem.trim_start_matches("error: ").split_whitespace().collect();
        Output::new(true, "tollgate").failure(&Failure::usage(words.join(" ")));
    } else {
        write_err(&text);
    }
    Exit::Usage
}

/// Lines longer than this are not shown with an error.
const LONGEST_SHOWN_LINE: usize = 200;

/// Why a command failed: an error of the contract, what a person can do about it, and where in a file
/// it stands.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<ErrorObject>,
    exit: Exit,
    help: Option<String>,
    place: Option<Box<Place>>,
    /// What people see instead of the error's own message, where a list reads better than a sentence.
    headline: Option<String>,
}

#[derive(Debug)]
struct Place {
    source: NamedSource<String>,
    label: LabeledSpan,
}

impl Failure {
    /// An error of the contract, with the exit code that belongs to it. At the command line the operator
    /// and the caller are the same person, who is told all.
    pub(crate) fn new(error: impl Into<Error>) -> Self {
        let error: Error = error.into();
        Self { headline: Some(error.operator()), ..Self::of(error.object(None)) }
    }

    /// An error as a gate has told it, or something that says to be one.
    pub(crate) fn of(mut error: ErrorObject) -> Self {
        let exit = Exit::of(error.code);
        error.message = text::for_terminal(&error.message);
        Self { error: Box::new(error), exit, help: None, place: None, headline: None }
    }

    /// A file or text that cannot be used. Whatever of `problem` came from outside has been quoted.
    pub(crate) fn bad_input(problem: String) -> Self {
        Self::new(InvalidRequest::new(Clean::already(problem), Vec::new()))
    }

    /// A command line that parses but makes no sense.
    pub(crate) fn usage(problem: String) -> Self {
        Self { exit: Exit::Usage, ..Self::bad_input(problem) }
    }

    /// A file that cannot be read.
    pub(crate) fn unreadable(name: &str, error: &io::Error) -> Self {
        Self::bad_input(format!("cannot read {name}: {error}"))
    }

    /// A file that is too large.
    pub(crate) fn too_large(name: &str, limit: u64) -> Self {
        let headline =
            format!("{name} is larger than {limit} bytes, which is the most that is read");
        Self { headline: Some(headline), ..Self::new(PayloadTooLarge::new(limit)) }
    }

    /// A word that is not on a list, with the nearest that is.
    pub(crate) fn not_found<'a>(
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let help = match nearest(word, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there is {}", known.join(", ")),
        };
        Self { help: Some(help), ..Self::new(NotFound::new(what, word)) }
    }

    /// A manifest that breaks its rules.
    pub(crate) fn manifest(name: &str, violations: &Violations) -> Self {
        let broken: Vec<String> = violations.iter().map(ToString::to_string).collect();
        let count = broken.len();
        let headline = format!("{name} breaks {count} rule{}", if count == 1 { "" } else { "s" });
        let failure = Self::bad_input(format!("{headline}: {}", broken.join("; ")));
        Self { headline: Some(headline), help: Some(broken.join("\n")), ..failure }
    }

    /// JSON that is not accepted.
    pub(crate) fn json(name: &str, text: &[u8], error: &JsonError) -> Self {
        let failure = Self::bad_input(format!("{name}: {error}"));
        failure.at(name, &String::from_utf8_lossy(text), error.position(), "here")
    }

    /// A policy file that does not load.
    pub(crate) fn policy(name: &str, text: &str, error: &PolicyError) -> Self {
        let failure = Self::bad_input(format!("{name}: {error}"));
        failure.at(name, text, error.position(), "here")
    }

    /// A gate that does not answer.
    pub(crate) fn unreachable(address: &str, problem: &str) -> Self {
        Self::new(GateUnavailable::new(address, problem))
    }

    /// A data folder on which no gate runs.
    pub(crate) fn not_running(folder: &str) -> Self {
        let headline =
            format!("no gate runs on the data folder {folder}; start it with `tollgate serve`");
        let failure = Self::unreachable(&format!("the data folder {folder}"), "it does not run");
        failure.saying(headline)
    }

    /// A gate that stopped answering after it was asked.
    pub(crate) fn interrupted(address: &str, problem: &str) -> Self {
        let headline = format!(
            "the gate at `{address}` stopped answering ({problem}); whether anything was called is in its ledger"
        );
        Self::unreachable(address, problem).saying(headline)
    }

    /// Says it in other words.
    fn saying(mut self, headline: String) -> Self {
        self.error.message.clone_from(&headline);
        self.headline = Some(headline);
        self
    }

    /// A data folder that cannot be used.
    pub(crate) fn ledger(error: &LedgerError) -> Self {
        let failure = Self::new(Error::from(error.clone()));
        Self { headline: Some(error.to_string()), ..failure }
    }

    /// Ends with another exit code.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// How the command ends with it.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Says what to do next.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points to a place in a text.
    fn at(mut self, name: &str, text: &str, position: Option<Position>, label: &str) -> Self {
        // A text that holds a secret is not repeated, not even on the terminal: logs keep what it shows.
        // Nor is one with very long lines: nobody could find the place in them.
        let is_shown = |position: &Position| {
            let around = text.lines().skip(position.line.saturating_sub(2)).take(4);
            around.into_iter().all(|line| line.len() <= LONGEST_SHOWN_LINE && is_plain(line))
                && matches!(redact_text(text), Cow::Borrowed(_))
        };
        let position = position.filter(is_shown);
        self.place = position.map(|position| {
            Box::new(Place {
                source: NamedSource::new(name.trim_matches('`'), text.to_owned()),
                label: LabeledSpan::at_offset(offset(text, position), label),
            })
        });
        self
    }

    /// The failure as people see it.
    fn report(&self) -> String {
        let theme = if wants_colour(&io::stderr()) {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(width().unwrap_or(100).min(100))
            .with_links(false);
        let mut text = String::new();
        match handler.render_report(&mut text, self) {
            Ok(()) => text,
            Err(_) => format!("error: {self}\n"),
        }
    }
}

/// Could a terminal act on this line?
fn is_plain(line: &str) -> bool {
    line.chars().all(|c| c == '\t' || text::is_plain(c))
}

/// Where a line and column stand in a text, in bytes.
fn offset(text: &str, position: Position) -> usize {
    let line_start: usize =
        text.split_inclusive('\n').take(position.line.saturating_sub(1)).map(str::len).sum();
    let line = text.get(line_start..).unwrap_or_default();
    let column: usize =
        line.chars().take(position.column.saturating_sub(1)).map(char::len_utf8).sum();
    (line_start + column).min(text.len())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.headline {
            Some(headline) => f.write_str(headline),
            None => f.write_str(&self.error.message),
        }
    }
}

impl std::error::Error for Failure {}

impl Diagnostic for Failure {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.error.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| &place.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.place.as_ref()?;
        Some(Box::new(std::iter::once(place.label.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_indented() {
        assert_eq!(wrap_to("one two three four", 2, 9), "one two\n  three\n  four");
        assert_eq!(
            wrap_to("a-word-that-is-too-long is not broken", 0, 10),
            "a-word-that-is-too-long\nis not\nbroken"
        );
        assert_eq!(wrap_to("", 4, 10), "");
    }

    #[test]
    fn a_line_and_a_column_are_found_in_a_text() {
        let text = "aé\nbc\n";
        let at = |line, column| offset(text, Position { line, column });
        assert_eq!((at(1, 1), at(1, 3), at(2, 2), at(9, 9)), (0, 3, 5, text.len()));
    }
}
