//! What the kernel does not bound for a whole tree, watched every few milliseconds: the size of the root, the
//! number of its files, and memory where there is no control group.
//!
//! Walking a folder is slow and asking for free space is not, so that the root is only walked when the free
//! space fell by a suspicious amount, and once a second in any case. What is written between two looks is
//! the overshoot: the limits of files and processes bound it, and the speed of the disk.

use std::{
    ffi::OsString,
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fstatvfs, open, openat2,
        statat,
    },
    io::Errno,
    process::Pid,
};

use crate::grant::{Ended, Limits};

/// How often is looked.
pub(super) const EVERY: Duration = Duration::from_millis(20);

/// The root is walked at least this often.
const WALK_AT_LEAST: Duration = Duration::from_secs(1);

/// Walking takes at most one part in this many of the time.
const SHARE_OF_TIME: u32 = 8;

/// Folders that are nested deeper take longer to walk than anybody has a use for them.
const DEEPEST: usize = 256;

/// Looks at the root of one run.
pub(super) struct Disk {
    root: OwnedFd,
    limits: Limits,
    /// Free bytes and inodes when the root was walked last, or at the start.
    free: (u64, u64),
    next_walk: Instant,
    not_before: Instant,
}

impl Disk {
    /// Starts to look.
    pub(super) fn new(root: &Path, limits: &Limits) -> Result<Self, Errno> {
        let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let free = free(&root)?;
        let now = Instant::now();
        Ok(Self { root, limits: *limits, free, next_walk: now + WALK_AT_LEAST, not_before: now })
    }

    /// Has the root become too large?
    pub(super) fn look(&mut self, pids: impl FnOnce() -> Vec<Pid>) -> Option<Ended> {
        let now = Instant::now();
        let free = free(&self.root).ok()?;
        let fell = (self.free.0.saturating_sub(free.0), self.free.1.saturating_sub(free.1));
        let suspicious = fell.0 > (self.limits.disk_bytes / 16).min(8 << 20)
            || fell.1 > (self.limits.inodes / 16).min(1000);
        if now < self.not_before || !(suspicious || now >= self.next_walk) {
            return None;
        }
        let found = self.walk(&pids());
        let took = now.elapsed();
        self.free = free;
        self.not_before = Instant::now() + took.saturating_mul(SHARE_OF_TIME);
        self.next_walk = Instant::now() + WALK_AT_LEAST;
        found
    }

    /// Adds up what is in the root. Never follows a link; stops as soon as it is too much.
    fn walk(&self, pids: &[Pid]) -> Option<Ended> {
        let (mut bytes, mut files) = (self.unlinked(pids), 0_u64);
        let mut folders = vec![PathBuf::from(".")];
        while let Some(folder) = folders.pop() {
            if folder.components().count() > DEEPEST {
                return Some(Ended::Inodes);
            }
            let opened = self.open(&folder, OFlags::RDONLY);
            let opened = match opened {
                Err(Errno::ACCESS) => self.open_up(&folder),
                other => other,
            };
            let listing = match opened.and_then(Dir::new) {
                Ok(listing) => listing,
                // Gone or replaced since it was listed.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN) => {
                    continue;
                }
                // Not something that can be measured: what is in it might be anything.
                Err(_) => return Some(Ended::Inodes),
            };
            for entry in listing.flatten() {
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                files += 1;
                let path = folder.join(OsString::from_vec(name.to_bytes().to_vec()));
                if let Ok(found) = statat(&self.root, &path, AtFlags::SYMLINK_NOFOLLOW) {
                    bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
                    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                        folders.push(path);
                    }
                }
                if files > self.limits.inodes {
                    return Some(Ended::Inodes);
                }
                if bytes > self.limits.disk_bytes {
                    return Some(Ended::Disk);
                }
            }
        }
        (bytes > self.limits.disk_bytes).then_some(Ended::Disk)
    }

    fn open(&self, folder: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
        openat2(
            &self.root,
            folder,
            how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Opens a folder that was closed to its owner, so that what is in it can be counted. It stays open to them.
    fn open_up(&self, folder: &Path) -> Result<OwnedFd, Errno> {
        let found = self.open(folder, OFlags::PATH)?;
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        chmod(itself, Mode::RWXU)?;
        self.open(folder, OFlags::RDONLY)
    }

    /// What is open and has no name any more.
    fn unlinked(&self, pids: &[Pid]) -> u64 {
        let mut seen = std::collections::HashSet::new();
        let device = statat(&self.root, c"", AtFlags::EMPTY_PATH).map(|found| found.st_dev).ok();
        let mut bytes = 0;
        for pid in pids {
            let files = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
            for file in files.into_iter().flatten().flatten() {
                if let Ok(found) = statat(CWD, file.path(), AtFlags::empty())
                    && found.st_nlink == 0
                    && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                    && Some(found.st_dev) == device
                    && seen.insert(found.st_ino)
                {
                    bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
                }
            }
        }
        bytes
    }
}

fn free(root: &OwnedFd) -> Result<(u64, u64), Errno> {
    let found = fstatvfs(root)?;
    Ok((found.f_bfree.saturating_mul(found.f_frsize), found.f_ffree))
}
