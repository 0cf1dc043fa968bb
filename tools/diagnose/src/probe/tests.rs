//! Every parser on the trees of five machines, and on texts that no kernel writes.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::root::{ProbeErrorKind, ProbeResult, Root};

const TREES: [&str; 5] =
    ["linux-6.18-vm", "linux-4.18-el8", "linux-5.10-debian", "container-v1", "container-v2"];

fn tree(name: &str) -> Root {
    Root::at(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name))
}

#[test]
fn cpus_are_read() {
    let stat = tree("linux-6.18-vm").parse(cpu::FILE, cpu::parse).unwrap();
    assert_eq!(stat.cores.len(), 2);
    assert_eq!(stat.cores[0].1.steal + stat.cores[1].1.steal, 10_717);
    assert!(stat.context_switches > 90_000_000 && stat.running >= 1);
    let old = tree("linux-4.18-el8").parse(cpu::FILE, cpu::parse).unwrap();
    assert_eq!(
        (old.cores.len(), old.running, old.blocked, old.context_switches),
        (4, 3, 1, 123_456_789)
    );
    let earlier = cpu::CpuTime { user: 10_000, system: 2_900, idle: 79_000, ..old.cores[0].1 };
    let shares = old.cores[0].1.since(&earlier).shares().unwrap();
    assert!((shares.busy - 100.0 / 1100.0).abs() < 1e-9, "{shares:?}");
    assert_eq!(cpu::CpuTime::default().shares(), None);
    assert_eq!(
        earlier.since(&old.cores[0].1),
        cpu::CpuTime::default(),
        "what goes back adds nothing"
    );
}

#[test]
fn pressure_is_read_if_present() {
    let some = |us| Duration::from_micros(us);
    let new = tree("linux-6.18-vm").parse(pressure::CPU_FILE, pressure::parse).unwrap();
    assert!(new.some > Duration::from_secs(5000) && new.full == Some(Duration::ZERO), "{new:?}");
    let before_5_13 = tree("linux-5.10-debian").parse(pressure::CPU_FILE, pressure::parse).unwrap();
    assert_eq!(before_5_13, pressure::Pressure { some: some(4_000_000), full: None });
    let memory = tree("linux-5.10-debian").parse(pressure::MEMORY_FILE, pressure::parse).unwrap();
    assert_eq!(memory, pressure::Pressure { some: some(70_000), full: Some(some(60_000)) });
    let none = tree("linux-4.18-el8").parse(pressure::IO_FILE, pressure::parse).unwrap_err();
    assert_eq!((none.file.as_str(), none.why), ("proc/pressure/io", ProbeErrorKind::Missing));
}

#[test]
fn memory_is_read() {
    let memory = tree("linux-6.18-vm").parse(memory::MEMINFO_FILE, memory::parse_meminfo).unwrap();
    assert_eq!(memory.total, 24_684_092 * 1024);
    assert!(
        memory.available < memory.total
            && memory.swap_total == 0
            && memory.commit_limit == 12_342_044 * 1024
    );
    let vm = tree("linux-4.18-el8").parse(memory::VMSTAT_FILE, memory::parse_vmstat).unwrap();
    assert_eq!(
        (vm.major_faults, vm.scanned_direct, vm.stalls, vm.oom_kills),
        (4321, 900, 321, Some(2))
    );
    let later = memory::VmStat { stalls: 331, ..vm };
    assert_eq!(
        later.since(&vm),
        memory::VmStat { stalls: 10, oom_kills: Some(0), ..memory::VmStat::default() }
    );
}

