//! What can go wrong with a file, in words that say what to do next.

use rustix::io::Errno;
use tollgate_contract::{
    Error, Quoted, ToolName,
    error::{Conflict, Internal, InvalidInput, NotFound, SandboxUnavailable, ToolFailed},
    schema::InputProblem,
};

use super::LONGEST_PATH;

/// Why a file tool gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsProblem {
    /// It is empty.
    #[error("is empty; name a file or a folder, `.` for the workspace itself")]
    Empty,
    /// Nobody needs such a path.
    #[error(
        "is longer than {LONGEST_PATH} bytes, or a name in it longer than 255; use a shorter one"
    )]
    TooLong,
    /// One write does not make so many folders.
    #[error("needs more than 100 new folders; use a path with fewer")]
    TooDeep,
    /// No file name holds that byte.
    #[error("holds a NUL, which no file name can; leave it out")]
    Nul,
    /// Paths start at the workspace.
    #[error("begins with `/`; paths are relative to the workspace, such as `notes/today.txt`")]
    Absolute,
    /// The kernel stopped it at the root.
    #[error("leads out of the workspace; only what is inside can be used")]
    LeadsOut,
    /// Links that lead to links, or one that only the kernel makes.
    #[error(
        "goes through too many links, or through a link that is not an ordinary one; name the file itself"
    )]
    Links,
    /// A file, where a folder should be.
    #[error(
        "goes through something that is not a folder, or names a file where a folder is wanted"
    )]
    NotFolder,
    /// A folder, where a file should be.
    #[error("names a folder; name a file in it, or use `fs.list_dir`")]
    Folder,
    /// A pipe, a socket or a device.
    #[error("names a pipe, a socket or a device; only regular files can be used")]
    Special,
    /// A link, where a file would be replaced.
    #[error("names a link, and writing does not follow one; write to the file that it leads to")]
    Link,
    /// Names that writing itself uses for a moment.
    #[error("has a name that is used for files being written; choose another")]
    Reserved,
    /// It is not there.
    #[error("there is no file or folder {0}")]
    Missing(Quoted),
    /// It is there.
    #[error("there is a file {0} already; pass overwrite=true to replace it")]
    Exists(Quoted),
    /// The operating system's own permissions.
    #[error("the gate may not use {0}; have its owner or its mode changed")]
    Denied(Quoted),
    /// No room by the quota.
    #[error(
        "there is no room in the workspace: {what}; shorten or empty files there, or have the quota raised"
    )]
    Quota {
        /// What there would be too much of.
        what: String,
    },
    /// No room at all.
    #[error("the disk is full, and nothing was written; free some space and try again")]
    DiskFull,
    /// The path changed all the time while it was opened.
    #[error("the path was changed while it was used; try again")]
    Changing,
    /// The kernel cannot open beneath a folder.
    #[error("this kernel cannot open files beneath a folder (openat2); Linux 5.6 or later can")]
    Unsupported,
    /// The root cannot be measured.
    #[error(
        "it cannot be told how much is in the workspace ({0}); remove folders that are nested very deep"
    )]
    Unmeasured(String),
    /// Something else.
    #[error("the file system failed ({0}); try again, or have the disk checked")]
    Io(String),
    /// The thread ended.
    #[error("the work was stopped ({0})")]
    Stopped(String),
}

impl FsProblem {
    /// What the kernel said about `path`.
    pub(crate) fn of(errno: Errno, path: &str) -> Self {
        match errno {
            Errno::XDEV => Self::LeadsOut,
            Errno::NOENT => Self::Missing(Quoted::new(path)),
            Errno::EXIST => Self::Exists(Quoted::new(path)),
            Errno::NOTDIR => Self::NotFolder,
            Errno::ISDIR => Self::Folder,
            Errno::LOOP => Self::Links,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied(Quoted::new(path)),
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => Self::Special,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::DiskFull,
            Errno::AGAIN => Self::Changing,
            Errno::NOSYS => Self::Unsupported,
            other => Self::Io(other.to_string()),
        }
    }

    /// The problem as an error of `tool`.
    pub(crate) fn error(self, tool: &str) -> Error {
        let tool = match ToolName::parse(tool) {
            Ok(tool) => tool,
            Err(error) => return Internal::new(error.to_string()).into(),
        };
        let message = self.to_string();
        match self {
            Self::Missing(path) => NotFound::new("file or folder", path).into(),
            Self::Exists(_) => Conflict::new(message).into(),
            Self::Unsupported => SandboxUnavailable::new(tool, message).into(),
            Self::Denied(_)
            | Self::Quota { .. }
            | Self::DiskFull
            | Self::Changing
            | Self::Unmeasured(_)
            | Self::Io(_)
            | Self::Stopped(_) => ToolFailed::new(tool, message).into(),
            Self::Empty
            | Self::TooLong
            | Self::TooDeep
            | Self::Nul
            | Self::Absolute
            | Self::LeadsOut
            | Self::Links
            | Self::NotFolder
            | Self::Folder
            | Self::Special
            | Self::Link
            | Self::Reserved => {
                let problem = InputProblem { pointer: "/path".to_owned(), message };
                InvalidInput::new(tool, vec![problem]).into()
            }
        }
    }
}
