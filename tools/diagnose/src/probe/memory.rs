//! Total and available memory (`/proc/meminfo`); page faults, reclaim and swapping
//! (`/proc/vmstat`).

use super::named;

/// Total and available memory.
pub const MEMINFO_FILE: &str = "proc/meminfo";

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory managed by the kernel.
    pub total: u64,
    /// Memory available to programs without swapping, by the kernel's estimate.
    pub available: u64,
    /// Swap space.
    pub swap_total: u64,
    /// Free swap space.
    pub swap_free: u64,
    /// Commit limit without overcommit (`vm.overcommit_memory` = 2).
    pub commit_limit: u64,
    /// Committed memory.
    pub committed: u64,
    /// Kernel stacks of all threads.
    pub kernel_stacks: u64,
}

/// Parses the file. Its kB are 1024 bytes.
pub fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| named::<u64>(text, name)?.checked_mul(1024);
    Some(Memory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        swap_total: bytes("SwapTotal").unwrap_or_default(),
        swap_free: bytes("SwapFree").unwrap_or_default(),
        commit_limit: bytes("CommitLimit").unwrap_or(u64::MAX),
        committed: bytes("Committed_AS").unwrap_or_default(),
        kernel_stacks: bytes("KernelStack").unwrap_or_default(),
    })
}

/// Page faults, reclaim and swapping.
pub const VMSTAT_FILE: &str = "proc/vmstat";

/// Counters since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStat {
    /// Page faults of all kinds.
    pub faults: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// Pages scanned by the kernel's reclaim thread.
    pub scanned_kswapd: u64,
    /// Pages scanned by programs themselves before an allocation.
    pub scanned_direct: u64,
    /// Allocations in which a program had to reclaim memory itself.
    pub stalls: u64,
    /// Pages read from swap.
    pub swapped_in: u64,
    /// Pages written to swap.
    pub swapped_out: u64,
    /// Processes killed by the OOM killer; not reported before 4.13.
    pub oom_kills: Option<u64>,
}

/// Parses the file of [`VMSTAT_FILE`]: lines of `name count`.
pub fn parse_vmstat(text: &str) -> Option<VmStat> {
    // One counter per zone since 4.8; the set of zones depends on the architecture.
    let zones = text.lines().filter_map(|line| {
        line.strip_prefix("allocstall_")?.split_once(' ')?.1.trim().parse().ok()
    });
    Some(VmStat {
        faults: named(text, "pgfault")?,
        major_faults: named(text, "pgmajfault")?,
        scanned_kswapd: named(text, "pgscan_kswapd")?,
        scanned_direct: named(text, "pgscan_direct")?,
        stalls: zones.fold(named(text, "allocstall").unwrap_or_default(), u64::saturating_add),
        swapped_in: named(text, "pswpin").unwrap_or_default(),
        swapped_out: named(text, "pswpout").unwrap_or_default(),
        oom_kills: named(text, "oom_kill"),
    })
}

impl VmStat {
    /// Returns the increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            faults: self.faults.saturating_sub(earlier.faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            scanned_kswapd: self.scanned_kswapd.saturating_sub(earlier.scanned_kswapd),
            scanned_direct: self.scanned_direct.saturating_sub(earlier.scanned_direct),
            stalls: self.stalls.saturating_sub(earlier.stalls),
            swapped_in: self.swapped_in.saturating_sub(earlier.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(earlier.swapped_out),
            oom_kills: self
                .oom_kills
                .map(|kills| kills.saturating_sub(earlier.oom_kills.unwrap_or_default())),
        }
    }
}
