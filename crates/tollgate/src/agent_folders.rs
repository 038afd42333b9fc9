//! The folders that agents work in, of all gates of one user. Whatever stands in such a folder may be an agent's doing, so
//! that no command takes its configuration or its data folder from there unless somebody names it.
//!
//! The list is only ever added to: a folder that an agent has left holds what it wrote there all the same.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Once,
};

use tollgate_contract::Quoted;

use crate::{
    config::{USUAL_DATA, USUAL_FILE},
    output::note,
    place::of_user,
};

/// From so many on, folders that are gone leave the list.
const MANY: usize = 1_000;

/// The largest list that is read.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The folder of a data folder in which sessions work that have no other.
const WORKSPACE: &str = "workspace";

/// What shows that a folder is a gate's data folder.
const SIGN: &str = "gate.secret";

/// The list: a file beside the data folder of whoever types.
fn list() -> Option<PathBuf> {
    Some(of_user()?.with_file_name("tollgate.folders"))
}

/// Puts a folder on the list. Without a home there is none, and nothing to be on it.
pub(crate) fn remember(folder: &Path) -> Result<(), String> {
    let Some(list) = list() else { return Ok(()) };
    add(&list, folder).map_err(|error| {
        format!(
            "{} cannot be kept on the list of agents' folders {}: {error}; let XDG_DATA_HOME name a folder that can be written",
            folder.display(),
            list.display()
        )
    })
}

fn add(list: &Path, folder: &Path) -> io::Result<()> {
    let folder = fs::canonicalize(folder)?;
    // Most of the time it is there, and nobody has to wait for anybody.
    if read(list)?.contains(&folder) {
        return Ok(());
    }
    if let Some(parent) = list.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut private = OpenOptions::new();
    private.create(true).truncate(false).write(true).mode(0o600);
    let lock = private.open(list.with_extension("folders.lock"))?;
    // Held until the end: two that add stand in line.
    lock.lock()?;
    let mut all = read(list)?;
    if all.len() >= MANY {
        all.retain(|path| path.exists());
    }
    all.push(folder);
    let mut text = String::new();
    for path in &all {
        // A line each, whatever is in a name.
        text.push_str(&serde_json::to_string(path).map_err(io::Error::other)?);
        text.push('\n');
    }
    let new = list.with_extension("folders.new");
    let mut file = private.truncate(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, list)
}

fn read(list: &Path) -> io::Result<Vec<PathBuf>> {
    let file = match File::open(list) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, LONGEST), &mut text)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// Why the folder that a command is typed in is not to be believed: an agent works there, or has.
pub(crate) fn here() -> Option<String> {
    let here = fs::canonicalize(".").ok()?;
    let of_sessions = |path: &&Path| {
        let is_named = path.file_name().is_some_and(|name| name == WORKSPACE);
        is_named && path.parent().is_some_and(|data| data.join(SIGN).exists())
    };
    if let Some(path) = here.ancestors().find(of_sessions) {
        return Some(format!("agents work in {}", Quoted::new(&path.to_string_lossy())));
    }
    match read(&list()?) {
        Ok(all) => {
            let root = all.iter().find(|root| here.starts_with(root))?;
            Some(format!("an agent works in {}, or has", Quoted::new(&root.to_string_lossy())))
        }
        Err(error) => Some(format!("it cannot be told where agents work ({error})")),
    }
}

/// Is there a configuration or a data folder here? Links count, wherever they lead.
pub(crate) fn has_usual_files() -> bool {
    [USUAL_FILE, USUAL_DATA].iter().any(|file| Path::new(file).symlink_metadata().is_ok())
}

/// Says once what is left out, if there is anything.
pub(crate) fn tell(why: &str) {
    static TOLD: Once = Once::new();
    if has_usual_files() {
        TOLD.call_once(|| {
            note(&format!(
                "! {why}, so that {USUAL_FILE} and {USUAL_DATA} here are left out; if they are yours, name them with TOLLGATE_CONFIG or --data"
            ));
        });
    }
}

#[cfg(test)]
#[path = "agent_folders_tests.rs"]
mod tests;
