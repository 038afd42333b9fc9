//! The data folder: who may use it, and where things are in it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::error::LedgerError;

/// The file whose lock says who has the folder.
const LOCK: &str = "tollgate.lock";

/// A data folder that this process has taken. The lock goes with the process, however it ends.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, and makes it where it is missing, for its owner alone.
    pub(crate) fn take(path: &Path) -> Result<Self, LedgerError> {
        let unusable = |error: std::io::Error| LedgerError::folder(path, error);
        make(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        let lock = options.open(path.join(LOCK)).map_err(unusable)?;
        // Somebody who only asks whether the folder is taken holds it for a moment.
        let mut tries = 10;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(LedgerError::InUse(path.to_owned())),
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
            }
        }
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        database(&self.path)
    }

    /// The file whose lock says who has the folder.
    pub(crate) fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// The database's write-ahead log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("tollgate.db-wal")
    }

    /// The file that queries are answered from.
    pub(crate) fn queries(&self) -> PathBuf {
        self.path.join("queries.db")
    }
}

/// Has a process taken this data folder?
pub fn is_taken(folder: &Path) -> bool {
    let lock = File::open(folder.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The database file of a data folder, whoever has taken it.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("tollgate.db")
}

/// Device and number of a file.
pub(crate) type FileId = (u64, u64);

#[cfg(unix)]
pub(crate) fn file_id(file: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(file).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
pub(crate) fn file_id(_: &Path) -> Option<FileId> {
    None
}

/// The database's file, open so that it can be brought to the disk; `None` where that cannot be done.
///
/// It is opened once and never closed: whoever closes any handle of a file gives up the locks that the whole process
/// has on it, and the database relies on its own.
pub(crate) fn kept_open(file: &Path) -> Option<Arc<File>> {
    static KEPT: Mutex<Vec<(FileId, Arc<File>)>> = Mutex::new(Vec::new());
    let id = file_id(file)?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, open)) = kept.iter().find(|(one, _)| *one == id) {
        return Some(Arc::clone(open));
    }
    let open = Arc::new(File::open(file).ok()?);
    kept.push((id, Arc::clone(&open)));
    Some(open)
}

/// Makes the folder, so that it is its owner's alone from the first moment.
fn make(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        // Somebody else was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result,
    }
}
