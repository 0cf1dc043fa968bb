//! Network namespaces: the link `/proc/PID/ns/net`. Each has interfaces, sockets and counters of its own, and
//! `/proc/PID/net` shows those of the process's.

use std::path::PathBuf;

use crate::root::Root;

/// Those of some processes whose network namespace is another than this process's, with its name. A process whose namespace may
/// not be known counts as being in this one.
#[must_use]
pub fn foreign(root: &Root, pids: &[u32]) -> Vec<(u32, PathBuf)> {
    let name = |of: &str| std::fs::read_link(root.path(&format!("proc/{of}/ns/net"))).ok();
    let Some(own) = name("self") else { return Vec::new() };
    let other = |pid: &u32| Some((*pid, name(&pid.to_string()).filter(|name| *name != own)?));
    pids.iter().filter_map(other).collect()
}
