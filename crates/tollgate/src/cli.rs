//! What can be typed. The help and `describe` are made from these types.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tollgate_contract::{Mode, Surface};

use crate::place::{DataArgs, GateArgs};

/// One gate for everything an AI agent does to the outside world.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    about,
    propagate_version = false,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Example:\n  tollgate serve\n  tollgate call system.time\n\nExit codes: 0 it worked, 1 it failed, 2 bad command line, 3 bad file or text, 4 denied,\n5 a person must answer, 6 not there, 7 the gate does not answer, 130 interrupted.\n`tollgate describe --all` lists everything."
)]
pub(crate) struct Cli {
    /// Write one JSON object instead of text for people.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gate: listen, decide, record.
    #[command(
        after_help = "The first start makes the data folder and prints the admin key, once.\n\nExamples:\n  tollgate serve\n  tollgate serve --listen 127.0.0.1:0 --data /tmp/gate"
    )]
    Serve(ServeArgs),

    /// Write a commented tollgate.toml.
    #[command(after_help = "Example:\n  tollgate init")]
    Init(InitArgs),

    /// Make, list, rotate and withdraw API keys.
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_help = "Example:\n  tollgate key create crawler --policy readonly"
    )]
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },

    /// Ask the governor before acting: may this be done now, later, or not?
    #[command(
        after_help = "Ends with 0 when the answer is yes, at once or after a wait, and with 4 when it is no.\n\nExamples:\n  tollgate ask --agent crawler-01 --identity pat:me --workload repo_scan --scope repo:o/n\n  tollgate ask --agent ci --identity app:bot --workload search --scope org:o --cost '30 points' --debug"
    )]
    Ask(AskArgs),

    /// Show the pools: what is used, held, booked and left.
    #[command(after_help = "Examples:\n  tollgate pools\n  tollgate pools default:calls --json")]
    Pools(PoolsArgs),

    /// Show what is to be expected of the pools: how fast they are used up, and whether they last.
    #[command(
        after_help = "P50, P90 and P99 say for how long a pool lasts at least, with that probability.\n\nExamples:\n  tollgate forecast\n  tollgate forecast github: --json"
    )]
    Forecast(ForecastArgs),

    /// Ask the recorded history again of another configuration: what would differ, for whom?
    #[command(
        name = "what-if",
        after_help = "It reads the data folder, whether the gate runs or not, and changes nothing.\n\nExamples:\n  tollgate what-if --policy stricter.toml --since 7d\n  tollgate what-if --policy stricter.toml --diff differences.ndjson"
    )]
    WhatIf(WhatIfArgs),

    /// Run agents, sabotage and a policy through the governor, on virtual time.
    #[command(
        after_help = "Ends with 1 when an invariant is broken. The same file and seed give the same result, byte for byte.\n\nExamples:\n  tollgate simulate examples/scenarios/priority-inversion.toml --plot out.svg\n  tollgate simulate examples/scenarios/noisy-neighbour.toml --seed 7 --json"
    )]
    Simulate(SimulateArgs),

    /// List the credentials that the governor knows; register or forget one.
    #[command(
        after_help = "Examples:\n  tollgate identities\n  tollgate identities register pat:spare --group github\n  tollgate identities delete pat:spare"
    )]
    Identities {
        #[command(subcommand)]
        command: Option<IdentityCommand>,

        #[command(flatten)]
        gate: GateArgs,
    },

    /// Stop everything, or one agent, key, tool, identity, workload, scope or pool.
    #[command(
        after_help = "Examples:\n  tollgate halt\n  tollgate halt --agent crawler-01 --reason 'it loops'"
    )]
    Halt(HaltArgs),

    /// Let go on what was halted.
    #[command(after_help = "Examples:\n  tollgate resume\n  tollgate resume --agent crawler-01")]
    Resume(HaltArgs),

    /// Answer what waits for a person: calls that a policy asks about, and capabilities that were asked for.
    #[command(
        after_help = "On a terminal it shows one after the other and asks; with an id it answers that one.\n\nExamples:\n  tollgate approve\n  tollgate approve --list\n  tollgate approve apr_0198c1d2e3f405162738495a6b7c8d9e --deny --reason 'not today'"
    )]
    Approve(ApproveArgs),

    /// Grant a capability, such as one host of the network, to a session or a key.
    #[command(
        after_help = "net is the network, net:<host> one host, net:*.<domain> the hosts below a domain.\n\nExamples:\n  tollgate grant net:huggingface.co --session s1 --for 1h\n  tollgate grant 'net:*.example.com' --session s2 --for 7d"
    )]
    Grant(GrantArgs),

    /// Withdraw a grant.
    #[command(after_help = "Example:\n  tollgate revoke cap_0198c1d2e3f405162738495a6b7c8d9e")]
    Revoke(RevokeArgs),

    /// Ask for a capability; a person answers.
    #[command(
        after_help = "Example:\n  tollgate request net:huggingface.co --session s1 --reason 'model cards'"
    )]
    Request(RequestArgs),

    /// List the capabilities that are granted, and those that wait.
    #[command(
        after_help = "Examples:\n  tollgate capabilities\n  tollgate capabilities --session s1 --json"
    )]
    Capabilities(CapabilitiesArgs),

    /// Call a tool through the gate.
    #[command(
        after_help = "Examples:\n  tollgate call system.time\n  tollgate call manifest.get '{\"name\": \"system.time\"}'\n  tollgate call manifest.get @input.json --json"
    )]
    Call(CallArgs),

    /// Run one tool as an agent, live with a key of its own or from a trace; with a command, run a model that calls tools.
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  tollgate agent --tool system.time --stream-json --record-trace t.ndjson\n  tollgate agent --tool system.time --stream-json --replay-trace t.ndjson"
    )]
    Agent {
        #[command(subcommand)]
        command: Option<AgentCommand>,

        #[command(flatten)]
        direct: AgentArgs,
    },

    /// Look into what agents remember, and take it back.
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_help = "Example:\n  tollgate memory search 'release notes'"
    )]
    Memory {
        #[command(subcommand)]
        command: MemoryCommand,
    },

    /// Serve a model that says what a script says, to try agents without paying for it.
    #[command(
        name = "fake-model",
        after_help = "It speaks as OpenAI's and as Anthropic's servers do, and GET /requests shows what it was asked.\n\nExample:\n  tollgate fake-model script.json --listen 127.0.0.1:8080"
    )]
    FakeModel(FakeModelArgs),

    /// Answer recorded calls from a trace, strictly and both ways.
    #[command(
        after_help = "Without --calls the trace is asked for its own calls, which shows that it can be replayed.\n\nExamples:\n  tollgate replay t.ndjson\n  tollgate replay t.ndjson --calls calls.ndjson"
    )]
    Replay(ReplayArgs),

    /// Look at traces.
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_help = "Example:\n  tollgate trace receipt t.ndjson"
    )]
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },

    /// Look at the ledger, and check that nobody changed it.
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_help = "Example:\n  tollgate ledger verify"
    )]
    Ledger {
        #[command(subcommand)]
        command: LedgerCommand,
    },

    /// Check this installation, and say what to do about what is wrong.
    #[command(after_help = "Example:\n  tollgate doctor")]
    Doctor(DoctorArgs),

    /// Print the completions for a shell.
    #[command(
        after_help = "Example:\n  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate"
    )]
    Completions(CompletionsArgs),

    /// List the tools that can be called, or show one contract in full.
    #[command(
        after_help = "Examples:\n  tollgate tools\n  tollgate tools system.time\n  tollgate tools --json"
    )]
    Tools(ToolsArgs),

    /// Explain an error code: what it means, and what to do.
    #[command(after_help = "Example:\n  tollgate explain UNKNOWN_TOOL")]
    Explain(ExplainArgs),

    /// Describe the commands of this program.
    #[command(
        after_help = "Examples:\n  tollgate describe --all --json\n  tollgate describe policy check"
    )]
    Describe(DescribeArgs),

    /// Work with policies.
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_help = "Example:\n  tollgate policy check policy.toml --tool fs.write_text"
    )]
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },

    /// Print the input hash of a JSON text: SHA-256 over its redacted canonical form.
    #[command(
        after_help = "Examples:\n  tollgate hash input.json\n  echo '{\"b\":1,\"a\":2}' | tollgate hash --canonical -"
    )]
    Hash(HashArgs),

    /// Print a text as a trace would keep it: with its secrets taken out.
    #[command(
        after_help = "Examples:\n  tollgate redact response.json\n  tollgate redact --text app.log\n  tollgate redact --lines trace.ndjson"
    )]
    Redact(RedactArgs),
}

