//! A look at an expression before it is parsed. The parser calls itself for everything that is nested, without
//! a bound that it keeps, so that what is too long or too deep is refused here, in one pass over the bytes.

/// The longest expression, in bytes.
pub(crate) const LONGEST_SOURCE: usize = 2_000;

/// How deep brackets may be inside one another.
const DEEPEST_BRACKETS: usize = 32;

/// How many operators may hang on one another, all enclosing brackets together. The tree is at most so deep.
const MOST_LINKS: usize = 100;

/// Inside one pair of brackets: what hangs on one another there.
#[derive(Clone, Copy, Default)]
struct Level {
    links: usize,
    choices: usize,
}

/// What is too much about an expression, and where (in bytes).
pub(crate) fn scan(source: &str) -> Result<(), (usize, String)> {
    if source.len() > LONGEST_SOURCE {
        let problem = format!(
            "is {} bytes long; an expression has at most {LONGEST_SOURCE}, so write several rules",
            source.len()
        );
        return Err((0, problem));
    }
    let bytes = source.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let mut levels = vec![Level::default()];
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += 1;
        match byte(start) {
            b'\'' | b'"' => at = end_of_text(bytes, start)?,
            b'/' if byte(at) == b'/' => {
                while at < bytes.len() && byte(at) != b'\n' {
                    at += 1;
                }
            }
            b'(' | b'[' | b'{' => levels.push(Level { links: 1, choices: 1 }),
            b')' | b']' | b'}' if levels.len() > 1 => {
                levels.pop();
                // What follows hangs on what the brackets hold.
                add(&mut levels, false);
            }
            b',' => {
                if let Some(level) = levels.last_mut() {
                    *level = Level { links: 1, choices: 1 };
                }
            }
            b'&' | b'|' if byte(at) == byte(start) => {
                at += 1;
                // Terms of a chain stand beside one another, but a choice reaches over all of them.
                if let Some(level) = levels.last_mut() {
                    level.links = level.choices + 1;
                }
            }
            b'?' => add(&mut levels, true),
            b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'.' => {
                if matches!(byte(start), b'!' | b'<' | b'>' | b'=') && byte(at) == b'=' {
                    at += 1;
                }
                add(&mut levels, false);
            }
            _ => {}
        }
        let links: usize = levels.iter().map(|level| level.links).sum();
        if levels.len() > DEEPEST_BRACKETS + 1 || links > MOST_LINKS {
            return Err((start, TOO_DEEP.to_owned()));
        }
    }
    Ok(())
}

/// What is said of an expression that is too deep.
pub(crate) const TOO_DEEP: &str = "is nested too deep; an expression is at most 32 deep, so write it flatter, or as several rules";

fn add(levels: &mut [Level], is_choice: bool) {
    if let Some(level) = levels.last_mut() {
        level.links += 1;
        level.choices += usize::from(is_choice);
    }
}

/// The place behind a text in quotes.
fn end_of_text(bytes: &[u8], start: usize) -> Result<usize, (usize, String)> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let quote = byte(start);
    let is_triple = byte(start + 1) == quote && byte(start + 2) == quote;
    // A backslash means itself in `r'…'`.
    let before = bytes.get(start.saturating_sub(2)..start).unwrap_or_default();
    let is_raw =
        before.iter().rev().take_while(|b| b.is_ascii_alphabetic()).any(|b| b | 32 == b'r');
    let width = if is_triple { 3 } else { 1 };
    let mut at = start + width;
    while at < bytes.len() {
        match byte(at) {
            b'\\' if !is_raw => at += 1,
            b'\n' | b'\r' if !is_triple => break,
            found if found == quote => {
                if !is_triple {
                    return Ok(at + 1);
                }
                if byte(at + 1) == quote && byte(at + 2) == quote {
                    return Ok(at + 3);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Err((start, "begins a text that does not end; close the quotes".to_owned()))
}
