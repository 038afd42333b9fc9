//! What can be called, and what does the work. Only the gate can make an [`Admitted`], and an executor
//! takes nothing else: there is no way to it that does not lead through the gate.

use std::{
    collections::HashMap, future::Future, marker::PhantomData, pin::Pin, sync::Arc, time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Capability, ContractTool, Declaration, Error, HostName, KeyFacts, Manifest, Reach,
    ToolDeclaration, ToolName, Violation, Violations,
    error::{Internal, InvalidInput},
    id::{CallId, RunId},
    invariant::Rule,
    schema::{InputProblem, Schema},
    text::plain_shape,
};

use crate::{
    admit::missing_capability, budget::Usage, clock::Clock, consent::account, event::Deltas,
    gate::Inner, keys::Principal,
};

/// The work of an executor.
pub type Working = Pin<Box<dyn Future<Output = Result<Value, ToolFailure>> + Send>>;

/// Does a tool's work.
pub trait Executor: Send + Sync + 'static {
    /// Runs one admitted call. It is dropped when its deadline passes, or some time after it was
    /// cancelled.
    fn execute(&self, call: Admitted) -> Working;
}

/// Why a tool gave no result.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFailure {
    pub(crate) error: Error,
    pub(crate) outcome_unknown: bool,
}

impl ToolFailure {
    /// Nobody knows whether the call took effect.
    pub fn outcome_unknown(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }
}

impl From<Error> for ToolFailure {
    fn from(error: Error) -> Self {
        Self { error, outcome_unknown: false }
    }
}

/// A call that the gate has let through. Nobody else can make one.
pub struct Admitted {
    pub(crate) input: Value,
    pub(crate) context: Context,
}

impl Admitted {
    /// The input, which fits the tool's schema.
    pub fn input(&self) -> &Value {
        &self.input
    }

    /// What surrounds the call.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

/// What surrounds a call while it runs.
#[derive(Clone)]
pub struct Context {
    pub(crate) call_id: CallId,
    pub(crate) run_id: RunId,
    pub(crate) tool: Arc<ContractTool>,
    pub(crate) caller: Principal,
    pub(crate) session: Option<String>,
    pub(crate) deadline: Instant,
    pub(crate) cancelled: CancellationToken,
    pub(crate) upstream_key: Option<String>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) deltas: Option<Deltas>,
    pub(crate) gate: Arc<Inner>,
}

impl Context {
    /// The call.
    pub fn call_id(&self) -> CallId {
        self.call_id
    }

    /// The run that it belongs to.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The contract.
    pub fn tool(&self) -> &ContractTool {
        &self.tool
    }

    /// The key that called; `None` for a caller without one.
    pub fn key(&self) -> Option<&KeyFacts> {
        self.caller.key().map(AsRef::as_ref)
    }

    /// May the caller see this tool?
    pub fn may_see(&self, tool: &ContractTool) -> bool {
        self.caller.layers().is_none_or(|layers| layers.shows(tool))
    }

    /// The session that it belongs to.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// How much time is left.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Says when the caller has given up. What runs on must stop soon: it is dropped after a while.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// The key to send to an upstream that deduplicates: the same for every attempt of one call.
    pub fn upstream_key(&self) -> Option<&str> {
        self.upstream_key.as_deref()
    }

    /// What can be called here.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Says what the call really used, in a unit of a pool (`tokens`, `usd_micros`). Without a word, what was
    /// held counts.
    pub fn used(&self, unit: &str, amount: u64) {
        self.usage.used(unit, amount);
    }

    /// Passes on a piece of an answer that comes bit by bit, to whoever listens. The output holds all of it again.
    pub fn emit(&self, piece: Value) {
        if let Some(deltas) = &self.deltas {
            deltas(piece);
        }
    }

