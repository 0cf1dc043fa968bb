//! Network namespaces: the link `/proc/PID/ns/net`. Each has its own interfaces, sockets and
//! counters, and `/proc/PID/net` shows those of the process's namespace.

use std::path::PathBuf;

use crate::root::Root;

/// Returns the processes in a network namespace other than this process's, with the namespace's
/// name. Processes with an unknown namespace count as being in this one.
#[must_use]
pub fn foreign(root: &Root, pids: &[u32]) -> Vec<(u32, PathBuf)> {
    let name = |of: &str| std::fs::read_link(root.path(&format!("proc/{of}/ns/net"))).ok();
    let Some(own) = name("self") else { return Vec::new() };
    let other = |pid: &u32| Some((*pid, name(&pid.to_string()).filter(|name| *name != own)?));
    pids.iter().filter_map(other).collect()
}
