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
    verdict::{AskMatch, CallerFacts},
};

use crate::{guardrail, layers::Layers, preflight::needs_key};

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

fn status(tool: &ContractTool, explain: &mut Explain) -> Result<(), Error> {
    let facts = Facts::Status { status: tool.status };
    if tool.status == Status::Implemented {
        explain.pass(facts);
        return Ok(());
    }
    explain.refuse(None, facts);
    Err(ToolNotActive::new(tool.name.clone(), tool.status).into())
}

fn agent_callable(
    tool: &ContractTool,
    caller: &Caller,
    explain: &mut Explain,
) -> Result<(), Error> {
    let facts = Facts::AgentCallable { callable: tool.agent.callable };
    if tool.agent.callable || caller.surface == Surface::Sdk {
        explain.pass(facts);
        return Ok(());
    }
    explain.refuse(None, facts);
    Err(ToolNotCallable::new(tool.name.clone()).into())
}

fn identity(tool: &ContractTool, caller: &Caller, explain: &mut Explain) -> Result<(), Error> {
    let (who, refusal): (CallerFacts, Option<Error>) = match &caller.identity {
        Identity::Anonymous => {
            let refusal = needs_key(tool, caller.surface, caller.mode)
                .then(|| MissingApiKey::new(tool.name.clone()).into());
            (CallerFacts::Anonymous, refusal)
        }
        Identity::Invalid(why) => {
            (CallerFacts::Invalid { why: *why }, Some(InvalidApiKey::new(*why).into()))
        }
        Identity::Key(key) => {
            let may_call = caller.mode != Mode::Live || key.scopes.contains(&KeyScope::Call);
            let refusal =
                (!may_call).then(|| ScopeMissing::new(KeyScope::Call, key.scopes.clone()).into());
            (CallerFacts::Key { name: key.name.clone(), scopes: key.scopes.clone() }, refusal)
        }
    };
    let facts = Facts::Identity {
        surface: caller.surface,
        mode: caller.mode,
        caller: who,
        anonymous_allowed: tool.access.anonymous_allowed,
    };
    match refusal {
        None => {
            explain.pass(facts);
            Ok(())
        }
        Some(error) => {
            explain.refuse(None, facts);
            Err(error)
        }
    }
}

fn forbidden_risk(tool: &ContractTool, explain: &mut Explain) -> Result<(), Error> {
    match tool.forbidden_risk() {
        None => {
            explain.pass(Facts::ForbiddenRisk { risk: tool.risk.clone() });
            Ok(())
        }
        Some(risk) => {
            explain.refuse(None, Facts::ForbiddenRisk { risk: vec![risk.clone()] });
            Err(ForbiddenRisk::new(tool.name.clone(), risk.clone()).into())
        }
    }
}

fn deny(tool: &ContractTool, layers: &Layers, explain: &mut Explain) -> Result<(), Error> {
    let permissions = tool.permissions.clone();
    let denied = layers.iter().find_map(|(layer, policy)| {
        policy.deny.iter().find(|entry| entry.touches(tool)).map(|entry| (layer, entry))
    });
    match denied {
        None => {
            explain.pass(Facts::Deny { permissions, entry: None });
            Ok(())
        }
        Some((layer, entry)) => {
            explain
                .refuse(Some(layer), Facts::Deny { permissions, entry: Some(entry.to_string()) });
            Err(PermissionDenied::new(tool.name.clone(), layer, entry.to_string()).into())
        }
    }
}

fn allow(tool: &ContractTool, layers: &Layers, explain: &mut Explain) -> Result<(), Error> {
    let permissions = tool.permissions.clone();
    let mut lists: Vec<Layer> = Vec::new();
    for (layer, policy) in layers.iter() {
        let Some(missing) = policy.uncovered(tool) else {
            continue;
        };
        lists.push(layer);
        if missing.is_empty() {
            continue;
        }
        explain.refuse(Some(layer), Facts::Allow { permissions, lists, missing: missing.clone() });
        return Err(PermissionNotGranted::new(tool.name.clone(), layer, missing).into());
    }
    explain.pass(Facts::Allow { permissions, lists, missing: Vec::new() });
    Ok(())
}

