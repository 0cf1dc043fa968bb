//! What the limits of one process occupy.

use std::path::PathBuf;

use hotrow_diagnose::cgroup::CpuStat;

use super::cgroup::Group;

/// Resources of one process.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    /// Its groups; the limiting one first, if there is one.
    pub(super) groups: Vec<Group>,
    /// CPUs to which it is pinned; empty if it is not.
    pub(super) cpus: Vec<usize>,
    /// Effective limit, in cores.
    pub(super) limit_cores: Option<f64>,
    pub(super) requested_cores: f64,
}

impl Allocation {
    /// Returns the files through which the process joins its groups.
    pub(super) fn procs_files(&self) -> Vec<PathBuf> {
        self.groups.iter().map(Group::procs_file).collect()
    }

    /// Returns whether all its processes are listed.
    pub(super) fn lists(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns its processes, as far as the kernel lists them.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.groups.first().map(Group::processes).unwrap_or_default()
    }

    /// Kills all of them at once, if the kernel can.
    pub(super) fn kill(&self) {
        self.groups.iter().any(Group::kill);
    }

    /// Returns the kernel's counters: CPU time from a v2 group, periods from a limiting group.
    pub(super) fn cpu_stat(&self) -> CpuStat {
        let stats: Vec<CpuStat> = self.groups.iter().map(Group::cpu_stat).collect();
        let limited = stats.iter().max_by_key(|stat| stat.periods).copied().unwrap_or_default();
        CpuStat { usage: stats.iter().find_map(|stat| stat.usage), ..limited }
    }
}
