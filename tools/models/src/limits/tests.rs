use super::*;

const GIB: u64 = 1 << 30;

/// Machine with room, with the kernel's defaults.
fn roomy() -> Evidence {
    Evidence {
        error: "Resource temporarily unavailable".to_owned(),
        maps: 60,
        maps_max: 65_530,
        threads: 3,
        tasks: 126,
        threads_max: 192_730,
        pid_max: 4_194_304,
        group: None,
        group_file: None,
        group_refusals: 0,
        space_bytes: 100 << 20,
        space_max_bytes: None,
        user_threads_max: None,
        memory_available_bytes: 20 * GIB,
        memory_bytes: 24 * GIB,
        memory_file: None,
    }
}

#[test]
fn the_limit_is_named_from_the_counts() {
    let limit = |change: fn(&mut Evidence)| {
        let mut evidence = roomy();
        change(&mut evidence);
        let limit = evidence.limit(3);
        (limit, evidence.sentence(limit), evidence.remedy(limit, 100_000))
    };
    let (found, why, remedy) = limit(|e| e.maps = 65_529);
    assert_eq!(
        (found, why.as_str()),
        (Limit::Maps, "the process had 65529 memory maps, and vm.max_map_count is 65530")
    );
    assert!(remedy.starts_with("sysctl vm.max_map_count=201000"), "{remedy}");
    // Both fail with EAGAIN where pid_max is 32,768; the maps are exhausted.
    let (found, ..) = limit(|e| (e.maps, e.pid_max, e.tasks) = (65_528, 32_768, 300));
    assert_eq!(found, Limit::Maps);
    let (found, why, remedy) = limit(|e| (e.pid_max, e.tasks) = (32_768, 32_750));
    assert_eq!(found, Limit::PidMax);
    assert!(
        why.contains("32750 threads, and kernel.pid_max is 32768")
            && remedy.contains("kernel.pid_max=132"),
        "{why}"
    );
    assert_eq!(limit(|e| e.tasks = e.threads_max).0, Limit::ThreadsMax);
    assert_eq!(limit(|e| e.group = Some((200, 200))).0, Limit::GroupPids);
    assert_eq!(limit(|e| (e.group, e.group_refusals) = (Some((150, 200)), 4)).0, Limit::GroupPids);
    assert_eq!(limit(|e| (e.group, e.group_refusals) = (Some((150, 200)), 3)).0, Limit::Unknown);
    let (found, _, remedy) = limit(|e| e.space_max_bytes = Some(e.space_bytes + 70_000));
    assert_eq!(found, Limit::AddressSpace);
    assert!(remedy.starts_with("ulimit -v 7"), "{remedy}");
    assert_eq!(
        limit(|e| (e.threads, e.user_threads_max) = (1_000, Some(1_010))).0,
        Limit::UserThreads
    );
    assert_eq!(limit(|e| e.memory_available_bytes = GIB).0, Limit::Memory);
    assert!(limit(|_| {}).1.starts_with("no limit could be seen (60 maps of 65530"));
}

#[test]
fn a_prediction_names_the_limit_and_its_formula() {
    let predict = |change: fn(&mut Evidence), requests| {
        let mut evidence = roomy();
        change(&mut evidence);
        evidence.predict(requests, 2)
    };
    let (limit, why) = predict(|_| {}, 100_000).unwrap_err();
    assert_eq!(limit, Limit::Maps);
    let want = "60 memory maps + 2 for each of 100000 threads = 200060, and vm.max_map_count is \
                65530: it would end at about 32735 threads";
    assert_eq!(why, want);
    assert_eq!(predict(|_| {}, 32_735), Ok(()));
    assert_eq!(predict(|_| {}, 32_736).unwrap_err().0, Limit::Maps);
    assert_eq!(predict(|e| e.maps_max = 201_000, 100_000), Ok(()));
    let fewer = roomy().predict(65_000, 1);
    assert_eq!(fewer, Ok(()), "one map for each");
    assert_eq!(
        predict(|e| e.space_max_bytes = Some(512 << 20), 10_000).unwrap_err().0,
        Limit::AddressSpace
    );
    assert_eq!(
        predict(|e| e.memory_available_bytes = GIB / 2, 20_000).unwrap_err().0,
        Limit::Memory
    );
    // 40 of 20,000 requests sleep.
    let (limit, why) = predict(|e| e.group = Some((10, 49)), 20_000).unwrap_err();
    assert_eq!(limit, Limit::GroupPids);
    assert!(
        why.starts_with("10 existing threads + 40 requests that may sleep at once = 50"),
        "{why}"
    );
    assert_eq!(predict(|e| e.group = Some((10, 50)), 20_000), Ok(()));
    assert_eq!(
        predict(|e| e.user_threads_max = Some(20), 20_000).unwrap_err().0,
        Limit::UserThreads
    );
}

