//! The decision, step by step, in the order of the contract. Each step records what it saw at the
//! moment it decides; the first that refuses ends it.

use serde_json::Value;
use tollgate_contract::{
    Caller, ContractTool, Error, Explain, Facts, Identity, InputHash, KeyScope, Layer, Manifest,
    Mode, Permission, Status, Surface, Verdict,
    error::{
        CostEffectExceeded, ForbiddenRisk, InvalidApiKey, InvalidInput, MissingApiKey,
        PermissionDenied, PermissionNotGranted, ScopeMissing, SideEffectExceeded, ToolNotActive,
        ToolNotCallable, TradeGuardrail,
    },
    input_hash,
    schema::{InputProblem, Schema},
    text::Clean,
    verdict::{AskMatch, CallerFacts},
};

use crate::{
    ask::AskRule,
    guardrail::{self, Violated},
    layers::Layers,
    preflight::needs_key,
};

/// A question to the policy: may this caller, under these layers, call what is named?
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What there is to call.
    pub manifest: &'a Manifest,
    /// The name as it was written.
    pub tool: &'a str,
    /// Who calls.
    pub caller: &'a Caller,
    /// The policies that apply.
    pub layers: &'a Layers,
}

/// A whole decision of the policy: everything but what needs state.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The answer and its record.
    pub verdict: Verdict,
    /// The error that a refusal becomes.
    pub error: Option<Error>,
    /// The hash of the input, if it came that far.
    pub input_hash: Option<InputHash>,
}

/// Runs every step of the policy on a call, from existence to approval.
///
/// The gate runs the same stages with its own between them (capability, budget); this is for what has
/// no gate: checking a policy, and asking what another policy would have said.
pub fn evaluate(request: &Request<'_>, input: &Value) -> Evaluation {
    let mut explain = Explain::new();
    let mut hash = None;
    match stages(request, input, &mut explain, &mut hash) {
        Ok(true) => {
            Evaluation { verdict: Verdict::pending(explain), error: None, input_hash: hash }
        }
        Ok(false) => {
            Evaluation { verdict: Verdict::approve(explain), error: None, input_hash: hash }
        }
        Err(error) => Evaluation {
            verdict: Verdict::deny(&error, explain),
            error: Some(error),
            input_hash: hash,
        },
    }
}

/// Gives whether a person must answer.
fn stages(
    request: &Request<'_>,
    input: &Value,
    explain: &mut Explain,
    hash: &mut Option<InputHash>,
) -> Result<bool, Error> {
    let tool = check_policy(request, explain)?;
    // A schema that came with a checked manifest compiles; one that does not lets nothing through.
    let schema = match tool.input_schema.as_ref().map(Schema::compile).transpose() {
        Ok(schema) => schema,
        Err(error) => {
            return Err(refuse_input(tool, vec![problem(error.to_string())], true, explain));
        }
    };
    *hash = Some(check_input(tool, schema.as_ref(), input, explain)?);
    check_trade(tool, input, request.layers, explain)?;
    Ok(check_approval(tool, input, request.layers, explain))
}

/// The ten steps before `policy.checked`: existence, status, agent.callable, identity, forbidden risk,
/// deny, allow, max sideEffect, max costEffect, user data.
pub fn check_policy<'a>(
    request: &Request<'a>,
    explain: &mut Explain,
) -> Result<&'a ContractTool, Error> {
    let tool = existence(request, explain)?;
    status(tool, explain)?;
    agent_callable(tool, request.caller, explain)?;
    identity(tool, request.caller, explain)?;
    forbidden_risk(tool, explain)?;
    deny(tool, request.layers, explain)?;
    allow(tool, request.layers, explain)?;
    max_side_effect(tool, request.layers, explain)?;
    max_cost_effect(tool, request.layers, explain)?;
    user_data(tool, request.caller, explain)?;
    Ok(tool)
}

fn existence<'a>(request: &Request<'a>, explain: &mut Explain) -> Result<&'a ContractTool, Error> {
    match request.manifest.resolve(request.tool) {
        Ok(tool) => {
            explain.pass(Facts::Existence { requested: (&tool.name).into(), did_you_mean: None });
            Ok(tool)
        }
        Err(unknown) => {
            let requested = request.tool.into();
            let did_you_mean = unknown.did_you_mean().cloned();
            explain.refuse(None, Facts::Existence { requested, did_you_mean });
            Err(unknown.into())
        }
    }
}

/// Why a step refuses: the layer that decided, where one did, and the error that it becomes.
type Refusal = (Option<Layer>, Error);

