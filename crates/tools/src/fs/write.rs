//! The work of `fs.write_text`.
//!
//! The text goes into a file without a name, which gets its name when it is complete and on disk: whoever looks
//! sees the old file or the new one. The kernel gives a name to a nameless file only where there is none, so a
//! file to be replaced gets a new one beside it first, under a name that no listing shows; should the process be
//! ended at that very moment, the next write in the workspace removes what is left.

use std::{
    fs::File,
    io::Write as _,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, flock,
        fsync, linkat, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use tollgate_contract::Quoted;

use super::{FsProblem, WriteOutcome, WriteTextInput, Written, beneath};
use crate::workspace::{Turn, Usage};

/// The mode of a new file, and of a new folder, before the process's mask.
const FILE: Mode = Mode::from_raw_mode(0o644);
const FOLDER: Mode = Mode::from_raw_mode(0o755);

/// How many folders one write makes. Each is brought to disk by itself, which takes its time.
const MOST_FOLDERS: u64 = 100;

pub(super) fn write(mut turn: Turn, input: WriteTextInput) -> Result<Written, FsProblem> {
    let target = Target::read(&input.path)?;
    let usage = turn.usage().map_err(|error| FsProblem::Unmeasured(error.to_string()))?;
    let result = written(&turn, &target, usage, &input);
    match &result {
        Ok((_, usage)) => turn.changed(*usage),
        // A file that is there is in a folder that is there: nothing was made.
        Err(FsProblem::Exists(_)) => {}
        Err(_) => turn.forget(),
    }
    let (outcome, _) = result?;
    Ok(Written { bytes: input.text.len() as u64, path: input.path, outcome })
}

fn written(
    turn: &Turn,
    target: &Target<'_>,
    before: Usage,
    input: &WriteTextInput,
) -> Result<(WriteOutcome, Usage), FsProblem> {
    let root = turn.root();
    let new = input.text.len() as u64;
    let quota = root.quota();
    let fits = |after: Usage| {
        let what = if after.bytes > quota.bytes && after.bytes > before.bytes {
            format!("{} bytes of {} would be used", after.bytes, quota.bytes)
        } else if after.files > quota.files && after.files > before.files {
            format!("more than {} files and folders would be in it", quota.files)
        } else {
            return Ok(after);
        };
        Err(FsProblem::Quota { what })
    };
    // What is sure to be too much is refused before a folder is made for it.
    if new > quota.bytes {
        fits(Usage { bytes: before.bytes.saturating_add(new), ..before })?;
    }
    let room = quota.files.saturating_sub(before.files);
    let (folder, made) = target.folder(root, room)?;
    let old = target.old(&folder)?;
    if old.is_some() && !input.overwrite {
        return Err(FsProblem::Exists(Quoted::new(target.path)));
    }
    let old_bytes = old.as_ref().map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
    let after = fits(Usage {
        bytes: before.bytes.saturating_sub(old_bytes).saturating_add(new),
        files: before.files + made + u64::from(old.is_none()),
    })?;
    let staged = Staged::new(&folder, old.as_ref(), input.text.as_bytes())
        .map_err(|error| error.said(target.path))?;
    let outcome = staged.named(target, input.overwrite, old.is_some())?;
    fsync(&folder).map_err(|errno| FsProblem::of(errno, target.path))?;
    Ok((outcome, after))
}

/// Where to write: the folders on the way, and the name of the file.
struct Target<'a> {
    path: &'a str,
    folders: Vec<&'a str>,
    name: &'a str,
}

impl<'a> Target<'a> {
    fn read(path: &'a str) -> Result<Self, FsProblem> {
        let checked = beneath::checked(path)?;
        if checked.ends_with('/') {
            return Err(FsProblem::Folder);
        }
        let mut folders: Vec<&str> =
            checked.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let name = folders.pop().filter(|name| *name != "..").ok_or(FsProblem::Folder)?;
        if checked.ends_with("/.") {
            return Err(FsProblem::Folder);
        }
        if beneath::is_staged(name.as_bytes()) {
            return Err(FsProblem::Reserved);
        }
        Ok(Self { path, folders, name })
    }

    /// Opens the folder of the file, and makes what is missing on the way: at most `room` folders. Each one is
    /// opened beneath the root from its beginning, so that no step can lead out.
    fn folder(&self, root: impl AsFd, room: u64) -> Result<(OwnedFd, u64), FsProblem> {
        let said = |errno| FsProblem::of(errno, self.path);
        // A folder that is there needs no steps.
        let whole = if self.folders.is_empty() { ".".to_owned() } else { self.folders.join("/") };
        match open_folder(&root, &whole) {
            Err(Errno::NOENT) => {}
            opened => return Ok((opened.map_err(said)?, 0)),
        }
        let mut made = 0;
        let mut folder = open_folder(&root, ".").map_err(said)?;
        let mut way = String::new();
        for name in &self.folders {
            way = if way.is_empty() { (*name).to_owned() } else { format!("{way}/{name}") };
            folder = match open_folder(&root, &way) {
                Err(Errno::NOENT) => {
                    if made >= MOST_FOLDERS {
                        return Err(FsProblem::TooDeep);
                    }
                    if made >= room {
                        let what = "there are too many files and folders in it".to_owned();
                        return Err(FsProblem::Quota { what });
                    }
                    match mkdirat(&folder, *name, FOLDER) {
                        Ok(()) => made += 1,
                        // Somebody else made it, or it is a link that leads nowhere.
                        Err(Errno::EXIST) => {}
                        Err(errno) => return Err(said(errno)),
                    }
                    fsync(&folder).map_err(said)?;
                    open_folder(&root, &way).map_err(said)?
                }
                opened => opened.map_err(said)?,
            };
        }
        Ok((folder, made))
    }

