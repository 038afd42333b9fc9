//! What can be typed. The help and `describe` are made from these types.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tollgate_contract::{Mode, Surface};

/// One gate for everything an AI agent does to the outside world.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    about,
    propagate_version = false,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Example:\n  tollgate tools\n\nExit codes: 0 it worked, 1 it failed, 2 bad command line, 3 bad file or text, 4 denied,\n5 a person must answer, 6 not there. `tollgate describe --all` lists everything."
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
    /// Show, step by step, what a policy file says about one call.
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
}

const CHECK_HELP: &str = "\
The file is JSON or TOML. It holds `server` (the server's policy) and `policies` (policies by name,
for keys, sessions and calls), or the fields of one policy, which is then named `key`.

KEYSPEC is `anonymous` for a call without a key, or the name of the policy that the key carries: one
of the file's, `readonly` or `operator`. Details may follow, separated by commas:
  scopes=call+read   what the key is for (call)
  session=NAME       the policy of the session
  call=NAME          the policy of the call

Ends with 0 when the answer is approve, 4 when it is deny, 5 when a person must answer.

Examples:
  tollgate policy check examples/policy.toml --tool system.time
  tollgate policy check examples/policy.toml --manifest examples/markets.json \\
    --tool execution.place --as trader --input @examples/order.json";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The policy file, or `-` for the standard input.
    pub(crate) file: PathBuf,

    /// The tool to call.
    #[arg(long)]
    pub(crate) tool: String,

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
