//! `shell.exec`: runs one program of an allowlist, confined, in the workspace. There is no shell.
//!
//! [`words`] splits the command, [`deny`] looks for what the operator does not want, [`resolve`] knows what a
//! program's name stands for, and the sandbox holds whatever the command then does. Where the sandbox cannot give
//! its guarantees nothing is run.

mod config;
mod deny;
mod resolve;
pub mod words;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Error, Permission, SideEffect, ToolName, Violations,
    behaviour::Mutation,
    error::{Cancelled, Internal, InvalidInput, SandboxUnavailable},
    schema::InputProblem,
    text::Quoted,
};
use tollgate_sandbox::{
    Config, Ended, Exit, Finished, Grant, Limits, Network, Sandbox, SandboxError,
};

pub use config::{PROGRAMS, ProgramConfig, ShellConfig};
pub use resolve::{Missing, Program, system};
pub use words::WordsError;

const NAME: &str = "shell.exec";

/// What `shell.exec` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecInput {
    /// A program and its arguments, quoted as for a POSIX shell. Nothing is expanded: no pipes, no variables, no globs.
    #[schemars(length(min = 1, max = 16384))]
    pub cmd: String,
    /// After this many seconds everything that the command started is ended.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_s: u32,
}

fn twenty() -> u32 {
    20
}

/// What `shell.exec` gives. A program that fails is a result as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ShellResult")]
pub struct ExecOutput {
    /// The program's exit code; null when it was ended by a signal.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to stdout, up to a bound; what is not UTF-8 is replaced.
    pub stdout: String,
    /// What it wrote to stderr, up to a bound; what is not UTF-8 is replaced.
    pub stderr: String,
    /// Was more written to stdout than is here?
    pub stdout_truncated: bool,
    /// Was more written to stderr than is here?
    pub stderr_truncated: bool,
    /// Was it ended because its time was over?
    pub timed_out: bool,
    /// Who ended it.
    pub ended_by: EndedBy,
    /// What to make of it, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Who ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// It ended by itself.
    Itself,
    /// Its time was over.
    Timeout,
    /// It and what it started took more memory than there is for a command.
    Memory,
    /// The workspace became larger than it may be.
    Disk,
    /// The workspace holds more files than it may.
    Files,
    /// It wrote far more than anybody reads.
    Output,
}

/// Declares `shell.exec`.
pub fn exec_declaration() -> Result<Declaration<ExecInput, ExecOutput>, Violations> {
    Declaration::new(
        NAME,
        "Runs one program of the allowlist in the workspace, confined, without a shell and without a network.",
    )
    .permissions([Permission::SHELL, Permission::RUNTIME])
    .behaviours(Behaviours { mutation: Mutation::Runtime, ..Behaviours::NONE })
    .effects(SideEffect::Runtime, CostEffect::None)
    .build()
}

/// Why a command gave no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShellError {
    /// It is not split into words.
    #[error(transparent)]
    Words(#[from] WordsError),
    /// The operator does not want this word.
    #[error("the word `{0}` is on the deny list; find another way, or ask the operator")]
    Denied(String),
    /// The program is not on the allowlist.
    #[error("{name} is not one of the programs that may be run; there are: {}", .allowed.join(", "))]
    NotAllowed {
        /// The program.
        name: Quoted,
        /// Those that may be run.
        allowed: Vec<String>,
    },
    /// The program is on the allowlist and not on this machine.
    #[error("`{name}` may be run and cannot be here; `tollgate doctor` says why")]
    Missing {
        /// The program.
        name: String,
        /// What was looked for.
        why: Missing,
    },
    /// More time than anybody gets.
    #[error("at most {most} seconds can be had; ask for less")]
    TooLong {
        /// The most.
        most: u32,
    },
    /// The caller gave up.
    #[error("the command was cancelled")]
    Cancelled,
    /// The sandbox did not run it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl ShellError {
    /// What is wrong with the input, where that is why.
    pub(crate) fn problem(&self) -> Option<InputProblem> {
        let pointer = match self {
            Self::TooLong { .. } => "/timeout_s",
            Self::Words(_) | Self::Denied(_) | Self::NotAllowed { .. } | Self::Missing { .. } => {
                "/cmd"
            }
            Self::Cancelled | Self::Sandbox(_) => return None,
        };
        Some(InputProblem { pointer: pointer.to_owned(), message: self.to_string() })
    }
}

impl From<ShellError> for Error {
    fn from(error: ShellError) -> Self {
        let tool = match ToolName::parse(NAME) {
            Ok(tool) => tool,
            Err(error) => return Internal::new(error.to_string()).into(),
        };
        match (error.problem(), error) {
            (Some(problem), _) => InvalidInput::new(tool, vec![problem]).into(),
            // What can go wrong is the machine's business, and names folders of it.
            (None, ShellError::Sandbox(why)) => {
                SandboxUnavailable::new(tool, why.to_string()).into()
            }
            (None, _) => Cancelled::new(Some(tool)).into(),
        }
    }
}

/// What surrounds one command.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// What everything in it may take together, in bytes.
    pub disk_bytes: u64,
    /// How many files and folders may be in it.
    pub inodes: u64,
    /// Is there more in it than may be? Then nothing can be written, but things can be removed.
    pub is_full: bool,
    /// How much time the call has left, where that is less than what it asks for.
    pub time_left: Option<Duration>,
    /// Says when the caller gave up.
    pub cancel: CancellationToken,
}

/// Runs commands.
#[derive(Debug, Clone)]
pub struct Shell {
    config: ShellConfig,
    programs: BTreeMap<String, Result<Program, Missing>>,
    sandbox: Sandbox,
}

