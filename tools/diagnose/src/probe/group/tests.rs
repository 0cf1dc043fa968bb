use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hotrow_measure::clock::Nanos;

use super::*;
use crate::sampler::Sampler;
use crate::samples::{Role, Samples, WatchedProcess};

/// Longest wait for a group to be throttled, or to be empty.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process two groups below the mount.
fn tree(version: Version) -> (tempfile::TempDir, [PathBuf; 3]) {
    let (mount, groups) = match version {
        Version::V1 => ("9 8 0:2 / /cg rw - cgroup cgroup rw,cpu\n", "2:cpu:/pod/app\n"),
        Version::V2 => ("9 8 0:2 / /cg rw - cgroup2 cgroup2 rw\n", "0::/pod/app\n"),
    };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("proc/self")).unwrap();
    fs::write(folder.path().join("proc/self/mountinfo"), mount).unwrap();
    fs::write(folder.path().join("proc/self/cgroup"), groups).unwrap();
    let chain = ["cg/pod/app", "cg/pod", "cg"].map(|group| folder.path().join(group));
    fs::create_dir_all(&chain[0]).unwrap();
    fs::write(chain[0].join("cgroup.controllers"), "cpu memory\n").unwrap();
    (folder, chain)
}

fn set(group: &Path, version: Version, [periods, throttled, ms]: [u64; 3]) {
    let time = match version {
        Version::V1 => format!("throttled_time {}", ms * 1_000_000),
        Version::V2 => format!("throttled_usec {}", ms * 1000),
    };
    fs::write(
        group.join("cpu.stat"),
        format!("nr_periods {periods}\nnr_throttled {throttled}\n{time}\n"),
    )
    .unwrap();
}

/// Counts of a second of the own group and of the one above it, and which of the two counts.
#[test]
fn the_most_throttled_group_of_the_chain_counts() {
    let cases = [
        // A quota of the group above; the own group has none.
        ([0, 0, 0], [10, 9, 700], Some(1)),
        ([10, 9, 700], [0, 0, 0], Some(0)),
        // Both have a quota, and the larger one is shared with others.
        ([10, 1, 50], [10, 8, 3000], Some(1)),
        ([10, 8, 300], [10, 1, 3000], Some(0)),
        // The nearest of equals; a share of too few periods does not win.
        ([10, 5, 300], [10, 5, 300], Some(0)),
        ([1, 1, 5], [10, 5, 300], Some(1)),
        ([10, 0, 0], [10, 0, 0], None),
    ];
    for version in [Version::V1, Version::V2] {
        let (folder, chain) = tree(version);
        set(&chain[0], version, [100; 3]);
        set(&chain[1], version, [5000; 3]);
        let groups = Groups::of(&Root::at(folder.path()), "self").unwrap();
        let before = groups.counted();
        assert_eq!(
            before.throttles.iter().map(|of| of.group.to_path_buf()).collect::<Vec<_>>(),
            chain
        );
        for (own, above, which) in cases {
            set(&chain[0], version, own.map(|added| 100 + added));
            set(&chain[1], version, above.map(|added| 5000 + added));
            let (counters, held_in) = groups.counted().since(&before);
            assert_eq!(
                held_in.as_deref(),
                which.map(|at: usize| chain[at].as_path()),
                "{version:?} {own:?} {above:?}"
            );
            let counted = [
                counters.periods,
                counters.throttled_periods,
                counters.throttled.as_millis() as u64,
            ];
            assert_eq!(counted, if which == Some(1) { above } else { own });
        }
    }
}

#[test]
fn a_new_group_has_no_increase() {
    let (folder, chain) = tree(Version::V2);
    set(&chain[1], Version::V2, [900, 900, 900]);
    let after = Groups::of(&Root::at(folder.path()), "self").unwrap().counted();
    assert_eq!(after.since(&GroupStats::default()).1, None);
}

/// A process in a group without a quota, below one with a tenth of a CPU.
struct Planted {
    busy: Option<Child>,
    above: PathBuf,
    below: PathBuf,
}

impl Planted {
    /// Returns `None` if this user may not create such groups.
    fn new() -> Option<Self> {
        let found = cgroup::hierarchies(Path::new("/")).ok()?;
        let found = found.iter().find(|found| {
            found.version == Version::V1 && found.controllers.contains(&"cpu".into())
        });
        let above = found?.own.join(format!("hotrow-above-{}", std::process::id()));
        fs::create_dir(&above).ok()?;
        let mut planted = Self { busy: None, below: above.join("below"), above };
        fs::write(planted.above.join("cpu.cfs_quota_us"), "10000").ok()?;
        fs::create_dir(&planted.below).ok()?;
        let busy = format!(
            "echo $$ > '{}/cgroup.procs' && echo in && while :; do :; done",
            planted.below.display()
        );
        let mut child =
            Command::new("sh").args(["-c", &busy]).stdout(Stdio::piped()).spawn().ok()?;
        let mut reported = [0; 3];
        let entered =
            child.stdout.take().is_some_and(|mut out| out.read_exact(&mut reported).is_ok());
        planted.busy = Some(child);
        entered.then_some(planted)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if let Some(mut busy) = self.busy.take() {
            let _ = busy.kill();
            let _ = busy.wait();
        }
        let until = Instant::now() + PATIENCE;
        for group in [&self.below, &self.above] {
            // A killed process counts until the kernel has removed it.
            while group.exists() && fs::remove_dir(group).is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

#[test]
fn a_real_quota_above_the_own_group_is_found() {
    let Some(planted) = Planted::new() else {
        return eprintln!("no group with a quota can be created here");
    };
    let pid = planted.busy.as_ref().map_or(0, Child::id);
    let mut sampler = Sampler::new(Root::machine(), &[pid]);
    let (first, until) = (sampler.sample(Nanos::now()), Instant::now() + PATIENCE);
    let watched = loop {
        std::thread::sleep(Duration::from_millis(50));
        let watched = Samples::between(&first, &sampler.sample(Nanos::now()), |_| Role::Service)
            .processes
            .remove(0);
        let group = watched.group.unwrap_or_default();
        if group.throttled_periods >= PERIODS_MIN || Instant::now() > until {
            break watched;
        }
    };
    assert_eq!(watched.held_in.as_deref(), Some(planted.above.as_path()), "{watched:?}");
    // On a busy machine the process gets less than its quota, and is throttled in few periods.
    let group = Some(GroupCounters { periods: 10, throttled_periods: 9, ..Default::default() });
    let watched = WatchedProcess { group, ..watched };
    let samples =
        Samples { span: Duration::from_secs(1), processes: vec![watched], ..Samples::default() };
    let finding = crate::rules::evaluate(&samples).remove(0);
    let named =
        finding.evidence[0].contains(&format!("process {pid} ({})", planted.above.display()));
    assert!(finding.class == crate::rules::finding::LimitClass::Throttled && named, "{finding:?}");
}
