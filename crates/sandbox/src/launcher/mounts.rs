//! The file system that a confined process sees: a small read-only one that is made for it, with the granted
//! paths and the workspace mounted in, and nothing else.
//!
//! Why this, when Landlock already refuses to open what is not granted: Landlock does not stop looking at
//! the metadata of a file, nor changing its mode, times or attributes.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
        mount_change, move_mount, open_tree, unmount,
    },
};

use super::{SANDBOX_UID, init::Problem};
use crate::{
    grant::Grant,
    sys::{self, Forked, MountAttributes},
};

/// Where the root is inside.
pub(super) const INSIDE: &str = "/workspace";

/// The user and group that a confined process is for itself.
pub(super) const INSIDE_ID: u32 = 1000;

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;

/// The devices that are harmless.
pub(super) const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// What dynamic programs look up.
pub(super) const ETC: [&str; 3] = ["/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives"];

/// A mount that is attached to nothing yet, and where it will be.
struct Tree {
    mount: OwnedFd,
    at: PathBuf,
    folder: bool,
}

/// Every mount of one run, and the links besides.
pub(super) struct Trees {
    mounts: Vec<Tree>,
    links: Vec<(PathBuf, PathBuf)>,
    /// The kernel-side ids of the confined process.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Does the mount of the root translate owners?
    pub(super) idmapped: bool,
}

impl Trees {
    /// Opens what the grant names. `privileged` is for root in the first user namespace: it can read what the
    /// confined process could not reach by its path, and can translate owners.
    /// `roots` is the translation for owners that are root.
    pub(super) fn open(
        grant: &Grant,
        privileged: bool,
        roots: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Problem> {
        let mut trees = Self {
            mounts: Vec::new(),
            links: Vec::new(),
            uid: SANDBOX_UID,
            gid: SANDBOX_UID,
            idmapped: false,
        };
        trees.open_root(grant, privileged, roots)?;
        let extra = ETC.iter().map(PathBuf::from);
        let mut paths: Vec<PathBuf> = grant.read_only.iter().cloned().chain(extra).collect();
        paths.sort();
        paths.dedup();
        let mut covered: Vec<PathBuf> = Vec::new();
        for path in paths {
            if covered.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            trees.open_readable(&path, &mut covered)?;
        }
        for device in DEVICES {
            let mount = clone_tree(Path::new(device), false)?;
            let flags = READ_ONLY | libc::MOUNT_ATTR_NOEXEC;
            set(mount.as_fd(), &MountAttributes { flags, ..MountAttributes::default() }, device)?;
            trees.mounts.push(Tree { mount, at: PathBuf::from(device), folder: false });
        }
        Ok(trees)
    }

    fn open_root(
        &mut self,
        grant: &Grant,
        privileged: bool,
        roots: Option<BorrowedFd<'_>>,
    ) -> Result<(), Problem> {
        let shown = grant.root.display().to_string();
        let owner = fs::metadata(&grant.root).map_err(|e| Problem::new("root", &shown, e))?;
        if !owner.is_dir() {
            return Err(Problem::new("root", &shown, io::ErrorKind::NotADirectory.into()));
        }
        // As somebody else than root a mount below another may be locked to it, and both come along.
        let mount = clone_tree(&grant.root, !privileged)?;
        let mut flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
        if !grant.writable {
            flags |= libc::MOUNT_ATTR_RDONLY;
        }
        let recursive = !privileged;
        if privileged {
            let made;
            let users = match roots {
                Some(users) if (owner.uid(), owner.gid()) == (0, 0) => users,
                _ => {
                    made = translation(owner.uid(), owner.gid())?;
                    made.as_fd()
                }
            };
            let attributes = MountAttributes { flags, idmap: Some(users), recursive };
            self.idmapped = sys::set_mount(mount.as_fd(), &attributes).is_ok();
        }
        if !self.idmapped {
            set(mount.as_fd(), &MountAttributes { flags, idmap: None, recursive }, &shown)?;
            if privileged {
                (self.uid, self.gid) = owner_that_is_not_root(&owner, &shown)?;
            }
        }
        self.mounts.push(Tree { mount, at: PathBuf::from(INSIDE), folder: true });
        Ok(())
    }

    /// Opens one path to read. A link stays a link, and what it leads to is the grant's business.
    fn open_readable(&mut self, path: &Path, covered: &mut Vec<PathBuf>) -> Result<(), Problem> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if found.is_symlink() {
            let to = fs::read_link(path)
                .map_err(|e| Problem::new("read link", &path.display().to_string(), e))?;
            // A file's target may be anywhere; a folder's is granted by itself.
            if !fs::metadata(path).is_ok_and(|target| target.is_file()) {
                self.links.push((path.to_owned(), to));
                return Ok(());
            }
        }
        let folder = found.is_dir();
        let mount = clone_tree(path, folder)?;
        let flags = READ_ONLY | libc::MOUNT_ATTR_NODEV;
        let attributes = MountAttributes { flags, idmap: None, recursive: folder };
        set(mount.as_fd(), &attributes, &path.display().to_string())?;
        if folder {
            covered.push(path.to_owned());
        }
        self.mounts.push(Tree { mount, at: path.to_owned(), folder });
        Ok(())
    }

