//! Connections that the firewall remembers: `/proc/sys/net/netfilter`. Without the module there is nothing.

use crate::root::{Root, Seen};

/// Entries now.
pub const COUNT_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_count";
/// Entries at most.
pub const MAX_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_max";
/// How long an ended connection keeps its entry, in s.
pub const TIME_WAIT_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait";

/// The table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries now. None at all means that no rule asks for it, so that nothing is remembered.
    pub count: u64,
    /// Entries at most; packets of further connections are dropped.
    pub max: u64,
    /// How long an ended connection keeps its entry, in s.
    pub time_wait_s: u64,
}

/// Reads the table's size.
///
/// # Errors
/// When it is not told: the module is not loaded, or hidden in a container.
pub fn read(root: &Root) -> Seen<Conntrack> {
    Ok(Conntrack {
        count: root.value(COUNT_FILE)?,
        max: root.value(MAX_FILE)?,
        // The kernel's default, should only this one be hidden.
        time_wait_s: root.value(TIME_WAIT_FILE).unwrap_or(120),
    })
}