    /// The file that is there now, if it is one that can be replaced.
    fn old(&self, folder: &OwnedFd) -> Result<Option<Stat>, FsProblem> {
        let stat = match statat(folder, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(|errno| FsProblem::of(errno, self.path))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(stat)),
            FileType::Directory => Err(FsProblem::Folder),
            FileType::Symlink => Err(FsProblem::Link),
            _ => Err(FsProblem::Special),
        }
    }
}

fn open_folder(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    beneath::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// What kept a file from being written.
enum Unwritten {
    Errno(Errno),
    Io(std::io::Error),
    Problem(FsProblem),
}

impl Unwritten {
    fn said(self, path: &str) -> FsProblem {
        match self {
            Self::Errno(errno) => FsProblem::of(errno, path),
            Self::Io(error) => match Errno::from_io_error(&error) {
                Some(errno) => FsProblem::of(errno, path),
                None => FsProblem::Io(error.to_string()),
            },
            Self::Problem(problem) => problem,
        }
    }
}

/// A file that is complete and on disk, and does not have its name yet. Without one the kernel removes it.
struct Staged<'a> {
    folder: &'a OwnedFd,
    file: File,
    /// The name that it has for the moment, if it has one.
    name: Option<String>,
}

impl<'a> Staged<'a> {
    fn new(folder: &'a OwnedFd, old: Option<&Stat>, text: &[u8]) -> Result<Self, Unwritten> {
        let staged = match Self::nameless(folder) {
            // Some file systems have no nameless files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::with_name(folder)?,
            staged => staged.map_err(Unwritten::Errno)?,
        };
        staged.filled(old, text)
    }

    fn filled(mut self, old: Option<&Stat>, text: &[u8]) -> Result<Self, Unwritten> {
        // Held until the file has its name: what is staged and not locked has lost its writer.
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).map_err(Unwritten::Errno)?;
        self.file.write_all(text).map_err(Unwritten::Io)?;
        if let Some(old) = old {
            let mode = Mode::from_raw_mode(old.st_mode) & Mode::from_raw_mode(0o777);
            fchmod(&self.file, mode).map_err(Unwritten::Errno)?;
        }
        self.file.sync_all().map_err(Unwritten::Io)?;
        Ok(self)
    }

    fn nameless(folder: &'a OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::TMPFILE;
        let file = openat(folder, ".", flags, FILE)?;
        Ok(Self { folder, file: File::from(file), name: None })
    }

    fn with_name(folder: &'a OwnedFd) -> Result<Self, Unwritten> {
        let name = beneath::staged_name().map_err(Unwritten::Problem)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = openat(folder, &name, flags, FILE).map_err(Unwritten::Errno)?;
        Ok(Self { folder, file: File::from(file), name: Some(name) })
    }

    /// Gives the file its name. `was_there` is only what was seen: what is there now decides.
    fn named(
        mut self,
        target: &Target<'_>,
        overwrite: bool,
        was_there: bool,
    ) -> Result<WriteOutcome, FsProblem> {
        let said = |errno| FsProblem::of(errno, target.path);
        if !was_there {
            match self.only_if_free(target.name) {
                Err(Errno::EXIST) if overwrite => {}
                done => return done.map(|()| WriteOutcome::Created).map_err(said),
            }
        }
        let name = match self.name.take() {
            Some(name) => name,
            None => {
                let name = beneath::staged_name()?;
                self.link(&name).map_err(said)?;
                name
            }
        };
        let renamed = renameat(self.folder, &name, self.folder, target.name);
        if renamed.is_err() {
            self.name = Some(name);
        }
        renamed.map(|()| WriteOutcome::Replaced).map_err(said)
    }

    /// Takes the name, unless somebody has it: of two who try, one succeeds.
    fn only_if_free(&mut self, name: &str) -> Result<(), Errno> {
        match &self.name {
            None => self.link(name),
            Some(staged) => {
                let only = RenameFlags::NOREPLACE;
                renameat_with(self.folder, staged, self.folder, name, only)?;
                self.name = None;
                Ok(())
            }
        }
    }

    fn link(&self, name: &str) -> Result<(), Errno> {
        // Linking by descriptor takes a capability on some kernels; by the process's own list of files it never does.
        match linkat(&self.file, "", self.folder, name, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own, self.folder, name, AtFlags::SYMLINK_FOLLOW)
            }
            linked => linked,
        }
    }
}

impl Drop for Staged<'_> {
    /// A file that did not get its name leaves nothing behind.
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            _ = unlinkat(self.folder, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
