//! Text into terms: what is indexed, what is looked for, and what an excerpt is chosen by.
//!
//! Done here and not by a tokenizer of SQLite, for three reasons. A term carries the session that it belongs to, so
//! that the index has nothing to filter. An excerpt must know which words matched. And neither `unicode61` nor
//! `porter` finds anything in scripts that are written without spaces.
//!
//! Words are runs of letters, digits and marks. They are folded (compatibility forms, case, the diacritics of
//! European scripts) and, where they are plain English letters, reduced to their stem: what an agent was told and
//! what it asks later are seldom in the same form. Scripts without spaces between words (Chinese, Japanese, Thai and
//! others; Korean too, whose particles hang on its words) give every character and every pair of neighbours. A
//! question of two characters or more looks for the pairs, one of a single character for that character.

use icu_normalizer::{
    ComposingNormalizerBorrowed,
    properties::{CanonicalDecompositionBorrowed, Decomposed},
};
use rust_stemmers::{Algorithm, Stemmer};
use unicode_general_category::{GeneralCategory, get_general_category};

/// The longest term, in bytes. Longer words count as what they begin with.
const LONGEST: usize = 64;

/// The shortest word that is reduced to its stem.
const SHORTEST_TO_STEM: usize = 3;

/// What a term was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word.
    Word,
    /// An English word that says little: `the`, `what`.
    Stop,
    /// A character of a script without spaces, among others.
    Character,
    /// Such a character by itself.
    Alone,
    /// Two neighbours in a script without spaces.
    Pair,
}

/// A term at its place in a text.
pub(crate) struct Term<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
    /// Where it begins, in characters.
    pub(crate) at: usize,
    /// How many characters it takes there.
    pub(crate) long: usize,
}

/// Calls `visit` with every term of `text`, in order.
pub(crate) fn each(text: &str, mut visit: impl FnMut(Term<'_>)) {
    let mut run = String::new();
    let (mut begun, mut unspaced) = (0, false);
    let stemmer = Stemmer::create(Algorithm::English);
    // One more than there are: the last run ends too.
    let characters = text.chars().map(Some).chain([None]);
    for (at, c) in characters.enumerate() {
        let class = c.map_or(Class::Between, Class::of);
        let goes_on = match class {
            Class::Between => false,
            Class::Mark => !run.is_empty(),
            Class::Spaced => !unspaced,
            Class::Unspaced => unspaced,
        };
        if !goes_on && !run.is_empty() {
            let long = at - begun;
            if unspaced {
                pairs(&run, begun, long, &mut visit);
            } else {
                word(&run, begun, long, &stemmer, &mut visit);
            }
            run.clear();
        }
        let Some(c) = c else { break };
        if run.is_empty() {
            if matches!(class, Class::Between | Class::Mark) {
                continue;
            }
            (begun, unspaced) = (at, class == Class::Unspaced);
        }
        run.push(c);
    }
}

/// What a character does to a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// It stands between words.
    Between,
    /// It belongs to whatever it follows.
    Mark,
    /// It is part of a word.
    Spaced,
    /// It is part of a text whose words have no spaces between them.
    Unspaced,
}

impl Class {
    fn of(c: char) -> Self {
        if c.is_ascii() {
            return if c.is_ascii_alphanumeric() { Self::Spaced } else { Self::Between };
        }
        if is_mark(c) {
            Self::Mark
        } else if !c.is_alphanumeric() {
            Self::Between
        } else if is_unspaced(c) {
            Self::Unspaced
        } else {
            Self::Spaced
        }
    }
}

fn is_mark(c: char) -> bool {
    use GeneralCategory::{NonspacingMark, SpacingMark};
    matches!(get_general_category(c), NonspacingMark | SpacingMark)
}

/// Characters of scripts that are written without spaces, or, as Korean, with spaces that say little.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0e00}'..='\u{0fff}' // Thai, Lao, Tibetan
        | '\u{1000}'..='\u{109f}' // Burmese
        | '\u{1100}'..='\u{11ff}' // Korean, in parts
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{2e80}'..='\u{2fdf}' // parts of Chinese characters
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{31ff}' // Japanese, Bopomofo, Korean in parts
        | '\u{3400}'..='\u{4dbf}' // Chinese
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7ff}' // Korean
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}' // the same at half width
        | '\u{1b000}'..='\u{1b16f}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Visits the one term of a word.
