use super::*;

fn hierarchy(version: Version, controllers: &[&str], mount: &str, own: &str) -> Hierarchy {
    let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
    Hierarchy { version, controllers, mount: mount.into(), own: own.into(), read_only: false }
}

fn parents(candidates: &[Candidate]) -> Vec<(&str, bool)> {
    candidates.iter().map(|c| (c.parent.to_str().unwrap(), c.limits)).collect()
}

#[test]
fn version_2_is_used_inside_or_as_a_sibling() {
    let (found, reasons) =
        candidates(&[hierarchy(Version::V2, &["cpu", "pids"], "/cg", "/cg/user/session")]);
    assert_eq!(parents(&found), [("/cg/user/session", true), ("/cg/user", true)]);
    assert!(reasons.is_empty());
    let (at_the_root, _) = candidates(&[hierarchy(Version::V2, &["cpu"], "/cg", "/cg")]);
    assert_eq!(parents(&at_the_root), [("/cg", true)]);
}

#[test]
fn with_both_versions_v1_limits_and_v2_counts() {
    let (found, reasons) = candidates(&[
        hierarchy(Version::V1, &["cpu", "cpuacct"], "/cg/cpu", "/cg/cpu"),
        hierarchy(Version::V1, &["memory"], "/cg/memory", "/cg/memory"),
        hierarchy(Version::V2, &[], "/cg/unified", "/cg/unified"),
    ]);
    assert_eq!(parents(&found), [("/cg/cpu", true), ("/cg/unified", false)]);
    assert_eq!(reasons, ["cgroup v2 at /cg/unified has no cpu controller for this process"]);
}

#[test]
fn read_only_or_missing_hierarchies_are_reported() {
    let read_only = Hierarchy { read_only: true, ..hierarchy(Version::V2, &["cpu"], "/cg", "/cg") };
    assert_eq!(candidates(&[read_only]), (vec![], vec!["/cg is mounted read-only".to_owned()]));
    assert_eq!(candidates(&[]), (vec![], vec!["no cgroups are mounted".to_owned()]));
}

#[test]
fn an_ordinary_folder_is_refused_and_unchanged() {
    let plain = tempfile::tempdir().unwrap();
    for version in [Version::V1, Version::V2] {
        let candidate = Candidate { version, limits: true, parent: plain.path().to_owned() };
        let error = make(&candidate, "hotrow-lab-test", |_| Ok(())).unwrap_err();
        assert!(error.contains("hotrow-lab-test cannot be used"), "{error}");
        assert_eq!(std::fs::read_dir(plain.path()).unwrap().count(), 0, "{version:?}");
    }
    let gone = Candidate { version: Version::V1, limits: true, parent: "/nonexistent".into() };
    assert!(
        make(&gone, "hotrow-lab-test", |_| Ok(()))
            .unwrap_err()
            .contains("cannot be used: No such file")
    );
}

#[test]
fn a_group_that_cannot_be_joined_is_refused() {
    let plain = tempfile::tempdir().unwrap();
    let candidate =
        Candidate { version: Version::V1, limits: false, parent: plain.path().to_owned() };
    let procs_file = plain.path().join("hotrow-lab-test/try/cgroup.procs");
    let error = make(&candidate, "hotrow-lab-test", |file| {
        assert_eq!(file, procs_file);
        Err("not allowed".to_owned())
    });
    assert!(error.unwrap_err().ends_with("hotrow-lab-test cannot be used: not allowed"));
    assert_eq!(std::fs::read_dir(plain.path()).unwrap().count(), 0);
    let group = make(&candidate, "hotrow-lab-test", |_| Ok(())).unwrap();
    assert!(
        group.children().is_empty() && group.processes().is_empty(),
        "the trial group is removed"
    );
    group.remove();
    assert_eq!(std::fs::read_dir(plain.path()).unwrap().count(), 0);
}

#[test]
fn weights_are_written_in_the_unit_of_the_interface() {
    let folder = tempfile::tempdir().unwrap();
    for (version, file, deployment, generator) in [
        (Version::V1, "cpu.shares", "262144", "65536"),
        (Version::V2, "cpu.weight", "10000", "2500"),
    ] {
        let path = folder.path().join(file);
        let group = Group { version, folder: folder.path().to_owned() };
        assert!(group.set_weight(Weight::Deployment).is_err(), "{file} is not created");
        for (weight, expected) in [(Weight::Deployment, deployment), (Weight::Generator, generator)]
        {
            std::fs::write(&path, "").unwrap();
            group.set_weight(weight).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "{file}");
        }
    }
}

#[test]
fn a_sibling_is_beside_the_group_and_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let base = Group { version: Version::V1, folder: folder.path().join("hotrow-lab-1-2-3") };
    let sibling = base.sibling("-generator").unwrap();
    assert_eq!(sibling.folder, folder.path().join("hotrow-lab-1-2-3-generator"));
    assert!(sibling.add(1).is_err(), "an ordinary folder has no cgroup.procs");
    sibling.remove_if_empty();
    assert!(!sibling.folder.exists());
}

#[test]
fn limits_become_valid_quotas() {
    assert_eq!(quota_and_period_us(0.25), (2500, 10_000));
    assert_eq!(quota_and_period_us(1.5), (15_000, 10_000));
    assert_eq!(quota_and_period_us(0.05), (1000, 20_000));
    assert_eq!(quota_and_period_us(0.01), (1000, 100_000));
    // The kernel's longest period is a second.
    assert!(quota_and_period_us(*super::super::CORES.start()).1 <= 1_000_000);
}
