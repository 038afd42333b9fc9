//! The marks that a model sets apart its blocks with.

use serde::{Deserialize, Serialize};

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// A patch of the state, and actions.
    Notes,
    /// Calls of tools.
    ToolCalls,
}

impl BlockKind {
    /// What it begins with.
    pub const fn begin(self) -> &'static str {
        match self {
            Self::Notes => "<<<NOTES_JSON>>>",
            Self::ToolCalls => "<<<TOOL_CALLS_JSON>>>",
        }
    }

    /// What it ends with.
    pub const fn end(self) -> &'static str {
        match self {
            Self::Notes => "<<<END_NOTES_JSON>>>",
            Self::ToolCalls => "<<<END_TOOL_CALLS_JSON>>>",
        }
    }

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notes => "NOTES",
            Self::ToolCalls => "TOOL_CALLS",
        }
    }
}

/// What stands for something else than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Begin(BlockKind),
    End(BlockKind),
    Think(&'static str),
    Unthink,
}

/// How models set their reasoning apart when a server does not do it for them.
const TAGS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")];

/// What ends reasoning that this tag began.
pub(crate) fn closing(tag: &'static str) -> &'static str {
    TAGS.iter().find(|(open, _)| *open == tag).map_or("</think>", |(_, close)| close)
}

/// Every mark, with its text.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, Mark)> {
    let blocks = [BlockKind::Notes, BlockKind::ToolCalls].into_iter();
    let blocks =
        blocks.flat_map(|kind| [(kind.begin(), Mark::Begin(kind)), (kind.end(), Mark::End(kind))]);
    let tags = TAGS
        .into_iter()
        .flat_map(|(open, close)| [(open, Mark::Think(open)), (close, Mark::Unthink)]);
    blocks.chain(tags)
}

/// The mark that a text begins with, and how long it is.
pub(crate) fn at_start(text: &str) -> Option<(Mark, usize)> {
    all().find(|(mark, _)| text.starts_with(mark)).map(|(text, mark)| (mark, text.len()))
}

/// Could this text, once it goes on, begin with a mark?
pub(crate) fn may_become(text: &str) -> bool {
    all().any(|(mark, _)| mark.len() > text.len() && mark.starts_with(text))
}
