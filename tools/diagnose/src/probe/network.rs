//! Counters of the network: TCP sockets (`/proc/net/sockstat`), incoming packets per CPU
//! (`/proc/net/softnet_stat`), the firewall's connection table (`/proc/sys/net/netfilter`), and
//! network namespaces (the link `/proc/PID/ns/net`).

use std::path::PathBuf;

use super::number;
use crate::root::{ProbeResult, Root};

/// Number of TCP sockets; cheap at any number.
pub const SOCKSTAT_FILE: &str = "proc/net/sockstat";

/// Counters of this network namespace; memory is the machine's. `in_use` excludes IPv6 sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockstat {
    /// IPv4 TCP sockets in use.
    pub in_use: u64,
    /// Sockets that no process holds any more.
    pub orphans: u64,
    /// Closed connections kept for 60 s, IPv6 included.
    pub time_wait: u64,
    /// TCP sockets of both families in all namespaces.
    pub allocated: u64,
    /// Memory of all buffers, in pages.
    pub memory_pages: u64,
}

/// Parses `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1`.
pub fn parse_sockstat(text: &str) -> Option<Sockstat> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let value = |name: &str| {
        number(&mut line.split_ascii_whitespace().skip_while(|word| *word != name).skip(1))
    };
    Some(Sockstat {
        in_use: value("inuse")?,
        orphans: value("orphan")?,
        time_wait: value("tw")?,
        allocated: value("alloc")?,
        memory_pages: value("mem")?,
    })
}

/// Incoming packets per CPU.
pub const SOFTNET_FILE: &str = "proc/net/softnet_stat";

/// Counters of all CPUs since boot (net/core/net-procfs.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets processed.
    pub processed: u64,
    /// Packets dropped because a queue was full (`net.core.netdev_max_backlog`).
    pub dropped: u64,
    /// Times that a processing round ended with work left (`net.core.netdev_budget`).
    pub squeezed: u64,
}

/// Parses one line per CPU, in hexadecimal; the number of columns depends on the kernel.
pub fn parse_softnet(text: &str) -> Option<Softnet> {
    let mut total = None;
    for line in text.lines() {
        let mut words =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
        let sum: &mut Softnet = total.get_or_insert_default();
        sum.processed = sum.processed.saturating_add(words.next()??);
        sum.dropped = sum.dropped.saturating_add(words.next()??);
        sum.squeezed = sum.squeezed.saturating_add(words.next()??);
    }
    total
}

impl Softnet {
    /// Returns the increase since `earlier`. The counters have 32 bits and wrap.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let added = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        Self {
            processed: added(self.processed, earlier.processed),
            dropped: added(self.dropped, earlier.dropped),
            squeezed: added(self.squeezed, earlier.squeezed),
        }
    }
}

/// Current number of entries of the connection table. Absent without the module.
pub const CONNTRACK_COUNT_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_count";
/// Maximum number of entries.
pub const CONNTRACK_MAX_FILE: &str = "proc/sys/net/netfilter/nf_conntrack_max";
/// Lifetime of the entry of an ended connection, in s.
pub const CONNTRACK_TIME_WAIT_FILE: &str =
    "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait";

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

/// Reads the state of the connection table.
///
/// # Errors
/// Fails when the files are missing: the module is not loaded, or hidden in a container.
pub fn read_conntrack(root: &Root) -> ProbeResult<Conntrack> {
    Ok(Conntrack {
        count: root.value(CONNTRACK_COUNT_FILE)?,
        max: root.value(CONNTRACK_MAX_FILE)?,
        // The kernel's default, in case only this file is hidden.
        time_wait_s: root.value(CONNTRACK_TIME_WAIT_FILE).unwrap_or(120),
    })
}

/// Returns the processes in a network namespace other than this process's, with the namespace's
/// name. Each has its own interfaces, sockets and counters, and `/proc/PID/net` shows those of the
/// process's namespace. Processes with an unknown namespace count as being in this one.
pub fn foreign_namespaces(root: &Root, pids: &[u32]) -> Vec<(u32, PathBuf)> {
    let name = |of: &str| std::fs::read_link(root.path(&format!("proc/{of}/ns/net"))).ok();
    let Some(own) = name("self") else { return Vec::new() };
    let other = |pid: &u32| Some((*pid, name(&pid.to_string()).filter(|name| *name != own)?));
    pids.iter().filter_map(other).collect()
}
