//! A checkpoint on disk: replaced as a whole, never half; the one before it stays as a copy. Whoever writes says which
//! revision it goes on from, so that of two writers one is told.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use tollgate_protocol::{Checkpoint, CheckpointError, SessionName};

/// The checkpoint of a session in its folder.
#[derive(Debug, Clone)]
pub struct CheckpointFile {
    folder: PathBuf,
    session: SessionName,
}

/// Why a checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The disk does not do it.
    #[error("the checkpoint of {session} cannot be kept: {error}")]
    Io {
        /// The session.
        session: SessionName,
        /// What went wrong.
        error: io::Error,
    },
    /// Somebody else has written meanwhile.
    #[error(
        "the session {session} was changed by somebody else: it is at revision {found}, and this goes on from {expected}; load it again"
    )]
    Conflict {
        /// The session.
        session: SessionName,
        /// The revision that this goes on from.
        expected: u64,
        /// The revision that is there.
        found: u64,
    },
    /// Neither the checkpoint nor the copy of the one before can be read.
    #[error("the checkpoint of {session} cannot be read, nor the one before it: {problem}")]
    Damaged {
        /// The session.
        session: SessionName,
        /// What is wrong with it.
        problem: CheckpointError,
    },
}

const CURRENT: &str = "checkpoint.json";
const BEFORE: &str = "checkpoint.prev.json";
const NEW: &str = "checkpoint.new.json";
const LOCK: &str = "checkpoint.lock";

impl CheckpointFile {
    /// The checkpoint in this folder.
    pub fn new(folder: impl Into<PathBuf>, session: SessionName) -> Self {
        Self { folder: folder.into(), session }
    }

    fn io(&self) -> impl Fn(io::Error) -> SaveError + '_ {
        |error| SaveError::Io { session: self.session.clone(), error }
    }

    /// Reads it; none where the session is new. A damaged one is told, and the one before it is given.
    pub fn load(&self) -> Result<Option<(Checkpoint, Option<CheckpointError>)>, SaveError> {
        let damaged = match self.read(CURRENT)? {
            Some(Ok(checkpoint)) => return Ok(Some((checkpoint, None))),
            // What a newer version has written is not damaged.
            Some(Err(problem @ CheckpointError::Version { .. })) => {
                return Err(SaveError::Damaged { session: self.session.clone(), problem });
            }
            Some(Err(problem)) => Some(problem),
            None => None,
        };
        match (self.read(BEFORE)?, damaged) {
            // There is a copy only where there was a checkpoint.
            (Some(Ok(before)), None) => Ok(Some((before, Some(CheckpointError::Gone)))),
            (Some(Ok(before)), problem) => Ok(Some((before, problem))),
            (None, None) => Ok(None),
            (_, Some(problem)) | (Some(Err(problem)), None) => {
                Err(SaveError::Damaged { session: self.session.clone(), problem })
            }
        }
    }

    /// Can neither the checkpoint nor its copy be read, though no newer version has written them?
    pub(crate) fn is_damaged(&self) -> bool {
        let is_newer = |name| {
            matches!(self.read(name), Ok(Some(Err(CheckpointError::Version { .. }))) | Err(_))
        };
        !is_newer(CURRENT) && !is_newer(BEFORE)
    }

    /// Moves what cannot be read out of the way.
    pub(crate) fn set_aside(&self) -> Result<(), SaveError> {
        for name in [CURRENT, BEFORE] {
            let (from, to) = (self.folder.join(name), self.folder.join(format!("{name}.damaged")));
            match fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.io()(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<Result<Checkpoint, CheckpointError>>, SaveError> {
        match fs::read(self.folder.join(name)) {
            Ok(text) => Ok(Some(Checkpoint::read(&text, &self.session))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io()(error)),
        }
    }

    /// Replaces it, if it is still at `expected`.
    pub fn save(&self, checkpoint: &Checkpoint, expected: u64) -> Result<(), SaveError> {
        let io = self.io();
        let lock =
            private().create(true).truncate(false).open(self.folder.join(LOCK)).map_err(&io)?;
        // Held until the end: two that save stand in line.
        lock.lock().map_err(&io)?;
        let there = self.load()?;
        let found = there.as_ref().map_or(0, |(found, _)| found.revision);
        if found != expected {
            let session = self.session.clone();
            return Err(SaveError::Conflict { session, expected, found });
        }
        // Only what can be read is worth a copy: a damaged file must not push out the last good one.
        let is_sound = there.is_some_and(|(_, problem)| problem.is_none());
        self.replace(checkpoint.written().as_bytes(), is_sound).map_err(&io)
    }

    fn replace(&self, text: &[u8], keeps_copy: bool) -> io::Result<()> {
        let (new, current) = (self.folder.join(NEW), self.folder.join(CURRENT));
        let mut file = private().create(true).truncate(true).open(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        drop(file);
        if keeps_copy && current.exists() {
            let copy = self.folder.join("checkpoint.old.json");
            let _ = fs::remove_file(&copy);
            fs::hard_link(&current, &copy)?;
            fs::rename(&copy, self.folder.join(BEFORE))?;
        }
        fs::rename(&new, &current)?;
        File::open(&self.folder)?.sync_all()
    }
}

/// A file that nobody else reads.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
#[path = "checkpoint_file_tests.rs"]
mod tests;
