//! The unit that is written to disk after each turn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{json, text::plain_shape};

use crate::{message::ChatMessage, name::SessionName, state::State};

/// The version of the format that is written.
pub const SCHEMA_VERSION: u32 = 1;

/// A session between two turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The version of the format.
    pub schema_version: u32,
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionName,
    /// How often it was written.
    pub revision: u64,
    /// When it was written, in seconds since 1970.
    pub updated_ts: f64,
    /// The state.
    pub state: State,
    /// The last messages.
    pub recent_messages: Vec<ChatMessage>,
    /// The files of the last turns' traces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_tail: Vec<String>,
}

/// Why a text is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It is not there any more.
    #[error("it is gone")]
    Gone,
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// It is JSON of another shape.
    #[error("it is no checkpoint: {0}")]
    Shape(String),
    /// It was written by a newer version.
    #[error(
        "it has the format {found}, and this tollgate reads formats up to {SCHEMA_VERSION}; use the tollgate that wrote it"
    )]
    Version {
        /// The version.
        found: u64,
    },
    /// It belongs to another session.
    #[error("it belongs to the session {0}")]
    OtherSession(SessionName),
}

impl Checkpoint {
    /// A session that has not begun.
    pub fn new(session: SessionName) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            session_id: session,
            revision: 0,
            updated_ts: 0.0,
            state: State::default(),
            recent_messages: Vec::new(),
            trace_tail: Vec::new(),
        }
    }

    /// Reads a checkpoint of a session.
    pub fn read(text: &[u8], session: &SessionName) -> Result<Self, CheckpointError> {
        let value = json::parse(text).map_err(|error| CheckpointError::Json(error.to_string()))?;
        let found = value.get("schema_version").and_then(Value::as_u64);
        if let Some(found) = found.filter(|found| *found > u64::from(SCHEMA_VERSION)) {
            return Err(CheckpointError::Version { found });
        }
        let checkpoint = Self::deserialize(value)
            .map_err(|error| CheckpointError::Shape(plain_shape(&error.to_string())))?;
        if checkpoint.session_id != *session {
            return Err(CheckpointError::OtherSession(checkpoint.session_id));
        }
        Ok(checkpoint)
    }

    /// The text that is written.
    pub fn written(&self) -> String {
        // Strings, numbers and lists: writing them cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::Role;

    fn name() -> SessionName {
        SessionName::parse("notes").unwrap()
    }

    #[test]
    fn a_checkpoint_has_the_fields_of_the_protocol_and_reads_back() {
        let mut checkpoint = Checkpoint::new(name());
        checkpoint.revision = 3;
        checkpoint.updated_ts = 1.5;
        checkpoint.recent_messages.push(ChatMessage::new(Role::User, "hello"));
        let value: Value = serde_json::from_str(&checkpoint.written()).unwrap();
        assert_eq!(
            value,
            json!({
                "schema_version": 1, "session_id": "notes", "revision": 3, "updated_ts": 1.5,
                "state": {
                    "goals": [], "open_loops": [], "decisions": [], "constraints": [],
                    "episode_summary": "", "memory_tags": [], "memory_refs": [],
                    "capabilities_granted": [], "capabilities_pending": [],
                },
                "recent_messages": [{"role": "user", "content": "hello"}],
            })
        );
        assert_eq!(Checkpoint::read(checkpoint.written().as_bytes(), &name()).unwrap(), checkpoint);
    }

    #[test]
    fn what_is_no_checkpoint_says_why() {
        let good = Checkpoint::new(name()).written();
        let read = |text: String| Checkpoint::read(text.as_bytes(), &name()).unwrap_err();
        assert!(matches!(read("{".into()), CheckpointError::Json(_)));
        assert!(matches!(
            read(good.replace("\"notes\"", "\"other\"")),
            CheckpointError::OtherSession(_)
        ));
        assert_eq!(
            read(good.replace("\"schema_version\": 1", "\"schema_version\": 2")),
            CheckpointError::Version { found: 2 }
        );
        for (from, to) in [
            ("\"goals\": []", "\"goals\": [7]"),
            ("\"goals\": []", "\"goals\": \"x\""),
            ("\"revision\": 0", "\"revision\": -1"),
            (
                "\"recent_messages\": []",
                "\"recent_messages\": [{\"role\": \"root\", \"content\": \"\"}]",
            ),
            ("\"notes\"", "\"../notes\""),
        ] {
            assert!(matches!(read(good.replace(from, to)), CheckpointError::Shape(_)), "{to}");
        }
    }
}
