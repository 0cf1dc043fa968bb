//! The threads of a process, one by one: `/proc/PID/task/TID/stat` and `schedstat`.

use std::time::Duration;

use crate::root::{Root, Seen, Unseen, Why};

/// Most threads of one process whose times are read; those with the lowest ids.
pub const THREADS_MAX: usize = 256;
/// One tick of the times in `stat`; the kernel shows them in 1/100 s whatever it counts in itself.
const TICK: Duration = Duration::from_millis(10);

/// What a thread had used when it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub tid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Time on a CPU.
    pub cpu: Duration,
    /// Time in which it could run and another had the CPU; none where the kernel does not tell.
    pub waited: Option<Duration>,
}

/// The ids of all threads of a process, in their order.
///
/// # Errors
/// When there is no such process, or it may not be seen.
pub fn ids(root: &Root, pid: u32) -> Seen<Vec<u32>> {
    let folder = format!("proc/{pid}/task");
    let entries = std::fs::read_dir(root.path(&folder));
    let entries = entries.map_err(|error| Unseen { file: folder, why: Why::of(&error) })?;
    let mut tids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    Ok(tids)
}

/// `tid (name) state …` (proc_pid_stat(5)); the name may hold blanks and brackets.
#[must_use]
pub fn parse(tid: u32, text: &str) -> Option<Task> {
    let (name, rest) = named(text)?;
    // From the third field of the manual's numbering on.
    let mut ticks = rest.split_ascii_whitespace().skip(14 - 3);
    let ticks: u64 = super::number::<u64>(&mut ticks)?.saturating_add(super::number(&mut ticks)?);
    let cpu = TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
    Some(Task { tid, name: name.to_owned(), cpu, waited: None })
}

/// The state in the same text: `R` runs or could, `S` waits, `D` waits and may not be woken, as for a disk.
#[must_use]
pub fn parse_state(text: &str) -> Option<char> {
    named(text)?.1.chars().next()
}

fn named(text: &str) -> Option<(&str, &str)> {
    text.split_once(" (")?.1.rsplit_once(") ")
}

/// Nanoseconds on a CPU, and nanoseconds waiting for one.
#[must_use]
pub fn parse_schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut words = text.split_ascii_whitespace();
    let (ran, waited) = (super::number(&mut words)?, super::number(&mut words)?);
    Some((Duration::from_nanos(ran), Duration::from_nanos(waited)))
}
