//! The block in which memory is shown to a model, and the citations with which a model says what it used.

use std::{collections::HashSet, fmt::Write, ops::Range};

use tollgate_contract::id::MemoryId;

use crate::{
    excerpt::{LONGEST_EXCERPT, one_line},
    search::Found,
};

const BEGIN: &str = "=== RETRIEVED_MEMORY ===";
const END: &str = "=== END_RETRIEVED_MEMORY ===";

/// What a citation begins with.
const CITATION: &str = "[mem:";

/// The longest id of a citation, in bytes. An own id has 36.
const LONGEST_CITED: usize = 128;

/// The records as a system prompt shows them, without a newline at the end.
///
/// Every excerpt is one line of at most [`LONGEST_EXCERPT`] characters behind two spaces, whatever is in it: no
/// record can end the block or begin another entry.
pub fn block(found: &[Found]) -> String {
    let mut block = String::from(BEGIN);
    for one in found {
        let score = if one.score.is_finite() { one.score.clamp(0.0, 1.0) } else { 0.0 };
        let mut excerpt: String = one_line(&one.excerpt).chars().take(LONGEST_EXCERPT).collect();
        if excerpt.is_empty() {
            excerpt.push('…');
        }
        // Writing into a string cannot fail.
        _ = write!(block, "\n- id={} score={score:.3}\n  {excerpt}", one.id);
    }
    block.push('\n');
    block.push_str(END);
    block
}

/// A citation in a text: `[mem:<id>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// Where it stands, in bytes, brackets included.
    pub range: Range<usize>,
    /// What stands in the place of the id.
    pub cited: String,
    /// The id, if it is one.
    pub id: Option<MemoryId>,
}

/// All citations in a text, in order. What stands for the id has at most 128 bytes and neither a bracket nor a
/// control character in it; anything else is text.
pub fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    for (begin, _) in text.match_indices(CITATION) {
        let inside = begin + CITATION.len();
        let rest = text.get(inside..).unwrap_or_default();
        let end = rest.find(|c: char| matches!(c, '[' | ']') || c.is_control());
        if let Some(length) = end
            && length <= LONGEST_CITED
            && let Some(cited) = rest.get(..length)
            && rest.get(length..).is_some_and(|rest| rest.starts_with(']'))
        {
            let range = begin..inside + length + 1;
            found.push(Citation {
                range,
                cited: cited.to_owned(),
                id: MemoryId::parse(cited).ok(),
            });
        }
    }
    found
}

/// What a text cites that was not retrieved, each once, in order.
pub fn unknown_citations(text: &str, retrieved: &[MemoryId]) -> Vec<String> {
    let retrieved: HashSet<&MemoryId> = retrieved.iter().collect();
    let mut seen = HashSet::new();
    let cited = citations(text).into_iter();
    let unknown = cited.filter(|one| one.id.is_none_or(|id| !retrieved.contains(&id)));
    unknown.map(|one| one.cited).filter(|cited| seen.insert(cited.clone())).collect()
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
