//! The tools that come with Tollgate, each declared next to the function that does its work.
//!
//! A function here takes what it needs as arguments (the manifest, the time), so that it can be tested
//! without a gate. [`pack`] wires them up for one.

pub mod fs;
pub mod http;
pub mod manifest;
pub mod shell;
pub mod system;
pub mod workspace;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{
    Error, Manifest, Reach, ToolDeclaration, Violations,
    error::{Internal, ToolFailed, UnknownTool},
    schema::InputProblem,
    text::Clean,
};
use tollgate_gate::{Context, Packs, ToolFailure};

use tollgate_sandbox::{Config as SandboxConfig, SandboxError};

use crate::{
    http::Fetcher,
    shell::{Shell, ShellConfig, ShellError},
    workspace::{Root, Workspaces},
};

/// What the tools that reach outside work with.
#[derive(Clone)]
pub struct Toolbox {
    /// Where sessions have their files.
    pub workspaces: Workspaces,
    /// What fetches pages.
    pub fetcher: Arc<Fetcher>,
    /// What runs commands.
    pub shell: Arc<LazyShell>,
}

/// A shell that is made when it is first needed: to find the programs and to try the sandbox takes a moment, and many
/// gates never run a command.
pub struct LazyShell {
    config: ShellConfig,
    sandbox: SandboxConfig,
    /// The gate's own folder, which no command may read.
    private: PathBuf,
    made: tokio::sync::OnceCell<Shell>,
}

impl LazyShell {
    /// A shell that is to be.
    pub fn new(config: ShellConfig, sandbox: SandboxConfig, private: &Path) -> Self {
        Self { config, sandbox, private: private.to_owned(), made: tokio::sync::OnceCell::new() }
    }

    async fn get(&self) -> Result<&Shell, Error> {
        let make = || async {
            let (config, sandbox) = (self.config.clone(), self.sandbox.clone());
            let private = self.private.clone();
            tokio::task::spawn_blocking(move || Shell::new(config, sandbox, Some(&private)))
                .await
                .map_err(|_| Error::from(Internal::new("making the shell ended early")))
        };
        self.made.get_or_try_init(make).await
    }

    /// What is wrong with a command, before anybody is asked about it or anything is prepared for it.
    fn check(&self, input: &Value) -> Result<(), InputProblem> {
        // The schema was checked before.
        let Ok(input) = shell::ExecInput::deserialize(input) else { return Ok(()) };
        let checked = match self.made.get() {
            Some(shell) => shell.check(&input),
            None => self.config.check_command(&input),
        };
        checked.map_err(|error| {
            let whole = || InputProblem { pointer: String::new(), message: error.to_string() };
            error.problem().unwrap_or_else(whole)
        })
    }
}

/// Adds all built-in tools, with what does their work.
pub fn pack(packs: Packs, toolbox: Toolbox) -> Result<Packs, Violations> {
    let packs = plain_pack(packs)?;
    let packs = with_files(packs, &toolbox.workspaces)?;
    let packs = with_http(packs, toolbox.fetcher)?;
    with_shell(packs, toolbox.shell, toolbox.workspaces)
}

/// Adds the tools that reach nothing outside of the gate.
pub fn plain_pack(packs: Packs) -> Result<Packs, Violations> {
    Ok(packs
        .add_reading(manifest::list_declaration()?, |input, context| {
            let mut document = manifest::list(context.manifest(), &input);
            document.tools.retain(|tool| context.may_see(tool));
            written(&document)
        })
        .add_reading(manifest::get_declaration()?, |input, context| {
            let entry = manifest::get(context.manifest(), &input)?;
            if !context.may_see(entry.tool) {
                return Err(Error::from(UnknownTool::new(input.name, None)).into());
            }
            written(&entry)
        })
        .add(system::time_declaration()?, async |_, context| {
            let now = Timestamp::from_millisecond(context.now_ms()).map_err(|error| {
                Error::from(Internal::new(format!("the clock is off: {error}")))
            })?;
            Ok(system::time(now))
        }))
}

/// The root of the session that a call belongs to.
async fn root(workspaces: &Workspaces, context: &Context) -> Result<Root, ToolFailure> {
    let name = context.workspace()?;
    let opened = workspaces.open(&name).await;
    Ok(opened.map_err(|error| {
        // Where the folder is concerns the operator alone.
        tracing::error!(%error, "a workspace cannot be opened");
        let problem = Clean::already("its workspace cannot be opened".to_owned());
        Error::from(ToolFailed::new(context.tool().name.clone(), problem))
    })?)
}

fn with_files(packs: Packs, workspaces: &Workspaces) -> Result<Packs, Violations> {
    let (reads, lists, writes) = (workspaces.clone(), workspaces.clone(), workspaces.clone());
    Ok(packs
        .add(fs::read_text_declaration()?, move |input, context| {
            let workspaces = reads.clone();
            async move {
                let root = root(&workspaces, &context).await?;
                Ok(fs::read_text(&root, input).await?)
            }
        })
        .add(fs::list_dir_declaration()?, move |input, context| {
            let workspaces = lists.clone();
            async move {
                let root = root(&workspaces, &context).await?;
                Ok(fs::list_dir(&root, input).await?)
            }
        })
        .add(fs::write_text_declaration()?, move |input, context| {
            let workspaces = writes.clone();
            async move {
                let root = root(&workspaces, &context).await?;
                Ok(fs::write_text(&root, input).await?)
            }
        }))
}

