//! Opening beneath a root, and nowhere else.
//!
//! The kernel resolves the whole path with the root as the end of the world: `..`, links and races included.
//! Where it cannot do that (before Linux 5.6), nothing is opened: there is no other way that is as safe.

use std::{
    ffi::CStr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, fstat, openat2},
    io::Errno,
};
use tollgate_contract::text::hex;

use super::{FsProblem, LONGEST_PATH};

/// How often a path is tried that is changed while the kernel walks along it.
const TRIES: usize = 1_000;

/// How the names of files begin that are being written.
const STAGED: &str = ".tollgate-write-";

/// A path as it was given, fit to be handed to the kernel.
pub(crate) fn checked(path: &str) -> Result<&str, FsProblem> {
    if path.is_empty() {
        Err(FsProblem::Empty)
    } else if path.len() > LONGEST_PATH {
        Err(FsProblem::TooLong)
    } else if path.contains('\0') {
        Err(FsProblem::Nul)
    } else if path.starts_with('/') {
        Err(FsProblem::Absolute)
    } else {
        Ok(path)
    }
}

/// Opens `path` beneath `root`. Nothing is waited for, whatever it is.
pub(crate) fn open(root: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        match openat2(&root, path, flags, Mode::empty(), resolve) {
            // Something was renamed just then, and the kernel cannot tell whether `..` still is inside.
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

/// Opens a regular file to be read.
pub(crate) fn open_file(root: impl AsFd, path: &str) -> Result<(OwnedFd, Stat), FsProblem> {
    let said = |errno| FsProblem::of(errno, path);
    let file = open(root, checked(path)?, OFlags::RDONLY).map_err(said)?;
    let stat = fstat(&file).map_err(said)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file, stat)),
        FileType::Directory => Err(FsProblem::Folder),
        _ => Err(FsProblem::Special),
    }
}

/// Calls `each` for every name in a folder, in no order, until it says that it has seen enough.
pub(crate) fn entries(
    folder: impl AsFd,
    mut each: impl FnMut(&CStr, FileType) -> bool,
) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut names = RawDir::new(folder.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && !each(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}

/// Is this the name of a file that is being written, or was when its writer ended?
pub(crate) fn is_staged(name: &[u8]) -> bool {
    name.strip_prefix(STAGED.as_bytes())
        .is_some_and(|rest| rest.len() == 32 && rest.iter().all(u8::is_ascii_hexdigit))
}

/// A new name for a file that is being written.
pub(crate) fn staged_name() -> Result<String, FsProblem> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| FsProblem::Io(error.to_string()))?;
    Ok(format!("{STAGED}{}", hex(&random)))
}
