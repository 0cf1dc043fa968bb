//! How a process's cgroups hold it, and how often they did: `cpu.max`, `memory.max`, `pids.max` and their events (v2),
//! or `cpu.cfs_quota_us`, `memory.limit_in_bytes` and `pids.max` (v1).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::named;
use crate::cgroup::{self, Hierarchy, Version};
use crate::root::{READ_BYTES_FIRST, Root, Seen, Unseen, Why};

/// v1 says "no limit" by the largest number of whole pages; whatever is near it is none.
const V1_NO_LIMIT_BYTES: u64 = 1 << 62;
/// Deepest nesting of groups that is followed.
const DEPTH_MAX: usize = 64;
/// Fewer periods than this tell nothing of how a group is held up.
pub const PERIODS_MIN: u64 = 5;

/// Which controller holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Threads and processes.
    Pids,
}

/// The limit of the group, of all from the own one up, that has the least left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it allows: threads, or bytes.
    pub limit: u64,
    /// What the group and those below it use; of memory, without what the kernel gives back first when it is short: the page cache
    /// that was not used lately (`inactive_file`).
    pub used: u64,
    /// The file with the limit.
    pub file: PathBuf,
}

/// CPU that a group may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// In CPUs.
    pub cores: f64,
    /// The file with the limit.
    pub file: PathBuf,
}

/// What holds a process; `None` is no limit that can be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Threads.
    pub pids: Option<Held>,
    /// Memory in bytes.
    pub memory: Option<Held>,
    /// CPU.
    pub cpu: Option<Quota>,
}

/// What a process's groups count. What cannot be read is 0 or none: a root group has hardly any of these files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Periods in which the group wanted to run while it had a limit. This and the next two are the own group's in [`Groups::counters`],
    /// and those of the group that held the process up most, of all from the own one up, in [`Counted::since`].
    pub periods: u64,
    /// Those in which it was held up.
    pub throttled_periods: u64,
    /// How long its threads were held up, together.
    pub throttled: Duration,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory that it may use, in bytes.
    pub memory_max_bytes: Option<u64>,
    /// Times that it reached its memory limit.
    pub memory_refusals: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Times that a thread or process could not be made for `pids.max`.
    pub pids_refusals: u64,
}

/// How often a group's quota held up whoever is in it or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The group's folder.
    pub group: Arc<Path>,
    /// Periods in which the group wanted to run while it had a limit.
    pub periods: u64,
    /// Those in which it was held up.
    pub throttled_periods: u64,
    /// How long its threads were held up, together.
    pub throttled: Duration,
}

/// What the groups of a process count, those above its own included: a quota holds whatever is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What its own groups count.
    pub own: Counters,
    /// From its own group up to the highest that can be seen; at most 64.
    pub throttles: Vec<Throttle>,
}

/// Where the groups of one process are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups(Vec<Hierarchy>);

impl Groups {
    /// Those of a process: `self`, or its id. Without cgroups there are none.
    ///
    /// # Errors
    /// When the kernel's lists cannot be read.
    pub fn of(root: &Root, process: &str) -> Seen<Self> {
        let unseen = |error: &std::io::Error| Unseen { file: format!("proc/{process}/cgroup"), why: Why::of(error) };
        cgroup::hierarchies_of(root.folder(), process).map(Self).map_err(|error| unseen(&error))
    }

