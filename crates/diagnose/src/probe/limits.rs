//! What one process may have: `/proc/PID/limits`.

/// This process's own.
pub const OWN_FILE: &str = "proc/self/limits";
/// Width of the first column (fs/proc/base.c).
const NAME_WIDTH: usize = 26;

/// A limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// What is in force. A process may raise it up to `hard`.
    pub soft: Option<u64>,
    /// What only a privileged process may raise.
    pub hard: Option<u64>,
}

/// The limits that matter here (getrlimit(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files (RLIMIT_NOFILE).
    pub open_files: Bound,
    /// Threads of the user, in all processes (RLIMIT_NPROC).
    pub processes: Bound,
    /// Address space in bytes (RLIMIT_AS).
    pub address_space: Bound,
    /// Stack of the first thread, and of C threads unless they say otherwise, in bytes (RLIMIT_STACK).
    pub stack: Bound,
}

/// Reads the file's text: columns of fixed width, for the names hold blanks.
#[must_use]
pub fn parse(text: &str) -> Option<ProcessLimits> {
    let bound = |name: &str| {
        let line = text.lines().find(|line| line.get(..NAME_WIDTH).is_some_and(|begin| begin.trim_end() == name))?;
        let mut words = line.get(NAME_WIDTH..)?.split_ascii_whitespace().map(|word| match word {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        });
        Some(Bound { soft: words.next()??, hard: words.next()?? })
    };
    Some(ProcessLimits {
        open_files: bound("Max open files")?,
        processes: bound("Max processes")?,
        address_space: bound("Max address space")?,
        stack: bound("Max stack size")?,
    })
}
