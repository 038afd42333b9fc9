use super::*;

#[test]
fn every_filter_compiles_and_fits_the_kernels_bound() {
    let filters = Filters::compile().unwrap();
    for tier in [Tier::Full, Tier::Landlock] {
        for network in [Network::None, Network::Host] {
            let length = filters.for_run(tier, network).len();
            assert!(length > 100 && length < 4096, "{tier:?} {network:?}: {length}");
        }
    }
}

#[test]
fn nothing_is_listed_that_is_left_out_on_purpose() {
    let listed: Vec<c_long> = [ALWAYS, OF_THIS_MACHINE, METADATA].concat();
    let out = [
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_memfd_create,
        libc::SYS_io_uring_setup,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_clone3,
        libc::SYS_personality,
        libc::SYS_shmget,
        libc::SYS_msgget,
        libc::SYS_semget,
        libc::SYS_mq_open,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_open_by_handle_at,
        libc::SYS_pidfd_getfd,
        libc::SYS_inotify_add_watch,
        libc::SYS_fanotify_init,
        libc::SYS_setpriority,
        libc::SYS_sched_setaffinity,
        libc::SYS_execveat,
        libc::SYS_memfd_secret,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        libc::SYS_capset,
        libc::SYS_seccomp,
        libc::SYS_sethostname,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_quotactl,
        libc::SYS_acct,
    ];
    for call in out {
        assert!(!listed.contains(&call), "system call {call}");
    }
}
