//! Resource limits of a process (`/proc/PID/limits`), and open files of the machine
//! (`/proc/sys/fs/file-nr`) and of a process (`/proc/PID/fd`).

use super::number;
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// The file of this process.
pub const OWN_FILE: &str = "proc/self/limits";
/// Width of the first column (fs/proc/base.c).
const NAME_WIDTH: usize = 26;

/// A resource limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The limit in force. A process may raise it up to `hard`.
    pub soft: Option<u64>,
    /// The limit that only a privileged process may raise.
    pub hard: Option<u64>,
}

/// The relevant limits (getrlimit(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files (RLIMIT_NOFILE).
    pub open_files: ResourceLimit,
    /// Threads of the user in all processes (RLIMIT_NPROC).
    pub processes: ResourceLimit,
    /// Address space in bytes (RLIMIT_AS).
    pub address_space: ResourceLimit,
    /// Stack of the first thread, and default of C threads, in bytes (RLIMIT_STACK).
    pub stack: ResourceLimit,
}

/// Parses the file: columns of fixed width, because names contain blanks.
pub fn parse(text: &str) -> Option<ProcessLimits> {
    let bound = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.get(..NAME_WIDTH).is_some_and(|begin| begin.trim_end() == name))?;
        let mut words = line.get(NAME_WIDTH..)?.split_ascii_whitespace().map(|word| match word {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        });
        Some(ResourceLimit { soft: words.next()??, hard: words.next()?? })
    };
    Some(ProcessLimits {
        open_files: bound("Max open files")?,
        processes: bound("Max processes")?,
        address_space: bound("Max address space")?,
        stack: bound("Max stack size")?,
    })
}

/// The file of the machine's open files.
pub const FILES_FILE: &str = "proc/sys/fs/file-nr";
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
pub fn parse_files(text: &str) -> Option<FileNr> {
    let mut words = text.split_ascii_whitespace();
    let open = number(&mut words)?;
    words.next()?;
    Some(FileNr { open, max: number(&mut words)? })
}

/// Counts the open files of a process.
///
/// # Errors
/// Fails when there is no such process, or it is another user's.
pub fn open_files(root: &Root, pid: u32) -> ProbeResult<u64> {
    let file = format!("proc/{pid}/fd");
    match std::fs::read_dir(root.path(&file)) {
        Ok(entries) => Ok(entries.take(FILES_MAX).count() as u64),
        Err(error) => Err(ProbeError { file, why: ProbeErrorKind::of(&error) }),
    }
}
