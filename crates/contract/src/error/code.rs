//! Error codes: stable words with one status, one class name and one page each.

use std::fmt;

use serde::Serialize;

/// An HTTP status that says that something went wrong. It cannot hold a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ErrorStatus(u16);

impl ErrorStatus {
    /// A status from 400 to 599; what is outside becomes 500.
    pub const fn new(status: u16) -> Self {
        if status >= 400 && status <= 599 { Self(status) } else { Self(500) }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:expr, $class:literal;)*) => {
        /// What went wrong, in one word. The same in HTTP bodies, SDK exceptions, the CLI, metrics
        /// and events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $code)] $variant),*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// The HTTP status; `None` for what only a client can say.
            pub const fn status(self) -> Option<ErrorStatus> {
                let status: Option<u16> = match self { $(Self::$variant => $status),* };
                match status { Some(number) => Some(ErrorStatus::new(number)), None => None }
            }

            /// The name of the exception in the SDKs.
            pub const fn class_name(self) -> &'static str {
                match self { $(Self::$variant => $class),* }
            }

            /// The page that explains it, in Markdown.
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../../../docs/errors/", $code, ".md"))),*
                }
            }

            /// Reads the word on the wire.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// The request cannot be read.
    InvalidRequest = "INVALID_REQUEST", Some(400), "InvalidRequestError";
    /// A key is needed.
    MissingApiKey = "MISSING_API_KEY", Some(401), "MissingApiKeyError";
    /// The key does not count.
    InvalidApiKey = "INVALID_API_KEY", Some(401), "InvalidApiKeyError";
    /// The key is not for this.
    ScopeMissing = "SCOPE_MISSING", Some(403), "ScopeMissingError";
    /// No active tool has this name.
    UnknownTool = "UNKNOWN_TOOL", Some(404), "UnknownToolError";
    /// The thing asked for is not there.
    NotFound = "NOT_FOUND", Some(404), "NotFoundError";
    /// The tool is listed but not active.
    ToolNotActive = "TOOL_NOT_ACTIVE", Some(409), "ToolNotActiveError";
    /// The tool is not for agents.
    ToolNotCallable = "TOOL_NOT_CALLABLE", Some(403), "ToolNotCallableError";
    /// The tool declares a risk that forbids every call.
    ForbiddenRisk = "FORBIDDEN_RISK", Some(403), "ForbiddenRiskError";
    /// A deny list names it.
    PermissionDenied = "PERMISSION_DENIED", Some(403), "PermissionDeniedError";
    /// An allow list does not cover it.
    PermissionNotGranted = "PERMISSION_NOT_GRANTED", Some(403), "PermissionNotGrantedError";
    /// It changes more than the policy lets through.
    SideEffectExceeded = "SIDE_EFFECT_EXCEEDED", Some(403), "SideEffectExceededError";
    /// It costs more than the policy lets through.
    CostEffectExceeded = "COST_EFFECT_EXCEEDED", Some(403), "CostEffectExceededError";
    /// The input does not fit the tool's schema.
    InvalidInput = "INVALID_INPUT", Some(422), "InvalidInputError";
    /// A trade guardrail is violated.
    TradeGuardrail = "TRADE_GUARDRAIL", Some(403), "TradeGuardrailError";
    /// A capability is needed that was not granted.
    CapabilityMissing = "CAPABILITY_MISSING", Some(403), "CapabilityMissingError";
    /// A person said no, or did not answer in time.
    ApprovalDenied = "APPROVAL_DENIED", Some(403), "ApprovalDeniedError";
    /// There is no room in a pool.
    BudgetDenied = "BUDGET_DENIED", Some(429), "BudgetDeniedError";
    /// It does not go together with what is there.
    Conflict = "CONFLICT", Some(409), "ConflictError";
    /// Nobody knows whether the call happened.
    OutcomeUnknown = "OUTCOME_UNKNOWN", Some(409), "OutcomeUnknownError";
    /// The trace has no such call.
    ReplayMiss = "REPLAY_MISS", Some(404), "ReplayMissError";
    /// The request is too large.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", Some(413), "PayloadTooLargeError";
    /// The tool itself failed.
    ToolFailed = "TOOL_FAILED", Some(502), "ToolFailedError";
    /// The tool took too long.
    Timeout = "TIMEOUT", Some(504), "TimeoutError";
    /// The caller gave up.
    Cancelled = "CANCELLED", Some(499), "CancelledError";
    /// The sandbox cannot give its guarantees.
    SandboxUnavailable = "SANDBOX_UNAVAILABLE", Some(503), "SandboxUnavailableError";
    /// The record cannot be written.
    LedgerUnavailable = "LEDGER_UNAVAILABLE", Some(503), "LedgerUnavailableError";
    /// New calls are stopped.
    Halted = "HALTED", Some(503), "HaltedError";
    /// A fault of the gate itself.
    Internal = "INTERNAL", Some(500), "InternalError";
    /// The gate does not answer. Said by clients.
    GateUnavailable = "GATE_UNAVAILABLE", None, "ProviderError";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
