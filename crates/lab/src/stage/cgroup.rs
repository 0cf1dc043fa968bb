//! Groups of processes that the supervisor makes in the kernel's hierarchies: one folder per supervisor,
//! `hotrow-lab-…`, and in it one per process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotrow_diagnose::cgroup::{self, CpuStat, Hierarchy, Version};

/// Shortest period of a limit. The kernel's own is 100 ms: a process with a quarter of a core would run for 25 ms and
/// then stand still for 75 ms, and that pause would be the latency that is measured.
pub(super) const PERIOD: Duration = Duration::from_millis(10);
/// The kernel takes no shorter share of a period (`min_cfs_quota_period` in kernel/sched/core.c).
const QUOTA_MIN: Duration = Duration::from_millis(1);
/// Longest wait for a group whose processes were killed to be empty.
const EMPTY_WAIT: Duration = Duration::from_secs(2);
/// How often that is tried.
const EMPTY_LOOK: Duration = Duration::from_millis(2);

/// Where groups may perhaps be made, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) version: Version,
    /// Whether processes can be limited there; else only counted, found and killed.
    pub(super) limits: bool,
    /// The folder in which the supervisor's is made.
    pub(super) parent: PathBuf,
}

/// A folder of a hierarchy that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    version: Version,
    folder: PathBuf,
}

/// Where groups could be made, from what the kernel lists, and why not elsewhere. Only trying tells.
pub(super) fn candidates(hierarchies: &[Hierarchy]) -> (Vec<Candidate>, Vec<String>) {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    let has_cpu = |hierarchy: &Hierarchy| hierarchy.controllers.iter().any(|name| name == "cpu");
    let usable = |version| hierarchies.iter().filter(move |h| h.version == version);
    for hierarchy in usable(Version::V2).chain(usable(Version::V1).filter(|h| has_cpu(h))) {
        let (version, limits) = (hierarchy.version, has_cpu(hierarchy));
        if hierarchy.read_only {
            reasons.push(format!("{} is mounted read-only", hierarchy.mount.display()));
            continue;
        }
        if !limits {
            reasons.push(format!("cgroup v2 at {} has no cpu controller for this process", hierarchy.own.display()));
        }
        found.push(Candidate { version, limits, parent: hierarchy.own.clone() });
        // A v2 group that holds processes cannot share its CPU out among groups below it; beside it that is possible.
        let beside = hierarchy.own.parent().filter(|parent| parent.starts_with(&hierarchy.mount));
        if let (Version::V2, Some(parent)) = (version, beside) {
            found.push(Candidate { version, limits, parent: parent.to_owned() });
        }
    }
    if hierarchies.is_empty() {
        reasons.push("no cgroups are mounted".to_owned());
    }
    // Where limits are possible first: v2, then v1; what only counts comes last.
    found.sort_by_key(|candidate| !candidate.limits);
    (found, reasons)
}

/// Makes the supervisor's folder, and tries whether what the candidate promises holds.
pub(super) fn make(candidate: &Candidate, label: &str) -> Result<Group, String> {
    let base = Group { version: candidate.version, folder: candidate.parent.join(label) };
    let tried = std::fs::create_dir(&base.folder).and_then(|()| base.try_out(candidate));
    tried.map(|()| base.clone()).map_err(|error| {
        base.remove();
        format!("{} cannot be used: {error}", base.folder.display())
    })
}

impl Group {
    fn try_out(&self, candidate: &Candidate) -> io::Result<()> {
        if candidate.limits && self.version == Version::V2 {
            for folder in [&candidate.parent, &self.folder] {
                hand_cpu_down(folder)?;
            }
        }
        let child = self.child("try")?;
        let result = if candidate.limits { child.limit(0.5) } else { Ok(()) };
        child.remove();
        result
    }

    /// A group below this one.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self { version: self.version, folder })
    }

    /// The file that a process writes itself into.
    pub(super) fn entrance(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Limits all its processes together.
    pub(super) fn limit(&self, cores: f64) -> io::Result<()> {
        let (quota, period) = quota_and_period_us(cores);
        match self.version {
            Version::V2 => write(&self.folder.join("cpu.max"), &format!("{quota} {period}")),
            Version::V1 => {
                write(&self.folder.join("cpu.cfs_period_us"), &period.to_string())?;
                write(&self.folder.join("cpu.cfs_quota_us"), &quota.to_string())
            }
        }
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        cgroup::processes(&self.folder).unwrap_or_default()
    }

    pub(super) fn cpu_stat(&self) -> CpuStat {
        cgroup::cpu_stat(&self.folder).unwrap_or_default()
    }

    /// Kills all its processes at one stroke; false where the kernel cannot (v1, and v2 before Linux 5.14).
    pub(super) fn kill(&self) -> bool {
        self.version == Version::V2 && write(&self.folder.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes it and what is below it; it must hold no living process. What stays is removed by the next supervisor.
    pub(super) fn remove(&self) {
        let until = Instant::now() + EMPTY_WAIT;
        // A killed process counts until the kernel has finished with it.
        while remove_tree(&self.folder).is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            std::thread::sleep(EMPTY_LOOK);
        }
    }

    /// Groups in `parent`, with their names.
    pub(super) fn below(version: Version, parent: &Path) -> Vec<(String, Self)> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), Self { version, folder: entry.path() }))
            .collect()
    }

    /// The groups directly below this one.
    pub(super) fn children(&self) -> Vec<Self> {
        Self::below(self.version, &self.folder).into_iter().map(|(_, group)| group).collect()
    }
}

/// Lets groups below this one share its CPU out, if they may not yet.
fn hand_cpu_down(folder: &Path) -> io::Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let handed = std::fs::read_to_string(&control)?;
    if handed.split_ascii_whitespace().any(|name| name == "cpu") { Ok(()) } else { write(&control, "+cpu") }
}

/// Folders only: the kernel's files in them cannot be removed, and go with them.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)?.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path())?;
    }
    std::fs::remove_dir(folder)
}

/// Never makes the file: in a hierarchy the kernel has, elsewhere it would be an ordinary file without effect.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let result = std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut f| io::Write::write_all(&mut f, text.as_bytes()));
    result.map_err(|error| io::Error::new(error.kind(), format!("{} refuses {text:?}: {error}", file.display())))
}

/// Of a limit in cores: the time that may be used in a period, and the period, in µs. A small share needs a longer
/// period, for the kernel takes no quota below [`QUOTA_MIN`].
fn quota_and_period_us(cores: f64) -> (u64, u64) {
    let period_us = (QUOTA_MIN.as_micros() as f64 / cores).ceil().max(PERIOD.as_micros() as f64);
    ((cores * period_us).round() as u64, period_us as u64)
}

#[cfg(test)]
mod tests;
