//! A gate inside this process, for a command that finds none: the same gate as `tollgate serve` runs, on a port that the
//! system picks, for as long as the command lasts.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tollgate_contract::Quoted;
use tollgate_ledger::is_taken;

use crate::{
    agent_folders,
    client::Client,
    config::Config,
    daemon::{Asked, Daemon, Options},
    output::{Failure, note},
    place::{GateArgs, own_addresses},
};

/// How long another gate may take to start before this command gives up on it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A gate in this process. It stops when this is dropped, and what it has is saved.
pub(crate) struct LocalGate {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl LocalGate {
    /// A gate on this data folder, unless one runs there already.
    pub(crate) fn unless_running(data: &Path) -> Result<Option<Self>, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            if !own_addresses(data).is_empty() {
                return Ok(None);
            }
            if is_taken(data) {
                // Another one is just starting, or stopping.
                if Instant::now() > end {
                    let folder = Quoted::new(&data.to_string_lossy()).to_string();
                    return Err(Failure::not_running(&folder)
                        .with_help("another process has the folder and does not serve it"));
                }
                thread::sleep(LOOK_AGAIN);
                continue;
            }
            match Self::start(data) {
                Ok(gate) => {
                    note(&format!(
                        "· no gate runs on {}; this command runs one until it ends",
                        data.display()
                    ));
                    return Ok(Some(gate));
                }
                // Somebody else was faster.
                Err(_) if is_taken(data) && Instant::now() <= end => thread::sleep(LOOK_AGAIN),
                Err(failure) => return Err(failure),
            }
        }
    }

    fn start(data: &Path) -> Result<Self, Failure> {
        let named = std::env::var_os("TOLLGATE_CONFIG").map(PathBuf::from);
        // What an agent can write does not configure the gate that watches it.
        let (config, file) = match (named, agent_folders::here()) {
            (None, Some(why)) => {
                agent_folders::tell(&why);
                (Config::default(), None)
            }
            (named, _) => Config::find(named.as_deref())?,
        };
        let cannot = |error: std::io::Error| Failure::bad_input(format!("cannot start: {error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(cannot)?;
        let (stop, data) = (CancellationToken::new(), data.to_owned());
        let stops = stop.clone();
        let (ready, started) = mpsc::channel();
        let body = move || {
            runtime.block_on(async move {
                let listen = ["127.0.0.1:0".to_owned()];
                let options = Options { listen: &listen, ..Options::default() };
                let daemon = match Daemon::start(config, file, &data, &options).await {
                    Ok(daemon) => daemon,
                    Err(failure) => return drop(ready.send(Err(failure))),
                };
                let _ = ready.send(Ok(()));
                let mut stopping = None;
                let next = async || {
                    match &mut stopping {
                        None => stops.cancelled().await,
                        // Whoever interrupts the command once more does not wait for the gate to save what it has.
                        Some(Ok(interrupt)) => drop(Signal::recv(interrupt).await),
                        Some(Err(_)) => std::future::pending().await,
                    }
                    stopping.get_or_insert_with(|| signal(SignalKind::interrupt()));
                    Asked::Stop
                };
                daemon.run(next).await;
            });
        };
        let thread = thread::Builder::new().name("gate".to_owned()).spawn(body).map_err(cannot)?;
        let gate = Self { stop, thread: Some(thread) };
        match started.recv() {
            Ok(started) => started.map(|()| gate),
            Err(_) => Err(Failure::bad_input("the gate ended while it started".to_owned())),
        }
    }

    /// The gate that runs, or else one of this command's own on a data folder that is there, which lasts as long as it is
    /// kept; and who asks it, with the key for it.
    pub(crate) fn reach(args: &GateArgs) -> Result<(Client, Option<Self>), Failure> {
        if let Some(client) = Client::running(args)? {
            return Ok((client, None));
        }
        let data = args.data.folder()?;
        let local = Self::unless_running(&data)?;
        let mut gate = args.clone();
        gate.data.data = Some(data);
        let key = gate.key()?;
        Ok((Client::new(&gate, key)?, local))
    }

    /// Ends it with the process, at once. What it had under way is mended by the next one.
    pub(crate) fn abandon(mut self) {
        self.thread = None;
    }
}

impl Drop for LocalGate {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.cancel();
            let _ = thread.join();
        }
    }
}
