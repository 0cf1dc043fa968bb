//! Open files: `/proc/sys/fs/file-nr` for the machine, `/proc/PID/fd` for a process.

use super::number;
use crate::root::{Root, Seen, Unseen, Why};

/// The machine's.
pub const FILE: &str = "proc/sys/fs/file-nr";
/// Most open files of one process that are counted.
const FILES_MAX: usize = 2_000_000;

/// Open files of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNr {
    /// Open now.
    pub open: u64,
    /// At most (`fs.file-max`); processes with CAP_SYS_ADMIN are not held to it.
    pub max: u64,
}

/// Reads the text of `file-nr`: open, unused (0 since 2.6), at most.
#[must_use]
pub fn parse(text: &str) -> Option<FileNr> {
    let mut words = text.split_ascii_whitespace();
    let open = number(&mut words)?;
    words.next()?;
    Some(FileNr { open, max: number(&mut words)? })
}

/// How many files a process has open.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub fn of_process(root: &Root, pid: u32) -> Seen<u64> {
    let file = format!("proc/{pid}/fd");
    match std::fs::read_dir(root.path(&file)) {
        Ok(entries) => Ok(entries.take(FILES_MAX).count() as u64),
        Err(error) => Err(Unseen { file, why: Why::of(&error) }),
    }
}
