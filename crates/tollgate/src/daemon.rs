//! A gate at work: everything that it is made of, from the ledger to the doors, and what it does from time to time. `tollgate
//! serve` runs one until a signal comes; a command that finds none may run one for as long as it needs it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_agent::runtime::Runtime;
use tollgate_contract::Secret;
use tollgate_gate::{Gate, Packs, Parts, Settings, secret_file};
use tollgate_ledger::Ledger;
use tollgate_memory::Memory;
use tollgate_models::Models;
use tollgate_server::{Address, BindError, Listening, Reload, Server};
use tollgate_tools::{LazyShell, Toolbox, http::Fetcher, workspace::Workspaces};

use crate::{
    agent_folders,
    config::{Config, USUAL_LISTEN},
    exit::Exit,
    output::Failure,
    place::{ADDRESS, ADMIN_KEY, agents_in},
    polling,
    reload::{Applies, Changes, reload},
};

/// How often what is due from time to time is done.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// How many events are retired together at least.
const LEAST_RETIRED: u64 = 1000;

/// How often forecasts are looked at, and whether the configuration file has changed.
const WATCH: Duration = Duration::from_secs(1);

/// How often holds are looked at whose time may be over: often, so that there are never very many at once.
const EXPIRY: Duration = Duration::from_millis(25);

/// What can be said of one start.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// Where to listen, in place of what the configuration says.
    pub(crate) listen: &'a [String],
    /// One folder that all sessions work in.
    pub(crate) root: Option<&'a Path>,
    pub(crate) new_admin_key: bool,
    pub(crate) new_secret: bool,
}

/// What a running gate can be asked for from outside its doors.
pub(crate) enum Asked {
    /// To stop; at once if it was asked before.
    Stop,
    /// To read its configuration again.
    Reload,
}

/// A gate that serves.
pub(crate) struct Daemon {
    config: Config,
    file: Option<PathBuf>,
    parts: Applies,
    admin: Option<Secret>,
    urls: Vec<String>,
    reloads: mpsc::Receiver<tokio::sync::oneshot::Sender<Result<(), String>>>,
    serving: JoinHandle<()>,
    stop: CancellationToken,
    polls: TaskTracker,
    _told: Told,
}

impl Daemon {
    /// Opens the data folder and starts to serve.
    pub(crate) async fn start(
        config: Config,
        file: Option<PathBuf>,
        data: &Path,
        options: &Options<'_>,
    ) -> Result<Self, Failure> {
        let addresses = addresses(options.listen, &config)?;
        for address in &addresses {
            address.check(config.daemon.trusted_proxy).map_err(refused)?;
        }
        let ledger = Ledger::open(data, config.sync()).map_err(|error| Failure::ledger(&error))?;
        keep_out_of_git(data);
        // What a gate that was killed has left behind.
        let _ = fs::remove_file(data.join(ADDRESS));
        let mut listening = Vec::new();
        for address in &addresses {
            let bound = Listening::bind(address, config.daemon.trusted_proxy).await;
            listening.push(bound.map_err(refused)?);
        }
        let urls: Vec<String> = listening.iter().map(Listening::url).collect();
        let toolbox = toolbox(options.root, &config, file.as_deref(), data)?;
        let workspaces = toolbox.workspaces.clone();
        let models = Models::new(config.models.clone(), config.agent.default_model.clone())
            .map_err(|bad| Failure::bad_input(bad.to_string()))?;
        let gate = gate(ledger, &config, data, options.new_secret, toolbox, &models)?;
        let agents = agents(&gate, &models, &config, data, workspaces)?;
        gate.record_start(env!("CARGO_PKG_VERSION"), &config.recorded(&urls))
            .map_err(Failure::new)?;
        let admin = admin(&gate, data, options.new_admin_key).await?;
        for (key, policy) in gate.missing_policies() {
            tracing::warn!(
                key,
                policy,
                "a key names a policy that is not there; it may do nothing"
            );
        }
        let (ask_reload, reloads): (Reload, _) = mpsc::channel(4);
        let settings = config.server_settings();
        let server = Server::new(gate.clone(), agents.clone(), settings, Some(ask_reload))
            .map_err(Failure::new)?;
        let told = Told { data: data.join(ADDRESS) };
        told.write(&urls)?;
        let (stop, polls) = (CancellationToken::new(), TaskTracker::new());
        polling::start(&gate, &config.polls, &stop, &polls)
            .map_err(|error| Failure::bad_input(format!("a provider cannot be polled: {error}")))?;
        let serving = tokio::spawn(server.serve(listening, stop.clone()));
        let parts = Applies { gate, models, agents };
        Ok(Self { config, file, parts, admin, urls, reloads, serving, stop, polls, _told: told })
    }