    /// Hands over the headers that a provider answered with, for what they say of its limits.
    pub fn heard<'a>(&self, headers: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.usage.heard(headers, self.clock.now_ms());
    }

    /// How far the caller reaches to a host at this moment; not at all where nothing is granted.
    pub fn reach(&self, host: &HostName) -> Option<Reach> {
        let (key, _) = account(&self.caller).ok()?;
        let now = self.clock.now_ms();
        self.gate.consents.state().reach(host, key, self.session(), now)
    }

    /// The error for a host that the caller does not reach.
    pub fn missing(&self, capability: &Capability) -> Error {
        let name = self.caller.record().map_or("", |key| key.name.as_str());
        missing_capability(&self.tool.name, capability, self.session(), name)
    }

    /// The name that files of this caller go by: the session, or the key outside of any session.
    pub fn workspace(&self) -> Result<String, Error> {
        if let Some(session) = self.session() {
            return Ok(session.to_owned());
        }
        account(&self.caller).map(|(key, _)| key.to_string())
    }

    /// Milliseconds since 1970, by the gate's clock.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}

/// One tool: its contract, its schema made ready, and what does its work.
pub(crate) struct Tool {
    pub(crate) contract: Arc<ContractTool>,
    pub(crate) input_schema: Option<Schema>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    /// The capabilities that a call with this input needs.
    pub(crate) needs: Option<Needs>,
    /// How long a call with this input may take, where that is longer than usual.
    pub(crate) takes: Option<Takes>,
    /// The most that a call with this input can use up, by unit.
    pub(crate) costs: Option<Costs>,
}

/// Reads from an input, and from the session that the call belongs to, the most that it can use up, by unit.
pub(crate) type Costs = Arc<dyn Fn(&Value, Option<&str>) -> Vec<(String, u64)> + Send + Sync>;

/// Reads from an input how long a call may take.
pub(crate) type Takes = Arc<dyn Fn(&Value, Option<&str>) -> Option<Duration> + Send + Sync>;

/// Reads from an input which capabilities a call needs, or what is wrong with it.
pub(crate) type Needs = Arc<dyn Fn(&Value) -> Result<Vec<Capability>, InputProblem> + Send + Sync>;

/// Every tool of a gate.
pub struct Registry {
    manifest: Arc<Manifest>,
    tools: HashMap<ToolName, Arc<Tool>>,
}

/// A registry that is being filled by packs.
#[derive(Default)]
pub struct Packs {
    declarations: Vec<ToolDeclaration>,
    executors: HashMap<ToolName, Arc<dyn Executor>>,
    needs: HashMap<ToolName, Needs>,
    takes: HashMap<ToolName, Takes>,
    costs: HashMap<ToolName, Costs>,
}

