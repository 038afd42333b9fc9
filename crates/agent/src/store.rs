//! A file of trace entries, one a line. It is only ever appended to.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use tollgate_contract::{Error, error::InvalidRequest, text::Clean};
use tollgate_trace::{Entry, Trace, TraceError};

/// A trace file that entries are added to.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    next: u64,
}

/// Why a trace file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFileError {
    /// It cannot be read or written.
    #[error("the trace `{}` cannot be used: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// It is there, and is no trace.
    #[error("`{}` is there and is no trace; nothing was written to it: {error}", .path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<TraceError>,
    },
}

impl TraceFile {
    /// Opens a trace for adding to it, and makes it where it is missing.
    pub fn open(path: &Path) -> Result<Self, TraceFileError> {
        let unusable = |error| TraceFileError::Io { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        // What an agent called is nobody else's business.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(unusable)?;
        if !file.metadata().map_err(unusable)?.is_file() {
            return Err(unusable(io::Error::other("it is not a regular file")));
        }
        // Two runs would give the same places to their calls.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                unusable(io::Error::other("another run is recording into it; name another file"))
            }
            TryLockError::Error(error) => unusable(error),
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unusable)?;
        let trace = Trace::parse(&text).map_err(|error| TraceFileError::NotATrace {
            path: path.to_owned(),
            error: Box::new(error),
        })?;
        let next = trace.entries().iter().map(|entry| entry.seq + 1).max().unwrap_or(1);
        // A line that was cut off when a process died has no end; what comes next starts a new one.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(unusable)?;
        }
        Ok(Self { path: path.to_owned(), file, next })
    }

    /// The place of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Adds one entry, whole.
    pub fn append(&mut self, entry: &Entry) -> Result<(), TraceFileError> {
        let unusable = |error| TraceFileError::Io { path: self.path.clone(), error };
        let line = entry.line().map_err(|error| unusable(io::Error::other(error)))?;
        // One write: lines of two processes do not mix.
        self.file.write_all(line.as_bytes()).map_err(unusable)
    }
}

impl From<TraceFileError> for Error {
    fn from(error: TraceFileError) -> Self {
        InvalidRequest::new(Clean::new(&error.to_string()), Vec::new()).into()
    }
}
