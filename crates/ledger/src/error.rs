//! Why the ledger cannot do what it was asked.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use tollgate_contract::Error;
use tollgate_contract::error::LedgerUnavailable;

/// Why the ledger cannot do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process has the data folder.
    #[error("the data folder `{}` is in use by another tollgate; stop that one, or choose another folder with --data", .0.display())]
    InUse(PathBuf),
    /// There is nothing to read.
    #[error("there is no ledger in `{}`; start one with tollgate serve, or choose another folder with --data", .0.display())]
    Missing(PathBuf),
    /// The data folder cannot be made, read or written.
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
    /// The database's file was damaged.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// An event cannot be stored as it is.
    #[error("an event cannot be stored: {0}")]
    Event(String),
    /// Events cannot be retired.
    #[error("{0}")]
    Retire(String),
    /// Events were retired while they were read.
    #[error("events were retired while they were being read; read them again")]
    Removed,
    /// Whoever was to make a batch on the writer's thread panicked.
    #[error("what was to be stored could not be made")]
    Unmade,
    /// An event, or what is kept beside it, is too large.
    #[error("an event or a value is too large: {bytes} bytes, and {most} is the most")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        most: usize,
    },
    /// A copy of the events cannot be made.
    #[error("the events cannot be exported: {0}")]
    Export(String),
    /// The ledger is being closed.
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    pub(crate) fn folder(folder: impl Into<PathBuf>, problem: impl Display) -> Self {
        Self::Folder { folder: folder.into(), problem: problem.to_string() }
    }

    /// The folder of this file cannot be used.
    pub(crate) fn unusable(file: &Path, problem: impl Display) -> Self {
        Self::folder(file.parent().unwrap_or(file), problem)
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Database(error.to_string()),
        }
    }
}

impl From<LedgerError> for Error {
    fn from(error: LedgerError) -> Self {
        LedgerUnavailable::new(error.to_string()).into()
    }
}