#[test]
fn disks_of_every_age_are_read() {
    let disks = tree("linux-6.18-vm").parse(disk::FILE, disk::parse).unwrap();
    assert_eq!(disks.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["vda"]);
    let old = tree("linux-4.18-el8").parse(disk::FILE, disk::parse).unwrap();
    assert_eq!(old.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["sda", "sda1", "dm-0"]);
    assert_eq!((old[0].requests, old[0].written_bytes, old[0].in_flight), (3000, 160_000 * 512, 2));
    let flushes = tree("linux-5.10-debian").parse(disk::FILE, disk::parse).unwrap();
    assert_eq!(flushes[0].requests, 500_000 + 800_000 + 700);
    let later = disk::Disk {
        requests: 3100,
        request_time: old[0].request_time + Duration::from_millis(500),
        busy: old[0].busy + Duration::from_millis(900),
        ..old[0].clone()
    };
    let rate = later.rate(&old[0], Duration::from_secs(1)).unwrap();
    assert_eq!((rate.requests_per_s, rate.utilisation, rate.queue), (100.0, 0.9, 0.5));
    assert_eq!(rate.latency, Some(Duration::from_millis(5)));
    assert_eq!(later.rate(&old[0], Duration::ZERO), None);
    assert!(disk::is_partition("sda1", "sda") && disk::is_partition("nvme0n1p2", "nvme0n1"));
    let moved = |name: &str, bytes| disk::Disk {
        name: name.to_owned(),
        read_bytes: bytes,
        written_bytes: 10 * bytes,
        ..disk::Disk::default()
    };
    let all = ["sda", "sda1", "dm-0", "md127", "nvme0n1", "nvme0n1p2"].map(|name| moved(name, 3));
    assert_eq!(disk::total_bytes(&all), (6, 60));
    assert!(!disk::is_partition("sda", "sda") && !disk::is_partition("nvme0n11", "nvme0n1"));
}

#[test]
fn the_network_is_read() {
    let root = tree("linux-5.10-debian");
    let interfaces = root.parse(interface::FILE, interface::parse).unwrap();
    assert_eq!(interfaces[1].name, "eth0");
    assert_eq!((interfaces[1].received.dropped, interfaces[1].sent.bytes), (2, 600_000_000));
    assert_eq!(interface::speed(&root, "eth0"), Ok(1_000_000_000));
    for hidden in ["lo", "../../proc", "a/b"] {
        assert_eq!(
            interface::speed(&root, hidden).unwrap_err().why,
            ProbeErrorKind::Missing,
            "{hidden}"
        );
    }
    let segments = root.parse(tcp::SNMP_FILE, tcp::parse_segments).unwrap();
    assert_eq!(
        (segments.passive_opens, segments.established, segments.retransmitted),
        (70_000, 56, 300)
    );
    let errors = tree("linux-4.18-el8").parse(tcp::NETSTAT_FILE, tcp::parse_errors).unwrap();
    assert_eq!((errors.listen_overflows, errors.listen_drops, errors.half_open_drops), (11, 13, 2));
    let new = tree("linux-6.18-vm").parse(tcp::NETSTAT_FILE, tcp::parse_errors).unwrap();
    assert_eq!((new.syncookies_sent, new.aborts_on_memory), (0, 0));
    let sockets = root.parse(network::SOCKSTAT_FILE, network::parse_sockstat).unwrap();
    assert_eq!(
        (sockets.in_use, sockets.orphans, sockets.time_wait, sockets.memory_pages),
        (56, 1, 1200, 25)
    );
    for (name, cpus) in [("linux-4.18-el8", 4_u64), ("linux-5.10-debian", 8)] {
        let softnet = tree(name).parse(network::SOFTNET_FILE, network::parse_softnet).unwrap();
        assert_eq!(softnet.processed, 0x1000 * cpus * (cpus + 1) / 2, "{name}");
        assert_eq!(softnet.dropped, 5 * cpus * (cpus - 1) / 2, "{name}");
    }
    let before = network::Softnet { processed: u64::from(u32::MAX), ..network::Softnet::default() };
    let after = network::Softnet { processed: 4, ..before };
    assert_eq!(after.since(&before).processed, 5, "32 bits begin anew");
}

