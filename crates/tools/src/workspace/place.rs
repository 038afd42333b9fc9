//! Which folders may be roots, and how they are opened.

use std::{
    fs::{self, DirBuilder},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Where the sessions' folders are, in the data folder.
const WORKSPACE: &str = "workspace";

/// Why there is no workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The folder cannot be used.
    #[error("the folder {} cannot be used as a workspace ({problem}); check that it exists and who owns it", .path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        problem: io::Error,
    },
    /// All files of the machine would be the agent's.
    #[error("the root of the file system cannot be a workspace; name a folder in it")]
    Everything,
    /// The gate's own record would be the agent's.
    #[error("the workspace {} holds the data folder {}, where the gate keeps its record and its keys; name another folder", .root.display(), .data.display())]
    HoldsData {
        /// The folder that was named.
        root: PathBuf,
        /// The data folder.
        data: PathBuf,
    },
    /// So would a part of it.
    #[error("the workspace {} is inside the data folder {}; name a folder outside of it, or leave the choice to the gate", .root.display(), .data.display())]
    InsideData {
        /// The folder that was named.
        root: PathBuf,
        /// The data folder.
        data: PathBuf,
    },
    /// The gate's own configuration would be the agent's.
    #[error("the workspace {} holds the configuration {}, which an agent could rewrite; keep it elsewhere, or name another folder", .root.display(), .file.display())]
    HoldsConfiguration {
        /// The folder that was named.
        root: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// The thread that opens it ended.
    #[error("the workspace could not be opened ({0}); try again")]
    Stopped(String),
}

/// The root that an operator chose, if it may be one. Links are resolved first.
pub(super) fn chosen(data: &Path, root: &Path) -> Result<PathBuf, WorkspaceError> {
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| unusable(path, error));
    make(data)?;
    let (data, root) = (real(data)?, real(root)?);
    if root.parent().is_none() {
        return Err(WorkspaceError::Everything);
    }
    if data.starts_with(&root) {
        return Err(WorkspaceError::HoldsData { root, data });
    }
    // In one of the sessions' folders, perhaps; in the folder that holds all of them, no.
    let all = data.join(WORKSPACE);
    if root.starts_with(&data) && (!root.starts_with(&all) || root == all) {
        return Err(WorkspaceError::InsideData { root, data });
    }
    open(&root, false)?;
    Ok(root)
}

/// The folder for the sessions' folders.
pub(super) fn beside(data: &Path) -> Result<PathBuf, WorkspaceError> {
    make(data)?;
    let data = fs::canonicalize(data).map_err(|error| unusable(data, error))?;
    let folder = data.join(WORKSPACE);
    open(&folder, true)?;
    Ok(folder)
}

/// Opens a root. What stands in its place and is a link is not followed.
pub(super) fn open(path: &Path, or_make: bool) -> Result<OwnedFd, WorkspaceError> {
    if or_make {
        make(path)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|error| unusable(path, error.into()))
}

/// Makes a folder for its owner alone, and those above it.
fn make(path: &Path) -> Result<(), WorkspaceError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, problem: io::Error) -> WorkspaceError {
    WorkspaceError::Unusable { path: path.to_owned(), problem }
}
