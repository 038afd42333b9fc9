use super::*;

/// What a filter answers, by the rules of the machine that runs it.
fn run(program: &[sock_filter], architecture: u32, number: u32, arguments: [u32; 4]) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        match u32::from(step.code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                loaded = match step.k {
                    0 => number,
                    4 => architecture,
                    16 => arguments[0],
                    24 => arguments[1],
                    32 => arguments[2],
                    40 => arguments[3],
                    other => panic!("loads from {other}"),
                }
            }
            code if code == libc::BPF_RET | libc::BPF_K => return step.k,
            code if code == libc::BPF_JMP | libc::BPF_JEQ => at += jump(loaded == step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGT => at += jump(loaded > step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGE => at += jump(loaded >= step.k),
            code if code == libc::BPF_JMP | libc::BPF_JSET => at += jump(loaded & step.k != 0),
            other => panic!("step {other}"),
        }
    }
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

#[test]
fn a_filter_allows_what_is_listed_and_nothing_else() {
    let filters = Filters::make();
    let looked_at: Vec<c_long> = [OPENS, CREATES, MODES]
        .concat()
        .into_iter()
        .map(|(call, _)| call)
        .chain([libc::SYS_clone, libc::SYS_prlimit64, libc::SYS_ioctl, libc::SYS_prctl])
        .collect();
    for (tier, network) in [
        (Tier::Full, Network::None),
        (Tier::Full, Network::Host),
        (Tier::Landlock, Network::None),
        (Tier::Landlock, Network::Host),
    ] {
        let program = filters.for_run(tier, network);
        assert!(program.len() < 4096, "{}", program.len());
        for number in 0..1000_u32 {
            let call = c_long::from(number);
            if looked_at.contains(&call) {
                continue;
            }
            let listed = ALWAYS.contains(&call)
                || OF_THIS_MACHINE.contains(&call)
                || (tier == Tier::Full && METADATA.contains(&call))
                || (network == Network::Host && SOCKETS.contains(&call));
            let expected = if listed { ALLOW } else { REFUSE };
            assert_eq!(
                run(program, OURS, number, [0; 4]),
                expected,
                "{tier:?} {network:?} {number}"
            );
            // The other numbering of the same machine.
            assert_eq!(run(program, OURS, number | 0x4000_0000, [0; 4]), REFUSE);
        }
        assert_eq!(run(program, OURS ^ 1, 0, [0; 4]), libc::SECCOMP_RET_KILL_PROCESS);
    }
}

#[test]
fn arguments_are_looked_at() {
    let filters = Filters::make();
    let ask = |call: c_long, [a, b]: [u32; 2]| {
        let program = filters.for_run(Tier::Full, Network::None);
        run(program, OURS, u32::try_from(call).unwrap(), [a, b, 0, 0])
    };
    assert_eq!(ask(libc::SYS_clone, [libc::SIGCHLD as u32, 0]), ALLOW);
    assert_eq!(ask(libc::SYS_clone, [libc::CLONE_VM as u32 | libc::CLONE_THREAD as u32, 0]), ALLOW);
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWPID, libc::CLONE_NEWNET] {
        assert_eq!(ask(libc::SYS_clone, [flag as u32 | libc::SIGCHLD as u32, 0]), REFUSE);
    }
    assert_eq!(ask(libc::SYS_prlimit64, [0, 0]), ALLOW);
    assert_eq!(ask(libc::SYS_prlimit64, [1, 0]), REFUSE);
    assert_eq!(ask(libc::SYS_ioctl, [0, libc::TCGETS as u32]), ALLOW);
    assert_eq!(ask(libc::SYS_ioctl, [0, libc::TIOCSTI as u32]), REFUSE);
    assert_eq!(ask(libc::SYS_prctl, [libc::PR_SET_NAME as u32, 0]), ALLOW);
    assert_eq!(ask(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u32, 0]), REFUSE);
}

#[test]
fn nobody_makes_a_program_that_runs_as_somebody_else() {
    let filters = Filters::make();
    let create = (libc::O_CREAT | libc::O_WRONLY) as u32;
    let nameless = (libc::O_TMPFILE | libc::O_WRONLY) as u32;
    for tier in [Tier::Full, Tier::Landlock] {
        let program = filters.for_run(tier, Network::None);
        let ask = |call: c_long, arguments: [u32; 4]| {
            run(program, OURS, u32::try_from(call).unwrap(), arguments)
        };
        for mode in [0o4755, 0o2755, 0o6000, 0o4000] {
            assert_ne!(ask(libc::SYS_openat, [0, 0, create, mode]), ALLOW);
            assert_ne!(ask(libc::SYS_openat, [0, 0, nameless, mode]), ALLOW);
            assert_eq!(ask(libc::SYS_openat, [0, 0, libc::O_DIRECTORY as u32, mode]), ALLOW);
            assert_ne!(ask(libc::SYS_fchmod, [0, mode, 0, 0]), ALLOW);
            assert_ne!(ask(libc::SYS_fchmodat, [0, 0, mode, 0]), ALLOW);
            assert_ne!(ask(libc::SYS_fchmodat2, [0, 0, mode, 0]), ALLOW);
            assert_ne!(ask(libc::SYS_mknodat, [0, 0, mode | libc::S_IFREG, 0]), ALLOW);
        }
        assert_eq!(ask(libc::SYS_openat, [0, 0, create, 0o1755]), ALLOW);
        let changes = ask(libc::SYS_fchmod, [0, 0o755, 0, 0]) == ALLOW;
        assert_eq!(changes, tier == Tier::Full);
        assert_ne!(ask(libc::SYS_openat2, [0; 4]), ALLOW);
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
