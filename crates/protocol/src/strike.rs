//! What a person took away, taken out of the history too: a model reads there what it noted itself, and would note it
//! again. Only NOTES blocks are touched; what was said stays said.

use serde_json::{Map, Value};

use crate::{
    extract::Extractor,
    hand::Noted,
    markers::BlockKind,
    message::{ChatMessage, Role},
    segment::{Segment, rebuild},
    text::one_line,
};

/// The lists of a NOTES block whose entries can stand in the state.
const LISTS: [&str; 6] = [
    "set_goals",
    "add_open_loops",
    "close_open_loops",
    "add_decisions",
    "add_constraints",
    "add_memory_tags",
];

/// The text of a NOTES block that sets the summary.
const SUMMARY: &str = "set_episode_summary";

/// What stands where a message was nothing but notes that are gone.
const NOTHING_LEFT: &str = "(notes that a person took back)";

impl Noted {
    /// The messages that hold notes which the person took away, by their place, as they read without them.
    pub fn struck(&self, messages: &[ChatMessage]) -> Vec<(usize, String)> {
        if self.removed.is_empty() && self.summary.is_none() {
            return Vec::new();
        }
        let notes = |message: &ChatMessage| {
            message.role == Role::Assistant && message.content.contains(BlockKind::Notes.begin())
        };
        let all = messages.iter().enumerate().filter(|(_, message)| notes(message));
        all.filter_map(|(place, message)| Some((place, self.without(&message.content)?))).collect()
    }

    /// The message without what was taken away; nothing where it holds none of it.
    fn without(&self, content: &str) -> Option<String> {
        let mut extractor = Extractor::again();
        extractor.feed(content);
        let (_, read) = extractor.finish();
        let is_named = self.names(content);
        let mut is_other = false;
        let mut kept = Vec::with_capacity(read.segments.len());
        for segment in read.segments {
            match self.part_without(&segment, is_named) {
                None => kept.push(segment),
                Some(rest) => {
                    is_other = true;
                    kept.extend(rest);
                }
            }
        }
        let text = is_other.then(|| rebuild(&kept))?;
        Some(if text.trim().is_empty() { NOTHING_LEFT.to_owned() } else { text })
    }

    /// Does a text hold words that were taken away, wherever in it?
    fn names(&self, content: &str) -> bool {
        let holds = |words: &str| content.contains(words) || content.contains(&in_json(words));
        self.removed.iter().any(|entry| holds(&entry.text))
            || (self.summary.is_some() && content.contains(SUMMARY))
    }

    /// What is left of a part of a message, if anything was taken out of it.
    fn part_without(&self, segment: &Segment, is_named: bool) -> Option<Option<Segment>> {
        match segment {
            Segment::Json { kind: BlockKind::Notes, payload: Value::Object(members) } => {
                let left = self.notes_without(members)?;
                let payload = Value::Object(left);
                let is_empty = payload == Value::Object(Map::new());
                Some((!is_empty).then_some(Segment::Json { kind: BlockKind::Notes, payload }))
            }
            // A block that was cut short counts for nothing and can still be read, though not taken apart.
            Segment::Broken { kind: BlockKind::Notes, .. } => is_named.then_some(None),
            _ => None,
        }
    }

    fn notes_without(&self, members: &Map<String, Value>) -> Option<Map<String, Value>> {
        let is_gone = |value: &Value| {
            let text = value.as_str().map(one_line);
            text.is_some_and(|text| self.removed.iter().any(|entry| entry.text == text))
        };
        let (mut left, mut is_other) = (Map::new(), false);
        for (name, value) in members {
            if name == SUMMARY && self.summary.is_some() {
                is_other = true;
                continue;
            }
            match value.as_array().filter(|_| LISTS.contains(&name.as_str())) {
                Some(entries) if entries.iter().any(is_gone) => {
                    is_other = true;
                    let rest: Vec<Value> =
                        entries.iter().filter(|entry| !is_gone(entry)).cloned().collect();
                    if !rest.is_empty() {
                        left.insert(name.clone(), Value::Array(rest));
                    }
                }
                _ => {
                    left.insert(name.clone(), value.clone());
                }
            }
        }
        is_other.then_some(left)
    }
}

/// A text as it stands inside a string of JSON.
fn in_json(text: &str) -> String {
    let written = Value::from(text).to_string();
    let inner = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "strike_tests.rs"]
mod tests;
