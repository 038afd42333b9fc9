//! `tollgate serve`: the gate itself.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_gate::{Gate, Packs, Parts, Settings, secret_file};
use tollgate_governor::{DEFAULT_POOL, Setup};
use tollgate_ledger::{Ledger, Sync};
use tollgate_server::{Address, BindError, Listening, Server};
use tollgate_tools::{LazyShell, Toolbox, http::Fetcher, workspace::Workspaces};

use crate::{
    cli::ServeArgs,
    config::{Config, LogFormat, LogLevel, USUAL_LISTEN},
    exit::Exit,
    output::{Failure, wants_colour, write_out},
    place::{ADDRESS, ADMIN_KEY},
    polling,
};

/// How often what is due from time to time is done.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// How many events are retired together at least.
const LEAST_RETIRED: u64 = 1000;

/// How often forecasts are looked at, and whether the configuration file has changed.
const WATCH: Duration = Duration::from_secs(1);

/// How often holds are looked at whose time may be over: often, so that there are never very many at once.
const EXPIRY: Duration = Duration::from_millis(25);

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let (config, file) = Config::find(args.config.as_deref())?;
    let _logging = log(&config);
    let data = args.data.data.clone().unwrap_or_else(|| config.data());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::bad_input(format!("cannot start: {error}")))?;
    runtime.block_on(serve(args, config, file, &data))
}

async fn serve(
    args: &ServeArgs,
    config: Config,
    file: Option<PathBuf>,
    data: &Path,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let addresses = addresses(args, &config)?;
    for address in &addresses {
        address.check(config.daemon.trusted_proxy).map_err(refused)?;
    }
    let ledger = Ledger::open(data, config.sync()).map_err(|error| Failure::ledger(&error))?;
    keep_out_of_git(data);
    // What a gate that was killed has left behind.
    let _ = fs::remove_file(data.join(ADDRESS));
    let mut listening = Vec::new();
    for address in &addresses {
        listening
            .push(Listening::bind(address, config.daemon.trusted_proxy).await.map_err(refused)?);
    }
    let urls: Vec<String> = listening.iter().map(Listening::url).collect();
    let toolbox = toolbox(args, &config, data)?;
    let gate = gate(ledger, &config, data, args.new_secret, toolbox)?;
    gate.record_start(env!("CARGO_PKG_VERSION"), &config.recorded(&urls)).map_err(Failure::new)?;
    let admin = gate.ensure_admin(args.new_admin_key).await.map_err(Failure::new)?;
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
    for (key, policy) in gate.missing_policies() {
        tracing::warn!(key, policy, "a key names a policy that is not there; it may do nothing");
    }
    let (ask_reload, mut reloads) = mpsc::channel(4);
    let server = Server::new(gate.clone(), config.server_settings(), Some(ask_reload))
        .map_err(Failure::new)?;
    let told = Told { data: data.join(ADDRESS) };
    told.write(&urls)?;
    greet(data, &key_file, admin.as_ref().map(|(_, secret)| secret.expose()), &urls);
    let stop = CancellationToken::new();
    let polls = TaskTracker::new();
    polling::start(&gate, &config.polls, &stop, &polls)
        .map_err(|error| Failure::bad_input(format!("a provider cannot be polled: {error}")))?;
    let serving = tokio::spawn(server.serve(listening, stop.clone()));
    tokio::pin!(serving);
    let mut due = tokio::time::interval(HOUSEKEEPING);
    let mut expiry = tokio::time::interval(EXPIRY);
    expiry.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut watch = tokio::time::interval(WATCH);
    watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut changes = Changes::of(file.as_deref());
    loop {
        tokio::select! {
            _ = &mut serving => {
                polls.close();
                polls.wait().await;
                return Ok(Exit::Ok);
            }
            _ = due.tick() => {
                gate.housekeeping().await;
                retire(&gate, &config).await;
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
                    let _ = reload(&gate, file.as_deref(), &config).await;
                }
            }
            Some(tell) = reloads.recv() => {
                changes.are_read();
                let _ = tell.send(reload(&gate, file.as_deref(), &config).await);
            }
            asked = signals.next() => match asked {
                Asked::Reload => {
                    changes.are_read();
                    let _ = reload(&gate, file.as_deref(), &config).await;
                }
                Asked::Stop if stop.is_cancelled() => {
                    tracing::warn!("stopped at once");
                    return Ok(Exit::Failed);
                }
                Asked::Stop => {
                    tracing::info!(calls = gate.calls_under_way(), "stopping; once more to stop at once");
                    stop.cancel();
                }
            },
        }
    }
}

fn refused(error: BindError) -> Failure {
    Failure::bad_input(error.to_string()).with_exit(Exit::Failed)
}

/// Where to listen: what the command line says, else the configuration.
fn addresses(args: &ServeArgs, config: &Config) -> Result<Vec<Address>, Failure> {
    let said = if args.listen.is_empty() { &config.daemon.listen } else { &args.listen };
    let usual = [USUAL_LISTEN.to_owned()];
    let said = if said.is_empty() { usual.as_slice() } else { said };
    let parse =
        |text: &String| Address::parse(text).map_err(|error| Failure::usage(error.to_string()));
    said.iter().map(parse).collect()
}

