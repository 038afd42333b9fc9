//! What an agent gets of a body, by what kind of thing it is.

use reqwest::Url;

use super::{charset, html};

/// What is read of a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Readable {
    pub(super) title: Option<String>,
    pub(super) text: String,
    pub(super) cut: bool,
    pub(super) note: Option<String>,
}

/// A kind of body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page,
    Markup,
    Text,
    Binary,
}

/// Makes text of a body. `cut` says that its end is missing.
pub(super) fn readable(
    bytes: &[u8],
    content_type: Option<&str>,
    base: &Url,
    most: usize,
    cut: bool,
) -> Readable {
    let kind = kind(bytes, content_type);
    if kind == Kind::Binary {
        let what = content_type.unwrap_or("something unnamed");
        let at_least = if cut { "at least " } else { "" };
        let note = format!("{at_least}{} bytes of {what}; only text is given", bytes.len());
        return Readable { note: Some(note), cut, ..Readable::default() };
    }
    let said = content_type.and_then(charset::parameter);
    let markup = matches!(kind, Kind::Page | Kind::Markup);
    let text = charset::decoded(bytes, said.as_deref(), markup, cut);
    let (title, text, more) = if kind == Kind::Page {
        let plain = html::plain(&text, base, most);
        (plain.title, plain.text, plain.cut)
    } else {
        let short: String = text.chars().take(most).collect();
        let more = short.len() < text.len();
        (None, short, more)
    };
    let title = title.map(|title| without_controls(&title));
    Readable { title, text: without_controls(&text), cut: cut || more, note: None }
}

/// What a terminal would act on has no place in a text.
fn without_controls(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            '\n' | '\t' => clean.push(c),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    clean
}

fn kind(bytes: &[u8], content_type: Option<&str>) -> Kind {
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Page,
        "text/xml" | "application/xml" => Kind::Markup,
        "application/json"
        | "application/x-ndjson"
        | "application/javascript"
        | "application/ecmascript"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/sql"
        | "application/x-sh"
        | "application/x-www-form-urlencoded"
        | "application/graphql" => Kind::Text,
        "" => sniffed(bytes),
        other if other.starts_with("text/") || other.ends_with("+json") => Kind::Text,
        other if other.ends_with("+xml") => Kind::Markup,
        _ => Kind::Binary,
    }
}

/// What it looks like, where nobody says what it is.
fn sniffed(bytes: &[u8]) -> Kind {
    let head = bytes.get(..1_024).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head).trim_start().to_ascii_lowercase();
    if text.starts_with("<!doctype html") || text.starts_with("<html") {
        Kind::Page
    } else if head.contains(&0) || std::str::from_utf8(head).is_err_and(|e| e.error_len().is_some())
    {
        Kind::Binary
    } else {
        Kind::Text
    }
}

#[cfg(test)]
#[path = "readable_tests.rs"]
mod tests;
