//! How much is in a root: a walk that follows no link and ends when there is more than allowed.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, chmod, flock, openat,
        openat2, statat, unlinkat,
    },
    io::Errno,
};

use crate::fs::beneath::{entries, is_staged};

/// How much is in a root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in all files, by their length. A file with two names counts twice.
    pub bytes: u64,
    /// Files, folders and whatever else has a name.
    pub files: u64,
}

/// Counts what is beneath `root`. It stops once there are more than `most` files: no more needs to be known. A
/// folder that is closed to its owner is opened up for that; one that cannot be is an error, since anything might be
/// in it. On its way it removes what a writer left who was ended in the middle.
pub(super) fn measure(root: BorrowedFd<'_>, most: u64) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut ahead = vec![c".".to_owned()];
    while let Some(path) = ahead.pop() {
        let opened = match open(root, &path, OFlags::RDONLY) {
            Err(Errno::ACCESS) => open_up(root, &path),
            other => other,
        };
        let folder = match opened {
            Ok(folder) => folder,
            // It was moved or replaced in the meantime.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => return Err(error.into()),
        };
        count(&folder, &path, most, &mut usage, &mut ahead)?;
        if usage.files > most {
            break;
        }
    }
    Ok(usage)
}

fn count(
    folder: &OwnedFd,
    path: &CStr,
    most: u64,
    usage: &mut Usage,
    ahead: &mut Vec<CString>,
) -> io::Result<()> {
    entries(folder, |name, kind| {
        if is_staged(name.to_bytes()) && swept(folder, name) {
            return usage.files <= most;
        }
        usage.files += 1;
        let stat = match kind {
            FileType::Directory => None,
            _ => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok(),
        };
        let kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        match (kind, stat) {
            (FileType::RegularFile, Some(stat)) => {
                let length = u64::try_from(stat.st_size).unwrap_or(0);
                usage.bytes = usage.bytes.saturating_add(length);
            }
            (FileType::Directory, _) => ahead.extend(joined(path, name)),
            _ => {}
        }
        usage.files <= most
    })?;
    Ok(())
}

fn joined(path: &CStr, name: &CStr) -> Option<CString> {
    CString::new([path.to_bytes(), b"/", name.to_bytes()].concat()).ok()
}

/// Opens a folder that was closed to its owner.
fn open_up(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let found = open(root, path, OFlags::PATH)?;
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
    open(root, path, OFlags::RDONLY)
}

fn open(root: BorrowedFd<'_>, path: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Removes a staged file that no writer holds any more. A writer holds its lock as long as it lives.
fn swept(folder: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(folder, name, flags, Mode::empty()) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && unlinkat(folder, name, AtFlags::empty()).is_ok()
}