/// Records what a step decided on, and passes its refusal on.
fn record(explain: &mut Explain, facts: Facts, refusal: Option<Refusal>) -> Result<(), Error> {
    match refusal {
        None => {
            explain.pass(facts);
            Ok(())
        }
        Some((layer, error)) => {
            explain.refuse(layer, facts);
            Err(error)
        }
    }
}

fn status(tool: &ContractTool, explain: &mut Explain) -> Result<(), Error> {
    let refusal = (tool.status != Status::Implemented)
        .then(|| (None, ToolNotActive::new(tool.name.clone(), tool.status).into()));
    record(explain, Facts::Status { status: tool.status }, refusal)
}

fn agent_callable(
    tool: &ContractTool,
    caller: &Caller,
    explain: &mut Explain,
) -> Result<(), Error> {
    let callable = tool.agent.callable;
    let refusal = (!callable && caller.surface == Surface::Agent)
        .then(|| (None, ToolNotCallable::new(tool.name.clone()).into()));
    record(explain, Facts::AgentCallable { callable }, refusal)
}

fn identity(tool: &ContractTool, caller: &Caller, explain: &mut Explain) -> Result<(), Error> {
    let (who, error): (CallerFacts, Option<Error>) = match &caller.identity {
        Identity::Anonymous => {
            let error = needs_key(tool, caller.surface, caller.mode)
                .then(|| MissingApiKey::new(tool.name.clone()).into());
            (CallerFacts::Anonymous, error)
        }
        Identity::Invalid(why) => {
            (CallerFacts::Invalid { why: *why }, Some(InvalidApiKey::new(*why).into()))
        }
        Identity::Key(key) => {
            let may_call = caller.mode != Mode::Live || key.scopes.contains(&KeyScope::Call);
            let error =
                (!may_call).then(|| ScopeMissing::new(KeyScope::Call, key.scopes.clone()).into());
            (CallerFacts::Key { name: key.name.clone(), scopes: key.scopes.clone() }, error)
        }
    };
    let facts = Facts::Identity {
        surface: caller.surface,
        mode: caller.mode,
        caller: who,
        anonymous_allowed: tool.access.anonymous_allowed,
    };
    record(explain, facts, error.map(|error| (None, error)))
}

fn forbidden_risk(tool: &ContractTool, explain: &mut Explain) -> Result<(), Error> {
    let forbidden = tool.forbidden_risk();
    let risk = forbidden.map_or_else(|| tool.risk.clone(), |risk| vec![risk.clone()]);
    let refusal =
        forbidden.map(|risk| (None, ForbiddenRisk::new(tool.name.clone(), risk.clone()).into()));
    record(explain, Facts::ForbiddenRisk { risk }, refusal)
}

fn deny(tool: &ContractTool, layers: &Layers, explain: &mut Explain) -> Result<(), Error> {
    let denied = layers.iter().find_map(|(layer, policy)| {
        policy.deny.iter().find(|entry| entry.refuses(tool)).map(|entry| (layer, entry.to_string()))
    });
    let entry = denied.as_ref().map(|(_, entry)| entry.clone());
    let facts = Facts::Deny { permissions: tool.permissions.clone(), entry };
    let refusal = denied.map(|(layer, entry)| {
        (Some(layer), PermissionDenied::new(tool.name.clone(), layer, entry).into())
    });
    record(explain, facts, refusal)
}

fn allow(tool: &ContractTool, layers: &Layers, explain: &mut Explain) -> Result<(), Error> {
    let mut lists: Vec<Layer> = Vec::new();
    let mut uncovered: Option<(Layer, Vec<Permission>)> = None;
    for (layer, policy) in layers.iter() {
        let Some(missing) = policy.uncovered(tool) else { continue };
        lists.push(layer);
        if !missing.is_empty() {
            uncovered = Some((layer, missing));
            break;
        }
    }
    let missing = uncovered.as_ref().map(|(_, missing)| missing.clone()).unwrap_or_default();
    let facts = Facts::Allow { permissions: tool.permissions.clone(), lists, missing };
    let refusal = uncovered.map(|(layer, missing)| {
        (Some(layer), PermissionNotGranted::new(tool.name.clone(), layer, missing).into())
    });
    record(explain, facts, refusal)
}

fn max_side_effect(
    tool: &ContractTool,
    layers: &Layers,
    explain: &mut Explain,
) -> Result<(), Error> {
    let (side_effect, ceilings) = (tool.side_effect, layers.side_effect_ceilings());
    let refusal = ceilings.iter().find(|ceiling| side_effect > ceiling.max).map(|ceiling| {
        let (max, layer) = (ceiling.max, ceiling.layer);
        let error = SideEffectExceeded::new(tool.name.clone(), side_effect, max, layer);
        (Some(layer), error.into())
    });
    record(explain, Facts::MaxSideEffect { side_effect, ceilings }, refusal)
}

