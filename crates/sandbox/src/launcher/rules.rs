//! The system calls that a confined process may make. What is not listed does not exist for it (`ENOSYS`), which
//! programs expect of older kernels and live with: so new calls of new kernels are refused as well.
//!
//! Left out on purpose: sockets of every family (pairs too), tracing and reading other processes, `memfd_create`
//! (memory that can be executed and is counted nowhere), io_uring, bpf, keys, userfaultfd, performance counters,
//! mounts, namespaces, handles of files, watching folders, System V objects and message queues, personalities,
//! modules, clocks, priorities of others, and everything only root needs. `clone3` hides its flags from a
//! filter; the C library falls back to `clone`, whose flags are looked at.

use std::collections::BTreeSet;

use libc::c_long;
use seccompiler::{BpfProgram, sock_filter};

use crate::grant::{Network, Tier};

/// Every filter there is, made once.
///
/// They are written here, as a walk over ranges of numbers, and not by the crate that installs them: its filters ask
/// for one number after the other, and the kernel, which tries every number when a filter is installed, takes half a
/// millisecond for one of them. That would be a sixth of all that confining costs.
pub(crate) struct Filters {
    full: BpfProgram,
    full_with_network: BpfProgram,
    landlock: BpfProgram,
    landlock_with_network: BpfProgram,
}

impl Filters {
    /// Makes them.
    pub(crate) fn make() -> Self {
        Self {
            full: assemble(Tier::Full, Network::None),
            full_with_network: assemble(Tier::Full, Network::Host),
            landlock: assemble(Tier::Landlock, Network::None),
            landlock_with_network: assemble(Tier::Landlock, Network::Host),
        }
    }

    /// The one for a run.
    pub(super) fn for_run(&self, tier: Tier, network: Network) -> &BpfProgram {
        match (tier, network) {
            (Tier::Full, Network::None) => &self.full,
            (Tier::Full, Network::Host) => &self.full_with_network,
            (Tier::Landlock, Network::None) => &self.landlock,
            (Tier::Landlock, Network::Host) => &self.landlock_with_network,
        }
    }
}

/// Where the kernel shows a filter what is called, and with what. The lower half of an argument comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// What an unlisted call is answered with.
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    // Every code of this machine is below 256.
    sock_filter { code: code as u16, jt, jf, k }
}

fn load(at: u32) -> sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

fn answer(with: u32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, with)
}

/// Goes on when it holds, and skips so many steps when not.
fn unless(operation: u32, k: u32, skip: u8) -> sock_filter {
    step(libc::BPF_JMP | operation | libc::BPF_K, 0, skip, k)
}

/// Skips so many steps when it holds, and goes on when not.
fn when(operation: u32, k: u32, skip: u8) -> sock_filter {
    step(libc::BPF_JMP | operation | libc::BPF_K, skip, 0, k)
}

