//! Policy: a contract, layered policies, a caller and a call give one explained decision.
//!
//! Everything is pure. Layers (server, key, session, call) can only narrow; the first failure wins;
//! every step is recorded as it decides, and the record is the explanation. What needs state or time
//! (capabilities, budgets, approvals that were given) is the gate's and the governor's.

mod ask;
mod evaluate;
mod guardrail;
mod layers;
mod load;
mod policy;
mod preflight;
mod region;
mod selector;
mod trade;

pub use ask::{AskRule, Condition};
pub use evaluate::{
    Evaluation, Request, asks, check_approval, check_input, check_policy, check_trade, evaluate,
};
pub use layers::Layers;
pub use load::{Format, PolicyError, PolicySet};
pub use policy::Policy;
pub use preflight::needs_key;
pub use region::Region;
pub use selector::Selector;
pub use trade::{ConfirmToken, TradeGuardrails};
