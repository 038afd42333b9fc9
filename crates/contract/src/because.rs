//! The record of a step in words. Only what was recorded is read here; nothing is decided again.

use std::fmt;

use crate::{
    call::{Mode, Surface},
    permission::Permission,
    text::{Quoted, list},
    verdict::{AskMatch, CallerFacts, Ceiling, Facts, Outcome, StepRecord},
};

/// The facts of a step as a sentence.
pub(crate) fn sentence(record: &StepRecord) -> String {
    let refused = record.outcome() == Outcome::Refuse;
    let asks = record.outcome() == Outcome::Ask;
    let by = record.layer().map_or(String::new(), |layer| format!(" of the {layer} policy"));
    match record.facts() {
        Facts::Existence { requested, did_you_mean: Some(name) } if refused => {
            format!("no tool is called {requested}; `{name}` is")
        }
        Facts::Existence { requested, .. } if refused => format!("no tool is called {requested}"),
        Facts::Existence { requested, .. } => format!("{requested} is in the manifest"),
        Facts::Status { status } if refused => format!("it is {status}, not implemented"),
        Facts::Status { status } => format!("it is {status}"),
        Facts::AgentCallable { callable: true } => "agents may call it".to_owned(),
        Facts::AgentCallable { callable: false } if refused => "agents may not call it".to_owned(),
        Facts::AgentCallable { callable: false } => {
            "agents may not call it, and this is no agent".to_owned()
        }
        Facts::Identity { surface, mode, caller, anonymous_allowed } => {
            identity(*surface, *mode, caller, *anonymous_allowed, refused)
        }
        Facts::ForbiddenRisk { risk } if risk.is_empty() => "it declares no risk".to_owned(),
        Facts::ForbiddenRisk { risk } if refused => {
            format!("it declares {}, which forbids every call", list(risk))
        }
        Facts::ForbiddenRisk { risk } => {
            format!("it declares {}, which forbids nothing", list(risk))
        }
        Facts::Deny { entry: Some(entry), .. } => format!("`{entry}` is on the deny list{by}"),
        Facts::Deny { permissions, .. } => format!("no layer denies {}", needs(permissions)),
        Facts::Allow { missing, .. } if refused => {
            format!("the allow list{by} does not cover {}", list(missing))
        }
        Facts::Allow { lists, .. } if lists.is_empty() => "no layer has an allow list".to_owned(),
        Facts::Allow { lists, .. } => format!("every allow list covers it ({})", list(lists)),
        Facts::MaxSideEffect { side_effect, ceilings } => {
            ceiling("maxSideEffect", side_effect, ceilings, refused, &by)
        }
        Facts::MaxCostEffect { cost_effect, ceilings } => {
            ceiling("maxCostEffect", cost_effect, ceilings, refused, &by)
        }
        Facts::UserData { user_data: false, .. } => "it reads no data of a user".to_owned(),
        Facts::UserData { has_key: false, .. } if refused => {
            "it reads data of a user, and no key was given".to_owned()
        }
        Facts::UserData { has_key: false, .. } => {
            "it reads data of a user, and nothing is called in this mode".to_owned()
        }
        Facts::UserData { auth_required: false, .. } => {
            "it reads data of a user, yet its contract requires no account".to_owned()
        }
        Facts::UserData { .. } => "it reads data of a user, and the caller has a key".to_owned(),
        Facts::Input { problems, .. } if refused => list(problems),
        Facts::Input { input_hash: Some(hash), has_schema, .. } => {
            let fits =
                if *has_schema { "it fits the schema" } else { "the contract has no input schema" };
            format!("{fits}; input hash {hash}")
        }
        Facts::Input { .. } => "it fits the schema".to_owned(),
        Facts::TradeGuardrails { violated: Some(guardrail), problem, .. } => {
            format!("`{guardrail}`{by} is violated: {}", problem.as_deref().unwrap_or_default())
        }
        Facts::TradeGuardrails { checked, .. } if checked.is_empty() => {
            "no guardrail applies".to_owned()
        }
        Facts::TradeGuardrails { checked, .. } => format!("inside {}", list(checked)),
        Facts::BudgetFeasible { urgency, max_urgency: Some(max), .. } if refused => {
            format!("urgency {urgency} is above the key's highest, {max}")
        }
        Facts::BudgetFeasible { pools, .. } if refused => {
            format!("there is no room in {}", list(pools))
        }
        Facts::BudgetFeasible { pools, .. } | Facts::BudgetHold { pools, .. }
            if pools.is_empty() =>
        {
            "it draws on no pool".to_owned()
        }
        Facts::BudgetFeasible { pools, .. } => format!("there can be room in {}", list(pools)),
        Facts::BudgetHold { pools, .. } if refused => format!("no room is left in {}", list(pools)),
        Facts::BudgetHold { pools, wait_ms: Some(wait), .. } => {
            format!("room is held in {}, after a wait of {wait} ms", list(pools))
        }
        Facts::BudgetHold { pools, .. } => format!("room is held in {}", list(pools)),
        Facts::Capability { missing: Some(missing), .. } => format!("`{missing}` is not granted"),
        Facts::Capability { needed, .. } if needed.is_empty() => "it needs none".to_owned(),
        Facts::Capability { needed, .. } => format!("granted: {}", list(needed)),
        Facts::Approval { matched, .. } if matched.is_empty() => {
            "no layer asks for a person".to_owned()
        }
        Facts::Approval { approval: Some(id), .. } if !refused && !asks => {
            format!("a person has approved it ({id})")
        }
        Facts::Approval { approval: Some(id), .. } if refused => {
            format!("it was not approved ({id})")
        }
        Facts::Approval { matched, .. } => approval(matched),
    }
}

