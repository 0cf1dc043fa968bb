//! Number of TCP sockets: `/proc/net/sockstat`. Cheap at any number.

use super::number;

/// The file's path.
pub const FILE: &str = "proc/net/sockstat";

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
#[must_use]
pub fn parse(text: &str) -> Option<Sockstat> {
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
