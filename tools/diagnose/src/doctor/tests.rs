//! Verdicts on the trees of five machines, and the formulas on numbers computed by hand.

use std::path::PathBuf;

use super::*;
use crate::root::Root;

const PAGE: u64 = 4096;

fn limits(tree: &str) -> Limits {
    Limits::read(
        &Root::at(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(tree)),
        PAGE,
    )
}

fn of<'a>(verdicts: &'a [LimitVerdict], limit: &str) -> &'a LimitVerdict {
    verdicts
        .iter()
        .find(|verdict| verdict.limit == limit)
        .unwrap_or_else(|| panic!("{limit} is judged: {verdicts:#?}"))
}

fn max(verdicts: &[LimitVerdict], limit: &str) -> Option<u64> {
    of(verdicts, limit).allows.and_then(|allows| allows.max)
}

#[test]
fn an_old_server_fails_at_its_low_limits() {
    let mut limits = limits("linux-4.18-el8");
    limits.hypervisor = Ok(true);
    let verdicts = evaluate(&limits, &Goal { keepalive: false, client: true, ..Goal::default() });
    assert!(!suffices(&verdicts));
    for (limit, expected) in [
        ("RLIMIT_NOFILE", 262_144 - 64),
        ("fs.nr_open", 1_048_576 - 64),
        ("fs.file-max", 790_000 - 2048),
        ("net.ipv4.ip_local_port_range", 28_232),
        ("net.netfilter.nf_conntrack_max", 65_000),
        ("net.core.somaxconn", 1290),
        ("TIME_WAIT", 28_232 / 60),
        ("conntrack TIME_WAIT", 65_536 / 120),
        ("kernel.threads-max", 62_400 - 412),
        ("kernel.pid_max", 32_768 - 412 - 300),
        ("vm.max_map_count", (65_530 - 2) / 4),
        ("pids.max", 9_943),
        ("RLIMIT_NPROC", 31_200 - 43),
        ("net.ipv4.tcp_mem", 92_160),
        ("memory of connections", 6_006_004 * 1024 / 4096),
        ("memory of threads", 6_006_004 * 1024 / 40_960),
        ("CPU", 754_716),
    ] {
        assert_eq!(max(&verdicts, limit), Some(expected), "{limit}");
    }
    assert_eq!(max(&verdicts, "net.ipv4.tcp_max_syn_backlog"), None, "cookies are on");
    let open_files = of(&verdicts, "RLIMIT_NOFILE");
    assert_eq!(open_files.enough, Sufficiency::Tight);
    assert!(
        open_files.note.as_ref().is_some_and(|note| note.contains("allows 960 only")),
        "{open_files:?}"
    );
    // Worst first: 470 of 10,000, then 546, then 1290.
    let order: Vec<&str> = verdicts.iter().take(3).map(|verdict| verdict.limit).collect();
    assert_eq!(order, ["TIME_WAIT", "conntrack TIME_WAIT", "net.core.somaxconn"]);
    for limit in ["transparent huge pages", "clock source", "virtualisation"] {
        assert_eq!(of(&verdicts, limit).enough, Sufficiency::Tight, "{limit}");
    }
    assert_eq!(of(&verdicts, "clock source").raise.now[0].split(' ').nth(1), Some("tsc"));
    let first = first_limit_reached(&verdicts, Unit::Threads).map(|verdict| verdict.limit);
    assert_eq!(first, Some("pids.max"));
}

#[test]
fn a_container_is_limited_by_its_groups() {
    let verdicts = evaluate(&limits("container-v2"), &Goal::default());
    assert_eq!(max(&verdicts, "pids.max"), Some(96));
    assert_eq!(max(&verdicts, "CPU"), Some(94_339), "half a CPU");
    assert_eq!(max(&verdicts, "memory of connections"), Some((208 << 20) / 4096));
    assert_eq!(max(&verdicts, "memory of threads"), Some((208 << 20) / 40_960));
    let pids = of(&verdicts, "pids.max");
    assert_eq!(pids.enough, Sufficiency::No);
    assert!(
        pids.raise.now[0].starts_with("echo 2048 > ")
            && pids.raise.now[0].ends_with("sys/fs/cgroup/pids.max"),
        "{pids:?}"
    );
    assert!(
        verdicts.iter().all(|verdict| verdict.limit != "net.netfilter.nf_conntrack_max"),
        "there is none"
    );
    let memory = of(
        &evaluate(&limits("container-v1"), &Goal { connections: 100_000, ..Goal::default() }),
        "memory of connections",
    )
    .clone();
    assert_eq!(
        (memory.allows.and_then(|a| a.max), memory.enough),
        (Some(436_870_912 / 4096), Sufficiency::Tight)
    );
}