    /// Makes these mounts the whole file system of this process, which has a mount namespace of its own.
    pub(super) fn enter(self) -> Result<(), Problem> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(|e| Problem::new("mounts", "private", e.into()))?;
        let base =
            ["/tmp", "/run", "/mnt", "/usr"].into_iter().find(|path| Path::new(path).is_dir());
        let base = base.ok_or_else(|| {
            Problem::new("mounts", "no folder to mount on", io::ErrorKind::NotFound.into())
        })?;
        let step =
            |what: &'static str| move |e: rustix::io::Errno| Problem::new("mounts", what, e.into());
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", base, "tmpfs", flags, c"mode=755,size=1m,nr_inodes=1024")
            .map_err(step("tmpfs"))?;
        rustix::process::chdir(base).map_err(step("chdir"))?;
        for Tree { mount, at, folder } in self.mounts {
            let shown = at.display().to_string();
            let relative = beneath(&at);
            make_point(relative, folder).map_err(|e| Problem::new("mount point", &shown, e))?;
            move_mount(&mount, "", CWD, relative, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .map_err(|e| Problem::new("mount", &shown, e.into()))?;
        }
        for (at, to) in self.links {
            let relative = beneath(&at);
            let made = parent_of(relative).and_then(|()| symlink(to, relative));
            made.map_err(|e| Problem::new("link", &at.display().to_string(), e))?;
        }
        write_accounts().map_err(|e| Problem::new("accounts", "/etc", e))?;
        rustix::process::pivot_root(".", ".").map_err(step("pivot_root"))?;
        unmount(".", UnmountFlags::DETACH).map_err(step("old root"))?;
        rustix::process::chdir("/").map_err(step("chdir"))?;
        let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC).map_err(step("root"))?;
        // Nothing may be written to memory by writing files.
        set(root.as_fd(), &MountAttributes { flags: READ_ONLY, ..MountAttributes::default() }, "/")
    }
}

/// The owner of the root, where the file system cannot translate owners.
pub(super) fn owner_that_is_not_root(
    owner: &fs::Metadata,
    shown: &str,
) -> Result<(u32, u32), Problem> {
    if owner.uid() == 0 {
        let hint = format!(
            "it belongs to root, and nothing confined runs as root; `chown {SANDBOX_UID} {shown}` helps"
        );
        return Err(Problem { stage: "root".to_owned(), problem: format!("{shown}: {hint}") });
    }
    let gid = if owner.gid() == 0 { SANDBOX_UID } else { owner.gid() };
    Ok((owner.uid(), gid))
}

/// The translation that is wanted most, made ahead: it costs a process.
pub(super) fn of_root() -> Option<OwnedFd> {
    rustix::process::geteuid().is_root().then(|| translation(0, 0).ok()).flatten()
}

/// A user namespace in which the owner on disk is the confined user, for a mount to translate by.
fn translation(uid: u32, gid: u32) -> Result<OwnedFd, Problem> {
    let step = |what: &'static str| move |e: io::Error| Problem::new("translate owners", what, e);
    let (held, release) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| step("pipe")(e.into()))?;
    match sys::fork(libc::CLONE_NEWUSER).map_err(step("fork"))? {
        Forked::Child => {
            drop(release);
            let _ = rustix::io::read(&held, &mut [0; 1]);
            std::process::exit(0);
        }
        Forked::Parent(pid) => {
            let process = format!("/proc/{}", pid.as_raw_nonzero());
            let opened = fs::write(format!("{process}/uid_map"), format!("{uid} {SANDBOX_UID} 1"))
                .and_then(|()| {
                    fs::write(format!("{process}/gid_map"), format!("{gid} {SANDBOX_UID} 1"))
                })
                .and_then(|()| fs::File::open(format!("{process}/ns/user")));
            drop(release);
            let _ = sys::wait_for(pid, true);
            opened.map(OwnedFd::from).map_err(step("map"))
        }
    }
}

fn clone_tree(path: &Path, recursive: bool) -> Result<OwnedFd, Problem> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags)
        .map_err(|e| Problem::new("open", &path.display().to_string(), e.into()))
}

fn set(
    mount: BorrowedFd<'_>,
    attributes: &MountAttributes<'_>,
    shown: &str,
) -> Result<(), Problem> {
    sys::set_mount(mount, attributes).map_err(|e| Problem::new("mount attributes", shown, e))
}

fn beneath(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn parent_of(relative: &Path) -> io::Result<()> {
    relative.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Makes the place that a mount covers. A folder that is there already was made for another mount.
fn make_point(relative: &Path, folder: bool) -> io::Result<()> {
    if folder {
        return fs::create_dir_all(relative);
    }
    parent_of(relative)?;
    fs::File::create(relative).map(drop)
}

/// The two accounts that exist inside.
fn write_accounts() -> io::Result<()> {
    let id = INSIDE_ID;
    fs::create_dir_all("etc")?;
    fs::write(
        "etc/passwd",
        format!(
            "sandbox:x:{id}:{id}::{INSIDE}:/nonexistent\nnobody:x:65534:65534::/nonexistent:/nonexistent\n"
        ),
    )?;
    fs::write("etc/group", format!("sandbox:x:{id}:\nnogroup:x:65534:\n"))
}