/// Control groups of recorded machines, with limits in a parent group and on memory.
#[test]
fn limits_of_parent_groups_apply() {
    let held = |tree: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/fixtures").join(tree);
        roomy().within_groups(&Groups::of(&Root::at(root), "self").unwrap())
    };
    let parent = held("linux-4.18-el8");
    assert_eq!((parent.group, &parent.memory_file), (Some((57, 10_000)), &None));
    let few = Evidence { group: Some((9_990, 10_000)), ..parent };
    let (limit, why) = few.predict(20_000, 2).unwrap_err();
    assert!(
        limit == Limit::GroupPids && why.contains("user-1000.slice/pids.max is 10000"),
        "{why}"
    );
    let small = held("container-v2");
    assert_eq!((small.memory_bytes, small.memory_available_bytes), (256 << 20, 208 << 20));
    assert_eq!((small.group, small.group_refusals), (Some((4, 100)), 2));
    let (limit, why) = small.predict(10_000, 2).unwrap_err();
    assert!(limit == Limit::Memory && why.ends_with("sys/fs/cgroup/memory.max"), "{why}");
    assert!(small.sentence(limit).contains(" under "), "{}", small.sentence(limit));
}

#[test]
fn maps_are_rounded_to_whole_ones() {
    assert_eq!(
        (each(60, 92), each(60, 94), each(60, 76), each(60, 60), each(60, 50)),
        (2, 2, 1, 1, 1)
    );
    assert!(maps_per_thread() >= 1);
}

#[test]
fn a_run_leaves_resources_to_others() {
    let exhausted_for_others = |change: fn(&mut Evidence)| {
        let mut evidence = roomy();
        change(&mut evidence);
        evidence.exhausted_for_others()
    };
    assert_eq!(exhausted_for_others(|_| {}), None);
    assert_eq!(exhausted_for_others(|e| (e.pid_max, e.tasks) = (32_768, 29_000)), None);
    assert_eq!(
        exhausted_for_others(|e| (e.pid_max, e.tasks) = (32_768, 30_000)),
        Some(Limit::PidMax)
    );
    assert_eq!(exhausted_for_others(|e| e.tasks = 180_000), Some(Limit::ThreadsMax));
    assert_eq!(exhausted_for_others(|e| e.memory_available_bytes = GIB), Some(Limit::Memory));
    // Missing counters stop no run.
    assert_eq!(Evidence::default().exhausted_for_others(), None);
}

#[test]
fn this_kernel_is_understood() {
    let evidence = Evidence::now("said");
    assert!(
        evidence.maps > 5 && evidence.maps_max > 1_000 && evidence.threads >= 1,
        "{evidence:?}"
    );
    assert!(evidence.tasks > 1 && evidence.threads_max > 1 && evidence.pid_max > 1, "{evidence:?}");
    assert!(
        evidence.space_bytes > 1 << 20 && evidence.memory_bytes > evidence.memory_available_bytes,
        "{evidence:?}"
    );
    assert_eq!(tasks("0.00 0.01 0.05 1/123 4567"), Some(123));
    assert_eq!((tasks(""), tasks("a b c d e"), field("X: 1", "Y:")), (None, None, None));
}
