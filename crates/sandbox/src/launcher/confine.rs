//! What a process gives up by itself, for good: limits, privileges, paths, system calls.

use std::{fs, path::Path};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, setrlimit},
    thread::{
        CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
        set_no_new_privs,
    },
};
use seccompiler::BpfProgram;

use super::{
    init::Problem,
    mounts::{DEVICES, ETC},
    tree,
};
use crate::{
    grant::{Network, Tier},
    plan::{Plan, on},
};

/// Signals and abstract sockets are only held back from this version on.
const ABI_NEEDED: ABI = ABI::V6;

/// Address space is only a backstop: programs map far more than they use.
const LEAST_ADDRESS_SPACE: u64 = 8 << 30;

/// So many more tasks of a user than there are now.
const BACKSTOP: u64 = 2048;

/// Limits of each process, by the kernel.
pub(super) fn limits(plan: &Plan, counted: bool) -> Result<(), Problem> {
    if !on!(plan, Limits) {
        return Ok(());
    }
    let limits = &plan.grant.limits;
    // In a user namespace of its own only this run counts. Without one everything of this user does, other runs
    // as well: where a control group counts this one alone, the user's limit is only a backstop.
    let others = match (plan.tier, counted) {
        (Tier::Full, _) => 1,
        (Tier::Landlock, true) => tree::tasks_of_user().saturating_add(BACKSTOP),
        (Tier::Landlock, false) => tree::tasks_of_user(),
    };
    let address_space = limits.memory_bytes.saturating_mul(4).max(LEAST_ADDRESS_SPACE);
    let all = [
        (Resource::As, address_space),
        (Resource::Data, limits.memory_bytes),
        (Resource::Nproc, limits.processes.saturating_add(others)),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Cpu, limits.cpu.as_secs().max(1)),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 256),
        (Resource::Stack, (8 << 20).min(limits.memory_bytes)),
        (Resource::Rtprio, 0),
    ];
    for (resource, wanted) in all {
        // More than there is cannot be had.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let bound = Some(wanted.min(most));
        setrlimit(resource, Rlimit { current: bound, maximum: bound })
            .map_err(|e| Problem::new("limits", &format!("{resource:?}"), e.into()))?;
    }
    Ok(())
}

/// What capabilities can ever be gained: none. To be done while there still is the right to.
pub(super) fn bounds(plan: &Plan) -> Result<(), Problem> {
    let step = |what: &'static str| move |e: Errno| Problem::new("privileges", what, e.into());
    if !on!(plan, Capabilities) {
        return Ok(());
    }
    for number in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << number) else { continue };
        match remove_capability_from_bounding_set(capability) {
            // Who has no right to do this has no capabilities either.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(step("bounding set")(error)),
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    match set_capabilities_secure_bits(bits) {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(step("secure bits")(error)),
    }
}

/// Every capability, and every way to gain one.
pub(super) fn privileges(plan: &Plan) -> Result<(), Problem> {
    let step = |what: &'static str| move |e: Errno| Problem::new("privileges", what, e.into());
    if on!(plan, Capabilities) {
        clear_ambient_capability_set().map_err(step("ambient set"))?;
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).map_err(step("capset"))?;
    }
    set_no_new_privs(true).map_err(step("no_new_privs"))
}

/// Paths: what may be read, changed and executed. Also signals, abstract sockets and TCP.
pub(super) fn landlock(plan: &Plan, inside: &Path) -> Result<(), Problem> {
    if !on!(plan, Landlock) {
        return Ok(());
    }
    let refused = |e: &dyn std::fmt::Display| Problem {
        stage: "landlock".to_owned(),
        problem: e.to_string(),
    };
    // With namespaces of its own, a process neither sees nor reaches whom the newer versions hold it from.
    let least = match plan.tier {
        Tier::Full => ABI::V1,
        Tier::Landlock => ABI_NEEDED,
    };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(least))
        .map_err(|e| refused(&e))?;
    if plan.tier == Tier::Full {
        ruleset = ruleset
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI_NEEDED))
            .map_err(|e| refused(&e))?;
    }
    ruleset = ruleset.scope(Scope::from_all(ABI_NEEDED)).map_err(|e| refused(&e))?;
    if plan.grant.network == Network::None {
        ruleset =
            ruleset.handle_access(AccessNet::from_all(ABI_NEEDED)).map_err(|e| refused(&e))?;
    }
    let mut rules = ruleset.create().map_err(|e| refused(&e))?;
    rules = allow_paths(rules, plan, inside)?;
    let status = rules.restrict_self().map_err(|e| refused(&e))?;
    match (status.ruleset, plan.tier) {
        (RulesetStatus::FullyEnforced, _) | (RulesetStatus::PartiallyEnforced, Tier::Full) => {
            Ok(())
        }
        _ => Err(refused(&"not enforced")),
    }
}

fn allow_paths(
    mut rules: RulesetCreated,
    plan: &Plan,
    inside: &Path,
) -> Result<RulesetCreated, Problem> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut root = read;
    if plan.grant.writable {
        root |= AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::MakeSym
            | AccessFs::MakeFifo
            | AccessFs::MakeSock
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    // These two are made for the run. The lesser tier has only the machine's, which are nobody's business.
    let accounts = ["/etc/passwd", "/etc/group"].iter().filter(|_| plan.tier == Tier::Full);
    let all = std::iter::once((inside, root))
        .chain(plan.grant.read_only.iter().map(|path| (path.as_path(), read)))
        .chain(accounts.map(|path| (Path::new(*path), read)))
        .chain(ETC.iter().map(|path| (Path::new(*path), read)))
        .chain(DEVICES.iter().map(|path| (Path::new(*path), device)))
        .chain(
            plan.grant
                .execute
                .iter()
                .map(|path| (path.as_path(), AccessFs::Execute | AccessFs::ReadFile)),
        );
    for (path, mut access) in all {
        let Ok(found) = fs::metadata(path) else { continue };
        if !found.is_dir() {
            access &= AccessFs::from_file(ABI_NEEDED);
        }
        let refused = |e: &dyn std::fmt::Display| Problem {
            stage: "landlock".to_owned(),
            problem: format!("{}: {e}", path.display()),
        };
        let opened = PathFd::new(path).map_err(|e| refused(&e))?;
        rules = rules.add_rule(PathBeneath::new(opened, access)).map_err(|e| refused(&e))?;
    }
    Ok(rules)
}

/// System calls. Last of all, because what comes before needs calls that this takes away.
pub(super) fn seccomp(plan: &Plan, filter: &BpfProgram) -> Result<(), Problem> {
    if !on!(plan, Seccomp) {
        return Ok(());
    }
    seccompiler::apply_filter(filter)
        .map_err(|e| Problem { stage: "seccomp".to_owned(), problem: e.to_string() })
}
