//! The gate's budget step, as an interface. The governor fills it; without one there are no pools.

use tollgate_contract::{Error, ToolName, Urgency, id::CallId, id::HoldId};

/// What a call asks of the budget.
#[derive(Debug, Clone, Copy)]
pub struct BudgetRequest<'a> {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: &'a ToolName,
    /// The key's agent.
    pub agent: Option<&'a str>,
    /// Where it happens.
    pub scope: Option<&'a str>,
    /// How much it matters.
    pub urgency: Urgency,
}

/// What is held for a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// The hold, where a pool applies.
    pub hold: Option<HoldId>,
    /// The pools that it draws on.
    pub pools: Vec<String>,
}

/// What a call really used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// It ran, and used what was held.
    AsHeld,
    /// It did not run.
    Nothing,
}

/// Decides whether there is room for a call.
pub trait Budget: Send + Sync + 'static {
    /// Could there be room? Gives the pools that apply. Nothing is held yet.
    fn feasible(&self, request: &BudgetRequest<'_>) -> Result<Vec<String>, Error>;

    /// Holds room for the call in every pool, or in none.
    fn hold(&self, request: &BudgetRequest<'_>) -> Result<Held, Error>;

    /// Settles what was held with what was used.
    fn settle(&self, held: &Held, used: Used);
}

/// No pools: nothing is counted, everything has room.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPools;

impl Budget for NoPools {
    fn feasible(&self, _: &BudgetRequest<'_>) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn hold(&self, _: &BudgetRequest<'_>) -> Result<Held, Error> {
        Ok(Held::default())
    }

    fn settle(&self, _: &Held, _: Used) {}
}
