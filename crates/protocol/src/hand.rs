//! What a person notes in a session: entries to add, entries to take away, another summary. A model's notes are taken
//! as far as they go; a person's are taken whole or not at all, and whoever writes them is told why not.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_contract::{redact::redact_text, text::Quoted};

use crate::{
    notes::MOST_ENTRIES,
    state::{Limits, State},
    text::one_line,
};

/// A list of the state that a person can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateList {
    /// What the session is after.
    Goals,
    /// What is not finished.
    OpenLoops,
    /// What was decided.
    Decisions,
    /// What must hold.
    Constraints,
    /// Words that memories are kept under. A person only takes them away.
    MemoryTags,
}

impl StateList {
    const ALL: [Self; 5] =
        [Self::Goals, Self::OpenLoops, Self::Decisions, Self::Constraints, Self::MemoryTags];

    /// Its name in the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Goals => "goals",
            Self::OpenLoops => "open_loops",
            Self::Decisions => "decisions",
            Self::Constraints => "constraints",
            Self::MemoryTags => "memory_tags",
        }
    }

    fn of(self, state: &State) -> &[String] {
        match self {
            Self::Goals => &state.goals,
            Self::OpenLoops => &state.open_loops,
            Self::Decisions => &state.decisions,
            Self::Constraints => &state.constraints,
            Self::MemoryTags => &state.memory_tags,
        }
    }

    fn of_mut(self, state: &mut State) -> &mut Vec<String> {
        match self {
            Self::Goals => &mut state.goals,
            Self::OpenLoops => &mut state.open_loops,
            Self::Decisions => &mut state.decisions,
            Self::Constraints => &mut state.constraints,
            Self::MemoryTags => &mut state.memory_tags,
        }
    }

    fn most(self, limits: &Limits) -> usize {
        match self {
            Self::Goals => limits.goals,
            Self::OpenLoops => limits.open_loops,
            Self::Decisions => limits.decisions,
            Self::Constraints => limits.constraints,
            Self::MemoryTags => limits.memory_tags,
        }
    }
}

/// What a person wants to be noted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersonNote {
    /// Goals to add.
    pub add_goals: Vec<String>,
    /// Open loops to add.
    pub add_open_loops: Vec<String>,
    /// Decisions to add.
    pub add_decisions: Vec<String>,
    /// Constraints to add.
    pub add_constraints: Vec<String>,
    /// Entries to take away, by their exact words, from whichever list holds them.
    pub remove: Vec<String>,
    /// Another summary; an empty one clears it.
    pub set_episode_summary: Option<String>,
}

/// An entry that came or went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NoteEntry")]
pub struct NoteEntry {
    /// The list.
    pub list: StateList,
    /// Its words, as they are kept.
    pub text: String,
}

/// What came of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The state as it is then.
    pub state: State,
    /// What was added. What was there before is not among it.
    pub added: Vec<NoteEntry>,
    /// What was taken away.
    pub removed: Vec<NoteEntry>,
    /// The summary, if it is another one.
    pub summary: Option<String>,
}

impl Noted {
    /// Is the state another one?
    pub fn is_change(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty() || self.summary.is_some()
    }
}

/// Why a person's note is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PersonNoteError {
    /// It says nothing.
    #[error("nothing is to be noted; say what to add or to remove, or another summary")]
    Nothing,
    /// More at once than is read of a model.
    #[error("`{field}` has {given} entries, and {most} at once is the most; note them in parts")]
    TooMany {
        /// The field.
        field: &'static str,
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// An entry says nothing.
    #[error("`{field}` has an entry without words; say something, or leave it out")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text is too long.
    #[error("`{field}` has a text of {given} characters, and {most} is the most; say it shorter")]
    TooLong {
        /// The field.
        field: &'static str,
        /// How many characters it has.
        given: usize,
        /// How many it may have.
        most: usize,
    },
    /// A list would be too long.
    #[error(
        "`{list}` would have {given} entries, and {most} is the most; remove some in the same note"
    )]
    Full {
        /// The list.
        list: &'static str,
        /// How many it would have.
        given: usize,
        /// How many it may have.
        most: usize,
    },
    /// No list holds an entry with these words.
    #[error("no entry has exactly the words {}", Quoted::new(.0))]
    Unknown(String),
}