impl Command {
    /// The words that name the command in an envelope.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Serve(_) => "serve",
            Self::Init(_) => "init",
            Self::Key { command } => command.name(),
            Self::Ask(_) => "ask",
            Self::Pools(_) => "pools",
            Self::Forecast(_) => "forecast",
            Self::Simulate(_) => "simulate",
            Self::WhatIf(_) => "what-if",
            Self::Identities { command: None, .. } => "identities",
            Self::Identities { command: Some(IdentityCommand::Register(_)), .. } => {
                "identities register"
            }
            Self::Identities { command: Some(IdentityCommand::Delete(_)), .. } => {
                "identities delete"
            }
            Self::Halt(_) => "halt",
            Self::Resume(_) => "resume",
            Self::Approve(_) => "approve",
            Self::Grant(_) => "grant",
            Self::Revoke(_) => "revoke",
            Self::Request(_) => "request",
            Self::Capabilities(_) => "capabilities",
            Self::Call(_) => "call",
            Self::Agent { command: None, .. } => "agent",
            Self::Agent { command: Some(command), .. } => command.name(),
            Self::Memory { command: MemoryCommand::Search(_) } => "memory search",
            Self::Memory { command: MemoryCommand::Forget(_) } => "memory forget",
            Self::FakeModel(_) => "fake-model",
            Self::Replay(_) => "replay",
            Self::Trace { command: TraceCommand::Receipt(_) } => "trace receipt",
            Self::Trace { command: TraceCommand::Diff(_) } => "trace diff",
            Self::Ledger { command } => command.name(),
            Self::Doctor(_) => "doctor",
            Self::Completions(_) => "completions",
            Self::Tools(_) => "tools",
            Self::Explain(_) => "explain",
            Self::Describe(_) => "describe",
            Self::Policy { command: PolicyCommand::Check(_) } => "policy check",
            Self::Hash(_) => "hash",
            Self::Redact(_) => "redact",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen: HOST:PORT, or unix:PATH. Port 0 picks a free one [default: 127.0.0.1:8090].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// The configuration [default: tollgate.toml, if it is there].
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// The folder that all sessions work in [default: one for each session in the data folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Make a new admin key in place of the old one, which no longer counts.
    #[arg(long)]
    pub(crate) new_admin_key: bool,

