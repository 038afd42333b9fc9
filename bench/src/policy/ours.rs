//! Tollgate's own engine, as the gate calls it: the ten steps before `policy.checked`, and the whole
//! with trade guardrails and approval.

use std::{error::Error, hint::black_box};

use tollgate_contract::{Explain, Step};
use tollgate_policy::{Request, check_approval, check_policy, check_trade};

use super::{
    Engine,
    scenario::{Call, Scenario},
};

/// How much of a decision is made.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    /// `check_policy`: what the other engines are asked, too.
    Policy,
    /// `check_policy`, `check_trade` and `check_approval`.
    Whole,
}

pub(crate) struct Ours<'a> {
    scenario: &'a Scenario,
    extent: Extent,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(scenario: &'a Scenario, extent: Extent) -> Self {
        Self { scenario, extent }
    }

    fn request(&self, call: usize) -> Option<(Request<'a>, &'a Call)> {
        let call = self.scenario.calls.get(call)?;
        let (_, caller) = self.scenario.callers.get(call.caller)?;
        let request = Request {
            manifest: &self.scenario.manifest,
            tool: &call.tool,
            caller,
            layers: &self.scenario.layers,
        };
        Some((request, call))
    }

    /// The step that refuses a call, to check that the mix reaches the steps it means to.
    pub(crate) fn refused_at(&self, call: usize) -> Option<Step> {
        let (request, _) = self.request(call)?;
        let mut explain = Explain::new();
        check_policy(&request, &mut explain).err()?;
        explain.decided_by().map(|record| record.step())
    }
}

impl Engine for Ours<'_> {
    fn name(&self) -> &'static str {
        match self.extent {
            Extent::Policy => "tollgate, policy",
            Extent::Whole => "tollgate, policy + trade + approval",
        }
    }

    fn allows(&mut self, call: usize) -> Result<bool, Box<dyn Error>> {
        let (request, call) = self.request(call).ok_or("no such call")?;
        let mut explain = Explain::new();
        let allows = match check_policy(&request, &mut explain) {
            Err(error) => {
                black_box(&error);
                false
            }
            Ok(_) if self.extent == Extent::Policy => true,
            Ok(tool) => {
                check_trade(tool, &call.input, request.layers, &mut explain).is_ok()
                    && !check_approval(tool, &call.input, request.layers, &mut explain)
            }
        };
        black_box(&explain);
        Ok(allows)
    }
}