fn word(run: &str, at: usize, long: usize, stemmer: &Stemmer, visit: &mut impl FnMut(Term<'_>)) {
    let folded = fold(run);
    let folded = head(&folded, LONGEST);
    if folded.is_empty() {
        return;
    }
    let kind = if STOP.binary_search(&folded).is_ok() { Kind::Stop } else { Kind::Word };
    // The stemmer knows English. What has other letters, or digits, stays as it is.
    if folded.len() >= SHORTEST_TO_STEM && folded.bytes().all(|b| b.is_ascii_lowercase()) {
        let stem = stemmer.stem(folded);
        visit(Term { text: &stem, kind, at, long });
    } else {
        visit(Term { text: folded, kind, at, long });
    }
}

/// Visits the characters and the pairs of a run without spaces.
fn pairs(run: &str, at: usize, long: usize, visit: &mut impl FnMut(Term<'_>)) {
    let folded: Vec<char> = fold(run).chars().collect();
    let single = if folded.len() == 1 { Kind::Alone } else { Kind::Character };
    // Folding may have joined characters, so that the places behind are near ones.
    let last = long.saturating_sub(1);
    let mut term = String::new();
    for (number, c) in folded.iter().enumerate() {
        let at = at + number.min(last);
        term.clear();
        term.push(*c);
        visit(Term { text: &term, kind: single, at, long: 1 });
        if let Some(next) = folded.get(number + 1) {
            term.push(*next);
            visit(Term { text: &term, kind: Kind::Pair, at, long: 2 });
        }
    }
}

/// One form for what is written in several.
fn fold(run: &str) -> String {
    if run.is_ascii() {
        return run.to_ascii_lowercase();
    }
    let composed = ComposingNormalizerBorrowed::new_nfkc().normalize(run);
    let lower = composed.chars().flat_map(char::to_lowercase);
    lower.map(without_diacritics).filter(|c| c.is_alphanumeric() || is_kept_mark(*c)).collect()
}

/// The letter under its accents.
fn without_diacritics(c: char) -> char {
    let parts = CanonicalDecompositionBorrowed::new();
    let mut letter = c;
    while let Decomposed::Expansion(base, mark) = parts.decompose(letter)
        && is_diacritic(mark)
    {
        letter = base;
    }
    letter
}

/// The marks of Latin, Greek and Cyrillic. Those of other scripts are vowels, or make another letter.
fn is_diacritic(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036f}')
}

fn is_kept_mark(c: char) -> bool {
    is_mark(c) && !is_diacritic(c)
}

/// The first `most` bytes of `text`, or a little less where that would cut a character.
pub(crate) fn head(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// English words that are in every text and tell none apart; the last letters behind an apostrophe among them.
/// Sorted, since it is searched.
const STOP: [&str; 144] = [
    "a", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at",
    "be", "because", "been", "before", "being", "both", "but", "by", "can", "cannot", "could", "d",
    "did", "do", "does", "doing", "don", "down", "during", "each", "else", "ever", "few", "for",
    "from", "further", "get", "got", "had", "has", "have", "having", "he", "her", "here", "hers",
    "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "itself", "just", "let", "ll",
    "m", "may", "me", "might", "more", "most", "much", "must", "my", "no", "nor", "not", "now",
    "of", "off", "ok", "on", "once", "only", "or", "other", "our", "ours", "out", "over", "own",
    "please", "quite", "re", "really", "s", "same", "shall", "she", "should", "so", "some", "such",
    "t", "tell", "than", "that", "the", "their", "theirs", "them", "then", "there", "these",
    "they", "this", "those", "through", "to", "too", "under", "until", "up", "us", "ve", "very",
    "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why",
    "will", "with", "would", "yes", "yet", "you", "your", "yours",
];

#[cfg(test)]
#[path = "term_tests.rs"]
mod tests;
