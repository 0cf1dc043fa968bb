//! Threads of a process: `/proc/PID/task/TID/stat` and `schedstat`.

use std::time::Duration;

use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// Most threads of one process whose times are read; those with the lowest ids.
pub const THREADS_MAX: usize = 256;
/// One tick of the times in `stat`: always 1/100 s for programs.
const TICK: Duration = Duration::from_millis(10);

/// CPU times of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub tid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Time on a CPU.
    pub cpu: Duration,
    /// Time on the run queue; none when the kernel does not report it.
    pub waited: Option<Duration>,
}

/// Returns the ids of all threads of a process, sorted.
///
/// # Errors
/// Fails when there is no such process, or it is not visible.
pub fn ids(root: &Root, pid: u32) -> ProbeResult<Vec<u32>> {
    let folder = format!("proc/{pid}/task");
    let entries = std::fs::read_dir(root.path(&folder));
    let entries =
        entries.map_err(|error| ProbeError { file: folder, why: ProbeErrorKind::of(&error) })?;
    let mut tids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    Ok(tids)
}

/// Parses `tid (name) state …` (proc_pid_stat(5)); the name may contain blanks and brackets.
pub fn parse(tid: u32, text: &str) -> Option<Task> {
    let (name, rest) = named(text)?;
    // Starts at the third field of the manual's numbering.
    let mut ticks = rest.split_ascii_whitespace().skip(14 - 3);
    let ticks: u64 = super::number::<u64>(&mut ticks)?.saturating_add(super::number(&mut ticks)?);
    let cpu = TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
    Some(Task { tid, name: name.to_owned(), cpu, waited: None })
}

/// Returns the state in the same text: `R` runnable, `S` sleeping, `D` uninterruptible, as for a
/// disk.
pub fn parse_state(text: &str) -> Option<char> {
    named(text)?.1.chars().next()
}

fn named(text: &str) -> Option<(&str, &str)> {
    text.split_once(" (")?.1.rsplit_once(") ")
}

/// Parses nanoseconds on a CPU, and nanoseconds on the run queue.
pub fn parse_schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut words = text.split_ascii_whitespace();
    let (ran, waited) = (super::number(&mut words)?, super::number(&mut words)?);
    Some((Duration::from_nanos(ran), Duration::from_nanos(waited)))
}