    /// Accept that the file gate.secret was lost: earlier Idempotency-Keys then count as new.
    #[arg(long)]
    pub(crate) new_secret: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The file to write.
    #[arg(default_value = "tollgate.toml")]
    pub(crate) file: PathBuf,

    /// Write an example for a real case instead.
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) example: Option<ExampleArg>,
}

/// The examples of `init`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExampleArg {
    /// Agents and CI jobs that share one GitHub quota.
    Github,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Who asks, such as crawler-01.
    #[arg(long)]
    pub(crate) agent: String,

    /// Whose credential will be used, such as pat:me. Its name, never the credential.
    #[arg(long)]
    pub(crate) identity: String,

    /// What is to be done, such as repo_scan.
    #[arg(long)]
    pub(crate) workload: String,

    /// Where, such as repo:owner/name.
    #[arg(long)]
    pub(crate) scope: String,

    /// How much it matters: background, normal, high.
    #[arg(long)]
    pub(crate) urgency: Option<String>,

    /// What it will take: a number, or with units, such as '100 points'.
    #[arg(long, value_name = "COST", allow_hyphen_values = true)]
    pub(crate) cost: Option<String>,

    /// How long it will run: 90s, 15m.
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<String>,

    /// Another credential of the group may be used.
    #[arg(long)]
    pub(crate) can_switch: bool,

    /// An earlier intent to go on with.
    #[arg(long, value_name = "INTENT")]
    pub(crate) renew: Option<String>,

    /// Show every step of the decision.
    #[arg(long)]
    pub(crate) debug: bool,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    /// Only this pool, or pools that begin like this.
    pub(crate) pool: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The scenario, or `-` for the standard input.
    pub(crate) scenario: PathBuf,

    /// Another seed than the scenario's own.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Draw what was taken of each pool, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// The configuration to try: its pools, routes, rules and `[governor]`. Without it the recorded ones hold.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// How far back: 90m, 24h, 7d, or a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(crate) since: String,

    /// Write every difference to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) diff: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PoolsArgs {
    /// Only this pool, or pools that begin like this.
    pub(crate) pool: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