fn needs(permissions: &[Permission]) -> String {
    if permissions.is_empty() { "it".to_owned() } else { list(permissions) }
}

fn identity(
    surface: Surface,
    mode: Mode,
    caller: &CallerFacts,
    anonymous_allowed: bool,
    refused: bool,
) -> String {
    match caller {
        CallerFacts::Key { name, scopes } if refused => {
            format!("the key {} has the scopes {}, and not `call`", Quoted::new(name), list(scopes))
        }
        CallerFacts::Key { name, .. } => format!("the key {} may call tools", Quoted::new(name)),
        CallerFacts::Invalid { .. } => "the key is not valid".to_owned(),
        CallerFacts::Anonymous if mode != Mode::Live => {
            format!("mode {mode} needs no key: nothing is called")
        }
        CallerFacts::Anonymous if !refused => {
            "no key, and the tool is free for everyone".to_owned()
        }
        CallerFacts::Anonymous if surface == Surface::Agent => {
            "no key, and live calls of agents always need one".to_owned()
        }
        CallerFacts::Anonymous if anonymous_allowed => {
            "no key, and the tool has effects or needs an account".to_owned()
        }
        CallerFacts::Anonymous => {
            "no key, and the tool is not on the anonymous allowlist".to_owned()
        }
    }
}

fn ceiling<E: fmt::Display>(
    name: &str,
    effect: &E,
    ceilings: &[Ceiling<E>],
    refused: bool,
    by: &str,
) -> String {
    let all = list(ceilings.iter().map(|ceiling| format!("{} {}", ceiling.layer, ceiling.max)));
    if refused {
        format!("{effect} is above {name}{by} ({all})")
    } else {
        format!("{effect} is within {name} ({all})")
    }
}

fn approval(matched: &[AskMatch]) -> String {
    let most = matched.iter().map(|m| m.approvers).max().unwrap_or(1);
    let who = if most > 1 {
        format!("{most} different people must answer")
    } else {
        "a person must answer".to_owned()
    };
    let entries = matched.iter().map(|m| match &m.reason {
        Some(reason) => format!("{} ask[{}] ({reason})", m.layer, m.index),
        None => format!("{} ask[{}]", m.layer, m.index),
    });
    format!("{who}: {}", list(entries))
}
