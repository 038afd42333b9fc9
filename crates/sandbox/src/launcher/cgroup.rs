//! Memory and processes of a whole tree, counted by the kernel where control groups can be made: version 1, or
//! version 2 with both controllers handed down. One group a run, made before it and removed after it.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{init::Problem, tree};
use crate::grant::Limits;

const PREFIX: &str = "tollgate-run-";

/// A group this young may still be getting its first process.
const SURELY_STALE: Duration = Duration::from_secs(10);

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cgroups {
    /// Nowhere.
    None,
    /// One folder a controller.
    V1 { memory: PathBuf, pids: PathBuf },
    /// One folder for both.
    V2(PathBuf),
}

impl Cgroups {
    /// Looks where this process is, and whether it may make groups below.
    pub(crate) fn find() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (mounts, groups) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
        let v1 = (place(&mounts, &groups, "memory"), place(&mounts, &groups, "pids"));
        if let (Some(memory), Some(pids)) = v1
            && may_make(&memory)
            && may_make(&pids)
        {
            return Self::V1 { memory, pids };
        }
        match place(&mounts, &groups, "") {
            Some(unified) if hands_down(&unified) && may_make(&unified) => Self::V2(unified),
            _ => Self::None,
        }
    }

    /// What they are called in a report.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 { .. } => "v1",
            Self::V2(_) => "v2",
        }
    }

    fn folders(&self) -> Vec<&Path> {
        match self {
            Self::None => Vec::new(),
            Self::V1 { memory, pids } => vec![memory, pids],
            Self::V2(unified) => vec![unified],
        }
    }

    /// Removes the groups of monitors that are dead. A group with a process in it cannot be removed, so that
    /// nothing that lives is touched.
    pub(crate) fn sweep(&self) {
        for entry in self.folders().into_iter().flat_map(fs::read_dir).flatten().flatten() {
            let name = entry.file_name();
            let monitor = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
            let old = entry
                .metadata()
                .and_then(|found| found.modified())
                .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > SURELY_STALE));
            if old && monitor.is_some_and(|monitor| !tree::exists(monitor)) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Makes the group of this monitor's run, and puts the monitor in: what it starts is then in it from the
    /// beginning, and nobody has to wait for the kernel to move it.
    pub(super) fn make(&self) -> Result<Option<Cgroup>, Problem> {
        let name = format!("{PREFIX}{}", std::process::id());
        let folders: Vec<PathBuf> =
            self.folders().iter().map(|folder| folder.join(&name)).collect();
        let Some(first) = folders.first() else { return Ok(None) };
        let (settings, counter) = match self {
            Self::None => return Ok(None),
            Self::V1 { pids, .. } => (
                vec![
                    Setting { file: first.join("memory.limit_in_bytes"), what: Bound::Memory },
                    Setting { file: pids.join(&name).join("pids.max"), what: Bound::Processes },
                ],
                first.join("memory.oom_control"),
            ),
            Self::V2(_) => (
                vec![
                    Setting { file: first.join("memory.max"), what: Bound::Memory },
                    Setting { file: first.join("pids.max"), what: Bound::Processes },
                ],
                first.join("memory.events"),
            ),
        };
        let parents = self.folders().into_iter().map(Path::to_owned).collect();
        let group = Cgroup { folders, parents, settings, counter };
        match group.enter() {
            Ok(()) => Ok(Some(group)),
            Err(error) => {
                group.remove();
                Err(Problem::new("cgroup", &name, error))
            }
        }
    }
}

/// A file that bounds something.
struct Setting {
    file: PathBuf,
    what: Bound,
}

/// What is bounded.
enum Bound {
    Memory,
    Processes,
}

/// Things that are there on some machines only: no swap, and all or nothing when memory runs out.
const OPTIONAL: [(&str, &str); 3] =
    [("memory.swappiness", "0"), ("memory.swap.max", "0"), ("memory.oom.group", "0")];

/// The group of one run.
pub(super) struct Cgroup {
    folders: Vec<PathBuf>,
    /// Where the monitor came from, and goes back to.
    parents: Vec<PathBuf>,
    settings: Vec<Setting>,
    /// The file that counts what was killed for want of memory.
    counter: PathBuf,
}

impl Cgroup {
    fn enter(&self) -> io::Result<()> {
        for folder in &self.folders {
            match fs::create_dir(folder) {
                // Left behind by a dead monitor that had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            for (name, value) in OPTIONAL {
                let _ = write_existing(&folder.join(name), value);
            }
        }
        move_to(&self.folders)
    }

    /// Sets what the run may use. The monitor is one process of it.
    pub(super) fn bound(&self, limits: &Limits) -> io::Result<()> {
        self.settings.iter().try_for_each(|setting| {
            let value = match setting.what {
                Bound::Memory => limits.memory_bytes,
                Bound::Processes => limits.processes.saturating_add(3),
            };
            write_existing(&setting.file, &value.to_string())
        })
    }

    /// From here on nothing in it can start a process, so that ending what is there comes to an end.
    pub(super) fn stop_forks(&self) {
        for folder in &self.folders {
            let _ = write_existing(&folder.join("pids.max"), "0");
        }
    }

    /// Was something in it killed for want of memory?
    pub(super) fn ran_out(&self) -> bool {
        fs::read_to_string(&self.counter).is_ok_and(|counts| {
            counts
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))
                .is_some_and(|count| count.trim() != "0")
        })
    }

    /// The most memory that it had.
    pub(super) fn peak(&self) -> Option<u64> {
        let read = |name| {
            let folder = self.folders.first()?;
            fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
        };
        read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"))
    }

    /// Leaves it and removes it. Nothing else is in it any more; the kernel may need a moment to know.
    pub(super) fn remove(&self) {
        let _ = move_to(&self.parents);
        for folder in &self.folders {
            for _ in 0..200 {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Moves this process.
fn move_to(folders: &[PathBuf]) -> io::Result<()> {
    folders.iter().try_for_each(|folder| write_existing(&folder.join("cgroup.procs"), "0"))
}

fn write_existing(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

/// Where this process is in a hierarchy; the empty name is version 2.
fn place(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        let kind = source.next()?;
        let options = source.nth(1)?;
        let fits = match controller {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| fits)?;
        Some(Path::new(point).join(below))
    })
}

/// Are both controllers there for groups below this one?
fn hands_down(folder: &Path) -> bool {
    let has_both = || {
        fs::read_to_string(folder.join("cgroup.subtree_control")).is_ok_and(|controllers| {
            let all: Vec<&str> = controllers.split_ascii_whitespace().collect();
            all.contains(&"memory") && all.contains(&"pids")
        })
    };
    // Refused by the kernel while this group has processes of its own, as most have.
    has_both()
        || (fs::write(folder.join("cgroup.subtree_control"), "+memory +pids").is_ok() && has_both())
}

fn may_make(folder: &Path) -> bool {
    let trial = folder.join(format!("{PREFIX}trial-{}", std::process::id()));
    let made = fs::create_dir(&trial).is_ok();
    made && fs::remove_dir(&trial).is_ok()
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