/// The commands of `identities`.
#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Make a credential known, or change what is known of it.
    #[command(
        after_help = "Example:\n  tollgate identities register pat:spare --group github --kind bot"
    )]
    Register(IdentityRegisterArgs),
    /// Forget a credential: its name, and all free text that came with its intents.
    #[command(after_help = "Example:\n  tollgate identities delete pat:spare")]
    Delete(IdentityDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct IdentityRegisterArgs {
    /// Its name, such as pat:me. Never the credential itself.
    pub(crate) name: String,

    /// Credentials of one group can stand in for each other.
    #[arg(long)]
    pub(crate) group: Option<String>,

    /// user, service or bot.
    #[arg(long)]
    pub(crate) kind: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct IdentityDeleteArgs {
    /// Its name.
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct HaltArgs {
    /// Only this agent.
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) agent: Option<String>,

    /// Only this API key, by its id or its name.
    #[arg(long, value_name = "KEY", group = "what")]
    pub(crate) key: Option<String>,

    /// Only this tool.
    #[arg(long, value_name = "NAME", group = "what")]
    pub(crate) tool: Option<String>,

    /// Only this credential.
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) identity: Option<String>,

    /// Only this kind of work, or this tool.
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) workload: Option<String>,

    /// Only this place.
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) scope: Option<String>,

    /// Only this pool.
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) pool: Option<String>,

    /// Why, for whoever asks later.
    #[arg(long)]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The one to answer.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,

    /// Say no.
    #[arg(long, requires = "id")]
    pub(crate) deny: bool,

    /// Why; whoever asked is told.
    #[arg(long, requires = "id")]
    pub(crate) reason: Option<String>,

    /// For how long a capability is granted: 90s, 15m, 12h, 30d [default: 1h].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) lasts: Option<String>,

    /// Only list what waits.
    #[arg(long, conflicts_with = "id")]
    pub(crate) list: bool,

    /// List what was answered lately too.
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("to").required(true).multiple(true))]
pub(crate) struct GrantArgs {
    /// net, net:<host> or net:*.<domain>.
    pub(crate) capability: String,

    /// To this session.
    #[arg(long, group = "to")]
    pub(crate) session: Option<String>,

    /// To this key, by its id or its name; with a session, to this session of this key.
    #[arg(long, group = "to")]
    pub(crate) key: Option<String>,

    /// For how long: 90s, 15m, 12h, 30d [default: until it is withdrawn].
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) lasts: Option<String>,

    /// Why.
    #[arg(long)]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The grant, as `tollgate capabilities` names it.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// net, net:<host> or net:*.<domain>.
    pub(crate) capability: String,

    /// For this session [default: for the key].
    #[arg(long)]
    pub(crate) session: Option<String>,

    /// What it is for; whoever answers is told.
    #[arg(long)]
    pub(crate) reason: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CapabilitiesArgs {
    /// Only what counts in this session.
    #[arg(long)]
    pub(crate) session: Option<String>,

    /// Only what counts for this key, by its id or its name.
    #[arg(long)]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

/// The commands of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key. It is shown once.
    #[command(
        after_help = "Examples:\n  tollgate key create crawler\n  tollgate key create ci --scope call --scope ask --expires 30d --out ci.key"
    )]
    Create(KeyCreateArgs),
    /// List the keys. None is ever shown.
    #[command(after_help = "Example:\n  tollgate key list")]
    List(KeyListArgs),
    /// Give a key a new text.
    #[command(after_help = "Example:\n  tollgate key rotate crawler --grace 1h")]
    Rotate(KeyRotateArgs),
    /// Withdraw a key, and every token that was made from it.
    #[command(after_help = "Example:\n  tollgate key revoke crawler")]
    Revoke(KeyRevokeArgs),
    /// Make a short-lived token that narrows the key that asks, for a browser or a job.
    #[command(after_help = "Example:\n  tollgate key token --scope read --expires 15m")]
    Token(KeyTokenArgs),
}

