//! The firewall's connection table: `/proc/sys/net/netfilter`. Absent without the module.

use crate::root::{ProbeResult, Root};

/// Current number of entries.
pub const COUNT_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_count";
/// Maximum number of entries.
pub const MAX_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_max";
/// Lifetime of the entry of an ended connection, in s.
pub const TIME_WAIT_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait";

/// State of the connection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Current number of entries; 0 means that no rule requests tracking.
    pub count: u64,
    /// Maximum number of entries; packets of further connections are dropped.
    pub max: u64,
    /// Lifetime of the entry of an ended connection, in s.
    pub time_wait_s: u64,
}

/// Reads the table's state.
///
/// # Errors
/// Fails when the files are missing: the module is not loaded, or hidden in a container.
pub fn read(root: &Root) -> ProbeResult<Conntrack> {
    Ok(Conntrack {
        count: root.value(COUNT_FILE)?,
        max: root.value(MAX_FILE)?,
        // The kernel's default, in case only this file is hidden.
        time_wait_s: root.value(TIME_WAIT_FILE).unwrap_or(120),
    })
}