impl Packs {
    /// No tools yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool whose executor takes and gives what the declaration says.
    pub fn add<I, O, F, Fut>(self, declaration: Declaration<I, O>, work: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolFailure>> + Send + 'static,
    {
        let executor = Typed { work: Arc::new(work), types: PhantomData::<fn(I) -> O> };
        self.add_untyped(declaration.erase(), executor)
    }

    /// Adds a tool that only reads what is in memory, and gives its output already written.
    pub fn add_reading<I, O>(
        self,
        declaration: Declaration<I, O>,
        work: impl Fn(I, &Context) -> Result<Value, ToolFailure> + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned + Send + 'static,
    {
        self.add_untyped(declaration.erase(), Reading { work, input: PhantomData::<fn(I)> })
    }

    /// Adds a tool whose input and output are only known by their schemas.
    pub fn add_untyped(mut self, declared: ToolDeclaration, executor: impl Executor) -> Self {
        self.executors.insert(declared.tool.name.clone(), Arc::new(executor));
        self.declarations.push(declared);
        self
    }

    /// Says which capabilities calls of a tool need, or what is wrong with their input that its schema cannot say. It is
    /// asked before any person is.
    pub fn needing(
        mut self,
        tool: ToolName,
        needs: impl Fn(&Value) -> Result<Vec<Capability>, InputProblem> + Send + Sync + 'static,
    ) -> Self {
        self.needs.insert(tool, Arc::new(needs));
        self
    }

    /// Says how long calls of a tool may take, where their input says so: longer than the gate's usual limit.
    pub fn taking(
        mut self,
        tool: ToolName,
        takes: impl Fn(&Value, Option<&str>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.takes.insert(tool, Arc::new(takes));
        self
    }

    /// Says the most that a call of a tool can use up, in units of pools (`tokens`, `usd_micros`). So much is held
    /// before it runs. The session is told along with the input.
    pub fn costing(
        mut self,
        tool: ToolName,
        costs: impl Fn(&Value, Option<&str>) -> Vec<(String, u64)> + Send + Sync + 'static,
    ) -> Self {
        self.costs.insert(tool, Arc::new(costs));
        self
    }

    /// Adds an entry that is listed and never called.
    pub fn list(mut self, declared: ToolDeclaration) -> Self {
        self.declarations.push(declared);
        self
    }

    /// Checks all of it together.
    pub fn build(self) -> Result<Registry, Violations> {
        let manifest = Arc::new(Manifest::from_declarations(self.declarations)?);
        let (mut executors, mut needs) = (self.executors, self.needs);
        let (mut takes, mut costs) = (self.takes, self.costs);
        let mut tools = HashMap::new();
        for contract in manifest.entries() {
            let schema = contract.input_schema.as_ref().map(Schema::compile).transpose();
            let input_schema = schema.map_err(|error| {
                Violation::new(
                    contract.name.as_str(),
                    "inputSchema",
                    Rule::Shape,
                    error.to_string(),
                )
            })?;
            let executor = executors.remove(&contract.name);
            let (needs, takes) = (needs.remove(&contract.name), takes.remove(&contract.name));
            let costs = costs.remove(&contract.name);
            let contract = Arc::new(contract.clone());
            let tool = Tool {
                contract: Arc::clone(&contract),
                input_schema,
                executor,
                needs,
                takes,
                costs,
            };
            tools.insert(contract.name.clone(), Arc::new(tool));
        }
        Ok(Registry { manifest, tools })
    }
}

impl Registry {
    /// What can be called.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name)
    }
}

/// An executor over types: it reads its input and writes its output.
struct Typed<I, O, F> {
    work: Arc<F>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O, F, Fut> Executor for Typed<I, O, F>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolFailure>> + Send + 'static,
{
    fn execute(&self, call: Admitted) -> Working {
        let work = Arc::clone(&self.work);
        Box::pin(async move {
            let Admitted { input, context } = call;
            let input = typed(input, &context)?;
            let output = work(input, context).await?;
            serde_json::to_value(&output).map_err(|error| {
                Error::from(Internal::new(format!("an output is no JSON: {error}"))).into()
            })
        })
    }
}

/// An executor that is done at once.
struct Reading<I, F> {
    work: F,
    input: PhantomData<fn(I)>,
}

impl<I, F> Executor for Reading<I, F>
where
    I: DeserializeOwned + Send + 'static,
    F: Fn(I, &Context) -> Result<Value, ToolFailure> + Send + Sync + 'static,
{
    fn execute(&self, call: Admitted) -> Working {
        let Admitted { input, context } = call;
        let output = typed(input, &context).and_then(|input| (self.work)(input, &context));
        Box::pin(std::future::ready(output))
    }
}

/// The input as the type that an executor reads. A schema that was taken from the type lets nothing else
/// through; this is the last resort.
fn typed<I: DeserializeOwned>(mut input: Value, context: &Context) -> Result<I, ToolFailure> {
    whole_numbers(&mut input);
    serde_json::from_value(input).map_err(|error| {
        let message = plain_shape(&error.to_string());
        let problem = InputProblem { pointer: String::new(), message };
        Error::from(InvalidInput::new(context.tool.name.clone(), vec![problem])).into()
    })
}

/// Writes whole numbers as such: `5.0` is an integer to a schema and to the canonical form of JSON, and must be one to
/// an executor.
fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= EXACT);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