fn assemble(tier: Tier, network: Network) -> BpfProgram {
    let lists = [ALWAYS, OF_THIS_MACHINE].into_iter();
    let lists = lists.chain((tier == Tier::Full).then_some(METADATA));
    let lists = lists.chain((network == Network::Host).then_some(SOCKETS));
    let all: BTreeSet<u32> = lists.flatten().filter_map(|call| u32::try_from(*call).ok()).collect();
    let mut program = vec![
        load(ARCHITECTURE),
        when(libc::BPF_JEQ, OURS, 1),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    for (call, body) in conditional(tier) {
        let Ok(length) = u8::try_from(body.len()) else { continue };
        program.push(unless(libc::BPF_JEQ, call, length));
        program.extend(body);
    }
    for (first, last) in ranges(&all) {
        // Beyond this range: on to the next. Within: allowed. Before: between two ranges, and refused.
        program.push(when(libc::BPF_JGT, last, 3));
        program.push(unless(libc::BPF_JGE, first, 1));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        program.push(answer(REFUSE));
    }
    program.push(answer(REFUSE));
    program
}

/// Numbers without a gap between them, together.
fn ranges(all: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in all {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

/// Calls whose arguments are looked at, and the steps that do it. Each ends with an answer.
fn conditional(tier: Tier) -> Vec<(u32, Vec<sock_filter>)> {
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let modes = OPENS.iter().chain(CREATES).chain(MODES.iter().filter(|_| tier == Tier::Full));
    let modes = modes.map(|(call, look)| (number(*call), look.steps()));
    // A bit of a namespace in it: refused.
    let clone = vec![
        load(argument(0)),
        unless(libc::BPF_JSET, NEW_NAMESPACES, 1),
        answer(REFUSE),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let others = [
        (number(libc::SYS_clone), clone),
        // Limits of its own it may lower; those of another process are none of its business.
        (number(libc::SYS_prlimit64), one_of(0, &[0])),
        (number(libc::SYS_ioctl), one_of(1, IOCTLS)),
        (number(libc::SYS_prctl), one_of(0, PRCTLS)),
    ];
    others.into_iter().chain(modes).collect()
}

/// A program that runs as its owner whoever starts it. The workspace does not let it do so, but the same file can be
/// reached from outside, where it would.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// Which argument is the mode of a file, and which one says whether it counts.
#[derive(Clone, Copy)]
struct Look {
    mode: u32,
    flags: Option<u32>,
}

impl Look {
    const fn at(mode: u32) -> Self {
        Self { mode, flags: None }
    }

    const fn with_flags(flags: u32, mode: u32) -> Self {
        Self { mode, flags: Some(flags) }
    }

    fn steps(self) -> Vec<sock_filter> {
        let mut steps = Vec::new();
        if let Some(flags) = self.flags {
            // Without a file to make, whatever stands in the place of the mode means nothing.
            let makes = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
            steps.push(load(argument(flags)));
            steps.push(when(libc::BPF_JSET, makes, 1));
            steps.push(answer(libc::SECCOMP_RET_ALLOW));
        }
        steps.push(load(argument(self.mode)));
        steps.push(unless(libc::BPF_JSET, SET_ID, 1));
        steps.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
        steps.push(answer(libc::SECCOMP_RET_ALLOW));
        steps
    }
}

/// Opening, which may make a file. `openat2` hides its mode from a filter; nobody misses it.
const OPENS: &[(c_long, Look)] = &[
    (libc::SYS_openat, Look::with_flags(2, 3)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Look::with_flags(1, 2)),
];

/// Making files.
const CREATES: &[(c_long, Look)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Look::at(1)),
];

/// Setting modes.
const MODES: &[(c_long, Look)] = &[
    (libc::SYS_fchmod, Look::at(1)),
    (libc::SYS_fchmodat, Look::at(2)),
    (libc::SYS_fchmodat2, Look::at(2)),
    (libc::SYS_mknodat, Look::at(2)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, Look::at(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, Look::at(1)),
];

fn one_of(index: u32, values: &[u32]) -> Vec<sock_filter> {
    let mut steps = vec![load(argument(index))];
    for value in values {
        steps.push(unless(libc::BPF_JEQ, *value, 1));
        steps.push(answer(libc::SECCOMP_RET_ALLOW));
    }
    steps.push(answer(REFUSE));
    steps
}

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32;

/// Questions about a descriptor that programs ask of whatever they are given. None talks to a device.
const IOCTLS: &[u32] = &[
    libc::TCGETS as u32,
    libc::TIOCGWINSZ as u32,
    libc::TIOCGPGRP as u32,
    libc::FIONREAD as u32,
    libc::FIONBIO as u32,
    libc::FIOCLEX as u32,
    libc::FIONCLEX as u32,
];

/// What a process asks and sets about itself without gaining or hiding anything.
const PRCTLS: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_GET_SECUREBITS as u32,
    libc::PR_SET_VMA as u32,
];

/// What every program may do.
const ALWAYS: &[c_long] = &[
    // Files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat2,
    libc::SYS_renameat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // Its own processes and threads.
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_setsid,
    libc::SYS_getsid,
    libc::SYS_setpgid,
    libc::SYS_getpgid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_pidfd_open,
    // Time.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_times,
    // Who it is. Setting ids to what they are already is how some programs make sure.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
];

/// Changes of what the path rules do not cover. Where everything outside is read-only or not there, they do no
/// harm; without mounts of its own they would reach files outside.
const METADATA: &[c_long] = &[
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// For who has a network.
const SOCKETS: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
];

/// The older spellings of the above, which only older architectures have.
#[cfg(target_arch = "x86_64")]
const OF_THIS_MACHINE: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_link,
    libc::SYS_rename,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];

/// The older spellings of the above, which only older architectures have.
#[cfg(not(target_arch = "x86_64"))]
const OF_THIS_MACHINE: &[c_long] = &[];

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
