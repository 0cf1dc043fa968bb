use super::*;

const SYSTEMD: &str =
    "24 30 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup \
                      rw,cpu,cpuacct\n\
                      36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup \
                      rw,xattr,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

/// The relevant files of a machine.
fn fixture(mounts: &str, groups: &str, controllers: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
    std::fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
    std::fs::write(root.path().join("proc/self/cgroup"), groups).unwrap();
    for (folder, names) in controllers {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
        std::fs::write(root.path().join(folder).join("cgroup.controllers"), names).unwrap();
    }
    root
}

#[test]
fn one_hierarchy_of_the_second_version() {
    let own = "sys/fs/cgroup/user.slice/a b.scope";
    let root = fixture(SYSTEMD, "0::/user.slice/a b.scope\n", &[(own, "cpu memory pids\n")]);
    let found = hierarchies(root.path()).unwrap();
    let expected = Hierarchy {
        version: Version::V2,
        controllers: ["cpu", "memory", "pids"].map(str::to_owned).to_vec(),
        mount: root.path().join("sys/fs/cgroup"),
        own: root.path().join(own),
        read_only: false,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn both_versions_side_by_side() {
    let groups = "9:name=systemd:/\n2:cpu,cpuacct:/docker/x\n4:memory:/\n0::/\n";
    let root = fixture(HYBRID, groups, &[("sys/fs/cgroup/unified", "hugetlb\n")]);
    let found = hierarchies(root.path()).unwrap();
    let cpu = found.iter().find(|h| h.controllers.contains(&"cpu".to_owned())).unwrap();
    assert_eq!(cpu.version, Version::V1);
    assert_eq!(cpu.own, root.path().join("sys/fs/cgroup/cpu,cpuacct/docker/x"));
    let unified = found.iter().find(|h| h.version == Version::V2).unwrap();
    assert_eq!(unified.controllers, ["hugetlb"]);
    assert_eq!(unified.own, root.path().join("sys/fs/cgroup/unified"));
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn a_container_sees_its_part_or_nothing() {
    let part = "9 8 0:2 /docker/x /sys/fs/cgroup/cpu ro,nosuid - cgroup cgroup rw,cpu\n";
    let root = fixture(part, "2:cpu:/docker/x/y\n", &[]);
    let found = hierarchies(root.path()).unwrap();
    assert_eq!(found[0].own, root.path().join("sys/fs/cgroup/cpu/y"));
    assert!(found[0].read_only);
    for outside in ["2:cpu:/docker/z\n", "2:cpu:/docker/x/../../z\n", "2:memory:/docker/x\n", ""] {
        assert!(hierarchies(fixture(part, outside, &[]).path()).unwrap().is_empty(), "{outside:?}");
    }
    assert!(hierarchies(Path::new("/nonexistent")).is_err());
}

#[test]
fn a_mount_point_with_a_blank_is_read() {
    let root = fixture(
        "9 8 0:2 / /my\\040groups rw - cgroup2 none rw\n",
        "0::/\n",
        &[("my groups", "cpu\n")],
    );
    assert_eq!(hierarchies(root.path()).unwrap()[0].controllers, ["cpu"]);
}

#[test]
fn counts_of_both_versions_are_read() {
    let v2 = "usage_usec 1500000\nuser_usec 1\nnr_periods 20\nnr_throttled 5\nthrottled_usec 7\n";
    let expected =
        CpuStat { usage: Some(Duration::from_millis(1500)), periods: 20, throttled_periods: 5 };
    assert_eq!(parse_cpu_stat(v2), expected);
    assert_eq!(parse_cpu_stat("nr_periods 3\nnr_throttled 1\nthrottled_time 99\n").usage, None);
    assert_eq!(parse_cpu_stat("nonsense"), CpuStat::default());
}

#[test]
fn processes_of_other_namespaces_are_left_out() {
    let group = tempfile::tempdir().unwrap();
    assert!(processes(group.path()).is_err());
    std::fs::write(group.path().join("cgroup.procs"), "12\n0\n7\n").unwrap();
    assert_eq!(processes(group.path()).unwrap(), [12, 7]);
}

#[test]
fn this_machine_can_be_read() {
    for hierarchy in hierarchies(Path::new("/")).unwrap() {
        assert!(hierarchy.own.starts_with(&hierarchy.mount), "{hierarchy:?}");
    }
}
