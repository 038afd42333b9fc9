//! Reading the configuration again while the gate runs, and noticing when that is due.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tollgate_agent::runtime::Runtime;
use tollgate_gate::Gate;
use tollgate_governor::{DEFAULT_POOL, Setup};
use tollgate_ledger::Sync;
use tollgate_models::Models;

use crate::config::Config;

/// What a configuration that is read again applies to.
pub(crate) struct Applies {
    pub(crate) gate: Gate,
    pub(crate) models: Models,
    pub(crate) agents: Runtime,
}

/// Reads the configuration again. One that does not load changes nothing.
pub(crate) async fn reload(
    to: &Applies,
    file: Option<&Path>,
    running: &Config,
) -> Result<(), String> {
    let applied = apply_again(to, file, running).await;
    match &applied {
        Ok(()) => tracing::info!(
            "policies, pools, routes, rules, models and agents were read again; other settings need a restart"
        ),
        Err(problem) => {
            tracing::error!(problem, "the configuration was not applied; the running one stays");
        }
    }
    applied
}

async fn apply_again(to: &Applies, file: Option<&Path>, running: &Config) -> Result<(), String> {
    let gate = &to.gate;
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
    // A script that cannot be played is found out before anything has changed.
    let default = config.agent.default_model.clone();
    Models::new(config.models.clone(), default.clone()).map_err(|bad| bad.to_string())?;
    gate.apply_policies(config.policies()).await.map_err(|error| error.operator())?;
    gate.apply_consent(config.consent());
    let governing = gate.governing();
    governing
        .reconfigure(config.governor_config(), serde_json::Map::new())
        .await
        .map_err(|error| error.operator())?;
    // Last, since nothing of it fails any more: nobody asks new models under old limits.
    to.models.replace(config.models.clone(), default).map_err(|bad| bad.to_string())?;
    to.agents.configure(config.agent.clone());
    Ok(())
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
pub(crate) struct Changes {
    file: Option<PathBuf>,
    /// How it was when it was last read, and when it was last looked at.
    read: Option<Seen>,
    last: Option<Seen>,
}

/// When a file was changed, how long it is, and which one it is.
type Seen = (SystemTime, u64, u64);

impl Changes {
    pub(crate) fn of(file: Option<&Path>) -> Self {
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
    pub(crate) fn are_read(&mut self) {
        self.read = self.look();
        self.last = self.read;
    }

    pub(crate) fn seen(&mut self) -> bool {
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