fn with_http(packs: Packs, fetcher: Arc<Fetcher>) -> Result<Packs, Violations> {
    let declaration = http::get_declaration()?;
    let name = declaration.tool().name.clone();
    let packs = packs.add(declaration, move |input: http::GetInput, context: Context| {
        let fetcher = Arc::clone(&fetcher);
        async move { get(&fetcher, &input, &context).await }
    });
    Ok(packs.needing(name, |input| {
        let url = input.get("url").and_then(Value::as_str).unwrap_or_default();
        let wrong = |message: String| InputProblem { pointer: "/url".to_owned(), message };
        let host = http::host_of(url).map_err(|problem| wrong(problem.to_string()))?;
        Ok(vec![host.capability()])
    }))
}

/// How much longer than its command a call of `shell.exec` may take.
const AROUND_A_COMMAND: Duration = Duration::from_secs(10);

fn with_shell(
    packs: Packs,
    shell: Arc<LazyShell>,
    workspaces: Workspaces,
) -> Result<Packs, Violations> {
    let declaration = shell::exec_declaration()?;
    let name = declaration.tool().name.clone();
    let checks = Arc::clone(&shell);
    let packs = packs.needing(name.clone(), move |input| checks.check(input).map(|()| Vec::new()));
    let packs = packs.add(declaration, move |input: shell::ExecInput, context: Context| {
        let (shell, workspaces) = (Arc::clone(&shell), workspaces.clone());
        async move {
            let root = root(&workspaces, &context).await?;
            let quota = root.quota();
            let usage = root.usage().await.map_err(|error| {
                // What cannot be measured could be anything.
                let problem = format!("its workspace cannot be measured: {error}");
                Error::from(ToolFailed::new(context.tool().name.clone(), Clean::new(&problem)))
            })?;
            let is_full = usage.bytes > quota.bytes || usage.files > quota.files;
            let around = shell::Surroundings {
                is_full,
                root: root.path(),
                // What cannot write is not ended for what others wrote: it may be about to remove it. Files without
                // anything in them could still be made.
                disk_bytes: if is_full { u64::MAX } else { quota.bytes },
                inodes: if is_full { quota.files.saturating_mul(2) } else { quota.files },
                time_left: Some(context.time_left().saturating_sub(Duration::from_millis(500))),
                cancel: context.cancelled().clone(),
            };
            let ran = shell.get().await?.exec(&input, &around).await;
            workspaces.invalidate(root.path());
            ran.map_err(|error| match error {
                // What watched over the command is gone, and with it what it knew.
                ShellError::Sandbox(SandboxError::Launcher(why)) => {
                    let name = context.tool().name.clone();
                    ToolFailure::from(Error::from(ToolFailed::new(
                        name,
                        Clean::new(&why.to_string()),
                    )))
                    .outcome_unknown()
                }
                other => Error::from(other).into(),
            })
        }
    });
    Ok(packs.taking(name, |input, _| {
        let seconds = input.get("timeout_s").and_then(Value::as_f64)?;
        Duration::try_from_secs_f64(seconds).ok().map(|wanted| wanted + AROUND_A_COMMAND)
    }))
}

/// Fetches a page, from where the caller's grants reach at this moment.
async fn get(
    fetcher: &Fetcher,
    input: &http::GetInput,
    context: &Context,
) -> Result<http::Page, ToolFailure> {
    let reach = |host: &http::Host| match context.reach(host.name()) {
        Some(Reach::Public) => http::Reach::Public,
        Some(Reach::Named) => http::Reach::Named,
        None => http::Reach::No("it was not granted".to_owned()),
    };
    let get = http::Get {
        url: &input.url,
        use_cache: input.use_cache,
        now_ms: context.now_ms(),
        deadline: tokio::time::Instant::now() + context.time_left(),
        cancel: context.cancelled(),
        reach: &reach,
    };
    let fetched = fetcher.fetch(get).await.map_err(|problem| match problem {
        http::HttpProblem::NotGranted { host, .. } => context.missing(&host.capability()),
        other => other.error(),
    })?;
    // What such a server says of its limits is not believed: a page could close a pool for everybody.
    Ok(fetched.page)
}

fn written(output: &impl Serialize) -> Result<Value, ToolFailure> {
    serde_json::to_value(output)
        .map_err(|error| Error::from(Internal::new(error.to_string())).into())
}

/// The manifest of the built-in tools.
pub fn built_in() -> Result<Manifest, Violations> {
    Manifest::from_declarations(declarations()?)
}

/// What this pack declares.
pub fn declarations() -> Result<Vec<ToolDeclaration>, Violations> {
    Ok(vec![
        manifest::list_declaration()?.erase(),
        manifest::get_declaration()?.erase(),
        system::time_declaration()?.erase(),
        fs::read_text_declaration()?.erase(),
        fs::list_dir_declaration()?.erase(),
        fs::write_text_declaration()?.erase(),
        http::get_declaration()?.erase(),
        shell::exec_declaration()?.erase(),
    ])
}