#[test]
fn a_large_machine_suffices_and_names_its_tightest_limit() {
    let mut limits = limits("linux-5.10-debian");
    let goal = Goal {
        connections: 20_000,
        threads: 12_000,
        rate: 100_000.0,
        keepalive: true,
        client: true,
    };
    let verdicts = evaluate(&limits, &goal);
    assert!(suffices(&verdicts), "{verdicts:#?}");
    let first = |verdicts: &[LimitVerdict], unit| {
        first_limit_reached(verdicts, unit).map(|verdict| verdict.limit)
    };
    assert_eq!(first(&verdicts, Unit::Threads), Some("vm.max_map_count"));
    assert_eq!(first(&verdicts, Unit::Connections), Some("net.ipv4.ip_local_port_range"));
    assert_eq!(first(&verdicts, Unit::Requests), Some("CPU"));
    assert_eq!(of(&verdicts, "net.ipv4.ip_local_port_range").enough, Sufficiency::Yes);
    assert_eq!(of(&verdicts, "CPU governor").enough, Sufficiency::Tight);
    // One connection less than allowed is tight, one more fails; a reserve of a quarter suffices.
    for (connections, enough) in
        [(28_221, Sufficiency::Tight), (28_222, Sufficiency::No), (22_576, Sufficiency::Yes)]
    {
        let verdicts = evaluate(&limits, &Goal { connections, ..goal });
        assert_eq!(of(&verdicts, "net.ipv4.ip_local_port_range").enough, enough, "{connections}");
    }
    limits.overcommit = Ok(2);
    let verdicts = evaluate(&limits, &goal);
    let left = (65_536_000 / 2 + 2_097_148 - 1_304_112) * 1024;
    assert_eq!(max(&verdicts, "vm.overcommit_memory"), Some(left / (8 << 20)));
}

#[test]
fn the_other_formulas() {
    let mut limits = limits("linux-6.18-vm");
    limits.syncookies = Ok(0);
    limits.tw_reuse = Ok(1);
    if let Ok(process) = &mut limits.process {
        process.address_space.soft = Some(1 << 30);
    }
    let goal = Goal { keepalive: false, client: true, ..Goal::default() };
    let verdicts = evaluate(&limits, &goal);
    assert_eq!(max(&verdicts, "net.ipv4.tcp_max_syn_backlog"), Some(15_360));
    assert_eq!(max(&verdicts, "TIME_WAIT"), Some(28_232));
    let used = limits.status.as_ref().map(|status| status.address_space).unwrap();
    assert_eq!(max(&verdicts, "RLIMIT_AS"), Some(((1 << 30) - used) / ((2 << 20) + (20 << 10))));
    assert_eq!(max(&verdicts, "RLIMIT_NPROC"), None, "the user 0 is exempt");
    assert_eq!(max(&verdicts, "vm.max_map_count"), Some((65_530 - 12) / 4));
    let note = of(&verdicts, "vm.max_map_count").note.clone();
    assert_eq!(note.as_deref(), Some("C threads take 2: 32759 of them"));
    assert_eq!(of(&verdicts, "net.ipv4.tcp_mem").enough, Sufficiency::Yes);
    let more = evaluate(&limits, &Goal { connections: 19_000, ..goal });
    let buffers = of(&more, "net.ipv4.tcp_mem");
    assert_eq!(buffers.enough, Sufficiency::Tight, "first buffers of 15,994 fit");
    assert_eq!(buffers.raise.now, ["sysctl -w net.ipv4.tcp_mem='427500 641250 855000'"]);
    let too_many = evaluate(&limits, &Goal { connections: 100_000, ..goal });
    assert_eq!(
        of(&too_many, "net.ipv4.tcp_mem").raise.now,
        ["sysctl -w net.ipv4.tcp_rmem='4096 16384 33554432'"]
    );
    assert!(
        verdicts.iter().all(|verdict| verdict.limit != "CPU governor"),
        "a virtual machine without one"
    );
}

/// A limit that applies only to clients is shown for a server and does not fail it.
#[test]
fn a_server_is_not_judged_as_a_client() {
    let limits = limits("linux-5.10-debian");
    let goal = Goal { connections: 30_000, rate: 1_000.0, keepalive: false, ..Goal::default() };
    let (server, client) =
        (evaluate(&limits, &goal), evaluate(&limits, &Goal { client: true, ..goal }));
    for limit in ["net.ipv4.ip_local_port_range", "TIME_WAIT"] {
        assert_eq!(
            (of(&client, limit).enough, of(&server, limit).enough),
            (Sufficiency::No, Sufficiency::Client),
            "{limit}"
        );
        assert!(
            of(&server, limit).raise.now.is_empty() && max(&server, limit).is_some(),
            "{limit}"
        );
    }
    assert!(suffices(&server) && !suffices(&client), "{server:#?}");
    let first = |verdicts: &[LimitVerdict]| {
        first_limit_reached(verdicts, Unit::NewConnections).map(|verdict| verdict.limit)
    };
    assert_eq!((first(&client), first(&server)), (Some("TIME_WAIT"), Some("net.core.somaxconn")));
    assert_eq!(server.last().map(|verdict| verdict.enough), Some(Sufficiency::Client));
}

