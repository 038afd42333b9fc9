//! The NOTES block: a patch of the state. Keys that are absent or null change nothing; a bad entry is left out and
//! told, and its neighbours count.

use serde_json::{Map, Value};
use tollgate_contract::text::Quoted;

use crate::{
    actions::Action,
    state::{Limits, State},
    text::one_line,
};

/// The most entries of one list of a patch.
pub const MOST_ENTRIES: usize = 200;

/// What a model wants to note.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotesPatch {
    set_goals: Option<Vec<String>>,
    add_open_loops: Vec<String>,
    close_open_loops: Vec<String>,
    add_decisions: Vec<String>,
    add_constraints: Vec<String>,
    set_episode_summary: Option<String>,
    add_memory_tags: Vec<String>,
    actions: Vec<String>,
}

/// What came of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The fields that changed.
    pub changed: Vec<&'static str>,
    /// What was not taken, and why.
    pub warnings: Vec<String>,
    /// Decisions that made room for newer ones; they belong into memory.
    pub evicted: Vec<String>,
    /// Tags that the patch names.
    pub tags: Vec<String>,
}

impl NotesPatch {
    /// Reads a payload. Gives what is usable of it, and what is not.
    pub fn read(payload: &Value, limits: &Limits) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let Value::Object(members) = payload else {
            warnings.push(format!("NOTES is an object, not {}", shape(payload)));
            return (Self::default(), warnings);
        };
        let mut reader = Reader { members, limits, warnings: &mut warnings };
        let patch = Self {
            set_goals: reader.list("set_goals"),
            add_open_loops: reader.list("add_open_loops").unwrap_or_default(),
            close_open_loops: reader.list("close_open_loops").unwrap_or_default(),
            add_decisions: reader.list("add_decisions").unwrap_or_default(),
            add_constraints: reader.list("add_constraints").unwrap_or_default(),
            set_episode_summary: reader.summary(),
            add_memory_tags: reader.list("add_memory_tags").unwrap_or_default(),
            actions: reader.list("actions").unwrap_or_default(),
        };
        const KNOWN: [&str; 8] = [
            "set_goals",
            "add_open_loops",
            "close_open_loops",
            "add_decisions",
            "add_constraints",
            "set_episode_summary",
            "add_memory_tags",
            "actions",
        ];
        for name in members.keys().filter(|name| !KNOWN.contains(&name.as_str())).take(20) {
            warnings.push(format!("there is no key {}", Quoted::new(name)));
        }
        (patch, warnings)
    }

    /// Is there anything in it that changes the state?
    pub fn is_empty(&self) -> bool {
        *self == Self { actions: self.actions.clone(), ..Self::default() }
    }

    /// The actions, in order. Each counts once.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions: Vec<Action> = Vec::new();
        for action in self.actions.iter().map(|text| Action::parse(text)) {
            if !actions.contains(&action) {
                actions.push(action);
            }
        }
        actions
    }

    /// Changes the state as the patch says.
    pub fn apply(&self, state: &mut State, limits: &Limits) -> Applied {
        let mut applied = Applied::default();
        if let Some(goals) = &self.set_goals {
            let mut kept: Vec<String> = Vec::new();
            add(&mut kept, goals, limits.goals, "goals", &mut applied.warnings);
            if state.goals != kept {
                state.goals = kept;
                applied.changed.push("goals");
            }
        }
        let before = state.open_loops.len();
        for closed in &self.close_open_loops {
            let count = state.open_loops.len();
            state.open_loops.retain(|open| open != closed);
            if state.open_loops.len() == count {
                applied.warnings.push(format!("no open loop is {}", Quoted::new(closed)));
            }
        }
        let was_closed = state.open_loops.len() != before;
        let warnings = &mut applied.warnings;
        let opened = add(
            &mut state.open_loops,
            &self.add_open_loops,
            limits.open_loops,
            "open loops",
            warnings,
        );
        if was_closed || opened {
            applied.changed.push("open_loops");
        }
        if add(&mut state.decisions, &self.add_decisions, usize::MAX, "decisions", warnings) {
            applied.changed.push("decisions");
        }
        let over = state.decisions.len().saturating_sub(limits.decisions);
        applied.evicted.extend(state.decisions.drain(..over));
        // Goals and constraints are never dropped: what does not fit is refused, and told.
        if add(
            &mut state.constraints,
            &self.add_constraints,
            limits.constraints,
            "constraints",
            warnings,
        ) {
            applied.changed.push("constraints");
        }
        if let Some(summary) = &self.set_episode_summary
            && state.episode_summary != *summary
        {
            state.episode_summary.clone_from(summary);
            applied.changed.push("episode_summary");
        }
        if add(&mut state.memory_tags, &self.add_memory_tags, usize::MAX, "tags", warnings) {
            applied.changed.push("memory_tags");
        }
        let over = state.memory_tags.len().saturating_sub(limits.memory_tags);
        state.memory_tags.drain(..over);
        applied.tags.clone_from(&self.add_memory_tags);
        applied
    }
}

/// Adds what is not there yet, so far as there is room. Says whether anything was added.
fn add(
    list: &mut Vec<String>,
    entries: &[String],
    most: usize,
    what: &str,
    warnings: &mut Vec<String>,
) -> bool {
    let before = list.len();
    let mut refused = 0usize;
    for entry in entries {
        if list.contains(entry) {
            continue;
        }
        if list.len() >= most {
            refused += 1;
        } else {
            list.push(entry.clone());
        }
    }
    if refused > 0 {
        warnings.push(format!("{refused} {what} were not taken: there is room for {most}"));
    }
    list.len() != before
}

struct Reader<'a> {
    members: &'a Map<String, Value>,
    limits: &'a Limits,
    warnings: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn warn(&mut self, problem: String) {
        if self.warnings.len() < 50 {
            self.warnings.push(problem);
        }
    }

    fn list(&mut self, name: &str) -> Option<Vec<String>> {
        let value = self.members.get(name)?;
        let entries = match value {
            Value::Null => return None,
            Value::Array(entries) => entries,
            other => {
                self.warn(format!("{name} is a list of strings, not {}", shape(other)));
                return None;
            }
        };
        let mut kept = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            if kept.len() >= MOST_ENTRIES {
                self.warn(format!("{name} has more than {MOST_ENTRIES} entries"));
                break;
            }
            match entry {
                Value::String(text) if text.trim().is_empty() => {
                    self.warn(format!("{name}[{place}] is empty"));
                }
                Value::String(text) if text.chars().count() > self.limits.entry => {
                    let most = self.limits.entry;
                    self.warn(format!("{name}[{place}] is longer than {most} characters"));
                }
                Value::String(text) => kept.push(one_line(text)),
                other => self.warn(format!("{name}[{place}] is a string, not {}", shape(other))),
            }
        }
        // A list of nothing but rubbish must not clear what is there.
        if kept.is_empty() && !entries.is_empty() {
            return None;
        }
        Some(kept)
    }

    fn summary(&mut self) -> Option<String> {
        match self.members.get("set_episode_summary")? {
            Value::Null => None,
            Value::String(text) if text.chars().count() <= self.limits.summary => {
                Some(text.replace(|c: char| c.is_control() && c != '\n', " "))
            }
            Value::String(_) => {
                let most = self.limits.summary;
                self.warn(format!("set_episode_summary is longer than {most} characters"));
                None
            }
            other => {
                self.warn(format!("set_episode_summary is a string, not {}", shape(other)));
                None
            }
        }
    }
}

/// What a value is.
pub(crate) fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "notes_tests.rs"]
mod tests;
