//! Where a command finds its gate: the data folder, the address, the key.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use tollgate_contract::{Quoted, Secret};
use tollgate_ledger::is_taken;

use crate::{
    agent_folders,
    config::{Config, USUAL_LISTEN},
    output::{Failure, note},
};

/// The file in the data folder that says where the gate listens.
pub(crate) const ADDRESS: &str = "address";
/// The file that holds the key of the person who runs the gate.
pub(crate) const ADMIN_KEY: &str = "admin.key";

/// Where the sessions of agents are in a data folder, and what they remember.
pub(crate) fn agents_in(data: &Path) -> (PathBuf, PathBuf) {
    let own = data.join("agent");
    (own.join("sessions"), own.join("memory.db"))
}

/// The data folder of whoever types, for those who named none and have none in the folder they are in.
pub(crate) fn of_user() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    // Without HOME the system knows it.
    let home = || std::env::home_dir().filter(|home| home.is_absolute());
    let shared = named("XDG_DATA_HOME").or_else(|| Some(home()?.join(".local/share")));
    shared.map(|shared| shared.join("tollgate"))
}

/// Where the data is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DataArgs {
    /// The data folder [default: what tollgate.toml says, .tollgate here, or the one in your home].
    #[arg(long, value_name = "DIR", env = "TOLLGATE_DATA")]
    pub(crate) data: Option<PathBuf>,
}

/// Which gate, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GateArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Where the gate listens [default: where the data folder says].
    #[arg(long, value_name = "URL", env = "TOLLGATE_URL")]
    pub(crate) url: Option<String>,

    /// A file with the API key. TOLLGATE_API_KEY holds one too; a key itself is never an argument.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

impl DataArgs {
    /// The data folder: what was named, else what the configuration says, else the one here, else the one of whoever
    /// types, if there is one.
    pub(crate) fn folder(&self) -> Result<PathBuf, Failure> {
        let (folder, of_user) = self.choice()?;
        Ok(of_user.filter(|own| !folder.exists() && own.exists()).unwrap_or(folder))
    }

    /// The same for a command that makes the folder where there is none: not in the folder that it is typed in, where
    /// an agent may have to work.
    pub(crate) fn folder_to_make(&self) -> Result<PathBuf, Failure> {
        let (folder, of_user) = self.choice()?;
        Ok(of_user.filter(|_| !folder.exists()).unwrap_or(folder))
    }

    /// The folder that was named or is usual here, and the one of whoever types where nothing was named.
    fn choice(&self) -> Result<(PathBuf, Option<PathBuf>), Failure> {
        if let Some(data) = &self.data {
            return Ok((data.clone(), None));
        }
        let named = std::env::var_os("TOLLGATE_CONFIG").map(PathBuf::from);
        // Looked at before anything is read: what an agent puts here decides nothing.
        let agents = agent_folders::here();
        let (config, file) = match (&named, &agents) {
            (None, Some(_)) => (Config::default(), None),
            (named, _) => Config::find(named.as_deref())?,
        };
        let (says, own) = (config.daemon.data.is_some(), of_user());
        if let (Some(why), Some(own), false) = (agents, &own, says) {
            agent_folders::tell(&why);
            return Ok((own.clone(), None));
        }
        Ok((config.data(), own.filter(|_| file.is_none())))
    }
}

impl GateArgs {
    /// Where the gate listens. What a dead gate left behind is not believed: somebody else may listen there
    /// by now, and would be sent its key.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let folder = self.data.folder()?;
        if !folder.exists() {
            return Ok(format!("http://{USUAL_LISTEN}"));
        }
        let first = own_addresses(&folder).into_iter().next();
        first.ok_or_else(|| Failure::not_running(&shown(&folder)))
    }

    /// The key that was named: in a file, or in the environment.
    pub(crate) fn named_key(&self) -> Result<Option<Secret>, Failure> {
        if let Some(file) = &self.key_file {
            return match read_key(file)? {
                Some(key) => Ok(Some(key)),
                None => Err(Failure::bad_input(format!("there is no key file {}", shown(file)))),
            };
        }
        match std::env::var("TOLLGATE_API_KEY") {
            Ok(key) if !key.trim().is_empty() => Ok(Some(Secret::new(key.trim().to_owned()))),
            _ => Ok(None),
        }
    }

    /// The key that was named, else the one of the person who runs this gate.
    pub(crate) fn key(&self) -> Result<Option<Secret>, Failure> {
        self.key_of(ADMIN_KEY)
    }

    /// The key that was named, else the one in a file of the data folder. Such a key is for the gate of that
    /// folder: an address that was named is somebody else until it is shown to be the same.
    pub(crate) fn key_of(&self, file: &str) -> Result<Option<Secret>, Failure> {
        if let Some(key) = self.named_key()? {
            return Ok(Some(key));
        }
        let folder = self.data.folder()?;
        match &self.url {
            Some(url) if !own_addresses(&folder).iter().any(|own| plain(own) == plain(url)) => {
                if folder.join(file).exists() {
                    note(
                        "! the key of the data folder is sent to its own gate alone; name one for this URL",
                    );
                }
                Ok(None)
            }
            _ => read_key(&folder.join(file)),
        }
    }
}

/// An address without what makes no difference.
fn plain(address: &str) -> String {
    address.trim_end_matches('/').replacen("//localhost:", "//127.0.0.1:", 1)
}

/// Where the gate of this folder listens, if it runs.
pub(crate) fn own_addresses(folder: &Path) -> Vec<String> {
    if !is_taken(folder) {
        return Vec::new();
    }
    let told = fs::read_to_string(folder.join(ADDRESS)).unwrap_or_default();
    told.lines().map(str::to_owned).collect()
}

/// Reads a key from a file; `None` if there is no such file.
pub(crate) fn read_key(file: &Path) -> Result<Option<Secret>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(Secret::new(text.trim().to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::unreadable(&shown(file), &error)),
    }
}

fn shown(file: &Path) -> String {
    Quoted::new(&file.to_string_lossy()).to_string()
}