impl KeyCommand {
    fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "key create",
            Self::List(_) => "key list",
            Self::Rotate(_) => "key rotate",
            Self::Revoke(_) => "key revoke",
            Self::Token(_) => "key token",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct KeyCreateArgs {
    /// What to call it.
    pub(crate) name: String,

    /// What it is for: sets scopes and policy.
    #[arg(long, value_enum, default_value = "agent")]
    pub(crate) role: RoleArg,

    /// What it may be used for, in place of the role's scopes: call, ask, read, approve, admin.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// The name of its policy: readonly, operator, or one of tollgate.toml.
    #[arg(long, value_name = "NAME", conflicts_with = "policy_file")]
    pub(crate) policy: Option<String>,

    /// A file with its policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy_file: Option<PathBuf>,

    /// The account that it belongs to.
    #[arg(long, default_value = "local")]
    pub(crate) owner: String,

    /// An agent that its holder may say to be; any unless said.
    #[arg(long = "agent", value_name = "ID")]
    pub(crate) agents: Vec<String>,

    /// An identity whose credentials it may use; any unless said.
    #[arg(long = "identity", value_name = "ID")]
    pub(crate) identities: Vec<String>,

    /// The highest urgency that it may claim: background, normal, high.
    #[arg(long, value_name = "URGENCY")]
    pub(crate) max_urgency: Option<String>,

    /// When it ends: 90s, 15m, 12h, 30d.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,

    /// Write the key to this new file, for its owner alone, instead of showing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleArg {
    /// Calls tools and asks the governor; changes nothing.
    Agent,
    /// Looks at pools, events and calls.
    Reader,
    /// Answers approvals.
    Approver,
    /// Everything, keys included.
    Admin,
}

impl RoleArg {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Reader => "reader",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct KeyListArgs {
    /// Tokens as well.
    #[arg(long)]
    pub(crate) tokens: bool,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRotateArgs {
    /// The key, by its id or its name.
    pub(crate) key: String,

    /// For how long the old text still counts: 90s, 15m, 1h.
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<String>,

    /// Write the key to this file, for its owner alone, instead of showing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRevokeArgs {
    /// The key, by its id or its name.
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyTokenArgs {
    /// One of the key's scopes; all of them unless said.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,

    /// The name of a policy that narrows the key's.
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// How long it lives: 90s, 15m, 12h.
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) expires: String,

    /// Write the token to this file, for its owner alone, instead of showing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The canonical name of the tool.
    pub(crate) tool: String,

    /// The input as JSON, `@FILE`, or `-` for the standard input.
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,

    /// Where it happens, such as repo:owner/name.
    #[arg(long)]
    pub(crate) scope: Option<String>,

    /// How much it matters: background, normal, high.
    #[arg(long)]
    pub(crate) urgency: Option<String>,

    /// The session that it belongs to.
    #[arg(long)]
    pub(crate) session: Option<String>,

    /// How long it may run: 500ms, 10s, 2m.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,

    /// How long it may wait for room in its pools, and for a person's answer: 10s, 2m.
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<String>,

    /// The approval that it comes back with. Without one it is found by the call itself.
    #[arg(long, value_name = "ID")]
    pub(crate) approval: Option<String>,

    /// The same key with the same input runs once, and gives the same result again for 24 hours.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,

    /// A file with a policy for this call alone. It can only narrow.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Show every step of the decision too.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The canonical name of the tool.
    // It is not there where a command is, which clap calls a requirement that was waived.
    #[arg(long, required = true)]
    pub(crate) tool: Option<String>,

    /// The input as JSON, `@FILE`, or `-` for the standard input.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,

    /// Write the events of the run as they happen, one JSON object a line.
    #[arg(long)]
    pub(crate) stream_json: bool,

    /// Add what was called, and what came of it, to this trace.
    #[arg(long, value_name = "FILE", conflicts_with = "replay_trace")]
    pub(crate) record_trace: Option<PathBuf>,

    /// Answer from this trace. Nothing is called; no server and no key are needed.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay_trace: Option<PathBuf>,

    /// A file with a policy of the agent's own. It can only narrow.
    #[arg(long, value_name = "FILE", conflicts_with = "replay_trace")]
    pub(crate) policy: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

impl AgentArgs {
    /// The tool. The parser has seen to it that there is one where there is no command.
    pub(crate) fn tool(&self) -> &str {
        self.tool.as_deref().unwrap_or_default()
    }
}

/// The commands of `agent`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Say something to an agent, and let it work until it is done.
    #[command(
        after_help = "Where no gate runs on the data folder, this command runs one for as long as it lasts.\n\nExamples:\n  tollgate agent run 'Summarise the markdown files here into SUMMARY.md' --root . --model http://127.0.0.1:8080/v1 --session notes\n  tollgate agent run 'Go on' --session notes --max-rounds 4 --timeout 2m --json"
    )]
    Run(Box<AgentRunArgs>),
    /// Talk with an agent, line by line. It goes on where the session was.
    #[command(
        after_help = "Every line is a turn. /show shows the session, /cancel stops a turn that runs elsewhere in it, /quit or Ctrl-D leaves.\n\nExample:\n  tollgate agent repl --session notes"
    )]
    Repl(Box<AgentReplArgs>),
    /// List the sessions.
    #[command(after_help = "Example:\n  tollgate agent sessions")]
    Sessions(AgentSessionsArgs),
    /// Show a session: goals, open loops, decisions, constraints, memory, capabilities, last turns.
    #[command(after_help = "Example:\n  tollgate agent show notes")]
    Show(AgentSessionArgs),
    /// Correct what a session's agent noted, between two turns: all of it counts, or nothing.
    #[command(
        after_help = "`tollgate agent show` lists what there is. Where no gate runs on the data folder, this command runs one for as long as it lasts.\n\nExamples:\n  tollgate agent note notes --add-constraint 'never touch docs/' --summary ''\n  tollgate agent note notes --remove 'never touch docs/' --add-decision 'docs/ may be changed'"
    )]
    Note(Box<AgentNoteArgs>),
    /// Stop the turn that runs in a session.
    #[command(after_help = "Example:\n  tollgate agent cancel notes")]
    Cancel(AgentSessionArgs),
    /// Run a recorded turn again, offline, model included, and compare it byte for byte.
    #[command(
        after_help = "Ends with 1 when it differs.\n\nExamples:\n  tollgate agent replay notes\n  tollgate agent replay notes --turn 1"
    )]
    Replay(AgentReplayArgs),
    /// Say what went wrong in a session, from its trace.
    #[command(after_help = "Example:\n  tollgate agent autopsy notes")]
    Autopsy(AgentTraceArgs),
    /// Sum a session up: turns, calls, tokens, money, and the fingerprints of its traces.
    #[command(after_help = "Example:\n  tollgate agent receipt notes")]
    Receipt(AgentTraceArgs),
}

