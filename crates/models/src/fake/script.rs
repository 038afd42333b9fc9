//! What a script can say.
//!
//! ```
//! use tollgate_models::fake::Script;
//!
//! let script = Script::parse(r#"{"replies": [
//!     {"when": {"last_contains": "weather"}, "content": "It rains.", "times": 0},
//!     {"tool_calls": [{"name": "system.time", "arguments": {}}]},
//!     {"content": "You said: {{last}}", "chunk": 5},
//!     {"status": 429, "headers": {"retry-after": "1"}}
//! ]}"#)?;
//! assert_eq!(script.replies.len(), 4);
//! # Ok::<(), tollgate_models::fake::BadScript>(())
//! ```

use std::{collections::BTreeMap, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tollgate_contract::{Quoted, text::Clean};

/// The largest script.
const LARGEST: u64 = 64 * 1024 * 1024;

/// What a model says, in order.
///
/// For each request the first reply is taken whose `when` fits, or else the next one without a `when`. When there is
/// none, a script with `loop` begins again, and another answers with the status 500 and says that it is at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What the model is called.
    #[serde(default = "fake")]
    pub model: String,
    /// Does it begin again when it is at its end?
    #[serde(default, rename = "loop")]
    pub repeats: bool,
    /// What it says.
    pub replies: Vec<Reply>,
}

fn fake() -> String {
    "fake".to_owned()
}

/// One answer, or one kind of trouble.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Only for requests that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// How often it is given: once unless it says otherwise, and again and again for 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The text. `{{n}}` is the number of the request, `{{last}}` the last message's first 200 characters.
    pub content: String,
    /// What the model thinks before.
    pub reasoning: String,
    /// What it calls.
    pub tool_calls: Vec<ScriptedCall>,
    /// How many characters come at a time; all that belong together without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// The text in these very pieces, in place of `content`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Vec<String>>,
    /// What was used, in the words of the protocol; any JSON is sent as it is. `null` says nothing of it; without, it
    /// is estimated.
    #[serde(deserialize_with = "also_null", skip_serializing_if = "Option::is_none")]
    pub usage: Option<Value>,
    /// Why it stops, in the words of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// The status; 200 without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The body of an answer that is no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Headers of the answer.
    pub headers: BTreeMap<String, String>,
    /// How long it takes to answer.
    pub delay_ms: u64,
    /// How long each piece takes.
    pub chunk_delay_ms: u64,
    /// After so many pieces there is silence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_after: Option<usize>,
    /// After so many pieces the connection is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_after: Option<usize>,
    /// The body, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// The body, as it is, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_base64: Option<String>,
}

/// What a request must be like. All that is said must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// A part of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_contains: Option<String>,
    /// A part of what the system says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_contains: Option<String>,
    /// Who says the last message, as it is on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A call that the model makes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Its id; made up without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool. Dots are written as on the wire.
    pub name: String,
    /// What it is given: an object, or a text that is sent as it is.
    #[serde(default)]
    pub arguments: Value,
}

/// Why a script cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadScript {
    /// The file.
    #[error("the script {path} cannot be read: {problem}")]
    File {
        /// Where it should be.
        path: Quoted,
        /// What the system says.
        problem: Clean,
    },
    /// Its text.
    #[error("the script cannot be understood: {0}")]
    Text(Clean),
    /// A reply.
    #[error("reply {number} of the script: {problem}")]
    Reply {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        problem: Clean,
    },
}

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Self, BadScript> {
        let script: Self = serde_json::from_str(text)
            .map_err(|error| BadScript::Text(Clean::new(&error.to_string())))?;
        for (at, reply) in script.replies.iter().enumerate() {
            reply.check().map_err(|problem| BadScript::Reply {
                number: at + 1,
                problem: Clean::new(&problem),
            })?;
        }
        Ok(script)
    }

    /// Reads a script from a file.
    pub fn read(path: &Path) -> Result<Self, BadScript> {
        let bad = |problem: String| BadScript::File {
            path: Quoted::new(&path.display().to_string()),
            problem: Clean::new(&problem),
        };
        let length = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
        if length > LARGEST {
            return Err(bad(format!("it has more than {LARGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        Self::parse(&text)
    }
}

impl Reply {
    fn check(&self) -> Result<(), String> {
        if self.chunk == Some(0) {
            return Err("`chunk` is at least 1".to_owned());
        }
        if self.status.is_some_and(|status| !(200..600).contains(&status)) {
            return Err("`status` is from 200 to 599".to_owned());
        }
        if let Some(raw) = &self.raw_base64 {
            STANDARD.decode(raw).map_err(|error| format!("`raw_base64` is no base64: {error}"))?;
        }
        for (name, value) in &self.headers {
            let fits = axum::http::HeaderName::try_from(name.as_str()).is_ok()
                && axum::http::HeaderValue::try_from(value.as_str()).is_ok();
            if !fits {
                return Err(format!("the header {} cannot be sent", Quoted::new(name)));
            }
        }
        Ok(())
    }

    /// The body that is sent as it is.
    pub(super) fn raw(&self) -> Option<Vec<u8>> {
        let decoded = self.raw_base64.as_ref().and_then(|raw| STANDARD.decode(raw).ok());
        decoded.or_else(|| self.raw.as_ref().map(|raw| raw.clone().into_bytes()))
    }
}

fn also_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
