//! `tollgate serve`: the gate itself, until a signal stops it.

use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_contract::Secret;

use crate::{
    cli::ServeArgs,
    config::{Config, LogFormat, LogLevel, USUAL_DATA, USUAL_FILE},
    daemon::{Asked, Daemon, Options},
    exit::Exit,
    output::{Failure, wants_colour, write_out},
    place::{ADMIN_KEY, planted_here, reached_by_agent},
};

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let (config, file) = Config::find(args.config.as_deref())?;
    let _logging = log(&config);
    let data = args.data.data.clone().unwrap_or_else(|| config.data());
    mine(args, &data)?;
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

/// Refuses what was found here and not named, where an agent works here and may have put it there: it would decide what
/// the agents may do.
fn mine(args: &ServeArgs, data: &Path) -> Result<(), Failure> {
    let usual = Path::new(USUAL_FILE);
    let is_found =
        args.data.data.is_none() && (args.config.is_none() || data == Path::new(USUAL_DATA));
    let of_others = || planted_here().filter(|_| is_found);
    let of_these = || reached_by_agent(data, usual).filter(|_| args.config.is_none());
    let Some(session) = of_these().or_else(of_others) else { return Ok(()) };
    let problem = format!(
        "the agent of the session {session} works in this folder, and may have written {USUAL_FILE} or {USUAL_DATA} here"
    );
    let help = "start the gate in another folder, or say with --config and --data which are yours";
    Err(Failure::bad_input(problem).with_help(help))
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