impl AgentCommand {
    fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "agent run",
            Self::Repl(_) => "agent repl",
            Self::Sessions(_) => "agent sessions",
            Self::Show(_) => "agent show",
            Self::Note(_) => "agent note",
            Self::Cancel(_) => "agent cancel",
            Self::Replay(_) => "agent replay",
            Self::Autopsy(_) => "agent autopsy",
            Self::Receipt(_) => "agent receipt",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    /// What to say, or `-` for the standard input.
    pub(crate) prompt: String,

    /// Write what happens as it happens, one JSON object a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) stream_json: bool,

    #[command(flatten)]
    pub(crate) turn: AgentTurnArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentReplArgs {
    #[command(flatten)]
    pub(crate) turn: AgentTurnArgs,
}

/// What turns run with.
#[derive(Debug, Args)]
pub(crate) struct AgentTurnArgs {
    /// The session.
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) session: String,

    /// The folder that the session works in, from now on [default: one of its own].
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// A model of the configuration by its name, or the address of a model server, which the session keeps.
    #[arg(long, value_name = "NAME|URL")]
    pub(crate) model: Option<String>,

    /// What the server at that address calls the model [default: its first one].
    #[arg(long, value_name = "NAME", requires = "model")]
    pub(crate) model_name: Option<String>,

    /// The environment variable of the gate that holds the key for that address. The key itself is never an argument.
    #[arg(long, value_name = "VARIABLE", requires = "model")]
    pub(crate) model_key_env: Option<String>,

    /// How many tokens the model at that address can take, its answer included [default: 32768].
    #[arg(long, value_name = "TOKENS", requires = "model")]
    pub(crate) model_context: Option<u32>,

    /// The most that a turn may cost, in dollars.
    #[arg(long, value_name = "USD")]
    pub(crate) budget_usd: Option<String>,

    /// How often the model may be asked in a turn.
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_rounds: Option<u32>,

    /// The most tokens of a turn, in and out.
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_tokens: Option<u64>,

    /// How long a turn may take: 90s, 15m.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,

    /// A file with what the session may do, from now on, in place of the usual policy, which asks before a command. It
    /// can only narrow what the key may do.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// The session's roles from now on, the acting one last: reflection, planner, critic, governor.
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub(crate) roles: Vec<PipelineRoleArg>,

    /// Show what the model thinks aloud, too.
    #[arg(long)]
    pub(crate) show_reasoning: bool,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

/// A role on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PipelineRoleArg {
    /// Looks back at what has happened.
    Reflection,
    /// Says what to do.
    Planner,
    /// Says what is wrong with it.
    Critic,
    /// Decides, acts and answers.
    Governor,
}

