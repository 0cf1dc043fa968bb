//! Load and number of threads: `/proc/loadavg`.

/// The file's path.
pub const FILE: &str = "proc/loadavg";

/// The relevant fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadAverage {
    /// Runnable or I/O-blocked threads; exponentially decaying mean of one minute.
    pub one_minute: f64,
    /// Currently runnable threads.
    pub running: u64,
    /// Threads of the machine, the kernel's included; in a container too.
    pub threads: u64,
}

/// Parses `0.20 0.18 0.12 1/80 11206`.
#[must_use]
pub fn parse(text: &str) -> Option<LoadAverage> {
    let mut words = text.split_ascii_whitespace();
    let one_minute: f64 = super::number(&mut words)?;
    let (running, threads) = words.nth(2)?.split_once('/')?;
    one_minute.is_finite().then_some(())?;
    Some(LoadAverage { one_minute, running: running.parse().ok()?, threads: threads.parse().ok()? })
}
