//! Why memory cannot do what it was asked.

use std::path::{Path, PathBuf};

use tollgate_contract::{Quoted, id::MemoryId, text::Clean};

/// Why memory cannot do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The file cannot be made, read or written.
    #[error("the memory `{}` cannot be opened: {problem}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: Clean,
    },
    /// There is nothing to read.
    #[error("there is no memory in `{}`; it is made when an agent first remembers something", .0.display())]
    Missing(PathBuf),
    /// The file is somebody else's.
    #[error("`{}` is not a memory of tollgate: {problem}; it was left as it is, choose another file", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// How that was seen.
        problem: Clean,
    },
    /// The file was written by a newer version.
    #[error("`{}` was written by a newer tollgate (format {found}, this one knows {known}); use that version, or another file", .file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The format that was found.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// The file was damaged.
    #[error("the memory `{}` is damaged ({problem}); it was left as it is: move it away or bring back a copy", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        problem: Clean,
    },
    /// Another process writes, and did not stop in time.
    #[error("another process is writing to the memory; try again")]
    Busy,
    /// The database refuses.
    #[error("the memory's database refuses: {0}")]
    Database(Clean),
    /// It was opened for reading.
    #[error("this memory was opened for reading; open it for writing to change it")]
    ReadOnly,
    /// The name cannot be that of a session.
    #[error(
        "{0} cannot be a session: its name has 1 to 200 characters, none that a terminal would act on"
    )]
    Session(Quoted),
    /// The name cannot be that of a model.
    #[error(
        "{0} cannot be a model: its name has 1 to 200 characters, none that a terminal would act on"
    )]
    Model(Quoted),
    /// A record without a text.
    #[error("the record {0} has no text that could be shown; leave it out")]
    NoText(MemoryId),
    /// The id belongs to another record.
    #[error("the id {0} belongs to another record; make a new one")]
    IdTaken(MemoryId),
    /// No record has this id.
    #[error("there is no record {0}; it may have been forgotten")]
    Unknown(MemoryId),
    /// More at once than fits.
    #[error("{given} at once are too many; {most} is the most, send them in parts")]
    TooMany {
        /// How many there were.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// A vector of another length than the model's others.
    #[error(
        "a vector of {given} numbers does not fit the model {model}, whose vectors have {known}"
    )]
    Dimension {
        /// The model.
        model: Quoted,
        /// How many numbers were given.
        given: usize,
        /// How many the model's vectors have.
        known: usize,
    },
    /// A vector of a length that no model has.
    #[error("a vector has 1 to {most} numbers, not {given}")]
    Length {
        /// How many numbers were given.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// A vector without a direction.
    #[error("a vector of nothing but zeros has no direction; ask the model for another")]
    Zero,
    /// A vector with something in it that is no number.
    #[error("number {at} of a vector is not finite; ask the model for another")]
    NotFinite {
        /// Where, counted from zero.
        at: usize,
    },
}

impl MemoryError {
    pub(crate) fn file(file: &Path, problem: impl ToString) -> Self {
        Self::File { file: file.to_owned(), problem: Clean::new(&problem.to_string()) }
    }

    pub(crate) fn foreign(file: &Path, problem: impl ToString) -> Self {
        Self::Foreign { file: file.to_owned(), problem: Clean::new(&problem.to_string()) }
    }

    pub(crate) fn damaged(file: &Path, problem: impl ToString) -> Self {
        Self::Damaged { file: file.to_owned(), problem: Clean::new(&problem.to_string()) }
    }

    /// What an error of the database means for the one who asked.
    pub(crate) fn of_database(file: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::{Error as Sql, ErrorCode as Code};
        match error {
            // A row that is not as we write them.
            Sql::FromSqlConversionFailure(..)
            | Sql::InvalidColumnType(..)
            | Sql::IntegralValueOutOfRange(..)
            | Sql::Utf8Error(..) => Self::damaged(file, error),
            _ => match error.sqlite_error_code() {
                Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::damaged(file, error),
                Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy,
                _ => Self::Database(Clean::new(&error.to_string())),
            },
        }
    }
}

/// What went wrong inside, before it is known which file it was about.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database said no.
    Database(rusqlite::Error),
    /// What was read is not as it is written here.
    Damaged(String),
    /// What was asked for cannot be.
    Refused(MemoryError),
}

impl Failure {
    pub(crate) fn in_file(self, file: &Path) -> MemoryError {
        match self {
            Self::Database(error) => MemoryError::of_database(file, &error),
            Self::Damaged(problem) => MemoryError::damaged(file, problem),
            Self::Refused(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Self::Refused(error)
    }
}
