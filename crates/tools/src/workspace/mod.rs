//! Where a session's files are, and how much room it has there.
//!
//! Every session has a folder of its own beneath the data folder, unless the operator names one root for all, or one
//! for this session. What is in a root is measured by a bounded walk and remembered until somebody says that it changed. Writes
//! to one root stand in line, so that what fits is decided and done before the next one is looked at.

mod name;
mod place;
mod usage;

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};

pub use name::folder_name;
pub use place::WorkspaceError;
pub use usage::Usage;

/// How long a measurement is believed, since a person may work in the same folder.
const BELIEVED: Duration = Duration::from_secs(30);

/// How many roots are remembered that nobody has open.
const REMEMBERED: usize = 1_024;

/// How much a root may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Bytes in all of its files, by their length.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: 256 * 1024 * 1024, files: 20_000 }
    }
}

/// The roots of all sessions.
#[derive(Debug, Clone)]
pub struct Workspaces {
    /// The data folder, which no root may hold.
    data: PathBuf,
    place: Place,
    /// The configuration, which no root may hold.
    configuration: Option<PathBuf>,
    /// The roots of sessions that an operator chose one for.
    bound: Arc<RwLock<HashMap<String, PathBuf>>>,
    quota: Quota,
    known: Arc<Mutex<HashMap<PathBuf, Arc<Known>>>>,
}

/// Where roots are.
#[derive(Debug, Clone)]
enum Place {
    /// A folder for each session in this one.
    Each(PathBuf),
    /// One root for all.
    One(PathBuf),
}

/// What is remembered of a root.
#[derive(Debug, Default)]
struct Known {
    /// Whoever writes has it.
    line: Arc<AsyncMutex<Option<Measured>>>,
    /// How often somebody said that the root changed.
    changes: AtomicU64,
}

/// What a walk found, and when.
#[derive(Debug, Clone, Copy)]
struct Measured {
    usage: Usage,
    at: Instant,
    changes: u64,
}

impl Workspaces {
    /// Workspaces beneath `data`, or all in `root` if there is one. A root that reaches into the data folder is
    /// refused: an agent could read and rewrite the gate's own record there.
    pub fn new(data: &Path, root: Option<&Path>, quota: Quota) -> Result<Self, WorkspaceError> {
        let place = match root {
            Some(root) => Place::One(place::chosen(data, root)?),
            None => Place::Each(place::beside(data)?),
        };
        let (bound, known) = (Arc::default(), Arc::default());
        Ok(Self { data: data.to_owned(), configuration: None, place, bound, quota, known })
    }

    /// Keeps the file with the gate's configuration out of every root that somebody chooses: it is read again when it
    /// changes.
    pub fn keeping(mut self, configuration: Option<&Path>) -> Result<Self, WorkspaceError> {
        self.configuration = configuration
            .map(|file| std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()));
        if let Place::One(root) = &self.place {
            self.check(root)?;
        }
        Ok(self)
    }

    fn check(&self, root: &Path) -> Result<(), WorkspaceError> {
        match &self.configuration {
            Some(file) if file.starts_with(root) => Err(WorkspaceError::HoldsConfiguration {
                root: root.to_owned(),
                file: file.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// From now on a folder is the root of this session, if it may be one; without a folder, the usual one is again.
    pub fn bind(&self, session: &str, root: Option<&Path>) -> Result<(), WorkspaceError> {
        let root = root.map(|root| place::chosen(&self.data, root)).transpose()?;
        root.as_deref().map_or(Ok(()), |root| self.check(root))?;
        let mut bound = self.bound.write().unwrap_or_else(PoisonError::into_inner);
        match root {
            Some(root) => bound.insert(session.to_owned(), root),
            None => bound.remove(session),
        };
        Ok(())
    }

    /// Where the root of a session is, and whether it is made where it is missing.
    fn path(&self, session: &str) -> (PathBuf, bool) {
        let bound = self.bound.read().unwrap_or_else(PoisonError::into_inner);
        match (bound.get(session), &self.place) {
            (Some(root), _) => (root.clone(), false),
            (None, Place::Each(folder)) => (folder.join(folder_name(session)), true),
            (None, Place::One(root)) => (root.clone(), false),
        }
    }

    /// Opens the root of a session, and makes it where it is missing.
    pub async fn open(&self, session: &str) -> Result<Root, WorkspaceError> {
        let (path, make) = self.path(session);
        let known = self.known(&path);
        let quota = self.quota;
        let opened = tokio::task::spawn_blocking(move || {
            let fd = place::open(&path, make)?;
            Ok(Root { inner: Arc::new(Inner { path, fd, known, quota }) })
        });
        opened.await.map_err(|error| WorkspaceError::Stopped(error.to_string()))?
    }

    /// Says that something else, such as a command, wrote in this root: it is measured again before the next write.
    pub fn invalidate(&self, root: &Path) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(root) {
            known.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn known(&self, path: &Path) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            // What nobody has open is measured again when it is opened again.
            known.retain(|_, root| Arc::strong_count(root) > 1);
        }
        Arc::clone(known.entry(path.to_owned()).or_default())
    }
}

/// The root of a session, opened. Everything that the file tools touch is beneath it.
#[derive(Debug, Clone)]
pub struct Root {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    fd: OwnedFd,
    known: Arc<Known>,
    quota: Quota,
}

impl Root {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// How much it may hold.
    pub fn quota(&self) -> Quota {
        self.inner.quota
    }

    /// Waits until nobody else writes here.
    pub(crate) async fn turn(&self) -> Turn {
        let measured = Arc::clone(&self.inner.known.line).lock_owned().await;
        Turn { root: self.clone(), measured }
    }

    /// How much is in it, measured now.
    pub async fn usage(&self) -> io::Result<Usage> {
        let mut turn = self.turn().await;
        let measured = tokio::task::spawn_blocking(move || turn.measure());
        measured.await.map_err(io::Error::other)?
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

/// The right to write in a root. It goes along into the thread that writes, so that a caller who gives up does
/// not let the next one in while a write is still under way.
pub(crate) struct Turn {
    root: Root,
    measured: OwnedMutexGuard<Option<Measured>>,
}

impl Turn {
    /// The root.
    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// How much is in the root. Blocks.
    pub(crate) fn usage(&mut self) -> io::Result<Usage> {
        let changes = self.root.inner.known.changes.load(Ordering::SeqCst);
        match *self.measured {
            Some(known) if known.changes == changes && known.at.elapsed() < BELIEVED => {
                Ok(known.usage)
            }
            _ => self.measure(),
        }
    }

    /// Walks over the root. Blocks.
    fn measure(&mut self) -> io::Result<Usage> {
        // Read before the walk: what changes during it is measured again.
        let changes = self.root.inner.known.changes.load(Ordering::SeqCst);
        let most = self.root.inner.quota.files;
        let usage = usage::measure(self.root.as_fd(), most)?;
        *self.measured = Some(Measured { usage, at: Instant::now(), changes });
        Ok(usage)
    }

    /// Says what a write changed.
    pub(crate) fn changed(&mut self, to: Usage) {
        if let Some(measured) = self.measured.as_mut() {
            measured.usage = to;
        }
    }

    /// Says that nobody knows what a write changed.
    pub(crate) fn forget(&mut self) {
        *self.measured = None;
    }
}

#[cfg(test)]
#[path = "workspace_tests.rs"]
mod tests;
