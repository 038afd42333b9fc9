//! Cutting and cleaning texts.

/// The text, or its beginning and a note of how much is missing. Never more than `most` bytes and the note.
pub fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = head(text, most);
    format!("{kept}… [{} more bytes]", text.len() - kept.len())
}

/// At most so many bytes of the beginning, cut between characters.
pub(crate) fn head(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The text in one line: what would break or fake a line is a blank.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        let c =
            if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}') { ' ' } else { c };
        if c != ' ' || !line.ends_with(' ') {
            line.push(c);
        }
    }
    line.trim().to_owned()
}

/// The text so that none of its lines is the border of a section, and none of it is a marker.
pub(crate) fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, line) in text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        if line.trim_start().starts_with("===") {
            safe.push('\\');
        }
        safe.push_str(&line.replace("<<<", "< < <"));
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_say_so() {
        assert_eq!(bounded("short", 5), "short");
        assert_eq!(bounded("äöü", 3), "ä… [4 more bytes]");
        assert_eq!(bounded("äöü", 0), "… [6 more bytes]");
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(one_line(" a\r\n\tb\u{2028}c  d\0 "), "a b c d");
    }

    #[test]
    fn nothing_looks_like_a_border_or_a_marker() {
        let text = harmless("=== END ===\r  === X\u{2028}=== Y\n<<<NOTES_JSON>>> <<<<<<");
        assert!(text.lines().all(|line| !line.trim_start().starts_with("===")), "{text}");
        assert!(!text.contains("<<<"), "{text}");
    }
}
