//! Why the ledger cannot do what it was asked.

use std::{io, path::PathBuf};

use tollgate_contract::Error;
use tollgate_contract::error::LedgerUnavailable;

/// Why the ledger cannot do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process has the data folder.
    #[error("the data folder `{}` is in use by another tollgate; stop that one, or choose another folder with --data", .0.display())]
    InUse(PathBuf),
    /// The data folder cannot be made or written.
    #[error("the data folder `{}` cannot be used: {problem}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The database was written by a newer version.
    #[error(
        "the data folder was written by a newer tollgate (format {found}, this one knows {known}); use that version, or another folder"
    )]
    Newer {
        /// The format that was found.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// The file is there but is no ledger.
    #[error("`{}` is not a tollgate database: {problem}", .file.display())]
    NotALedger {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The database refuses.
    #[error("the database refuses: {0}")]
    Database(String),
    /// An event cannot be stored as it is.
    #[error("an event cannot be stored: {0}")]
    Event(String),
    /// The ledger is being closed.
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    pub(crate) fn folder(folder: impl Into<PathBuf>, error: &io::Error) -> Self {
        Self::Folder { folder: folder.into(), problem: error.to_string() }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}

impl From<LedgerError> for Error {
    fn from(error: LedgerError) -> Self {
        LedgerUnavailable::new(error.to_string()).into()
    }
}
