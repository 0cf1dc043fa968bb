//! How many TCP sockets there are: `/proc/net/sockstat`. Cheap, whatever their number.

use super::number;

/// The file.
pub const FILE: &str = "proc/net/sockstat";

/// Of this network namespace, but for the memory, which is the machine's. IPv6 sockets in use are not in `in_use`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockstat {
    /// IPv4 TCP sockets in use.
    pub in_use: u64,
    /// Sockets that no process holds any more.
    pub orphans: u64,
    /// Connections that ended and are remembered for 60 s; IPv6 too.
    pub time_wait: u64,
    /// TCP sockets of both families in all namespaces.
    pub allocated: u64,
    /// Memory of all their buffers, in pages.
    pub memory_pages: u64,
}

/// Reads the file's text: `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1`.
#[must_use]
pub fn parse(text: &str) -> Option<Sockstat> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let value = |name: &str| number(&mut line.split_ascii_whitespace().skip_while(|word| *word != name).skip(1));
    Some(Sockstat {
        in_use: value("inuse")?,
        orphans: value("orphan")?,
        time_wait: value("tw")?,
        allocated: value("alloc")?,
        memory_pages: value("mem")?,
    })
}
