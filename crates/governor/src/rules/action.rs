//! What a rule does, and which of several does it.

use serde::{Deserialize, Serialize};

/// What a rule does where it matches, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is said, and decides nothing.
    Warn,
    /// Risk is not looked at. A hard limit still is.
    Approve,
    /// Another credential is to be used.
    Switch,
    /// It has to wait.
    Wait,
    /// It has to come back when the window ends.
    Defer,
    /// No.
    Deny,
}

impl Action {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Approve => "approve",
            Self::Switch => "switch",
            Self::Wait => "wait",
            Self::Defer => "defer",
            Self::Deny => "deny",
        }
    }

    /// Does it keep work back? Then what cannot be worked out counts as a match.
    pub fn restricts(self) -> bool {
        matches!(self, Self::Deny | Self::Defer | Self::Wait)
    }
}

/// How long a rule makes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So many milliseconds.
    Fixed(i64),
    /// As long as spreads what remains evenly until the reset.
    Paced,
}

impl Wait {
    /// How long, in milliseconds, for this cost, where `remaining` is left until the reset in `reset_in` ms.
    /// `None` where it is paced and that is not known.
    pub fn ms(self, cost: u64, remaining: Option<u64>, reset_in: Option<i64>) -> Option<i64> {
        match self {
            Self::Fixed(ms) => Some(ms),
            Self::Paced => {
                let (remaining, reset_in) = (remaining?, reset_in?.max(0));
                // With nothing left there is nothing to spread: it waits for the reset.
                let shares = i128::from(remaining.max(1));
                let ms = i128::from(reset_in) * i128::from(cost) / shares;
                Some(i64::try_from(ms).unwrap_or(i64::MAX).min(reset_in))
            }
        }
    }
}

/// What became of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluated {
    /// It matches.
    Matches,
    /// It does not.
    DoesNot,
    /// It cannot be worked out, and why.
    Failed(String),
}

impl Evaluated {
    /// Does it count as a match for a rule that does this? What fails restricts, and allows nothing.
    pub fn counts_for(&self, action: Action) -> bool {
        match self {
            Self::Matches => true,
            Self::DoesNot => false,
            Self::Failed(_) => action.restricts(),
        }
    }
}

/// A rule that counts as matching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// The rule's place in the file.
    pub rule: usize,
    /// The place of the pool that it matched for, if it looks at pools.
    pub pool: Option<usize>,
    /// What it does.
    pub action: Action,
    /// Why it could not be worked out, if that is why it counts.
    pub failed: Option<String>,
}

/// The match that decides: the strictest, and of several the first in the file. `warn` never decides.
pub fn strictest(matches: &[Matched]) -> Option<&Matched> {
    let mut decides: Option<&Matched> = None;
    for found in matches.iter().filter(|found| found.action != Action::Warn) {
        let is_stricter = decides.is_none_or(|before| {
            (found.action, std::cmp::Reverse(found.rule))
                > (before.action, std::cmp::Reverse(before.rule))
        });
        if is_stricter {
            decides = Some(found);
        }
    }
    decides
}