impl Shell {
    /// Finds the programs, which asks some of them about themselves and takes a moment. The sandbox is not tried
    /// before it is needed.
    /// A program through which a command could read in `private`, the gate's own folder, is not run.
    pub fn new(config: ShellConfig, mut sandbox: Config, private: Option<&Path>) -> Self {
        sandbox.tier = config.tier;
        let mut programs = resolve::all(&config.programs);
        let private =
            private.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        for found in programs.values_mut() {
            if let (Some(private), Ok(program)) = (&private, &*found)
                && program.reaches(private)
            {
                *found = Err(Missing::Private(program.binary.clone()));
            }
        }
        for (name, why) in
            programs.iter().filter_map(|(name, found)| Some((name, found.as_ref().err()?)))
        {
            tracing::info!(program = name, %why, "a program of the allowlist is not here");
        }
        Self { config, programs, sandbox: Sandbox::start(sandbox) }
    }

    /// What each name of the allowlist stands for.
    pub fn resolved(&self) -> &BTreeMap<String, Result<Program, Missing>> {
        &self.programs
    }

    /// What confines the commands.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs one command. When this comes back, nothing that it started is left.
    pub async fn exec(
        &self,
        input: &ExecInput,
        around: &Surroundings<'_>,
    ) -> Result<ExecOutput, ShellError> {
        let (name, arguments) = self.config.words(input)?;
        let program = self.program(&name)?;
        let wanted = Duration::from_secs(input.timeout_s.into());
        let wall = around.time_left.map_or(wanted, |left| left.min(wanted));
        let mut argv = vec![program.binary.to_string_lossy().into_owned()];
        argv.extend(program.before.iter().cloned().chain(arguments));
        let grant = self.grant(program, around, wall);
        let finished = self.sandbox.run(&grant, &argv, around.cancel.clone()).await?;
        let mut output = output(finished)?;
        if around.is_full && output.note.is_none() {
            let note = "the workspace holds more than it may, so that nothing could be written; remove something first (find … -delete)";
            output.note = Some(note.to_owned());
        }
        Ok(output)
    }

    /// Can this command be run here at all?
    pub(crate) fn check(&self, input: &ExecInput) -> Result<(), ShellError> {
        let (name, _) = self.config.words(input)?;
        self.program(&name).map(drop)
    }

    fn program(&self, name: &str) -> Result<&Program, ShellError> {
        match self.programs.get(name) {
            Some(Ok(program)) => Ok(program),
            Some(Err(why)) => Err(ShellError::Missing { name: name.to_owned(), why: why.clone() }),
            None => {
                let here = self.programs.iter().filter(|(_, found)| found.is_ok());
                let allowed = here.map(|(name, _)| name.clone()).collect();
                Err(ShellError::NotAllowed { name: name.into(), allowed })
            }
        }
    }

    /// Everything that this one command may touch.
    fn grant(&self, program: &Program, around: &Surroundings<'_>, wall: Duration) -> Grant {
        let config = &self.config;
        Grant {
            root: around.root.to_owned(),
            writable: true,
            read_only: resolve::system().chain(program.read_only.iter().cloned()).collect(),
            execute: program.execute.clone(),
            environment: environment(program),
            limits: Limits {
                wall,
                // One process cannot use more than this without the tree using it.
                cpu: wall.saturating_add(Duration::from_secs(1)),
                memory_bytes: config.memory_bytes,
                processes: config.processes,
                open_files: config.open_files,
                file_bytes: if around.is_full {
                    0
                } else {
                    config.file_bytes.min(around.disk_bytes)
                },
                disk_bytes: around.disk_bytes,
                inodes: around.inodes,
                output_bytes: config.output_bytes,
            },
            network: Network::None,
        }
    }
}

/// The same for every command, whatever the gate's own environment is.
fn environment(program: &Program) -> Vec<(String, String)> {
    let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    if let Some(folder) = program.binary.parent().and_then(Path::to_str) {
        path = format!("{folder}:{path}");
    }
    [
        ("PATH", path.as_str()),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONNOUSERSITE", "1"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PAGER", "cat"),
        ("GIT_AUTHOR_NAME", "Tollgate"),
        ("GIT_AUTHOR_EMAIL", "agent@tollgate.invalid"),
        ("GIT_COMMITTER_NAME", "Tollgate"),
        ("GIT_COMMITTER_EMAIL", "agent@tollgate.invalid"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

fn output(finished: Finished) -> Result<ExecOutput, ShellError> {
    let (ended_by, note) = match finished.ended {
        Ended::Cancelled => return Err(ShellError::Cancelled),
        Ended::Itself => (EndedBy::Itself, None),
        Ended::Deadline => (
            EndedBy::Timeout,
            Some("it was ended because its time was over; what it wrote until then is here"),
        ),
        Ended::Memory => (
            EndedBy::Memory,
            Some("it was ended because it took more memory than there is for a command"),
        ),
        Ended::Disk => (
            EndedBy::Disk,
            Some(
                "it was ended because the workspace became larger than it may be; what it wrote is still there",
            ),
        ),
        Ended::Inodes => (
            EndedBy::Files,
            Some(
                "it was ended because the workspace holds more files than it may; what it wrote is still there",
            ),
        ),
        Ended::OutputFlood => (
            EndedBy::Output,
            Some(
                "it was ended because it wrote far more than anybody reads; write to a file instead",
            ),
        ),
    };
    let (exit_code, signal) = match finished.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(ExecOutput {
        exit_code,
        signal,
        stdout: text(&finished.stdout.bytes),
        stderr: text(&finished.stderr.bytes),
        stdout_truncated: finished.stdout.truncated(),
        stderr_truncated: finished.stderr.truncated(),
        timed_out: ended_by == EndedBy::Timeout,
        ended_by,
        note: note.map(str::to_owned),
        duration_ms: u64::try_from(finished.took.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
