//! How a command ends. Scripts rely on these numbers.

use serde::Serialize;
use tollgate_contract::ErrorCode;

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
    /// The gate does not answer, or cannot write its record.
    Unavailable,
    /// Somebody interrupted it.
    Interrupted,
}

impl Exit {
    /// Every exit code.
    pub(crate) const ALL: [Self; 9] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::BadInput,
        Self::Denied,
        Self::Pending,
        Self::NotFound,
        Self::Unavailable,
        Self::Interrupted,
    ];

    /// How a command ends with this error.
    pub(crate) fn of(code: ErrorCode) -> Self {
        use ErrorCode as E;
        match code {
            E::InvalidRequest | E::InvalidInput | E::PayloadTooLarge => Self::BadInput,
            E::UnknownTool | E::NotFound | E::ReplayMiss => Self::NotFound,
            E::GateUnavailable | E::LedgerUnavailable => Self::Unavailable,
            E::MissingApiKey
            | E::InvalidApiKey
            | E::ScopeMissing
            | E::ToolNotActive
            | E::ToolNotCallable
            | E::ForbiddenRisk
            | E::PermissionDenied
            | E::PermissionNotGranted
            | E::SideEffectExceeded
            | E::CostEffectExceeded
            | E::TradeGuardrail
            | E::CapabilityMissing
            | E::ApprovalDenied
            | E::BudgetDenied
            | E::Halted => Self::Denied,
            E::Conflict
            | E::OutcomeUnknown
            | E::ToolFailed
            | E::Timeout
            | E::Cancelled
            | E::SandboxUnavailable
            | E::Internal => Self::Failed,
        }
    }

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
            Self::Unavailable => 7,
            // As shells count a process that a keyboard interrupt has ended.
            Self::Interrupted => 130,
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
            Self::Unavailable => "the gate does not answer, or cannot write its record",
            Self::Interrupted => "it was interrupted or cancelled while it ran",
        }
    }
}
