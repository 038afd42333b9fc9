//! The folders that agents work in, of all gates of one user. Whatever stands in such a folder may be an agent's doing, so
//! that no command takes its configuration or its data folder from there unless somebody names it.
//!
//! The list is only ever added to: a folder that an agent has left holds what it wrote there all the same.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Once,
    thread,
    time::{Duration, Instant},
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

/// How long somebody else may take to add to the list, and how often it is looked whether he has.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Opening does not wait.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// What shows that a folder is a gate's data folder.
const SIGN: &str = "gate.secret";

/// The list: a file beside the data folder of whoever types.
fn list() -> Option<PathBuf> {
    Some(of_user()?.with_file_name("tollgate.folders"))
}

/// Puts a folder on the list. One that holds the list, or the data of whoever types, is refused: an agent there could
/// change both.
pub(crate) fn remember(folder: &Path) -> Result<(), String> {
    let Some(list) = list() else {
        return Err(format!(
            "{} cannot be kept on the list of agents' folders: there is no home; let XDG_DATA_HOME name a folder",
            folder.display()
        ));
    };
    if let Some(held) = held(&list, folder) {
        return Err(format!(
            "the folder {} holds {}, where your own data and the list of agents' folders are; name another folder",
            folder.display(),
            held.display()
        ));
    }
    add(&list, folder).map_err(|error| {
        format!(
            "{} cannot be kept on the list of agents' folders {}: {error}; mend that file, or let XDG_DATA_HOME name another folder",
            folder.display(),
            list.display()
        )
    })
}

/// What of the user's own an agent in this folder would reach: the list, the data folder, or something in that. The folders
/// of sessions there are not meant.
fn held(list: &Path, folder: &Path) -> Option<PathBuf> {
    let folder = fs::canonicalize(folder).ok()?;
    let home = real(list.parent()?);
    let own = home.join(list.file_stem()?);
    let sessions = own.join(WORKSPACE);
    let is_inside = folder.starts_with(&own) && !folder.starts_with(&sessions);
    (home.starts_with(&folder) || is_inside).then_some(if is_inside { own } else { home })
}

/// A path without links, as far as there is something.
fn real(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
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
    // Held until the end: two that add stand in line, but not for long.
    let end = Instant::now() + PATIENCE;
    while let Err(error) = lock.try_lock() {
        if Instant::now() > end || !matches!(error, fs::TryLockError::WouldBlock) {
            return Err(io::Error::other("its lock is held by another process"));
        }
        thread::sleep(LOOK_AGAIN);
    }
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
    // A pipe in its place keeps nobody waiting.
    let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(list);
    let file = match opened {
        Ok(file) if file.metadata()?.is_file() => file,
        Ok(_) => return Err(io::Error::other("it is no file")),
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
    let list = list()?;
    match read(&list) {
        Ok(all) => {
            let root = all.iter().find(|root| here.starts_with(root))?;
            Some(format!("an agent works in {}, or has", Quoted::new(&root.to_string_lossy())))
        }
        Err(error) => Some(format!(
            "it cannot be told where agents work, since {} cannot be read ({error}); mend it",
            list.display()
        )),
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