impl PipelineRoleArg {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reflection => "reflection",
            Self::Planner => "planner",
            Self::Critic => "critic",
            Self::Governor => "governor",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentSessionsArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentSessionArgs {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentNoteArgs {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// A constraint to add: what must hold.
    #[arg(long, value_name = "TEXT")]
    pub(crate) add_constraint: Vec<String>,

    /// A goal to add: what the session is after.
    #[arg(long, value_name = "TEXT")]
    pub(crate) add_goal: Vec<String>,

    /// An open loop to add: what is not finished.
    #[arg(long, value_name = "TEXT")]
    pub(crate) add_open_loop: Vec<String>,

    /// A decision to add.
    #[arg(long, value_name = "TEXT")]
    pub(crate) add_decision: Vec<String>,

    /// The exact words of an entry to take away, from whichever list holds it; tags of memories too.
    #[arg(long, value_name = "TEXT")]
    pub(crate) remove: Vec<String>,

    /// Another summary of what has happened; an empty one clears it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) summary: Option<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentTraceArgs {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentReplayArgs {
    /// The session.
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,

    /// The turn [default: the last].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) turn: Option<u64>,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

/// The commands of `memory`. Searching reads the data folder, whether the gate runs or not.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Find memories by their words.
    #[command(
        after_help = "Examples:\n  tollgate memory search 'release notes'\n  tollgate memory search 'release notes' --session notes --block"
    )]
    Search(MemorySearchArgs),
    /// Take memories back: agents are not shown them again.
    #[command(
        after_help = "`tollgate memory search` shows the ids. What was said stays in the session's history and its trace.\n\nExample:\n  tollgate memory forget mem_01a1e1d83d4a7d7da4b8ddca9acc5d1c"
    )]
    Forget(MemoryForgetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MemorySearchArgs {
    /// What to look for. Nothing in it is syntax.
    pub(crate) words: String,

    /// Only in this session.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,

    /// How many at most.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) limit: usize,

    /// Print the block that a model is shown.
    #[arg(long, conflicts_with = "json")]
    pub(crate) block: bool,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryForgetArgs {
    /// The ids of the memories.
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FakeModelArgs {
    /// The script, a JSON file.
    pub(crate) script: PathBuf,

    /// Where to listen: HOST:PORT. Port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: std::net::SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace.
    pub(crate) trace: PathBuf,

    /// The calls to answer: one {"tool", "input"} a line, or another trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) calls: Option<PathBuf>,

    /// Write the events of the runs, one JSON object a line.
    #[arg(long)]
    pub(crate) stream_json: bool,
}

/// The commands of `trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Sum a trace up.
    #[command(after_help = "Example:\n  tollgate trace receipt t.ndjson")]
    Receipt(TraceReceiptArgs),
    /// Compare two traces: what was called, and what came of it.
    #[command(
        after_help = "Ends with 0 when they do not differ, and with 1 when they do.\n\nExample:\n  tollgate trace diff before.ndjson after.ndjson"
    )]
    Diff(TraceDiffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TraceReceiptArgs {
    /// The trace.
    pub(crate) trace: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TraceDiffArgs {
    /// The first trace.
    pub(crate) first: PathBuf,
    /// The second trace.
    pub(crate) second: PathBuf,
}

/// The commands of `ledger`. They read the data folder, whether the gate runs or not.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Follow the whole chain. Any change or gap is found; truncation shows against an earlier head.
    #[command(
        after_help = "Ends with 0 when the chain holds, and with 1 when it does not.\n\nExamples:\n  tollgate ledger verify\n  tollgate ledger verify --head 42:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )]
    Verify(LedgerVerifyArgs),
    /// Print where the chain stands. Kept elsewhere, it shows a ledger that was cut or rewritten.
    #[command(after_help = "Example:\n  tollgate ledger head")]
    Head(LedgerHeadArgs),
    /// Show the last events.
    #[command(
        after_help = "Examples:\n  tollgate ledger tail\n  tollgate ledger tail -n 100 --json"
    )]
    Tail(LedgerTailArgs),
    /// Write every event, one JSON object a line.
    #[command(after_help = "Example:\n  tollgate ledger export > ledger.ndjson")]
    Export(LedgerExportArgs),
}

