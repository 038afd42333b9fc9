//! A model's answer in parts. A trace keeps the parts, each redacted by what it is, and the answer can be put
//! together again from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::redact::{redact, redact_text};

use crate::markers::BlockKind;

/// A part of an answer, in the order in which it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// What the person sees.
    Text(String),
    /// What the model thought aloud between these tags. Nobody sees it, and nothing in it counts.
    Reasoning {
        /// The opening tag.
        tag: String,
        /// The text.
        text: String,
        /// Did it end?
        ended: bool,
    },
    /// A block whose payload is JSON.
    Json {
        /// What it is.
        kind: BlockKind,
        /// The payload.
        payload: Value,
    },
    /// A block that cannot be read.
    Broken {
        /// What it is.
        kind: BlockKind,
        /// As much of it as is kept.
        text: String,
        /// Did it end?
        ended: bool,
    },
    /// A mark that stands alone.
    Stray(String),
}

impl Segment {
    /// The part without secrets. What is JSON stays JSON.
    pub fn redacted(&self) -> Self {
        match self {
            Self::Text(text) => Self::Text(redact_text(text).into_owned()),
            Self::Reasoning { tag, text, ended } => Self::Reasoning {
                tag: tag.clone(),
                text: redact_text(text).into_owned(),
                ended: *ended,
            },
            Self::Json { kind, payload } => {
                let mut payload = payload.clone();
                redact(&mut payload);
                Self::Json { kind: *kind, payload }
            }
            Self::Broken { kind, text, ended } => {
                Self::Broken { kind: *kind, text: redact_text(text).into_owned(), ended: *ended }
            }
            Self::Stray(mark) => Self::Stray(mark.clone()),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Text(part) | Self::Stray(part) => text.push_str(part),
            Self::Reasoning { tag, text: part, ended } => {
                text.push_str(tag);
                text.push_str(part);
                if *ended {
                    text.push_str(&tag.replacen('<', "</", 1));
                }
            }
            Self::Json { kind, payload } => {
                text.push_str(kind.begin());
                text.push_str(&payload.to_string());
                text.push_str(kind.end());
            }
            Self::Broken { kind, text: part, ended } => {
                text.push_str(kind.begin());
                text.push_str(part);
                if *ended {
                    text.push_str(kind.end());
                }
            }
        }
    }
}

/// The answer that has these parts.
pub fn rebuild(segments: &[Segment]) -> String {
    let mut text = String::new();
    for segment in segments {
        segment.write(&mut text);
    }
    text
}
