//! `tollgate serve`: the gate itself, until a signal stops it.

use std::path::{Path, PathBuf};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_contract::Secret;

use crate::{
    agent_folders,
    cli::ServeArgs,
    config::{Config, LogFormat, LogLevel, USUAL_DATA, USUAL_FILE},
    daemon::{Asked, Daemon, Options},
    exit::Exit,
    output::{Failure, wants_colour, write_out},
    place::ADMIN_KEY,
};

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let (config, file) = configured(args)?;
    let _logging = log(&config);
    let data = args.data.data.clone().unwrap_or_else(|| config.data());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::bad_input(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let options = Options {
            listen: &args.listen,
            root: args.root.as_deref(),
            new_admin_key: args.new_admin_key,
            new_secret: args.new_secret,
        };
        let daemon = Daemon::start(config, file, &data, &options).await?;
        greet(&data, daemon.new_admin().map(Secret::expose), daemon.urls());
        Ok(daemon.run(async || signals.next().await).await)
    })
}

/// The configuration. Where agents work, nothing counts that was not named: it would decide what they may do, and a data
/// folder here would be theirs to read.
fn configured(args: &ServeArgs) -> Result<(Config, Option<PathBuf>), Failure> {
    let Some(why) = agent_folders::here() else { return Config::find(args.config.as_deref()) };
    let refused = || {
        Failure::bad_input(format!(
            "{why}: the {USUAL_FILE} and {USUAL_DATA} of this folder do not count"
        ))
        .with_help("start the gate in another folder, or name both with --config and --data")
    };
    let (config, file) = match &args.config {
        Some(named) => Config::find(Some(named))?,
        None if Path::new(USUAL_FILE).symlink_metadata().is_ok() => return Err(refused()),
        // Not read again: one that comes now does not count either.
        None => (Config::default(), None),
    };
    if args.data.data.is_none() && config.daemon.data.is_none() {
        return Err(refused());
    }
    Ok((config, file))
}

/// Says on the standard output where the gate is. Scripts wait for the line that starts with `listening`.
fn greet(data: &Path, admin: Option<&str>, urls: &[String]) {
    let key_file = data.join(ADMIN_KEY);
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