#[test]
fn sockets_are_read_one_by_one() {
    let sockets = tree("linux-4.18-el8").parse(sockets::FILE, sockets::parse).unwrap();
    let states: Vec<_> = sockets::by_state(&sockets).into_iter().collect();
    use sockets::SocketState::{Established, Listening, SynSent, TimeWait};
    assert_eq!(states, [(Established, 2), (SynSent, 1), (TimeWait, 1), (Listening, 1)]);
    assert_eq!((sockets[0].local.to_string().as_str(), sockets[0].unread), ("0.0.0.0:8080", 3));
    assert_eq!(sockets[1].peer.to_string(), "127.0.0.1:49153");
    assert_eq!((sockets[2].unsent_bytes, sockets[2].retransmits, sockets[2].inode), (32, 2, 4713));
    assert!(tree("linux-6.18-vm").parse(sockets::FILE, sockets::parse).unwrap().len() == 11);
    let six = "  sl  local_address rem_address\n 0: 0000000000000000FFFF00000100007F:1F90 \
        00000000000000000000000001000000:0050 01 0:0 00:0 0 0 0 7 1\n";
    let socket = sockets::parse(six).unwrap()[0];
    assert_eq!(
        (socket.local.to_string().as_str(), socket.peer.to_string().as_str()),
        ("127.0.0.1:8080", "[::1]:80")
    );
}

#[test]
fn tables_of_the_network_have_sizes() {
    let root = tree("linux-4.18-el8");
    let table = network::Conntrack { count: 536, max: 65_536, time_wait_s: 120 };
    assert_eq!(network::read_conntrack(&root), Ok(table));
    assert_eq!(
        network::read_conntrack(&tree("container-v1")).unwrap_err().why,
        ProbeErrorKind::Missing
    );
    assert_eq!(ports::read(&root).map(|ports| ports.count()), Ok(28_232));
    assert_eq!(ports::read(&tree("linux-5.10-debian")).map(|ports| ports.count()), Ok(28_232 - 11));
    assert_eq!(ports::parse_reserved("1-40000,65535", 32_768, 60_999), Some(7233));
    assert_eq!((ports::parse_range("5 4"), ports::parse_range("1 65536")), (None, None));
}

#[test]
fn processes_are_read() {
    let el8 = tree("linux-4.18-el8");
    let limits = el8.parse(limits::OWN_FILE, limits::parse).unwrap();
    assert_eq!(limits.open_files, limits::ResourceLimit { soft: Some(1024), hard: Some(262_144) });
    assert_eq!(
        (limits.processes.soft, limits.stack.soft, limits.stack.hard),
        (Some(31_200), Some(8 << 20), None)
    );
    let user = el8.parse(status::OWN_FILE, status::parse).unwrap();
    assert_eq!(
        (user.user, user.threads, user.address_space, user.cpus),
        (1000, 1, 8412 * 1024, Some(4))
    );
    assert!(!user.may_exceed_processes() && !user.may_exceed_file_max());
    let root = tree("linux-6.18-vm").parse(status::OWN_FILE, status::parse).unwrap();
    assert!(root.may_exceed_processes() && root.may_exceed_file_max() && root.cpus == Some(2));
    let docker = tree("container-v1").parse(status::OWN_FILE, status::parse).unwrap();
    assert!(docker.may_exceed_processes() && !docker.may_exceed_file_max());
    assert_eq!(
        (status::parse_list("0-3,8"), status::parse_list("3-0"), status::parse_list("")),
        (Some(5), None, None)
    );
    let load = el8.parse(cpu::LOADAVG_FILE, cpu::parse_load).unwrap();
    assert_eq!((load.one_minute, load.running, load.threads), (0.2, 3, 412));
    let files = el8.parse(limits::FILES_FILE, limits::parse_files).unwrap();
    assert_eq!((files.open, files.max), (2048, 790_000));
}

#[test]
fn threads_are_read() {
    let line =
        "7 (a (b) c) R 1 40 39 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 987654 1000000 321 0\n";
    let task = task::parse(7, line).unwrap();
    assert_eq!(
        (task.name.as_str(), task.cpu, task.waited),
        ("a (b) c", Duration::from_secs(2), None)
    );
    assert_eq!((task::parse_state(line), task::parse_state("7 (a")), (Some('R'), None));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(task::ids(&Root::at(folder.path()), 5).unwrap_err().why, ProbeErrorKind::Missing);
    for tid in ["9", "7", "x"] {
        std::fs::create_dir_all(folder.path().join("proc/5/task").join(tid)).unwrap();
    }
    assert_eq!(task::ids(&Root::at(folder.path()), 5), Ok(vec![7, 9]));
}