#[test]
fn exemptions_and_reuse_have_their_conditions() {
    let mut limits = limits("linux-6.18-vm");
    let goal = Goal { keepalive: false, client: true, ..Goal::default() };
    assert_eq!(max(&evaluate(&limits, &goal), "fs.file-max"), None, "the user 0 is exempt");
    (limits.own_users, limits.tw_reuse, limits.timestamps) = (Ok(false), Ok(1), Ok(0));
    (limits.syncookies, limits.somaxconn) = (Ok(0), Ok(128));
    let verdicts = evaluate(&limits, &goal);
    assert!(max(&verdicts, "fs.file-max").is_some(), "not the root of another namespace");
    assert!(max(&verdicts, "RLIMIT_NPROC").is_some(), "nor here");
    assert_eq!(max(&verdicts, "TIME_WAIT"), Some(28_232 / 60), "no reuse without timestamps");
    assert!(
        of(&verdicts, "TIME_WAIT")
            .note
            .as_ref()
            .is_some_and(|note| note.contains("tcp_timestamps"))
    );
    assert_eq!(
        max(&verdicts, "net.ipv4.tcp_max_syn_backlog"),
        Some(1280),
        "no longer than the accept queue"
    );
}

#[test]
fn invisible_limits_are_reported_and_nothing_panics() {
    let folder = tempfile::tempdir().unwrap();
    let blind = Limits::read(&Root::at(folder.path()), PAGE);
    let verdicts = evaluate(&blind, &Goal::default());
    assert!(suffices(&verdicts) && verdicts.len() > 15, "{verdicts:#?}");
    assert!(
        verdicts.iter().all(|verdict| verdict.enough == Sufficiency::Unknown
            && verdict.value.starts_with("unknown: /"))
    );
    assert_eq!(first_limit_reached(&verdicts, Unit::Connections), None);
    for goal in [
        Goal { connections: 0, threads: 0, rate: 0.0, keepalive: false, client: true },
        Goal {
            connections: u64::MAX,
            threads: u64::MAX,
            rate: f64::MAX,
            keepalive: false,
            client: true,
        },
    ] {
        for tree in
            ["linux-6.18-vm", "linux-4.18-el8", "linux-5.10-debian", "container-v1", "container-v2"]
        {
            let verdicts = evaluate(&limits(tree), &goal);
            assert_eq!(suffices(&verdicts), goal.connections == 0, "{tree}");
        }
    }
}

/// A limit below the goal has instructions and a formula.
#[test]
fn every_verdict_explains_itself() {
    let goal = Goal {
        connections: 5_000_000,
        threads: 5_000_000,
        rate: 5e6,
        keepalive: false,
        client: true,
    };
    for tree in ["linux-4.18-el8", "container-v1", "container-v2"] {
        for verdict in evaluate(&limits(tree), &goal) {
            if verdict.enough == Sufficiency::Unknown {
                continue;
            }
            assert!(
                !verdict.formula.is_empty() && !verdict.source.is_empty(),
                "{tree}: {verdict:?}"
            );
            assert!(
                verdict.enough != Sufficiency::No || !verdict.raise.now.is_empty(),
                "{tree}: {verdict:?}"
            );
        }
    }
}

#[test]
fn startup_messages_of_load() {
    use startup::{Generator, generator};
    let root = |tree: &str| {
        Root::at(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(tree))
    };
    let wanted = |new_per_s, local| Generator { connections: 50, new_per_s, local };
    let few = generator(&root("linux-4.18-el8"), &wanted(Some(1000.0), true)).unwrap();
    assert!(few.contains("allow 470 new connections") && !few.contains('\n'), "{few}");
    for fine in [wanted(None, false), wanted(Some(400.0), false)] {
        assert_eq!(generator(&root("linux-4.18-el8"), &fine), None);
    }
    assert_eq!(
        generator(&root("linux-6.18-vm"), &wanted(Some(1000.0), true)),
        None,
        "the loopback is exempt"
    );
    assert!(generator(&root("linux-6.18-vm"), &wanted(Some(1000.0), false)).is_some());
    let many = |connections, local| Generator { connections, new_per_s: None, local };
    let burst = generator(&root("linux-4.18-el8"), &many(130, true)).unwrap();
    assert!(burst.contains("somaxconn (128) lets 129 wait") && burst.contains("=256;"), "{burst}");
    assert_eq!(generator(&root("linux-4.18-el8"), &many(129, true)), None);
    assert_eq!(
        generator(&root("linux-4.18-el8"), &many(130, false)),
        None,
        "another machine's queue"
    );
}
