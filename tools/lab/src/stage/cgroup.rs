//! Control groups of the supervisor: one folder per supervisor, `hotrow-lab-…`, with one group per
//! process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotrow_diagnose::cgroup::{self, CpuStat, Hierarchy, Version};

/// Period of CPU limits. With the kernel's default of 100 ms, a process with a quarter of a core
/// would run for 25 ms and pause for 75 ms, and the pause would dominate the measured latency.
pub(super) const PERIOD: Duration = Duration::from_millis(10);
/// Smallest quota that the kernel accepts (`min_cfs_quota_period` in kernel/sched/core.c).
const QUOTA_MIN: Duration = Duration::from_millis(1);
/// Time limit until a killed group is empty.
const EMPTY_WAIT: Duration = Duration::from_secs(2);
/// Polling interval for that.
const EMPTY_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// CPU weight of a group against its siblings: the groups and processes of its parent folder.
/// A group weighs as much as one ordinary process by default, however many processes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// All processes of the deployment together: the kernel's maximum.
    Deployment,
    /// A quarter of that, as a generator of one process has beside a deployment of four.
    Generator,
}

impl Weight {
    /// Returns the value in the unit of the interface: `cpu.shares` of v1, of which an ordinary
    /// process has 1024, and `cpu.weight` of v2, of which it has 100.
    pub(super) fn value(self, version: Version) -> u32 {
        match (self, version) {
            (Self::Deployment, Version::V1) => 262_144,
            (Self::Generator, Version::V1) => 262_144 / 4,
            (Self::Deployment, Version::V2) => 10_000,
            (Self::Generator, Version::V2) => 10_000 / 4,
        }
    }
}

/// A folder where groups may be possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) version: Version,
    /// True if limits are possible there; otherwise processes are only counted, found and killed.
    pub(super) limits: bool,
    /// Parent of the supervisor's folder.
    pub(super) parent: PathBuf,
}

/// A group created by this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    version: Version,
    folder: PathBuf,
}

/// Returns the candidates, the best first, and the reasons against others. Only an attempt shows
/// which work.
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
            reasons.push(format!(
                "cgroup v2 at {} has no cpu controller for this process",
                hierarchy.own.display()
            ));
        }
        found.push(Candidate { version, limits, parent: hierarchy.own.clone() });
        // A v2 group with processes cannot distribute CPU to child groups; a sibling can.
        let sibling_of =
            hierarchy.own.parent().filter(|parent| parent.starts_with(&hierarchy.mount));
        if let (Version::V2, Some(parent)) = (version, sibling_of) {
            found.push(Candidate { version, limits, parent: parent.to_owned() });
        }
    }
    if hierarchies.is_empty() {
        reasons.push("no cgroups are mounted".to_owned());
    }
    // Candidates with limits first: v2, then v1; those that only count come last.
    found.sort_by_key(|candidate| !candidate.limits);
    (found, reasons)
}

/// Creates the supervisor's folder and verifies the candidate. `enter` tests whether a process may
/// be moved into a group, which can fail even if the group can be created.
pub(super) fn make(
    candidate: &Candidate,
    label: &str,
    enter: impl Fn(PathBuf) -> Result<(), String>,
) -> Result<Group, String> {
    let base = Group { version: candidate.version, folder: candidate.parent.join(label) };
    let tried = std::fs::create_dir(&base.folder).and_then(|()| base.verify(candidate, enter));
    tried.map(|()| base.clone()).map_err(|error| {
        base.remove();
        format!("{} cannot be used: {error}", base.folder.display())
    })
}

impl Group {
    fn verify(
        &self,
        candidate: &Candidate,
        enter: impl Fn(PathBuf) -> Result<(), String>,
    ) -> io::Result<()> {
        if candidate.limits && self.version == Version::V2 {
            for folder in [&candidate.parent, &self.folder] {
                delegate_cpu(folder)?;
            }
        }
        let child = self.child("try")?;
        let limited = if candidate.limits { child.limit(0.5) } else { Ok(()) };
        let entered = limited.and_then(|()| enter(child.procs_file()).map_err(io::Error::other));
        child.remove();
        entered
    }

