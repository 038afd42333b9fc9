//! The data folder: who may use it, and where things are in it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use crate::error::LedgerError;

/// A data folder that this process has taken. The lock goes with the process, however it ends.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, and makes it where it is missing, for its owner alone.
    pub(crate) fn take(path: &Path) -> Result<Self, LedgerError> {
        let unusable = |error: std::io::Error| LedgerError::folder(path, &error);
        make(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        let lock = options.open(path.join("tollgate.lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LedgerError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("tollgate.db")
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
