//! How a command ends. Scripts rely on these numbers.

use serde::Serialize;

/// The exit codes, one meaning each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// It worked; a policy approves.
    Ok,
    /// It failed in a way that has no code of its own.
    Failed,
    /// The command line cannot be understood.
    Usage,
    /// A file or a text that was given cannot be read or does not validate.
    BadInput,
    /// The answer is no.
    Denied,
    /// A person must answer first.
    Pending,
    /// What was asked for is not there.
    NotFound,
}

impl Exit {
    /// Every exit code.
    pub(crate) const ALL: [Self; 7] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::BadInput,
        Self::Denied,
        Self::Pending,
        Self::NotFound,
    ];

    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BadInput => 3,
            Self::Denied => 4,
            Self::Pending => 5,
            Self::NotFound => 6,
        }
    }

    /// What the number means.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "it worked; a policy approves",
            Self::Failed => "it failed in a way that has no code of its own",
            Self::Usage => "the command line cannot be understood",
            Self::BadInput => "a file or text that was given cannot be read or does not validate",
            Self::Denied => "the answer is no",
            Self::Pending => "a person must answer first",
            Self::NotFound => "what was asked for is not there",
        }
    }
}
