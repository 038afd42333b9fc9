//! The one table of event names. Four surfaces name the same events in their own ways; here each
//! event stands once, with the name it has on each surface where it appears.

/// Declares the events: one row each, `-` where a surface does not show it.
macro_rules! events {
    (@name -) => { None };
    (@name $name:literal) => { Some($name) };
    ($($(#[$doc:meta])* $event:ident: $stream:tt $manifest:tt $runtime:tt $ledger:tt;)*) => {
        /// Something that happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Event {
            $($(#[$doc])* $event),*
        }

        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$event),*];

            /// Its name in the stream of a run (`tool.started`).
            pub const fn stream_name(self) -> Option<&'static str> {
                match self { $(Self::$event => events!(@name $stream)),* }
            }

            /// Its name in a manifest's `traceEvents` and on the command line (`tool.call.started`).
            pub const fn manifest_name(self) -> Option<&'static str> {
                match self { $(Self::$event => events!(@name $manifest)),* }
            }

            /// Its name in the trace of the agent runtime (`tool_start`).
            pub const fn runtime_name(self) -> Option<&'static str> {
                match self { $(Self::$event => events!(@name $runtime)),* }
            }

            /// Its kind in the ledger (`call_started`).
            pub const fn ledger_kind(self) -> Option<&'static str> {
                match self { $(Self::$event => events!(@name $ledger)),* }
            }
        }
    };
}

events! {
    // event                   stream of a run    manifest, CLI          runtime trace   ledger
    /// A run began.
    RunStarted:                "run.started"      -                      -               -;
    /// The name was found in the manifest.
    ToolResolved:              "tool.resolved"    -                      -               -;
    /// The policy has answered.
    PolicyChecked:             "policy.checked"   -                      -               -;
    /// The executor is about to start.
    CallStarted:               "tool.started"     "tool.call.started"    "tool_start"    "call_started";
    /// The executor gave a result.
    CallCompleted:             "tool.completed"   "tool.call.completed"  "tool_done"     "call_completed";
    /// The executor failed, or the call was refused. The runtime trace has one kind for both ends.
    CallFailed:                "tool.failed"      "tool.call.failed"     "tool_done"     "call_failed";
    /// A run ended well.
    RunCompleted:              "run.completed"    -                      -               -;
    /// A run ended in an error or a refusal.
    RunFailed:                 "run.failed"       -                      -               -;

    /// A model was asked.
    ModelRequested:            -                  -                      "llm_req"       -;
    /// A model sent a piece of its answer.
    ModelStreamed:             -                  -                      "llm_stream"    -;
    /// A model finished its answer.
    ModelDone:                 -                  -                      "llm_done"      -;
    /// A NOTES block was read and applied.
    NotesPatched:              -                  -                      "notes_patch"   -;
    /// The actions of a NOTES block were run.
    ActionsRun:                -                  -                      "actions"       -;
    /// Memory was searched.
    MemoryRetrieved:           -                  -                      "retrieval"     -;
    /// A TOOL_CALLS block was read.
    ToolsPlanned:              -                  -                      "tool_plan"     -;

    /// The daemon started.
    SystemStarted:             -                  -                      -               "system_started";
    /// A configuration took effect.
    ConfigApplied:             -                  -                      -               "config_applied";
    /// A policy changed.
    PolicyUpdated:             -                  -                      -               "policy_updated";
    /// An identity was made known.
    IdentityRegistered:        -                  -                      -               "identity_registered";
    /// An identity and its names were removed.
    IdentityDeleted:           -                  -                      -               "identity_deleted";
    /// A key was made.
    KeyCreated:                -                  -                      -               "key_created";
    /// A key was withdrawn.
    KeyRevoked:                -                  -                      -               "key_revoked";
    /// An intent was decided.
    IntentDecided:             -                  -                      -               "intent_decided";
    /// Real usage was reported.
    UsageObserved:             -                  -                      -               "usage_observed";
    /// A hold ran out unsettled.
    HoldExpired:               -                  -                      -               "hold_expired";
    /// A provider told its own count.
    ProviderObserved:          -                  -                      -               "provider_observed";
    /// A window was seen to reset.
    ResetObserved:             -                  -                      -               "reset_observed";
    /// Our count and the provider's differ too much.
    DriftDetected:             -                  -                      -               "drift_detected";
    /// A forecast crossed its threshold.
    ForecastCrossed:           -                  -                      -               "forecast_crossed";
    /// A session was used for the first time, and belongs to a key from then on.
    SessionOpened:             -                  -                      -               "session_opened";
    /// An operator decided something for a session, corrected it, or had something of it forgotten.
    SessionChanged:            -                  -                      -               "session_changed";
    /// A capability was asked for.
    CapabilityRequested:       -                  -                      -               "capability_requested";
    /// A capability was given.
    CapabilityGranted:         -                  -                      -               "capability_granted";
    /// A capability was withdrawn.
    CapabilityRevoked:         -                  -                      -               "capability_revoked";
    /// A person was asked.
    ApprovalRequested:         -                  -                      -               "approval_requested";
    /// A person answered.
    ApprovalDecided:           -                  -                      -               "approval_decided";
    /// The call that a person approved has started.
    ApprovalUsed:              -                  -                      -               "approval_used";
    /// A tool's definition was pinned.
    ToolPinned:                -                  -                      -               "tool_pinned";
    /// A pinned tool's definition changed.
    ToolDrifted:               -                  -                      -               "tool_drifted";
    /// New calls were stopped.
    Halted:                    -                  -                      -               "halted";
    /// New calls are let through again.
    Resumed:                   -                  -                      -               "resumed";
    /// Older events were replaced by the state they lead to.
    Checkpoint:                -                  -                      -               "checkpoint";
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