    /// Creates a child group.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self { version: self.version, folder })
    }

    /// Returns the file through which a process joins.
    pub(super) fn procs_file(&self) -> PathBuf {
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

    /// Creates a group beside this one, under the same parent.
    pub(super) fn sibling(&self, suffix: &str) -> io::Result<Self> {
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        name.push(suffix);
        let folder = self.folder.with_file_name(name);
        std::fs::create_dir(&folder)?;
        Ok(Self { version: self.version, folder })
    }

    /// Sets its weight against its siblings. The limits of its children are unaffected.
    pub(super) fn set_weight(&self, weight: Weight) -> io::Result<()> {
        let file = match self.version {
            Version::V1 => "cpu.shares",
            Version::V2 => "cpu.weight",
        };
        write(&self.folder.join(file), &weight.value(self.version).to_string())
    }

    /// Moves a process and all its threads into the group.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        write(&self.procs_file(), &pid.to_string())
    }

    /// Moves all its processes to another group's file; one that has ended is gone anyway.
    pub(super) fn move_processes(&self, procs_file: &Path) {
        for pid in self.processes() {
            let _ = write(procs_file, &pid.to_string());
        }
    }

    /// Removes it if no process is in it.
    pub(super) fn remove_if_empty(&self) {
        let _ = std::fs::remove_dir(&self.folder);
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        cgroup::processes(&self.folder).unwrap_or_default()
    }

    pub(super) fn cpu_stat(&self) -> CpuStat {
        cgroup::cpu_stat(&self.folder).unwrap_or_default()
    }

    /// Kills all its processes at once; returns false if the kernel cannot (v1, and v2 before Linux
    /// 5.14).
    pub(super) fn kill(&self) -> bool {
        self.version == Version::V2 && write(&self.folder.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes it and its children; no process may be alive in it. Remains are removed by the next
    /// supervisor.
    pub(super) fn remove(&self) {
        let until = Instant::now() + EMPTY_WAIT;
        // A killed process counts until the kernel has released it.
        while remove_tree(&self.folder).is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            std::thread::sleep(EMPTY_POLL_INTERVAL);
        }
    }

    /// Returns the groups in `parent`, with their names.
    pub(super) fn below(version: Version, parent: &Path) -> Vec<(String, Self)> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders
            .map(|entry| {
                (
                    entry.file_name().to_string_lossy().into_owned(),
                    Self { version, folder: entry.path() },
                )
            })
            .collect()
    }

    /// Returns the direct child groups.
    pub(super) fn children(&self) -> Vec<Self> {
        Self::below(self.version, &self.folder).into_iter().map(|(_, group)| group).collect()
    }
}

/// Enables the CPU controller for child groups.
fn delegate_cpu(folder: &Path) -> io::Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let handed = std::fs::read_to_string(&control)?;
    if handed.split_ascii_whitespace().any(|name| name == "cpu") {
        Ok(())
    } else {
        write(&control, "+cpu")
    }
}

/// Removes folders only: the kernel's files in them cannot be removed separately.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)?
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        remove_tree(&entry.path())?;
    }
    std::fs::remove_dir(folder)
}

/// Writes without creating the file: outside a cgroup file system it would be an ordinary file
/// without effect.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let result = std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut f| io::Write::write_all(&mut f, text.as_bytes()));
    result.map_err(|error| {
        io::Error::new(error.kind(), format!("{} rejects {text:?}: {error}", file.display()))
    })
}

/// Returns quota and period in µs for a limit in cores. A small share needs a longer period,
/// because the kernel accepts no quota below [`QUOTA_MIN`].
fn quota_and_period_us(cores: f64) -> (u64, u64) {
    let period_us = (QUOTA_MIN.as_micros() as f64 / cores).ceil().max(PERIOD.as_micros() as f64);
    ((cores * period_us).round() as u64, period_us as u64)
}

#[cfg(test)]
mod tests;
