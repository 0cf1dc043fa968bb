//! The threads of a process, one by one: `/proc/PID/task/TID/stat` and `schedstat`.

use std::time::Duration;

use crate::root::{Root, Seen, Unseen, Why};

/// Most threads of one process that are looked at; those with the lowest ids.
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
    /// `R` runs or could, `S` waits, `D` waits for a disk.
    pub state: char,
    /// Time on a CPU.
    pub cpu: Duration,
    /// Time in which it could run and another had the CPU; none where the kernel does not tell.
    pub waited: Option<Duration>,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
}

/// The threads of a process, in the order of their ids.
///
/// # Errors
/// When there is no such process. Threads that end meanwhile are left out.
pub fn read(root: &Root, pid: u32) -> Seen<Vec<Task>> {
    let folder = format!("proc/{pid}/task");
    let entries = std::fs::read_dir(root.path(&folder));
    let entries = entries.map_err(|error| Unseen { file: folder.clone(), why: Why::of(&error) })?;
    let mut tids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    tids.truncate(THREADS_MAX);
    let task = |tid: u32| {
        let mut task = root.parse(&format!("{folder}/{tid}/stat"), |text| parse(tid, text)).ok()?;
        if let Ok((ran, waited)) = root.parse(&format!("{folder}/{tid}/schedstat"), parse_schedstat) {
            // In nanoseconds, where `stat` has ticks.
            task.cpu = ran;
            task.waited = Some(waited);
        }
        Some(task)
    };
    Ok(tids.into_iter().filter_map(task).collect())
}

/// `tid (name) state …` (proc_pid_stat(5)); the name may hold blanks and brackets.
#[must_use]
pub fn parse(tid: u32, text: &str) -> Option<Task> {
    let (name, rest) = text.split_once(" (")?.1.rsplit_once(") ")?;
    // From the third field of the manual's numbering on.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)?.saturating_add(number(15)?);
    Some(Task {
        tid,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        cpu: TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)),
        waited: None,
        major_faults: number(12)?,
    })
}

/// Nanoseconds on a CPU, and nanoseconds waiting for one.
#[must_use]
pub fn parse_schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut words = text.split_ascii_whitespace();
    let (ran, waited) = (super::number(&mut words)?, super::number(&mut words)?);
    Some((Duration::from_nanos(ran), Duration::from_nanos(waited)))
}