/// Returns the blocking points of a process's threads, by id.
fn blocked_threads(name: &str, pid: u32, arch: wait::Arch) -> Vec<Option<wait::BlockedOn>> {
    let root = tree(name);
    let stand = |tid: u32| {
        let file = |what: &str| format!("proc/{pid}/task/{tid}/{what}");
        assert!(root.parse(&file("stat"), |text| task::parse(tid, text)).is_ok(), "{name}: {tid}");
        assert!(root.parse(&file("status"), status::parse_switches).is_ok(), "{name}: {tid}");
        assert!(root.parse(&file("schedstat"), task::parse_schedstat).is_ok(), "{name}: {tid}");
        let state = root.parse(&file("stat"), task::parse_state).unwrap();
        let call = root.parse(&file("syscall"), wait::parse_syscall);
        assert!(
            !matches!(&call, Err(probe_error) if probe_error.why != ProbeErrorKind::Missing),
            "{name}: {call:?}"
        );
        wait::blocked_on(state, &root.read(&file("wchan")).unwrap(), call.ok(), Some(arch))
    };
    task::ids(&root, pid).unwrap().into_iter().map(stand).collect()
}

#[test]
fn blocking_points_are_read_on_each_kernel() {
    use wait::Arch::{Aarch64, X86_64};
    use wait::BlockedOn::{Accept, Disk, Events, File, Lock, Other, Time};
    let polled = wait::BlockedOn::Polled(0x7f4f_dda6_4760);
    let new = [
        Time,
        Lock,
        Accept,
        File(5),
        Time,
        Events,
        polled,
        Events,
        File(8),
        File(11),
        File(5),
        Disk,
    ];
    assert_eq!(blocked_threads("linux-6.18-vm", 4711, X86_64), new.map(Some));
    let el8 = blocked_threads("linux-4.18-el8", 4242, X86_64);
    assert_eq!(
        el8,
        [Some(Events), Some(Lock), Some(File(5)), Some(Disk), Some(Accept), None, Some(Disk)]
    );
    let functions_only = [Events, Lock, Other, Disk, Time, Other];
    assert_eq!(blocked_threads("linux-5.10-debian", 900, X86_64), functions_only.map(Some));
    assert_eq!(
        blocked_threads("container-v2", 1, Aarch64),
        [Events, Lock, File(5), Disk].map(Some)
    );
    assert_eq!(
        blocked_threads("container-v1", 1, X86_64),
        [Other, Other].map(Some),
        "nothing may be known there"
    );
}

#[test]
fn limits_of_both_group_versions_are_read() {
    let limits = |name| group::Groups::of(&tree(name), "self").unwrap().limits();
    assert_eq!(limits("linux-6.18-vm"), group::Limits::default());
    let el8 = limits("linux-4.18-el8");
    let pids = el8.pids.unwrap();
    assert_eq!((pids.limit, pids.left()), (10_000, 9_943), "the parent's");
    assert!(
        pids.file.ends_with("user-1000.slice/pids.max")
            && el8.memory.is_none()
            && el8.cpu.is_none()
    );
    let docker = limits("container-v1");
    assert_eq!(docker.pids.map(|held| held.left()), Some(500));
    assert_eq!(
        docker.memory.map(|held| held.left()),
        Some(432_013_312 + 4_857_600),
        "without the cache"
    );
    assert_eq!(docker.cpu.map(|quota| quota.cores), Some(1.5));
    let unified = limits("container-v2");
    assert_eq!(
        unified.memory.map(|held| held.left()),
        Some((256 - 64 + 16) << 20),
        "without the cache"
    );
    assert_eq!(
        (unified.pids.map(|held| held.limit), unified.cpu.map(|quota| quota.cores)),
        (Some(100), Some(0.5))
    );
    assert_eq!(limits("linux-5.10-debian").pids.map(|held| held.limit), Some(84_331));

    let counters = |name| group::Groups::of(&tree(name), "self").unwrap().counters();
    let (v1, v2) = (counters("container-v1"), counters("container-v2"));
    assert_eq!((v1.throttled_periods, v1.throttled), (250, Duration::from_millis(12_500)));
    assert_eq!((v1.memory_refusals, v1.oom_kills, v1.pids_refusals), (17, 1, 5));
    assert_eq!((v2.periods, v2.throttled), (200, Duration::from_secs(3)));
    assert_eq!((v2.memory_bytes, v2.memory_max_bytes), (Some(64 << 20), Some(256 << 20)));
    assert_eq!((v2.memory_refusals, v2.oom_kills, v2.pids_refusals), (9, 1, 2));
    assert_eq!(v2.since(&v1).memory_bytes, Some(64 << 20));
    let text = ["max 100000", "-1 100000", "5 0", "", "x"];
    assert!(text.iter().all(|text| group::parse_cpu_max(text).is_none()));
    assert_eq!(
        group::Groups::of(&Root::at("/nonexistent"), "self").unwrap_err().why,
        ProbeErrorKind::Missing
    );
}