    /// Where it listens.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The admin key, if it was made by this start.
    pub(crate) fn new_admin(&self) -> Option<&Secret> {
        self.admin.as_ref()
    }

    /// Does what is due until it is asked to stop, and has stopped.
    pub(crate) async fn run(mut self, mut next: impl AsyncFnMut() -> Asked) -> Exit {
        let gate = self.parts.gate.clone();
        let mut due = tokio::time::interval(HOUSEKEEPING);
        let mut expiry = tokio::time::interval(EXPIRY);
        expiry.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watch = tokio::time::interval(WATCH);
        watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut changes = Changes::of(self.file.as_deref());
        loop {
            tokio::select! {
                _ = &mut self.serving => {
                    self.polls.close();
                    self.polls.wait().await;
                    return Exit::Ok;
                }
                _ = due.tick() => {
                    gate.housekeeping().await;
                    retire(&gate, &self.config).await;
                }
                _ = expiry.tick() => expire(&gate).await,
                _ = watch.tick() => {
                    if let Err(error) = gate.governing().watch().await {
                        tracing::debug!(problem = %error.operator(), "forecasts are not watched now");
                    }
                    if let Err(error) = gate.expire_approvals().await {
                        tracing::debug!(problem = %error.operator(), "what is over stays for now");
                    }
                    if changes.seen() {
                        let _ = self.reload().await;
                    }
                }
                Some(tell) = self.reloads.recv() => {
                    changes.are_read();
                    let _ = tell.send(self.reload().await);
                }
                asked = next() => match asked {
                    Asked::Reload => {
                        changes.are_read();
                        let _ = self.reload().await;
                    }
                    Asked::Stop if self.stop.is_cancelled() => {
                        tracing::warn!("stopped at once");
                        return Exit::Failed;
                    }
                    Asked::Stop => {
                        tracing::info!(calls = gate.calls_under_way(), "stopping; once more to stop at once");
                        self.stop.cancel();
                    }
                },
            }
        }
    }

    async fn reload(&self) -> Result<(), String> {
        reload(&self.parts, self.file.as_deref(), &self.config).await
    }
}

/// The key of the person who runs the gate, if it is made now.
async fn admin(gate: &Gate, data: &Path, new: bool) -> Result<Option<Secret>, Failure> {
    let admin = gate.ensure_admin(new).await.map_err(Failure::new)?;
    let key_file = data.join(ADMIN_KEY);
    if let Some((_, secret)) = &admin {
        secret_file::write(&key_file, format!("{}\n", secret.expose()).as_bytes())
            .map_err(|error| Failure::bad_input(format!("cannot keep the admin key: {error}")))?;
    }
    if admin.is_none() && !key_file.exists() {
        tracing::warn!(
            "the admin key is not in the data folder; commands need TOLLGATE_API_KEY, or a start with --new-admin-key"
        );
    }
    Ok(admin.map(|(_, secret)| secret))
}

/// What runs agents: their sessions and what they remember are in a folder of their own.
fn agents(
    gate: &Gate,
    models: &Models,
    config: &Config,
    data: &Path,
    workspaces: Workspaces,
) -> Result<Runtime, Failure> {
    let (folder, memory) = agents_in(data);
    let made = fs::create_dir_all(&folder);
    made.map_err(|error| Failure::bad_input(format!("cannot make {}: {error}", folder.display())))?;
    let memory = Memory::open(&memory).map_err(|error| Failure::bad_input(error.to_string()))?;
    let bind = Arc::new(move |session: &str, root: Option<&Path>| {
        if let Some(root) = root {
            // It was kept as it really is. What leads elsewhere by now may be another agent's doing.
            let now = fs::canonicalize(root);
            if now.as_ref().is_ok_and(|now| now != root) {
                let now = now.unwrap_or_default();
                return Err(format!(
                    "the folder {} of the session {session} leads to {} now; decide on it again with --root",
                    root.display(),
                    now.display()
                ));
            }
            // First on the list: whatever the agent puts there is then known to be its own.
            agent_folders::remember(root)?;
        }
        workspaces.bind(session, root).map_err(|error| error.to_string())
    });
    let config = config.agent.clone();
    Ok(Runtime::new(gate.clone(), models.clone(), memory, folder, config, bind))
}

