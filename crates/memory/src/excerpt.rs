//! What is shown of a record: one line around the best match, from which nothing that a record says can look like a
//! line of the block that it is shown in.

use std::collections::HashMap;

use tollgate_contract::text::is_plain;

use crate::term;

/// The longest excerpt, in characters.
pub const LONGEST_EXCERPT: usize = 300;

/// How much of the text is shown in front of the first match, in characters.
const LEAD: usize = 60;

/// The most characters that matches are gathered from; what is left is the lead and the dots.
const REACH: usize = LONGEST_EXCERPT - LEAD - 2;

/// How far a cut moves to fall between two words, in characters.
const TO_A_WORD: usize = 20;

/// The part of `text` in which the most telling of the looked-for terms stand together. Without any, the beginning.
pub(crate) fn excerpt(text: &str, weights: &HashMap<String, f64>) -> String {
    let line = one_line(text);
    let characters: Vec<char> = line.chars().collect();
    if characters.len() <= LONGEST_EXCERPT {
        return line;
    }
    let begin = best_begin(&line, weights).saturating_sub(LEAD);
    let last_begin = (characters.len() + 1).saturating_sub(LONGEST_EXCERPT);
    let begin = between_words(&characters, begin.min(last_begin));
    let dots_before = begin > 0;
    let room = LONGEST_EXCERPT - usize::from(dots_before);
    let dots_behind = characters.len() - begin > room;
    let kept = characters.iter().skip(begin).take(room - usize::from(dots_behind));
    let mut shown = String::from(if dots_before { "…" } else { "" });
    shown.extend(kept);
    if dots_behind {
        shown.push('…');
    }
    shown
}

/// Where the first match of the best group begins: the group within [`REACH`] whose different terms weigh most.
fn best_begin(line: &str, weights: &HashMap<String, f64>) -> usize {
    if weights.is_empty() {
        return 0;
    }
    let mut hits: Vec<(usize, usize, &str, f64)> = Vec::new();
    term::each(line, |term| {
        if let Some((known, weight)) = weights.get_key_value(term.text) {
            hits.push((term.at, term.at + term.long, known, *weight));
        }
    });
    let mut inside: HashMap<&str, usize> = HashMap::new();
    let (mut weight, mut end) = (0.0, 0);
    let (mut best, mut begin) = (0.0, 0);
    for (at, _, term, own) in &hits {
        while let Some((_, to, other, others)) = hits.get(end)
            && *to <= at + REACH
        {
            let count = inside.entry(other).or_default();
            *count += 1;
            if *count == 1 {
                weight += others;
            }
            end += 1;
        }
        // Sums of the same weights in another order differ by less than this.
        if weight > best + 1e-9 {
            (best, begin) = (weight, *at);
        }
        if let Some(count) = inside.get_mut(term) {
            *count -= 1;
            if *count == 0 {
                weight -= own;
            }
        }
    }
    begin
}

/// Moves the place of a cut to the next word, if one begins nearby.
fn between_words(characters: &[char], at: usize) -> usize {
    if at == 0 {
        return 0;
    }
    let near = characters.iter().skip(at - 1).take(TO_A_WORD);
    near.enumerate().find(|(_, c)| **c == ' ').map_or(at, |(steps, _)| at + steps)
}

/// `text` on one line: every run of white space is one space, what cannot be seen is left out, and runs of `=`, `<`
/// and `>` end before they are the three that a marker begins with. It does not begin as an entry of the block does.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let (mut last, mut same) = (' ', 0);
    for c in text.chars() {
        let c = if c.is_whitespace() || c.is_control() { ' ' } else { c };
        if !is_shown(c) {
            continue;
        }
        same = if c == last { same + 1 } else { 1 };
        let too_many = match c {
            ' ' => last == ' ',
            '=' | '<' | '>' => same > 2,
            _ => false,
        };
        last = c;
        if !too_many {
            line.push(c);
        }
    }
    line.truncate(line.trim_end().len());
    without_entry_mark(line)
}

/// Drops what would make the line look like the head of an entry, `- id=`.
fn without_entry_mark(mut line: String) -> String {
    while let Some(rest) = line.strip_prefix('-')
        && rest.trim_start().starts_with("id=")
    {
        line = rest.trim_start().to_owned();
    }
    line
}

/// Can this be seen? What cannot, could carry words that a person does not see and a model does.
fn is_shown(c: char) -> bool {
    let hidden = matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    is_plain(c) && !hidden
}

#[cfg(test)]
#[path = "excerpt_tests.rs"]
mod tests;