fn max_cost_effect(
    tool: &ContractTool,
    layers: &Layers,
    explain: &mut Explain,
) -> Result<(), Error> {
    let (cost_effect, ceilings) = (tool.cost_effect, layers.cost_effect_ceilings());
    let refusal = ceilings.iter().find(|ceiling| cost_effect > ceiling.max).map(|ceiling| {
        let (max, layer) = (ceiling.max, ceiling.layer);
        let error = CostEffectExceeded::new(tool.name.clone(), cost_effect, max, layer);
        (Some(layer), error.into())
    });
    record(explain, Facts::MaxCostEffect { cost_effect, ceilings }, refusal)
}

/// The contract's invariant once more, at the last moment: no data of a user without a key, and none
/// from a tool that claims to need no account.
fn user_data(tool: &ContractTool, caller: &Caller, explain: &mut Explain) -> Result<(), Error> {
    let user_data = tool.needs(&Permission::USER_DATA);
    let has_key = matches!(caller.identity, Identity::Key(_));
    let error: Option<Error> = if user_data && caller.mode == Mode::Live && !has_key {
        Some(MissingApiKey::new(tool.name.clone()).into())
    } else if user_data && !tool.auth_required {
        Some(ToolNotCallable::new(tool.name.clone()).into())
    } else {
        None
    };
    let facts = Facts::UserData { user_data, auth_required: tool.auth_required, has_key };
    record(explain, facts, error.map(|error| (None, error)))
}

/// Normalises, hashes and validates the input.
pub fn check_input(
    tool: &ContractTool,
    schema: Option<&Schema>,
    input: &Value,
    explain: &mut Explain,
) -> Result<InputHash, Error> {
    let has_schema = schema.is_some();
    let hash = match input_hash(input) {
        Ok(hash) => hash,
        Err(error) => {
            let found = InputProblem {
                pointer: error.pointer().to_owned(),
                message: error.kind().to_string(),
            };
            return Err(refuse_input(tool, vec![found], has_schema, explain));
        }
    };
    let mut problems = schema.map(|schema| schema.problems(input)).unwrap_or_default();
    if problems.is_empty() && !input.is_object() {
        problems.push(problem("an input is an object".to_owned()));
    }
    if !problems.is_empty() {
        return Err(refuse_input(tool, problems, has_schema, explain));
    }
    explain.pass(Facts::Input { input_hash: Some(hash), has_schema, problems });
    Ok(hash)
}

fn problem(message: String) -> InputProblem {
    InputProblem { pointer: String::new(), message }
}

fn refuse_input(
    tool: &ContractTool,
    problems: Vec<InputProblem>,
    has_schema: bool,
    explain: &mut Explain,
) -> Error {
    explain.refuse(None, Facts::Input { input_hash: None, has_schema, problems: problems.clone() });
    InvalidInput::new(tool.name.clone(), problems).into()
}

/// Holds the call against the trade guardrails of every layer.
pub fn check_trade(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
    explain: &mut Explain,
) -> Result<(), Error> {
    let (checked, found) = guardrail::check(tool, input, layers);
    let facts = Facts::TradeGuardrails {
        checked,
        violated: found.as_ref().map(|violated| violated.guardrail),
        problem: found.as_ref().map(|violated| violated.problem.clone()),
    };
    let refusal = found.map(|Violated { guardrail, layer, problem }| {
        (
            layer,
            TradeGuardrail::new(tool.name.clone(), guardrail, layer, Clean::already(problem))
                .into(),
        )
    });
    record(explain, facts, refusal)
}

/// The entries that want a person to answer first; none where nobody need be asked.
pub fn asks(tool: &ContractTool, input: &Value, layers: &Layers) -> Vec<AskMatch> {
    let of = |layer: Layer, at: usize, rule: &AskRule| AskMatch {
        layer,
        index: at,
        reason: rule.reason.as_deref().map(Clean::new),
        approvers: rule.approvers.unwrap_or(1),
    };
    let mut matched = Vec::new();
    for (layer, policy) in layers.iter() {
        let rules = policy.ask.iter().enumerate();
        matched.extend(
            rules
                .filter(|(_, rule)| rule.matches(tool, input))
                .map(|(at, rule)| of(layer, at, rule)),
        );
    }
    matched
}

/// Must a person answer first?
pub fn check_approval(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
    explain: &mut Explain,
) -> bool {
    let matched = asks(tool, input, layers);
    let layer = matched.first().map(|found| found.layer);
    let facts = Facts::Approval { matched, approval: None };
    match layer {
        None => explain.pass(facts),
        Some(layer) => explain.ask(Some(layer), facts),
    }
    layer.is_some()
}
