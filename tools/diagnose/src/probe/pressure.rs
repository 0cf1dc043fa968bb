//! Pressure stall information: `/proc/pressure/*` and a group's `*.pressure`.

use std::time::Duration;

/// CPU pressure.
pub const CPU_FILE: &str = "proc/pressure/cpu";
/// Memory pressure.
pub const MEMORY_FILE: &str = "proc/pressure/memory";
/// I/O pressure.
pub const IO_FILE: &str = "proc/pressure/io";

/// Stall times since boot (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one thread was stalled.
    pub some: Duration,
    /// All threads were stalled. Kernels before 5.13 do not report it for the CPU.
    pub full: Option<Duration>,
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for `full`.
pub fn parse(text: &str) -> Option<Pressure> {
    let total = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
        total.parse().ok().map(Duration::from_micros)
    };
    Some(Pressure { some: total("some")?, full: total("full") })
}
