//! The machine of the measurements.

use hotrow_diagnose::probe::{cpu, memory};
use hotrow_diagnose::root::Root;

use crate::Host;

/// Describes this machine; unavailable values are empty or 0. The caller adds the programs.
pub fn host() -> Host {
    let root = Root::machine();
    let system = rustix::system::uname();
    let words =
        [system.sysname(), system.release(), system.machine()].map(|word| word.to_string_lossy());
    Host {
        cpu: root.parse(cpu::CPUINFO_FILE, cpu::parse_model).unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: root
            .parse(memory::MEMINFO_FILE, memory::parse_meminfo)
            .map(|memory| memory.total)
            .unwrap_or_default(),
        kernel: words.join(" "),
        programs: Vec::new(),
        cpu_limits: None,
        cpu_weights: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let host = host();
        assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20, "{host:?}");
        assert!(host.kernel.starts_with("Linux "), "{host:?}");
    }
}
