//! Something that waits for a person: a call, or a capability that was asked for.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{
    Capability, CostEffect, InputHash, SideEffect, ToolName,
    id::{ApprovalId, CallId, KeyId, RunId},
};

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", rename_all_fields = "camelCase")]
pub enum What {
    /// May this call be made?
    Call {
        /// The tool.
        tool: ToolName,
        /// What it changes.
        side_effect: SideEffect,
        /// What it uses up.
        cost_effect: CostEffect,
        /// The input, redacted, for people to look at.
        input: Value,
        /// The hash of the redacted input, as traces have it.
        input_hash: InputHash,
        /// A keyed hash of caller, tool and the exact raw input: an answer is good for nothing else.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        binding: String,
        /// Is a part of the input hidden from people, because it looks like a secret or is too long?
        #[serde(default)]
        hidden: bool,
        /// The call that asked first.
        call: CallId,
        /// Its run.
        run: RunId,
        /// What the policies say to whoever answers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        because: Vec<String>,
    },
    /// May this capability be had?
    Capability {
        /// Which one.
        capability: Capability,
        /// Is it wanted for the key as such, and not for one session?
        #[serde(default)]
        whole_key: bool,
    },
}

/// What is asked of a person, and by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Its name.
    pub id: ApprovalId,
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// Whoever asks.
    pub key: KeyId,
    /// What that key is called.
    pub key_name: String,
    /// In which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What whoever asks says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many different keys must say yes.
    pub approvers: u8,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// Until when it can be answered.
    pub until_ms: i64,
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Who.
    pub by: KeyId,
    /// What that key is called.
    pub by_name: String,
    /// Yes or no.
    pub approves: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub at_ms: i64,
}

/// How it stands with something that a person was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits.
    Pending,
    /// Yes; for a call: it may be made once.
    Approved,
    /// No.
    Denied,
    /// Nobody answered in time, or the yes was not used in time.
    Expired,
    /// The call that was approved has started.
    Used,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Used => "used",
        }
    }
}

/// Something that a person was asked, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// What was asked.
    #[serde(flatten)]
    pub asked: Asked,
    /// What was said.
    pub answers: Vec<Answer>,
    /// How it stands, as far as it was written down; see [`Item::state`].
    pub(crate) written: State,
    /// Until when a yes can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable_until_ms: Option<i64>,
}

impl Item {
    /// Something that waits.
    pub fn new(asked: Asked) -> Self {
        Self { asked, answers: Vec::new(), written: State::Pending, usable_until_ms: None }
    }

    /// How it stands at this moment: what nobody answered or used in time is over, whether or not that was
    /// written down yet.
    pub fn state(&self, now_ms: i64) -> State {
        let until = match self.written {
            State::Pending => Some(self.asked.until_ms),
            State::Approved => self.usable_until_ms,
            _ => None,
        };
        if until.is_some_and(|until| now_ms >= until) { State::Expired } else { self.written }
    }

    /// When it is over by itself.
    pub fn ends_ms(&self) -> i64 {
        self.usable_until_ms.unwrap_or(self.asked.until_ms)
    }

    /// How many have said yes.
    pub fn approvals(&self) -> usize {
        self.answers.iter().filter(|answer| answer.approves).count()
    }

    /// Takes out what it is bound to, if it is a call: what is left can be shown.
    pub fn unbind(&mut self) -> Option<String> {
        match &mut self.asked.what {
            What::Call { binding, .. } => Some(std::mem::take(binding)),
            What::Capability { .. } => None,
        }
    }

    /// What it is bound to, if it is a call.
    pub fn binding(&self) -> Option<&str> {
        match &self.asked.what {
            What::Call { binding, .. } => Some(binding),
            What::Capability { .. } => None,
        }
    }

    /// The capability that it asks for, if it does.
    pub fn capability(&self) -> Option<&Capability> {
        match &self.asked.what {
            What::Call { .. } => None,
            What::Capability { capability, .. } => Some(capability),
        }
    }
}