    /// What holds the process.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { pids: self.held(Controller::Pids), memory: self.held(Controller::Memory), cpu: self.quota() }
    }

    /// Its own group's folder for a controller, and the interface.
    #[must_use]
    pub fn folder(&self, controller: Controller) -> Option<(&Path, Version)> {
        self.hierarchy(controller).map(|found| (found.own.as_path(), found.version))
    }

    /// What its own group counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counted().own
    }

    /// What its own group counts, and how that and those above it are held up.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let found = self.hierarchy(Controller::Cpu);
        let throttles: Vec<Throttle> = found.into_iter().flat_map(groups).map(Throttle::of).collect();
        let mut own = self.own_counters();
        if let Some(first) = throttles.first() {
            own.set_throttle(first);
        }
        Counted { own, throttles }
    }

    fn own_counters(&self) -> Counters {
        let mut counters = Counters::default();
        if let Some(found) = self.hierarchy(Controller::Memory) {
            counters.add_memory(found);
        }
        if let Some(found) = self.hierarchy(Controller::Pids) {
            counters.pids_refusals = named(&text(&found.own.join("pids.events")), "max").unwrap_or_default();
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

    fn held(&self, controller: Controller) -> Option<Held> {
        let found = self.hierarchy(controller)?;
        let (limit, used) = match (controller, found.version) {
            (Controller::Pids, _) => ("pids.max", "pids.current"),
            (_, Version::V2) => ("memory.max", "memory.current"),
            (_, Version::V1) => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        };
        let held = groups(found).filter_map(|group| {
            let file = group.join(limit);
            let limit: u64 = text(&file).trim().parse().ok().filter(|limit| *limit < V1_NO_LIMIT_BYTES)?;
            let used: u64 = text(&group.join(used)).trim().parse().ok()?;
            let cache = if controller == Controller::Memory { cache(group, found.version) } else { 0 };
            Some(Held { limit, used: used.saturating_sub(cache), file })
        });
        held.min_by_key(Held::left)
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
                Some(Quota { cores: parse_cpu_max(&format!("{} {period}", text(&file).trim()))?, file })
            }
        });
        quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
    }
}

impl Held {
    /// What is left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl Counters {
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
                self.memory_max_bytes = number("memory.limit_in_bytes").filter(|limit| *limit < V1_NO_LIMIT_BYTES);
                self.memory_refusals = number("memory.failcnt").unwrap_or_default();
                let control = text(&found.own.join("memory.oom_control"));
                self.oom_kills = named(&control, "oom_kill").unwrap_or_default();
            }
        }
    }

    /// What was added since `earlier`; levels stay what they are.
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

impl Counted {
    /// What was added since `earlier`, and the group that held the process up most; none where none did. Of the quotas in force it is that
    /// one that counts, wherever it stands: what is held up there runs nowhere below.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> (Counters, Option<Arc<Path>>) {
        let mut counters = self.own.since(&earlier.own);
        let before = |now: &Throttle| earlier.throttles.iter().find(|before| before.group == now.group);
        let added = self.throttles.iter().filter_map(|now| Some(now.since(before(now)?)));
        let held_up = added.filter(|throttle| throttle.throttled_periods > 0);
        // The nearest of equals: who can change that one changes the least.
        let most = held_up.reduce(|most, next| if next.holds_up_more_than(&most) { next } else { most });
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

    /// By the share of its periods, where there are enough to tell; between equals by the time.
    fn holds_up_more_than(&self, other: &Self) -> bool {
        let tells = |of: &Self| of.periods >= PERIODS_MIN;
        let share = |of: &Self| of.throttled_periods as f64 / of.periods.max(1) as f64;
        let by_share = tells(self).cmp(&tells(other)).then(share(self).total_cmp(&share(other)));
        by_share.then(self.throttled.cmp(&other.throttled)).is_gt()
    }
}

/// `max 100000`, `50000 100000`, and of v1 `-1 100000`: CPUs; none without a limit.
#[must_use]
pub fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period): (u64, u64) = (super::number(&mut words)?, super::number(&mut words)?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Page cache of a group and those below it that goes first, in bytes.
fn cache(group: &Path, version: Version) -> u64 {
    // v1 counts the group alone without the prefix.
    let name = match version {
        Version::V2 => "inactive_file",
        Version::V1 => "total_inactive_file",
    };
    named(&text(&group.join("memory.stat")), name).unwrap_or_default()
}

/// From the own group up to the highest that can be seen.
fn groups(found: &Hierarchy) -> impl Iterator<Item = &Path> {
    found.own.ancestors().take(DEPTH_MAX).take_while(|group| group.starts_with(&found.mount))
}

/// What cannot be read holds nothing.
fn text(file: &Path) -> String {
    let mut text = String::with_capacity(READ_BYTES_FIRST);
    let read = File::open(file).and_then(|mut file| file.read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

#[cfg(test)]
mod tests;
