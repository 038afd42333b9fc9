//! The characters that a body's bytes stand for.
//!
//! A byte order mark counts most, then what the server says, then what the document says of itself. Without any
//! of them it is UTF-8 if it can be, and otherwise what most old pages are in.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use html5gum::{Token, Tokenizer};

/// How far into a document it is looked for.
const HEAD: usize = 1_024;

/// The text of a body. `cut` says that its end is missing.
pub(super) fn decoded(bytes: &[u8], said: Option<&str>, markup: bool, cut: bool) -> String {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        let body = bytes.get(mark..).unwrap_or_default();
        return encoding.decode_without_bom_handling(body).0.into_owned();
    }
    let said = said.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = said
        .or_else(|| markup.then(|| declared(bytes)).flatten())
        .unwrap_or_else(|| if is_utf8(bytes, cut) { UTF_8 } else { WINDOWS_1252 });
    encoding.decode_without_bom_handling(bytes).0.into_owned()
}

/// Is it UTF-8, but for a last character that is cut?
fn is_utf8(bytes: &[u8], cut: bool) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => cut && error.error_len().is_none(),
    }
}

/// What a document says of itself, in its first bytes.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..HEAD).unwrap_or(bytes);
    let label = in_xml(head).or_else(|| in_html(head))?;
    let encoding = Encoding::for_label(label.as_bytes())?;
    // Whoever could read the declaration as ASCII does not read UTF-16.
    Some(if encoding == UTF_16LE || encoding == UTF_16BE {
        UTF_8
    } else if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    })
}

/// `<?xml version="1.0" encoding="…"?>`
fn in_xml(head: &[u8]) -> Option<String> {
    let rest = head.strip_prefix(b"<?xml")?;
    let end = rest.iter().position(|byte| *byte == b'>')?;
    let declaration = String::from_utf8_lossy(rest.get(..end)?).into_owned();
    let (_, value) = declaration.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    value.split(['"', '\'']).nth(1).map(str::to_owned)
}

/// `<meta charset=…>` or its older form.
fn in_html(head: &[u8]) -> Option<String> {
    for token in Tokenizer::new(head) {
        let Ok(Token::StartTag(tag)) = token else {
            continue;
        };
        if tag.name.as_slice() != b"meta" {
            continue;
        }
        let value = |name: &[u8]| {
            tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        if let Some(label) = value(b"charset") {
            return Some(label);
        }
        if value(b"http-equiv").is_some_and(|what| what.eq_ignore_ascii_case("content-type"))
            && let Some(label) = value(b"content").as_deref().and_then(parameter)
        {
            return Some(label);
        }
    }
    None
}

/// The charset that a content type names.
pub(super) fn parameter(content_type: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']).trim();
        (name.trim().eq_ignore_ascii_case("charset") && !value.is_empty()).then(|| value.to_owned())
    })
}
