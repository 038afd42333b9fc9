//! The same rules in Cedar: tools are resources, callers are principals, ranks are numbers. The lists
//! of a layer are attributes of an entity, which Cedar is faster on than on lists in a policy's text.
//!
//! Written in two ways. One policy a rule is how Cedar is meant to be used, and the answer then names
//! the policies that decided. One `permit` with everything in it is as fast as Cedar gets, because it
//! stops at the first condition that fails, and says nothing about why.

use std::{error::Error, str::FromStr};

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, PolicySet,
    Request,
};
use serde_json::{Value, json};
use tollgate_contract::{Identity, Risk};

use super::{
    Engine,
    scenario::{KEY, LayerRules, SERVER, Scenario},
};

/// How the rules are written.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    /// One policy a rule.
    Rules,
    /// One policy in all.
    OnePermit,
}

pub(crate) struct Cedar {
    style: Style,
    authorizer: Authorizer,
    policies: PolicySet,
    entities: Entities,
    requests: Vec<Request>,
}

impl Cedar {
    pub(crate) fn new(scenario: &Scenario, style: Style) -> Result<Self, Box<dyn Error>> {
        let policies = match style {
            Style::Rules => rules(),
            Style::OnePermit => one_permit(),
        };
        Ok(Self {
            style,
            authorizer: Authorizer::new(),
            policies: PolicySet::from_str(&policies)?,
            entities: Entities::from_json_value(entities(scenario), None)?,
            requests: requests(scenario)?,
        })
    }
}

impl Engine for Cedar {
    fn name(&self) -> &'static str {
        match self.style {
            Style::Rules => "cedar, one policy a rule",
            Style::OnePermit => "cedar, one permit in all",
        }
    }

    fn allows(&mut self, call: usize) -> Result<bool, Box<dyn Error>> {
        let request = self.requests.get(call).ok_or("no such call")?;
        let response = self.authorizer.is_authorized(request, &self.policies, &self.entities);
        Ok(response.decision() == Decision::Allow)
    }
}

/// What must hold for a permit, before the rules of the layers. A tool that does not exist has no
/// status: an error in a `forbid` would let the call through, so the `permit` asks for it.
const PERMIT: &str = r#"resource has status && resource.status == "implemented"
    && resource.callable
    && principal.hasKey && principal.scopes.contains("call")"#;

const LAYERS: [(&str, LayerRules); 2] = [("server", SERVER), ("key", KEY)];

const USER_DATA: &str = r#"resource.permissions.contains("user_data") && !principal.hasKey"#;

fn rules() -> String {
    let forbid = |refusal| format!("forbid(principal, action, resource) when {{ {refusal} }};\n");
    let forbids: String = refusals().into_iter().map(forbid).collect();
    format!("permit(principal, action, resource) when {{ {PERMIT} }};\n{forbids}")
}

fn one_permit() -> String {
    let refusals = refusals().join(") && !(");
    format!("permit(principal, action, resource) when {{ {PERMIT} && !({refusals}) }};")
}

/// What refuses a call, in our order.
fn refusals() -> Vec<String> {
    let both =
        |rule: &dyn Fn(&str, &LayerRules) -> String| LAYERS.map(|(name, layer)| rule(name, &layer));
    let mut refusals = vec![r#"resource.risk.containsAny(Layer::"contract".deny)"#.to_owned()];
    refusals.extend(both(&|name, _| {
        format!(r#"resource.permissions.containsAny(Layer::"{name}".deny)"#)
    }));
    refusals.extend(both(&|name, _| {
        format!(r#"!Layer::"{name}".allow.containsAll(resource.permissions)"#)
    }));
    refusals
        .extend(both(&|_, layer| format!("resource.sideEffect > {}", layer.max_side_effect as u8)));
    refusals
        .extend(both(&|_, layer| format!("resource.costEffect > {}", layer.max_cost_effect as u8)));
    refusals.push(USER_DATA.to_owned());
    refusals
}

fn entities(scenario: &Scenario) -> Value {
    let tools = scenario.manifest.entries().iter().map(|tool| {
        json!({
            "uid": { "type": "Tool", "id": tool.name },
            "attrs": {
                "status": tool.status,
                "callable": tool.agent.callable,
                "risk": tool.risk,
                "permissions": tool.permissions,
                "sideEffect": tool.side_effect as u8,
                "costEffect": tool.cost_effect as u8,
            },
            "parents": [],
        })
    });
    let callers = scenario.callers.iter().map(|(name, caller)| {
        let (has_key, scopes) = match &caller.identity {
            Identity::Key(key) => (true, key.scopes.as_slice()),
            _ => (false, [].as_slice()),
        };
        json!({
            "uid": { "type": "Caller", "id": name },
            "attrs": { "hasKey": has_key, "scopes": scopes },
            "parents": [],
        })
    });
    let layers = LAYERS.iter().map(|(name, layer)| {
        json!({
            "uid": { "type": "Layer", "id": name },
            "attrs": { "allow": layer.allow, "deny": layer.deny },
            "parents": [],
        })
    });
    let contract = json!({
        "uid": { "type": "Layer", "id": "contract" },
        "attrs": { "deny": Risk::FORBIDDEN },
        "parents": [],
    });
    tools.chain(callers).chain(layers).chain([contract]).collect()
}

fn requests(scenario: &Scenario) -> Result<Vec<Request>, Box<dyn Error>> {
    let uid = |kind: &str, id: &str| -> Result<EntityUid, Box<dyn Error>> {
        let kind = EntityTypeName::from_str(kind)?;
        Ok(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
    };
    let request = |tool: &str, caller: usize| -> Result<Request, Box<dyn Error>> {
        let (name, _) = scenario.callers.get(caller).ok_or("no such caller")?;
        Ok(Request::new(
            uid("Caller", name)?,
            uid("Action", "call")?,
            uid("Tool", tool)?,
            Context::empty(),
            None,
        )?)
    };
    scenario.calls.iter().map(|call| request(&call.tool, call.caller)).collect()
}
