//! The same rules in Rego, run by regorus: as a compiled policy, and as a program of its virtual
//! machine, which is kept between calls and is the fastest way that regorus has.
//!
//! Of the ways to write the rules that were tried, this is the one that it runs fastest: sets as
//! constants of the policy, and tools as data with real sets in it, which JSON cannot say.

use std::{collections::BTreeSet, error::Error};

use regorus::{
    CompiledPolicy, Engine as RegoEngine, Rc, Value, languages::rego::compiler::Compiler,
    rvm::RegoVM,
};
use serde_json::json;
use tollgate_contract::{Identity, Risk};

use super::{
    Engine,
    scenario::{KEY, SERVER, Scenario},
};

fn policy() -> String {
    format!(
        r#"
package bench

default allow := false

allow if {{
    tool := data.tools[input.tool]
    tool.status == "implemented"
    tool.callable
    input.hasKey
    "call" in input.scopes
    tool.risk & {risks} == set()
    permissions := tool.permissions
    permissions & {server_deny} == set()
    permissions & {key_deny} == set()
    permissions - {server_allow} == set()
    permissions - {key_allow} == set()
    tool.sideEffect <= {server_side_effect}
    tool.sideEffect <= {key_side_effect}
    tool.costEffect <= {server_cost_effect}
    tool.costEffect <= {key_cost_effect}
    not user_data_without_key
}}

user_data_without_key if {{
    not input.hasKey
    "user_data" in data.tools[input.tool].permissions
}}
"#,
        risks = literal(&Risk::FORBIDDEN),
        server_deny = literal(SERVER.deny),
        key_deny = literal(KEY.deny),
        server_allow = literal(SERVER.allow),
        key_allow = literal(KEY.allow),
        server_side_effect = SERVER.max_side_effect as u8,
        key_side_effect = KEY.max_side_effect as u8,
        server_cost_effect = SERVER.max_cost_effect as u8,
        key_cost_effect = KEY.max_cost_effect as u8,
    )
}

/// A set as Rego writes it; of nothing, `{}` would be an object, and there is no such list.
fn literal(words: &[&str]) -> String {
    format!(r#"{{"{}"}}"#, words.join(r#"", ""#))
}

const ENTRY: &str = "data.bench.allow";

/// Tools and inputs, and the policy compiled over them.
struct Prepared {
    policy: CompiledPolicy,
    data: Value,
    inputs: Vec<Value>,
}

fn prepare(scenario: &Scenario) -> Result<Prepared, Box<dyn Error>> {
    let data = data(scenario)?;
    let mut engine = RegoEngine::new();
    engine.add_policy("bench.rego".to_owned(), policy())?;
    engine.add_data(data.clone())?;
    let entry: Rc<str> = ENTRY.into();
    Ok(Prepared {
        policy: engine.compile_with_entrypoint(&entry)?,
        data,
        inputs: inputs(scenario)?,
    })
}

/// regorus with its compiled policy.
pub(crate) struct Compiled(Prepared);

impl Compiled {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, Box<dyn Error>> {
        prepare(scenario).map(Self)
    }
}

impl Engine for Compiled {
    fn name(&self) -> &'static str {
        "regorus, compiled policy"
    }

    fn allows(&mut self, call: usize) -> Result<bool, Box<dyn Error>> {
        let input = self.0.inputs.get(call).ok_or("no such call")?;
        let answer = self.0.policy.eval_with_input(input.clone())?;
        Ok(*answer.as_bool()?)
    }
}

/// regorus with its virtual machine.
pub(crate) struct Machine {
    machine: RegoVM,
    inputs: Vec<Value>,
}

impl Machine {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, Box<dyn Error>> {
        let prepared = prepare(scenario)?;
        let program = Compiler::compile_from_policy(&prepared.policy, &[ENTRY])
            .map_err(|error| error.to_string())?;
        let mut machine = RegoVM::new();
        machine.load_program(program);
        machine.set_data(prepared.data).map_err(|error| error.to_string())?;
        Ok(Self { machine, inputs: prepared.inputs })
    }
}

impl Engine for Machine {
    fn name(&self) -> &'static str {
        "regorus, virtual machine"
    }

    fn allows(&mut self, call: usize) -> Result<bool, Box<dyn Error>> {
        let input = self.inputs.get(call).ok_or("no such call")?;
        self.machine.set_input(input.clone());
        let answer = self.machine.execute().map_err(|error| error.to_string())?;
        Ok(*answer.as_bool()?)
    }
}

fn data(scenario: &Scenario) -> Result<Value, Box<dyn Error>> {
    let mut tools = Value::new_object();
    for tool in scenario.manifest.entries() {
        let mut entry = Value::from(json!({
            "status": tool.status,
            "callable": tool.agent.callable,
            "sideEffect": tool.side_effect as u8,
            "costEffect": tool.cost_effect as u8,
        }));
        let fields = entry.as_object_mut()?;
        fields.insert("risk".into(), set(tool.risk.iter().map(Risk::as_str)));
        let permissions = tool.permissions.iter().map(|permission| permission.as_str());
        fields.insert("permissions".into(), set(permissions));
        tools.as_object_mut()?.insert(tool.name.as_str().into(), entry);
    }
    let mut data = Value::new_object();
    data.as_object_mut()?.insert("tools".into(), tools);
    Ok(data)
}

fn inputs(scenario: &Scenario) -> Result<Vec<Value>, Box<dyn Error>> {
    let input = |tool: &str, caller: usize| -> Result<Value, Box<dyn Error>> {
        let (_, caller) = scenario.callers.get(caller).ok_or("no such caller")?;
        let (has_key, scopes) = match &caller.identity {
            Identity::Key(key) => (true, key.scopes.as_slice()),
            _ => (false, [].as_slice()),
        };
        let mut input = Value::from(json!({ "tool": tool, "hasKey": has_key }));
        let scopes = set(scopes.iter().map(|scope| scope.as_str()));
        input.as_object_mut()?.insert("scopes".into(), scopes);
        Ok(input)
    };
    scenario.calls.iter().map(|call| input(&call.tool, call.caller)).collect()
}

fn set<'a>(words: impl IntoIterator<Item = &'a str>) -> Value {
    let words: BTreeSet<Value> = words.into_iter().map(Value::from).collect();
    words.into()
}
