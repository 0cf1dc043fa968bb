//! Where and when something was measured: the beginning of each page.

use std::time::{SystemTime, UNIX_EPOCH};

use hotrow_diagnose::probe::cpu;
use hotrow_diagnose::root::Root;
use serde::{Deserialize, Serialize};

/// A measuring machine, as its operator knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineInfo {
    /// Processor model.
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cpus: usize,
    /// Kernel and its release.
    pub(crate) kernel: String,
}

/// Time and machine of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasuredOn {
    /// Start, in seconds since 1970.
    pub(crate) began_unix_s: u64,
    pub(crate) machine: MachineInfo,
}

impl MachineInfo {
    pub(crate) fn here() -> Self {
        let system = rustix::system::uname();
        let kernel = [system.sysname(), system.release()].map(|word| word.to_string_lossy());
        Self {
            cpu: Root::machine()
                .parse(cpu::CPUINFO_FILE, cpu::parse_model)
                .unwrap_or_else(|_| "unknown processor".to_owned()),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.join(" "),
        }
    }
}

impl std::fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpus = hotrow_load::format::counted(self.cpus, "CPU");
        write!(f, "{}, {cpus}, {}", self.cpu, self.kernel)
    }
}

impl MeasuredOn {
    /// Returns the current time and this machine.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began_unix_s: since.as_secs(), machine: MachineInfo::here() }
    }
}

impl std::fmt::Display for MeasuredOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", hotrow_report::numbers::date(self.began_unix_s), self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described_in_a_line() {
        let MachineInfo { cpu, cpus, kernel } = MachineInfo::here();
        assert!(!cpu.is_empty() && cpus > 0 && kernel.starts_with("Linux "), "{cpu} {kernel}");
        let machine = MachineInfo { cpu: "A".to_owned(), cpus: 2, kernel: "Linux 6".to_owned() };
        let on = MeasuredOn { began_unix_s: 1_795_301_130, machine };
        assert_eq!(on.to_string(), "2026-11-21 22:45 UTC; A, 2 CPUs, Linux 6");
    }
}