fn max_side_effect(
    tool: &ContractTool,
    layers: &Layers,
    explain: &mut Explain,
) -> Result<(), Error> {
    let side_effect = tool.side_effect;
    let ceilings = layers.side_effect_ceilings();
    let exceeded = ceilings.iter().find(|ceiling| side_effect > ceiling.max).copied();
    let facts = Facts::MaxSideEffect { side_effect, ceilings };
    match exceeded {
        None => {
            explain.pass(facts);
            Ok(())
        }
        Some(ceiling) => {
            explain.refuse(Some(ceiling.layer), facts);
            Err(SideEffectExceeded::new(tool.name.clone(), side_effect, ceiling.max, ceiling.layer)
                .into())
        }
    }
}

fn max_cost_effect(
    tool: &ContractTool,
    layers: &Layers,
    explain: &mut Explain,
) -> Result<(), Error> {
    let cost_effect = tool.cost_effect;
    let ceilings = layers.cost_effect_ceilings();
    let exceeded = ceilings.iter().find(|ceiling| cost_effect > ceiling.max).copied();
    let facts = Facts::MaxCostEffect { cost_effect, ceilings };
    match exceeded {
        None => {
            explain.pass(facts);
            Ok(())
        }
        Some(ceiling) => {
            explain.refuse(Some(ceiling.layer), facts);
            Err(CostEffectExceeded::new(tool.name.clone(), cost_effect, ceiling.max, ceiling.layer)
                .into())
        }
    }
}

/// The contract's invariant once more, at the last moment: no data of a user without a key, and none
/// from a tool that claims to need no account.
fn user_data(tool: &ContractTool, caller: &Caller, explain: &mut Explain) -> Result<(), Error> {
    let user_data = tool.needs(&Permission::USER_DATA);
    let has_key = matches!(caller.identity, Identity::Key(_));
    let is_live = caller.mode == Mode::Live;
    let facts = Facts::UserData { user_data, auth_required: tool.auth_required, has_key };
    let refusal: Option<Error> = if user_data && is_live && !has_key {
        Some(MissingApiKey::new(tool.name.clone()).into())
    } else if user_data && !tool.auth_required {
        Some(ToolNotCallable::new(tool.name.clone()).into())
    } else {
        None
    };
    match refusal {
        None => {
            explain.pass(facts);
            Ok(())
        }
        Some(error) => {
            explain.refuse(None, facts);
            Err(error)
        }
    }
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
    let (checked, violated) = guardrail::check(tool, input, layers);
    let Some(violated) = violated else {
        explain.pass(Facts::TradeGuardrails { checked, violated: None, problem: None });
        return Ok(());
    };
    let (guardrail, layer, problem) = (violated.guardrail, violated.layer, violated.problem);
    explain.refuse(
        layer,
        Facts::TradeGuardrails {
            checked,
            violated: Some(guardrail),
            problem: Some(problem.clone()),
        },
    );
    Err(TradeGuardrail::new(tool.name.clone(), guardrail, layer, problem).into())
}

/// Does a layer want a person to answer first?
pub fn check_approval(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
    explain: &mut Explain,
) -> bool {
    let matched: Vec<AskMatch> =
        layers
            .iter()
            .flat_map(|(layer, policy)| {
                policy.ask.iter().enumerate().filter(|(_, rule)| rule.matches(tool, input)).map(
                    move |(index, rule)| AskMatch { layer, index, reason: rule.reason.clone() },
                )
            })
            .collect();
    let Some(first) = matched.first().map(|found| found.layer) else {
        explain.pass(Facts::Approval { matched });
        return false;
    };
    explain.ask(Some(first), Facts::Approval { matched });
    true
}
