//! Why a verdict is what it is: one closed set of words that bodies, metrics, traces and events share.

use crate::{effect::words, error::ErrorCode};

words! {
    /// Why a call was refused or made to wait.
    Reason {
        /// No active tool has this name.
        UnknownTool = "unknown_tool",
        /// The tool is listed but not active.
        ToolNotActive = "tool_not_active",
        /// The tool is not for agents.
        ToolNotCallable = "tool_not_callable",
        /// A key is needed.
        MissingApiKey = "missing_api_key",
        /// The key does not count.
        InvalidApiKey = "invalid_api_key",
        /// The key is not for this.
        ScopeMissing = "scope_missing",
        /// The tool declares a risk that forbids every call.
        ForbiddenRisk = "forbidden_risk",
        /// A layer denies it.
        PermissionDenied = "permission_denied",
        /// A layer does not allow it.
        PermissionNotGranted = "permission_not_granted",
        /// It changes more than a layer lets through.
        SideEffectExceeded = "side_effect_exceeded",
        /// It costs more than a layer lets through.
        CostEffectExceeded = "cost_effect_exceeded",
        /// The input does not fit.
        InvalidInput = "invalid_input",
        /// A trade guardrail is violated.
        TradeGuardrail = "trade_guardrail",
        /// A capability is needed that was not granted.
        CapabilityMissing = "capability_missing",
        /// A person must answer first. Not a refusal.
        ApprovalRequired = "approval_required",
        /// A person said no, or did not answer in time.
        ApprovalDenied = "approval_denied",
        /// A hard limit leaves no room.
        HardLimitReached = "hard_limit_reached",
        /// The forecast says that the pool would run out.
        RiskTooHigh = "risk_too_high",
        /// A rule or a claim forbids it.
        PolicyViolation = "policy_violation",
        /// There is room after the next reset.
        DeferUntilReset = "defer_until_reset",
        /// No route says which pools it draws on.
        UnmappedWorkload = "unmapped_workload",
        /// New calls are stopped.
        Halted = "halted",
        /// The sandbox cannot give its guarantees.
        SandboxUnavailable = "sandbox_unavailable",
        /// The record cannot be written.
        LedgerUnavailable = "ledger_unavailable",
        /// The daemon does not answer. Said by clients.
        DaemonUnreachable = "daemon_unreachable",
    }
}

impl Reason {
    /// The error that a refusal for this reason is; `None` where it is no error but a wait.
    pub fn code(self) -> Option<ErrorCode> {
        Some(match self {
            Self::UnknownTool => ErrorCode::UnknownTool,
            Self::ToolNotActive => ErrorCode::ToolNotActive,
            Self::ToolNotCallable => ErrorCode::ToolNotCallable,
            Self::MissingApiKey => ErrorCode::MissingApiKey,
            Self::InvalidApiKey => ErrorCode::InvalidApiKey,
            Self::ScopeMissing => ErrorCode::ScopeMissing,
            Self::ForbiddenRisk => ErrorCode::ForbiddenRisk,
            Self::PermissionDenied => ErrorCode::PermissionDenied,
            Self::PermissionNotGranted => ErrorCode::PermissionNotGranted,
            Self::SideEffectExceeded => ErrorCode::SideEffectExceeded,
            Self::CostEffectExceeded => ErrorCode::CostEffectExceeded,
            Self::InvalidInput => ErrorCode::InvalidInput,
            Self::TradeGuardrail => ErrorCode::TradeGuardrail,
            Self::CapabilityMissing => ErrorCode::CapabilityMissing,
            Self::ApprovalDenied => ErrorCode::ApprovalDenied,
            Self::HardLimitReached
            | Self::RiskTooHigh
            | Self::PolicyViolation
            | Self::DeferUntilReset
            | Self::UnmappedWorkload => ErrorCode::BudgetDenied,
            Self::Halted => ErrorCode::Halted,
            Self::SandboxUnavailable => ErrorCode::SandboxUnavailable,
            Self::LedgerUnavailable => ErrorCode::LedgerUnavailable,
            Self::DaemonUnreachable => ErrorCode::GateUnavailable,
            Self::ApprovalRequired => return None,
        })
    }
}
