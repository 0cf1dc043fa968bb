//! Values read only at the ends of an interval because of their cost: all processes of the machine,
//! and context switches of threads.

use std::collections::HashMap;

use crate::probe::status::{self, Switches};
use crate::probe::task;
use crate::process::{self, Stat};
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// Most processes examined; those with the lowest ids.
pub const PROCESSES_MAX: usize = 4096;
/// Most threads of one process whose context switches are read; those with the lowest ids.
pub const SWITCHES_THREADS_MAX: usize = 1024;

/// The additional values of a sample at the end of an interval.
#[derive(Clone, Debug)]
pub struct EndpointSample {
    /// All visible processes.
    pub processes_of_machine: ProbeResult<Vec<Stat>>,
    /// The error of an invisible process, if there is one.
    pub hidden: Option<ProbeError>,
    /// Context switches by thread id, by process id of each watched process.
    pub switches: HashMap<u32, HashMap<u32, Switches>>,
}

impl EndpointSample {
    pub(super) fn of(root: &Root, watched: impl Iterator<Item = u32>) -> Self {
        let processes_of_machine = processes_of_machine(root);
        let hidden = processes_of_machine
            .as_ref()
            .ok()
            .and_then(|processes_of_machine| hidden(root, processes_of_machine));
        Self {
            processes_of_machine,
            hidden,
            switches: watched.map(|pid| (pid, switches(root, pid))).collect(),
        }
    }
}

fn processes_of_machine(root: &Root) -> ProbeResult<Vec<Stat>> {
    let entries = std::fs::read_dir(root.path("proc"));
    let entries = entries
        .map_err(|error| ProbeError { file: "proc".to_owned(), why: ProbeErrorKind::of(&error) })?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    // Processes that end during the read are left out.
    Ok(pids
        .into_iter()
        .take(PROCESSES_MAX)
        .filter_map(|pid| process::stat(&root.path("proc"), pid).ok())
        .collect())
}

/// Every PID namespace has a process 1. If it is not visible, processes of other users are hidden
/// (mount option `hidepid`).
fn hidden(root: &Root, processes_of_machine: &[Stat]) -> Option<ProbeError> {
    let seen =
        processes_of_machine.iter().any(|stat| stat.pid == 1) || !root.path("proc/self").exists();
    (!seen).then(|| ProbeError {
        file: "proc/1/stat".to_owned(),
        why: ProbeErrorKind::PermissionDenied,
    })
}

fn switches(root: &Root, pid: u32) -> HashMap<u32, Switches> {
    let tids = task::ids(root, pid).unwrap_or_default();
    let of = |tid: u32| {
        let file = format!("proc/{pid}/task/{tid}/status");
        Some((tid, root.parse(&file, status::parse_switches).ok()?))
    };
    tids.into_iter().take(SWITCHES_THREADS_MAX).filter_map(of).collect()
}
