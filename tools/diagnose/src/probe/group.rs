//! Limits and throttling of a process's cgroups: `cpu.max`, `memory.max`, `pids.max` and their
//! events (v2), or `cpu.cfs_quota_us`, `memory.limit_in_bytes` and `pids.max` (v1).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::named;
use crate::cgroup::{self, Hierarchy, Version};
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, READ_BYTES_FIRST, Root};

/// v1 encodes "no limit" as the largest number of whole pages; values near it mean the same.
const V1_NO_LIMIT_BYTES: u64 = 1 << 62;
/// Deepest nesting of groups that is followed.
const DEPTH_MAX: usize = 64;
/// Minimum number of periods for a judgement on throttling.
pub const PERIODS_MIN: u64 = 5;

/// A cgroup controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Threads and processes.
    Pids,
}

/// The limit with the least remaining room, among the own group and its ancestors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// The limit, in threads or bytes.
    pub limit: u64,
    /// Use by the group and its descendants. Memory excludes reclaimable page cache
    /// (`inactive_file`).
    pub used: u64,
    /// The file of the limit.
    pub file: PathBuf,
}

/// A CPU quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// The quota in CPUs.
    pub cores: f64,
    /// The file of the quota.
    pub file: PathBuf,
}

/// The limits of a process; `None` where no limit is visible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Threads.
    pub pids: Option<GroupLimit>,
    /// Memory in bytes.
    pub memory: Option<GroupLimit>,
    /// CPU.
    pub cpu: Option<Quota>,
}

/// Counters of a process's groups. Unreadable ones are 0 or `None`: a root group has hardly any of
/// these files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Periods in which the group was runnable under a limit. In [`Groups::counters`] this and the
    /// next two belong to the own group, in [`GroupStats::since`] to the most throttled group among
    /// it and its ancestors.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Total throttled time of its threads.
    pub throttled: Duration,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory that it may use, in bytes.
    pub memory_max_bytes: Option<u64>,
    /// Number of times that it reached its memory limit.
    pub memory_refusals: u64,
    /// Processes killed by the OOM killer.
    pub oom_kills: u64,
    /// Number of threads or processes refused by `pids.max`.
    pub pids_refusals: u64,
}

/// The throttling of a group and its descendants by its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The group's folder.
    pub group: Arc<Path>,
    /// Periods in which the group was runnable under a limit.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Total throttled time of its threads.
    pub throttled: Duration,
}

/// Counters of a process's groups and their ancestors: a quota applies to all descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Counters of its own groups.
    pub own: GroupCounters,
    /// From its own group up to the highest visible one; at most 64.
    pub throttles: Vec<Throttle>,
}

/// The groups of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups(Vec<Hierarchy>);

impl Groups {
    /// Finds the groups of a process: `self`, or its id. Empty without cgroups.
    ///
    /// # Errors
    /// Fails when the kernel's lists cannot be read.
    pub fn of(root: &Root, process: &str) -> ProbeResult<Self> {
        let probe_error = |error: &std::io::Error| ProbeError {
            file: format!("proc/{process}/cgroup"),
            why: ProbeErrorKind::of(error),
        };
        cgroup::hierarchies_of(root.folder(), process)
            .map(Self)
            .map_err(|error| probe_error(&error))
    }

    /// Returns the limits of the process.
    pub fn limits(&self) -> Limits {
        Limits {
            pids: self.tightest_limit(Controller::Pids),
            memory: self.tightest_limit(Controller::Memory),
            cpu: self.quota(),
        }
    }

    /// Returns its own group's folder for a controller, and the interface version.
    pub fn folder(&self, controller: Controller) -> Option<(&Path, Version)> {
        self.hierarchy(controller).map(|found| (found.own.as_path(), found.version))
    }

    /// Returns the counters of its own group.
    pub fn counters(&self) -> GroupCounters {
        self.counted().own
    }

    /// Returns the counters of its own group, and the throttling of it and its ancestors.
    pub fn counted(&self) -> GroupStats {
        let found = self.hierarchy(Controller::Cpu);
        let throttles: Vec<Throttle> =
            found.into_iter().flat_map(groups).map(Throttle::of).collect();
        let mut own = self.own_counters();
        if let Some(first) = throttles.first() {
            own.set_throttle(first);
        }
        GroupStats { own, throttles }
    }

    fn own_counters(&self) -> GroupCounters {
        let mut counters = GroupCounters::default();
        if let Some(found) = self.hierarchy(Controller::Memory) {
            counters.add_memory(found);
        }
        if let Some(found) = self.hierarchy(Controller::Pids) {
            counters.pids_refusals =
                named(&text(&found.own.join("pids.events")), "max").unwrap_or_default();
        }
        counters
    }

    fn hierarchy(&self, controller: Controller) -> Option<&Hierarchy> {
        let name = match controller {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        };
        self.0.iter().find(|found| found.controllers.iter().any(|c| c == name))
    }

    fn tightest_limit(&self, controller: Controller) -> Option<GroupLimit> {
        let found = self.hierarchy(controller)?;
        let (limit, used) = match (controller, found.version) {
            (Controller::Pids, _) => ("pids.max", "pids.current"),
            (_, Version::V2) => ("memory.max", "memory.current"),
            (_, Version::V1) => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        };
        let tightest_limit = groups(found).filter_map(|group| {
            let file = group.join(limit);
            let limit: u64 =
                text(&file).trim().parse().ok().filter(|limit| *limit < V1_NO_LIMIT_BYTES)?;
            let used: u64 = text(&group.join(used)).trim().parse().ok()?;
            let cache =
                if controller == Controller::Memory { cache(group, found.version) } else { 0 };
            Some(GroupLimit { limit, used: used.saturating_sub(cache), file })
        });
        tightest_limit.min_by_key(GroupLimit::left)
    }

