//! Open files: `/proc/sys/fs/file-nr` for the machine, `/proc/PID/fd` for a process.

use super::number;
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// The file of the machine's counters.
pub const FILE: &str = "proc/sys/fs/file-nr";
/// Most open files of one process that are counted.
const FILES_MAX: usize = 2_000_000;

/// Open files of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNr {
    /// Currently open.
    pub open: u64,
    /// Maximum (`fs.file-max`); processes with CAP_SYS_ADMIN are exempt.
    pub max: u64,
}

/// Parses `file-nr`: open, unused (0 since 2.6), maximum.
#[must_use]
pub fn parse(text: &str) -> Option<FileNr> {
    let mut words = text.split_ascii_whitespace();
    let open = number(&mut words)?;
    words.next()?;
    Some(FileNr { open, max: number(&mut words)? })
}

/// Counts the open files of a process.
///
/// # Errors
/// Fails when there is no such process, or it is another user's.
pub fn of_process(root: &Root, pid: u32) -> ProbeResult<u64> {
    let file = format!("proc/{pid}/fd");
    match std::fs::read_dir(root.path(&file)) {
        Ok(entries) => Ok(entries.take(FILES_MAX).count() as u64),
        Err(error) => Err(ProbeError { file, why: ProbeErrorKind::of(&error) }),
    }
}
