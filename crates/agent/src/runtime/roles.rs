//! The roles of a turn. One does everything by default; with more, the earlier ones think and the last one acts.

use serde::{Deserialize, Serialize};

/// What a model is to be in one step of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineRole {
    /// Looks back at what has happened.
    Reflection,
    /// Says what to do, step by step.
    Planner,
    /// Says what is wrong with the plan.
    Critic,
    /// Decides, acts and answers.
    Governor,
}

impl PipelineRole {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reflection => "reflection",
            Self::Planner => "planner",
            Self::Critic => "critic",
            Self::Governor => "governor",
        }
    }

    /// The beginning of its system message, when it is the last and acts.
    pub(crate) fn acts() -> &'static str {
        "You are an agent that works for one person. Do what the person asks, with the tools below and nothing else; look before you change something, and say plainly what you did, what you could not do and why. Every tool call passes a gate that may refuse it: when it does, do not try to get around it; tell the person, or ask for the permission that is missing."
    }

    /// The beginning of its system message, when others come behind it.
    pub(crate) fn thinks(self) -> &'static str {
        match self {
            Self::Reflection => {
                "You look back for an agent. From the state and the conversation, say in a few lines what has been achieved, what failed and why, and what is still open. You act on nothing."
            }
            Self::Planner => {
                "You plan for an agent. Say in a few numbered steps how to do what the person asks with the tools that the agent has, and what could go wrong. You act on nothing."
            }
            Self::Critic => {
                "You criticise for an agent. Say in a few lines what is wrong, missing or dangerous in what was said so far in this turn. You act on nothing."
            }
            Self::Governor => {
                "You weigh for an agent what was said so far in this turn, and say in a few lines what is to be done. You act on nothing."
            }
        }
    }
}
