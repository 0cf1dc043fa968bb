//! What only the two samples at the ends of a stretch hold, for it costs more: all processes of the machine, and how often
//! threads were switched.

use std::collections::HashMap;

use crate::probe::status::{self, Switches};
use crate::probe::task;
use crate::process::{self, Stat};
use crate::root::{Root, Seen, Unseen, Why};

/// Most processes that are looked at; those with the lowest ids.
pub const PROCESSES_MAX: usize = 4096;
/// Most threads of one process whose switches are read; those with the lowest ids.
pub const SWITCHES_THREADS_MAX: usize = 1024;

/// Only in samples at the ends of a stretch.
#[derive(Clone, Debug)]
pub struct End {
    /// All processes that may be seen.
    pub everyone: Seen<Vec<Stat>>,
    /// A process that may not be seen, if there is one.
    pub hidden: Option<Unseen>,
    /// Of each watched process, by its id: its threads' switches, by theirs.
    pub switches: HashMap<u32, HashMap<u32, Switches>>,
}

impl End {
    pub(super) fn of(root: &Root, watched: impl Iterator<Item = u32>) -> Self {
        let everyone = everyone(root);
        let hidden = everyone.as_ref().ok().and_then(|everyone| hidden(root, everyone));
        Self { everyone, hidden, switches: watched.map(|pid| (pid, switches(root, pid))).collect() }
    }
}

fn everyone(root: &Root) -> Seen<Vec<Stat>> {
    let entries = std::fs::read_dir(root.path("proc"));
    let entries = entries.map_err(|error| Unseen { file: "proc".to_owned(), why: Why::of(&error) })?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    // Those that end meanwhile are left out.
    Ok(pids.into_iter().take(PROCESSES_MAX).filter_map(|pid| process::stat(&root.path("proc"), pid).ok()).collect())
}

/// Every namespace of processes has a first one. Who does not see it does not see those of other users (mount option `hidepid`).
fn hidden(root: &Root, everyone: &[Stat]) -> Option<Unseen> {
    let seen = everyone.iter().any(|stat| stat.pid == 1) || !root.path("proc/self").exists();
    (!seen).then(|| Unseen { file: "proc/1/stat".to_owned(), why: Why::Forbidden })
}

fn switches(root: &Root, pid: u32) -> HashMap<u32, Switches> {
    let tids = task::ids(root, pid).unwrap_or_default();
    let of = |tid: u32| {
        let file = format!("proc/{pid}/task/{tid}/status");
        Some((tid, root.parse(&file, status::parse_switches).ok()?))
    };
    tids.into_iter().take(SWITCHES_THREADS_MAX).filter_map(of).collect()
}