/// What the tools work with that reach outside.
fn toolbox(args: &ServeArgs, config: &Config, data: &Path) -> Result<Toolbox, Failure> {
    let root = args.root.as_deref().or(config.workspace.root.as_deref());
    let workspaces = Workspaces::new(data, root, config.quota())
        .map_err(|error| Failure::bad_input(error.to_string()))?;
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
) -> Result<Gate, Failure> {
    let packs = tollgate_tools::pack(Packs::new(), toolbox).and_then(Packs::build);
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

/// Reads the configuration again. One that does not load changes nothing.
async fn reload(gate: &Gate, file: Option<&Path>, running: &Config) -> Result<(), String> {
    let applied = apply_again(gate, file, running).await;
    match &applied {
        Ok(()) => tracing::info!(
            "policies, pools, routes and rules were read again; other settings need a restart"
        ),
        Err(problem) => {
            tracing::error!(problem, "the configuration was not applied; the running one stays");
        }
    }
    applied
}

async fn apply_again(gate: &Gate, file: Option<&Path>, running: &Config) -> Result<(), String> {
    let file = file.ok_or("there is no configuration file to read again")?;
    settled(file).await;
    let config = Config::read(file).map_err(|failure| failure.to_string())?;
    // A file that was cut off reads well, and would open what the whole one closes.
    let has_own = |setup: &Setup| setup.by_id(DEFAULT_POOL).is_none();
    if config.pools.is_empty() && has_own(&gate.governing().setup()) {
        let problem = "it has no pools any more, and those that are running would be gone; if that is meant, restart the gate";
        return Err(problem.to_owned());
    }
    if config.has_hard_money() && running.sync() != Sync::Full {
        let problem = "it limits money, so that every commit must wait for the disk; restart the gate for that";
        return Err(problem.to_owned());
    }
    gate.apply_policies(config.policies()).await.map_err(|error| error.operator())?;
    gate.apply_consent(config.consent());
    let governing = gate.governing();
    governing
        .reconfigure(config.governor_config(), serde_json::Map::new())
        .await
        .map_err(|error| error.operator())
}

/// Waits until nobody seems to be writing the file, for a while at most.
async fn settled(file: &Path) {
    for _ in 0..MOST_LOOKS {
        let modified = fs::metadata(file).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age >= SETTLED) {
            return;
        }
        tokio::time::sleep(SETTLED / 4).await;
    }
}

/// How long a file has not changed that nobody writes, and how often it is looked at.
const SETTLED: Duration = Duration::from_millis(200);
const MOST_LOOKS: usize = 40;

/// Notices when the configuration file is another one. It is read once it has stopped changing, so that a file
/// that is just being written is not.
struct Changes {
    file: Option<PathBuf>,
    /// How it was when it was last read, and when it was last looked at.
    read: Option<Seen>,
    last: Option<Seen>,
}

/// When a file was changed, how long it is, and which one it is.
type Seen = (SystemTime, u64, u64);

impl Changes {
    fn of(file: Option<&Path>) -> Self {
        let mut changes = Self { file: file.map(Path::to_owned), read: None, last: None };
        changes.read = changes.look();
        changes.last = changes.read;
        changes
    }

    fn look(&self) -> Option<Seen> {
        let metadata = fs::metadata(self.file.as_ref()?).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    }

    /// Somebody asked for it to be read now.
    fn are_read(&mut self) {
        self.read = self.look();
        self.last = self.read;
    }

    fn seen(&mut self) -> bool {
        let now = self.look();
        let is_stable = now == self.last;
        self.last = now;
        // A file that is gone is none that could be read.
        if now.is_none() || now == self.read || !is_stable {
            return false;
        }
        self.read = now;
        true
    }
}

/// Says on the standard output where the gate is. Scripts wait for the line that starts with `listening`.
fn greet(data: &Path, key_file: &Path, admin: Option<&str>, urls: &[String]) {
    let mut text = format!("tollgate {}, data in {}\n", env!("CARGO_PKG_VERSION"), data.display());
    if let Some(key) = admin {
        text.push_str(&format!(
            "\nThe admin key, shown this once and kept in {}:\n\n  {key}\n\n",
            key_file.display()
        ));
    }
    for url in urls {
        text.push_str(&format!("listening on {url}\n"));
    }
    if let (Some(_), Some(url)) = (admin, urls.iter().find(|url| url.starts_with("http"))) {
        text.push_str(&format!(
            "\nTry it from another terminal:\n  curl -s {url}/api/contracts/tools\n  curl -s {url}/v1/tools/system.time/call \\\n    -H 'content-type: application/json' -d '{{\"input\":{{}}}}' \\\n    -H \"authorization: Bearer $(cat {})\"\n",
            key_file.display()
        ));
    }
    write_out(text.as_bytes());
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

/// What a signal asks for.
enum Asked {
    Stop,
    Reload,
}

/// The signals that a daemon hears.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let hear = |kind| {
            signal(kind)
                .map_err(|error| Failure::bad_input(format!("cannot hear signals: {error}")))
        };
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            hangup: hear(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}

/// Starts writing log lines to the standard error. A reader that stops reading loses lines; it does not stop
/// the gate.
fn log(config: &Config) -> tracing_appender::non_blocking::WorkerGuard {
    let level = match config.daemon.log_level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    let (writer, logging) = tracing_appender::non_blocking(std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(wants_colour(&std::io::stderr()))
        .with_writer(writer);
    match config.daemon.log.unwrap_or(LogFormat::Text) {
        LogFormat::Text => lines.with_target(false).init(),
        LogFormat::Json => lines.json().init(),
    }
    logging
}