fn refused(error: BindError) -> Failure {
    Failure::bad_input(error.to_string()).with_exit(Exit::Failed)
}

/// Where to listen: what the command line says, else the configuration.
fn addresses(listen: &[String], config: &Config) -> Result<Vec<Address>, Failure> {
    let said = if listen.is_empty() { &config.daemon.listen } else { listen };
    let usual = [USUAL_LISTEN.to_owned()];
    let said = if said.is_empty() { usual.as_slice() } else { said };
    let parse =
        |text: &String| Address::parse(text).map_err(|error| Failure::usage(error.to_string()));
    said.iter().map(parse).collect()
}

/// What the tools work with that reach outside.
fn toolbox(
    root: Option<&Path>,
    config: &Config,
    file: Option<&Path>,
    data: &Path,
) -> Result<Toolbox, Failure> {
    let root = root.or(config.workspace.root.as_deref());
    let workspaces = Workspaces::new(data, root, config.quota())
        .and_then(|workspaces| workspaces.keeping(file))
        .map_err(|error| Failure::bad_input(error.to_string()))?;
    root.map_or(Ok(()), agent_folders::remember).map_err(Failure::bad_input)?;
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let own = real(data);
    let system = tollgate_tools::shell::system().find(|path| own.starts_with(path));
    if let Some(path) = system {
        return Err(Failure::bad_input(format!(
            "the data folder is in {}, which commands can read",
            path.display()
        ))
        .with_help("name another one with --data"));
    }
    let reaching = config.shell.named_paths().find(|path| {
        let path = real(path);
        own.starts_with(&path) || path.starts_with(&own)
    });
    if let Some(path) = reaching {
        return Err(Failure::bad_input(format!(
            "[shell.programs] names {}, through which commands could read the gate's own keys in {}",
            path.display(),
            own.display()
        ))
        .with_help("name a folder that does not hold the data folder, or move the data folder"));
    }
    let fetcher = Arc::new(Fetcher::new(config.http.clone(), data));
    let shell = Arc::new(LazyShell::new(config.shell.clone(), crate::sandbox(), data));
    Ok(Toolbox { workspaces, fetcher, shell })
}

fn gate(
    ledger: Ledger,
    config: &Config,
    data: &Path,
    accept_new_secret: bool,
    toolbox: Toolbox,
    models: &Models,
) -> Result<Gate, Failure> {
    let packs = tollgate_tools::pack(Packs::new(), toolbox)
        .and_then(|packs| tollgate_models::pack(packs, models.clone()))
        .and_then(Packs::build);
    let registry =
        packs.map_err(|violations| Failure::manifest("the built-in manifest", &violations))?;
    let mut settings = Settings { accept_new_secret, ..Settings::new(data) };
    if let Some(timeout) = config.call_timeout() {
        settings.call_timeout = timeout;
    }
    let governor = config.governor_config();
    let parts = Parts {
        policies: config.policies(),
        governor,
        consent: config.consent(),
        ..Parts::new(ledger, registry, settings)
    };
    Gate::open(parts).map_err(Failure::new)
}

/// Retires events that are older than the configuration keeps them.
async fn retire(gate: &Gate, config: &Config) {
    let Some(kept_ms) = config.keep_events_ms() else { return };
    // Not for every single event: a checkpoint holds the whole state.
    let before = gate.clock().now_ms() - kept_ms;
    match gate.retire_before(before, LEAST_RETIRED).await {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "old events were summed up in a checkpoint and retired"),
        Err(error) => {
            tracing::warn!(problem = %error.operator(), "old events cannot be retired now");
        }
    }
}

/// Ends the holds whose time is over. Others are served in between.
async fn expire(gate: &Gate) {
    loop {
        match gate.governing().expire().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::debug!(problem = %error.operator(), "holds that are over stay for now");
                return;
            }
        }
    }
}

/// The data folder holds keys: whoever commits the folder around it must not commit them.
fn keep_out_of_git(data: &Path) {
    let file = data.join(".gitignore");
    if !file.exists() {
        // Only a help; without it everything works all the same.
        let _ = fs::write(file, "*\n");
    }
}

/// The file that tells commands where the gate is; it goes when the gate does.
struct Told {
    data: PathBuf,
}

impl Told {
    fn write(&self, urls: &[String]) -> Result<(), Failure> {
        let lines: String = urls.iter().map(|url| format!("{url}\n")).collect();
        secret_file::write(&self.data, lines.as_bytes()).map_err(|error| {
            Failure::bad_input(format!("cannot write {}: {error}", self.data.display()))
        })
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.data);
    }
}