impl LedgerCommand {
    fn name(&self) -> &'static str {
        match self {
            Self::Verify(_) => "ledger verify",
            Self::Head(_) => "ledger head",
            Self::Tail(_) => "ledger tail",
            Self::Export(_) => "ledger export",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LedgerVerifyArgs {
    /// A head that was printed earlier, as SEQ:HASH.
    #[arg(long, value_name = "SEQ:HASH")]
    pub(crate) head: Option<String>,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerHeadArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerTailArgs {
    /// How many.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) lines: u64,

    /// Stay, and show what comes.
    #[arg(short, long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerExportArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The configuration [default: tollgate.toml, if it is there].
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) gate: GateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// The canonical name of one tool.
    pub(crate) name: Option<String>,

    /// Read this manifest instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,

    /// Also show entries that are not active.
    #[arg(long)]
    pub(crate) review: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// An error code. Without one, all codes are listed.
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// Describe only this command, such as `policy check`.
    #[arg(conflicts_with = "all")]
    pub(crate) command: Vec<String>,

    /// Describe all commands. This is also what happens when none is named.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The commands of `policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a configuration and its rules; or show what a policy file says about one call.
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
}

const CHECK_HELP: &str = "\
Without --tool, the file is a tollgate.toml: pools, routes and rules are checked, the examples of
every rule are run, and where there is a record, it is told what each would have matched.

With --tool, the file is JSON or TOML. It holds `server` (the server's policy) and `policies` (policies by name,
for keys, sessions and calls), or the fields of one policy, which is then named `key`.

KEYSPEC is `anonymous` for a call without a key, or the name of the policy that the key carries: one
of the file's, `readonly` or `operator`. Details may follow, separated by commas:
  scopes=call+read   what the key is for (call)
  session=NAME       the policy of the session
  call=NAME          the policy of the call

Ends with 0 when the answer is approve, 4 when it is deny, 5 when a person must answer.

Examples:
  tollgate policy check examples/rules.toml
  tollgate policy check examples/policy.toml --tool system.time
  tollgate policy check examples/policy.toml --manifest examples/markets.json \\
    --tool execution.place --as trader --input @examples/order.json";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The policy file, or `-` for the standard input.
    pub(crate) file: PathBuf,

    /// The tool to call. Without one, the rules are checked.
    #[arg(long)]
    pub(crate) tool: Option<String>,

    /// The input as JSON, `@FILE`, or `-` for the standard input.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) input: String,

    /// Who calls: see below.
    #[arg(long = "as", value_name = "KEYSPEC")]
    pub(crate) caller: Option<String>,

    /// Where the call comes in.
    #[arg(long, value_enum, default_value = "agent")]
    pub(crate) surface: SurfaceArg,

    /// What the run may do.
    #[arg(long, value_enum, default_value = "live")]
    pub(crate) mode: ModeArg,

    /// Read this manifest instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
}

/// [`Surface`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SurfaceArg {
    /// Resource paths and SDK methods.
    Sdk,
    /// Agents; live calls always need a key.
    Agent,
}

impl From<SurfaceArg> for Surface {
    fn from(arg: SurfaceArg) -> Self {
        match arg {
            SurfaceArg::Sdk => Self::Sdk,
            SurfaceArg::Agent => Self::Agent,
        }
    }
}

/// [`Mode`] on the command line, in the words of the contract.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ModeArg {
    /// Call tools.
    #[value(name = "live")]
    Live,
    /// Look at contracts, call nothing.
    #[value(name = "inspectOnly")]
    InspectOnly,
    /// Answer from a trace, call nothing.
    #[value(name = "replayOnly")]
    ReplayOnly,
}

impl From<ModeArg> for Mode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Live => Self::Live,
            ModeArg::InspectOnly => Self::InspectOnly,
            ModeArg::ReplayOnly => Self::ReplayOnly,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct HashArgs {
    /// A file with one JSON text, or `-` for the standard input.
    pub(crate) file: PathBuf,

    /// Print the text that is hashed (redacted, canonical) instead of its hash.
    #[arg(long)]
    pub(crate) canonical: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    /// A file with one JSON text, or `-` for the standard input.
    pub(crate) file: PathBuf,

    /// The file is plain text, such as a log.
    #[arg(long, conflicts_with = "lines")]
    pub(crate) text: bool,

    /// The file has one JSON text a line.
    #[arg(long)]
    pub(crate) lines: bool,
}