impl PersonNote {
    /// The lists to add to, with the names of their fields.
    fn additions(&self) -> [(StateList, &'static str, &[String]); 4] {
        [
            (StateList::Goals, "add_goals", &self.add_goals),
            (StateList::OpenLoops, "add_open_loops", &self.add_open_loops),
            (StateList::Decisions, "add_decisions", &self.add_decisions),
            (StateList::Constraints, "add_constraints", &self.add_constraints),
        ]
    }

    /// The state with the note, or why it cannot be: then nothing of it counts. What is removed goes first, so that it
    /// makes room.
    pub fn apply(&self, state: &State, limits: &Limits) -> Result<Noted, PersonNoteError> {
        if *self == Self::default() {
            return Err(PersonNoteError::Nothing);
        }
        for (_, field, texts) in self.additions() {
            check_count(field, texts)?;
        }
        check_count("remove", &self.remove)?;
        let (added, removed) = (Vec::new(), Vec::new());
        let mut noted = Noted { state: state.clone(), added, removed, summary: None };
        self.take_away(&mut noted)?;
        for (list, field, texts) in self.additions() {
            noted.add(list, field, texts, limits)?;
        }
        if let Some(text) = &self.set_episode_summary {
            let summary = kept_summary(text, limits)?;
            if noted.state.episode_summary != summary {
                noted.state.episode_summary.clone_from(&summary);
                noted.summary = Some(summary);
            }
        }
        Ok(noted)
    }

    fn take_away(&self, noted: &mut Noted) -> Result<(), PersonNoteError> {
        // Each is looked for in what was there, so that the same words twice are no mistake.
        let before = noted.state.clone();
        let is_held = |words: &str| {
            StateList::ALL.iter().any(|list| list.of(&before).iter().any(|entry| entry == words))
        };
        for text in &self.remove {
            // What a person copies from a terminal may be broken into lines, and what they typed was kept as one.
            let words = if is_held(text) { text.clone() } else { kept(text) };
            if !is_held(&words) {
                return Err(PersonNoteError::Unknown(text.clone()));
            }
            for list in StateList::ALL {
                let entries = list.of_mut(&mut noted.state);
                let count = entries.len();
                entries.retain(|entry| *entry != words);
                if entries.len() < count {
                    noted.removed.push(NoteEntry { list, text: words.clone() });
                }
            }
        }
        Ok(())
    }
}

impl Noted {
    fn add(
        &mut self,
        list: StateList,
        field: &'static str,
        texts: &[String],
        limits: &Limits,
    ) -> Result<(), PersonNoteError> {
        let entries = list.of_mut(&mut self.state);
        let before = entries.len();
        for raw in texts {
            check_length(field, raw, limits.entry)?;
            let text = kept(raw);
            check_length(field, &text, limits.entry)?;
            if text.is_empty() {
                return Err(PersonNoteError::Empty { field });
            }
            if !entries.contains(&text) {
                entries.push(text.clone());
                self.added.push(NoteEntry { list, text });
            }
        }
        let (given, most) = (entries.len(), list.most(limits));
        if given > before && given > most {
            return Err(PersonNoteError::Full { list: list.as_str(), given, most });
        }
        Ok(())
    }
}

fn check_count(field: &'static str, texts: &[String]) -> Result<(), PersonNoteError> {
    let (given, most) = (texts.len(), MOST_ENTRIES);
    if given > most { Err(PersonNoteError::TooMany { field, given, most }) } else { Ok(()) }
}

fn check_length(field: &'static str, text: &str, most: usize) -> Result<(), PersonNoteError> {
    let given = text.chars().count();
    if given > most { Err(PersonNoteError::TooLong { field, given, most }) } else { Ok(()) }
}

/// An entry as it is kept: on one line, and without secrets, also those that were broken into two lines.
fn kept(text: &str) -> String {
    redact_text(&one_line(&redact_text(text))).into_owned()
}

fn kept_summary(text: &str, limits: &Limits) -> Result<String, PersonNoteError> {
    let field = "set_episode_summary";
    check_length(field, text, limits.summary)?;
    let plain = redact_text(text).replace(|c: char| c.is_control() && c != '\n', " ");
    let summary = redact_text(&plain).into_owned();
    check_length(field, &summary, limits.summary)?;
    Ok(if summary.trim().is_empty() { String::new() } else { summary })
}

#[cfg(test)]
#[path = "hand_tests.rs"]
mod tests;