    fn quota(&self) -> Option<Quota> {
        let found = self.hierarchy(Controller::Cpu)?;
        let quotas = groups(found).filter_map(|group| match found.version {
            Version::V2 => {
                let file = group.join("cpu.max");
                Some(Quota { cores: parse_cpu_max(&text(&file))?, file })
            }
            Version::V1 => {
                let file = group.join("cpu.cfs_quota_us");
                let period = text(&group.join("cpu.cfs_period_us"));
                Some(Quota {
                    cores: parse_cpu_max(&format!("{} {period}", text(&file).trim()))?,
                    file,
                })
            }
        });
        quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
    }
}

impl GroupLimit {
    /// Returns the remaining room.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl GroupCounters {
    fn set_throttle(&mut self, throttle: &Throttle) {
        (self.periods, self.throttled_periods) = (throttle.periods, throttle.throttled_periods);
        self.throttled = throttle.throttled;
    }

    fn add_memory(&mut self, found: &Hierarchy) {
        let number = |file: &str| text(&found.own.join(file)).trim().parse::<u64>().ok();
        match found.version {
            Version::V2 => {
                let events = text(&found.own.join("memory.events"));
                self.memory_bytes = number("memory.current");
                self.memory_max_bytes = number("memory.max");
                self.memory_refusals = named(&events, "max").unwrap_or_default();
                self.oom_kills = named(&events, "oom_kill").unwrap_or_default();
            }
            Version::V1 => {
                self.memory_bytes = number("memory.usage_in_bytes");
                self.memory_max_bytes =
                    number("memory.limit_in_bytes").filter(|limit| *limit < V1_NO_LIMIT_BYTES);
                self.memory_refusals = number("memory.failcnt").unwrap_or_default();
                let control = text(&found.own.join("memory.oom_control"));
                self.oom_kills = named(&control, "oom_kill").unwrap_or_default();
            }
        }
    }

    /// Returns the increase since `earlier`; levels keep their values.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            memory_refusals: self.memory_refusals.saturating_sub(earlier.memory_refusals),
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            pids_refusals: self.pids_refusals.saturating_sub(earlier.pids_refusals),
            ..*self
        }
    }
}

impl GroupStats {
    /// Returns the increase since `earlier`, and the most throttled group, if any. Only that quota
    /// matters: a thread that it throttles does not run in a descendant.
    pub fn since(&self, earlier: &Self) -> (GroupCounters, Option<Arc<Path>>) {
        let mut counters = self.own.since(&earlier.own);
        let before =
            |now: &Throttle| earlier.throttles.iter().find(|before| before.group == now.group);
        let added = self.throttles.iter().filter_map(|now| Some(now.since(before(now)?)));
        let held_up = added.filter(|throttle| throttle.throttled_periods > 0);
        // Prefers the nearest of equals: changing that one affects the least.
        let most =
            held_up.reduce(|most, next| if next.throttles_more_than(&most) { next } else { most });
        if let Some(most) = &most {
            counters.set_throttle(most);
        }
        (counters, most.map(|most| most.group))
    }
}

impl Throttle {
    fn of(group: &Path) -> Self {
        let stat = text(&group.join("cpu.stat"));
        let v1 = || named(&stat, "throttled_time").map(Duration::from_nanos);
        let throttled = named(&stat, "throttled_usec").map(Duration::from_micros).or_else(v1);
        Self {
            group: group.into(),
            periods: named(&stat, "nr_periods").unwrap_or_default(),
            throttled_periods: named(&stat, "nr_throttled").unwrap_or_default(),
            throttled: throttled.unwrap_or_default(),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            group: Arc::clone(&self.group),
            periods: self.periods.saturating_sub(earlier.periods),
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
        }
    }

    /// Compares by the share of throttled periods, where there are enough; then by time.
    fn throttles_more_than(&self, other: &Self) -> bool {
        let has_enough_periods = |of: &Self| of.periods >= PERIODS_MIN;
        let share = |of: &Self| of.throttled_periods as f64 / of.periods.max(1) as f64;
        let by_share = has_enough_periods(self)
            .cmp(&has_enough_periods(other))
            .then(share(self).total_cmp(&share(other)));
        by_share.then(self.throttled.cmp(&other.throttled)).is_gt()
    }
}

/// Parses `max 100000`, `50000 100000`, and `-1 100000` of v1, as CPUs; `None` without a limit.
pub fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period): (u64, u64) = (super::number(&mut words)?, super::number(&mut words)?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Returns the reclaimable page cache of a group and its descendants, in bytes.
fn cache(group: &Path, version: Version) -> u64 {
    // Without the prefix, v1 counts only the group itself.
    let name = match version {
        Version::V2 => "inactive_file",
        Version::V1 => "total_inactive_file",
    };
    named(&text(&group.join("memory.stat")), name).unwrap_or_default()
}

/// Iterates from the own group up to the highest visible one.
fn groups(found: &Hierarchy) -> impl Iterator<Item = &Path> {
    found.own.ancestors().take(DEPTH_MAX).take_while(|group| group.starts_with(&found.mount))
}

/// Returns a file's text; empty when unreadable, which means no limit.
fn text(file: &Path) -> String {
    let mut text = String::with_capacity(READ_BYTES_FIRST);
    let read = File::open(file).and_then(|mut file| file.read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

#[cfg(test)]
mod tests;
