//! Load, and how many threads there are: `/proc/loadavg`.

/// The file.
pub const FILE: &str = "proc/loadavg";

/// All that the file tells that matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Threads that ran, could run or waited for a disk; mean of the last minute, decaying.
    pub one_minute: f64,
    /// Threads that run or could, now.
    pub running: u64,
    /// Threads of the machine, the kernel's included. In a container too.
    pub threads: u64,
}

/// Reads the file's text: `0.20 0.18 0.12 1/80 11206`.
#[must_use]
pub fn parse(text: &str) -> Option<Load> {
    let mut words = text.split_ascii_whitespace();
    let one_minute: f64 = super::number(&mut words)?;
    let (running, threads) = words.nth(2)?.split_once('/')?;
    one_minute.is_finite().then_some(())?;
    Some(Load { one_minute, running: running.parse().ok()?, threads: threads.parse().ok()? })
}
