use super::*;

const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 23 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 23 0:28 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
const GROUPS: &str = "9:cpu,cpuacct:/docker/x/y\n8:memory:/a/b\n7:pids:/\n0::/user.slice\n";

#[test]
fn the_place_in_each_hierarchy_is_found_below_its_mount() {
    let at = |controller| place(MOUNTS, GROUPS, controller);
    assert_eq!(at("memory"), Some(PathBuf::from("/sys/fs/cgroup/memory/a/b")));
    assert_eq!(at("pids"), Some(PathBuf::from("/sys/fs/cgroup/pids/")));
    assert_eq!(at("cpuacct"), Some(PathBuf::from("/sys/fs/cgroup/cpu/y")));
    assert_eq!(at(""), Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice")));
    assert_eq!(at("io"), None);
}

#[test]
fn a_group_outside_of_what_is_mounted_is_nowhere() {
    assert_eq!(place(MOUNTS, "9:cpu:/elsewhere\n", "cpu"), None);
}
