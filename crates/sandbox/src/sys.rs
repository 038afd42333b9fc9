//! The few system calls that have no safe interface, each behind a function that has one. All of the
//! crate's unsafe code is in this file.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::process::Pid;

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one, and who the new one is.
    Parent(Pid),
}

/// Forks, into new namespaces where `namespaces` (`CLONE_NEW*`) says so.
///
/// Only called by the launcher, which never has a second thread: the child may do whatever it likes.
#[expect(unsafe_code, reason = "no safe interface forks")]
pub(crate) fn fork(namespaces: i32) -> io::Result<Forked> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with no new stack this is fork(2): the child gets a copy of the memory and
    // goes on with the same stack. The process has one thread, so no lock can be held by another one.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(pid.map_or(Forked::Child, Forked::Parent))
}

/// Unblocks every signal and sets every signal to its default.
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
pub(crate) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: the default runs no code of ours; for signals that cannot be set the call fails and
        // changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set lives on this stack, is initialised by `sigemptyset`, and is only read by the second call.
    unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Closes every descriptor but the standard streams and `kept`.
#[expect(unsafe_code, reason = "closing what others may own has no safe interface")]
pub(crate) fn close_all_but(kept: RawFd) -> io::Result<()> {
    for (first, last) in [(3, kept - 1), (kept + 1, RawFd::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: called when a process begins and owns none of these yet, or right before it becomes another program
        // or ends: nothing that owns one of these descriptors is used again, not even to be dropped.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes over a descriptor by its number.
#[expect(unsafe_code, reason = "a number becomes an owned descriptor")]
pub(crate) fn own(number: RawFd) -> OwnedFd {
    // SAFETY: called for numbers that this process has just made or was started with, once for each.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Makes `fd` have the number `number`, closed on exec.
#[expect(unsafe_code, reason = "no safe interface puts a descriptor at a chosen number")]
pub(crate) fn move_to(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    // SAFETY: whatever had the number before is closed by this; the callers give numbers that nothing owns
    // any more.
    let new = unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) };
    if new < 0 { Err(io::Error::last_os_error()) } else { Ok(own(new)) }
}

/// Attributes of a mount to set.
#[derive(Default)]
pub(crate) struct MountAttributes<'a> {
    pub(crate) flags: u64,
    /// The user namespace that translates the owners of files.
    pub(crate) idmap: Option<BorrowedFd<'a>>,
    /// Also for the mounts below.
    pub(crate) recursive: bool,
}

/// Sets attributes of a mount.
#[expect(unsafe_code, reason = "mount_setattr has no safe interface")]
pub(crate) fn set_mount(mount: BorrowedFd<'_>, set: &MountAttributes<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set.flags | set.idmap.map_or(0, |_| libc::MOUNT_ATTR_IDMAP),
        attr_clr: 0,
        propagation: 0,
        userns_fd: set.idmap.map_or(0, |fd| fd.as_raw_fd().unsigned_abs().into()),
    };
    let recursive = if set.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, the structure lives through the call and its size is its own.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How a child ended.
pub(crate) struct Waited {
    /// The status as the kernel words it.
    pub(crate) status: i32,
    /// Processor time of it and of what it waited for.
    pub(crate) cpu: Duration,
    /// The largest of them, in bytes.
    pub(crate) largest: u64,
}

/// Waits for a child, or looks whether it has ended.
#[expect(unsafe_code, reason = "no safe interface tells what a child used")]
pub(crate) fn wait_for(pid: Pid, block: bool) -> io::Result<Option<Waited>> {
    let mut status = 0;
    let options = if block { 0 } else { libc::WNOHANG };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places live through the call; all zeroes is a valid rusage.
    let (done, usage) = unsafe {
        let done =
            libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, options, usage.as_mut_ptr());
        (done, usage.assume_init())
    };
    match done {
        0 => Ok(None),
        done if done < 0 => Err(io::Error::last_os_error()),
        _ => {
            let time = |t: libc::timeval| {
                Duration::new(t.tv_sec.unsigned_abs(), 0)
                    + Duration::from_micros(t.tv_usec.unsigned_abs())
            };
            Ok(Some(Waited {
                status,
                cpu: time(usage.ru_utime) + time(usage.ru_stime),
                largest: usage.ru_maxrss.unsigned_abs() * 1024,
            }))
        }
    }
}

/// Tries a system call with these numbers, for a probe: a refusal is what is hoped for.
#[expect(unsafe_code, reason = "a probe tries what no safe interface offers")]
pub(crate) fn attempt(number: libc::c_long, arguments: [libc::c_long; 4]) -> io::Result<i64> {
    let [a, b, c, d] = arguments;
    // SAFETY: the callers pass numbers only, or pointers to C strings and to buffers that outlive the call.
    let done = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}