/// A parser, reduced to whether it accepted the text.
type Parser = (&'static str, fn(&str) -> bool);

const PARSERS: [Parser; 22] = [
    (cpu::CPUINFO_FILE, |text| cpu::parse_model(text).is_some()),
    (cpu::FILE, |text| cpu::parse(text).is_some()),
    (pressure::CPU_FILE, |text| pressure::parse(text).is_some()),
    (memory::MEMINFO_FILE, |text| memory::parse_meminfo(text).is_some()),
    (memory::VMSTAT_FILE, |text| memory::parse_vmstat(text).is_some()),
    (disk::FILE, |text| disk::parse(text).is_some()),
    (interface::FILE, |text| interface::parse(text).is_some()),
    (tcp::SNMP_FILE, |text| tcp::parse_segments(text).is_some()),
    (tcp::NETSTAT_FILE, |text| tcp::parse_errors(text).is_some()),
    (network::SOCKSTAT_FILE, |text| network::parse_sockstat(text).is_some()),
    (sockets::FILE, |text| sockets::parse(text).is_some()),
    (network::SOFTNET_FILE, |text| network::parse_softnet(text).is_some()),
    (ports::RANGE_FILE, |text| ports::parse_range(text).is_some()),
    (ports::RESERVED_FILE, |text| ports::parse_reserved(text, 1, 9).is_some()),
    (limits::FILES_FILE, |text| limits::parse_files(text).is_some()),
    (limits::OWN_FILE, |text| limits::parse(text).is_some()),
    (status::OWN_FILE, |text| status::parse(text).is_some()),
    (status::OWN_FILE, |text| status::parse_switches(text).is_some()),
    (cpu::LOADAVG_FILE, |text| cpu::parse_load(text).is_some()),
    ("proc/self/stat", |text| task::parse(1, text).is_some()),
    ("proc/self/stat", |text| task::parse_state(text).is_some()),
    ("proc/self/schedstat", |text| task::parse_schedstat(text).is_some()),
];

#[test]
fn every_tree_is_parsed_or_reported_missing() {
    for name in TREES {
        for (file, parser) in PARSERS {
            let seen: ProbeResult<()> = tree(name).parse(file, |text| parser(text).then_some(()));
            assert!(
                !matches!(&seen, Err(probe_error) if probe_error.why != ProbeErrorKind::Missing),
                "{name}: {seen:?}"
            );
        }
    }
    let seen = PARSERS
        .iter()
        .filter(|(file, parser)| tree(TREES[0]).parse(file, |t| parser(t).then_some(())).is_ok());
    assert_eq!(seen.count(), PARSERS.len(), "the recorded tree must have all files");
}

#[test]
fn invalid_texts_make_no_parser_panic() {
    let garbage = [
        "",
        "\n",
        "cpu0 x",
        "\u{0}\u{0}",
        "-1 -1 -1",
        "99999999999999999999999 1 2 3",
        ": : :",
        "é é é é é é",
    ];
    for (file, parser) in PARSERS {
        for text in garbage {
            parser(text);
        }
        let Ok(text) = tree(TREES[0]).read(file) else { panic!("{file} is recorded") };
        // Truncated at every length, and with each early byte replaced by one with a meaning.
        for at in (0..text.len())
            .step_by((text.len() / 400).max(1))
            .filter(|at| text.is_char_boundary(*at))
        {
            parser(&text[..at]);
        }
        for (at, _) in text.char_indices().take(300) {
            for other in ["x", "-", " ", "\n", ":", "9", "(", ")"] {
                parser(&format!("{}{other}{}", &text[..at], &text[at + 1..]));
            }
        }
    }
}
