//! The machine and its global counters.

use std::time::Duration;

use hotrow_diagnose::probe::{cpu, disk, interface};
use hotrow_diagnose::root::Root;

/// Bytes moved since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Sent over all network interfaces, loopback included.
    pub net_sent_bytes: u64,
    /// Read from block devices.
    pub disk_read_bytes: u64,
    /// Written to block devices.
    pub disk_written_bytes: u64,
}

/// CPU time of the whole machine since boot, summed over its CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCpu {
    /// Used by processes: user and kernel mode. Interrupt work is not counted, because the
    /// deployment's own network traffic causes most of it.
    pub used: Duration,
    /// Taken by the hypervisor while a process was runnable.
    pub stolen: Duration,
}

/// Reads the counters; unavailable ones are 0. They include other processes' traffic.
pub fn io() -> IoCounters {
    let root = Root::machine();
    let interfaces = root.parse(interface::FILE, interface::parse).unwrap_or_default();
    let disks = root.parse(disk::FILE, disk::parse).unwrap_or_default();
    let (disk_read_bytes, disk_written_bytes) = disk::total_bytes(&disks);
    let net_sent_bytes =
        interfaces.iter().map(|interface| interface.sent.bytes).fold(0, u64::saturating_add);
    IoCounters { net_sent_bytes, disk_read_bytes, disk_written_bytes }
}

/// Reads the CPU time of the machine, in ticks of the kernel, mostly 10 ms; zero if unavailable.
pub fn machine_cpu() -> MachineCpu {
    let stat = Root::machine().parse(cpu::FILE, cpu::parse).unwrap_or_default();
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    let time = |of: fn(&cpu::CpuTime) -> u64| {
        let ticks = stat.cores.iter().map(|(_, core)| of(core)).fold(0, u64::saturating_add);
        Duration::from_secs_f64(ticks as f64 / ticks_per_s as f64)
    };
    MachineCpu {
        used: time(|core| core.user.saturating_add(core.nice).saturating_add(core.system)),
        stolen: time(|core| core.steal),
    }
}

impl IoCounters {
    /// Returns the difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> hotrow_results::Io {
        hotrow_results::Io {
            net_sent_bytes: self.net_sent_bytes.saturating_sub(earlier.net_sent_bytes),
            disk_written_bytes: self.disk_written_bytes.saturating_sub(earlier.disk_written_bytes),
            disk_read_bytes: self.disk_read_bytes.saturating_sub(earlier.disk_read_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_machines_cpu_time_contains_that_of_this_process() {
        let before = machine_cpu();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let mut sum = 0_u64;
        while machine_cpu().used.saturating_sub(before.used) < Duration::from_millis(50) {
            (0..1_000_000_u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_add(n)));
            assert!(std::time::Instant::now() < until, "{before:?} {:?}", machine_cpu());
        }
        let after = machine_cpu();
        assert!(after.stolen >= before.stolen);
    }

    #[test]
    fn loopback_traffic_is_counted() {
        let before = io();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut from, _) = listener.accept().unwrap();
        let body = vec![7; 200_000];
        let sender = std::thread::spawn(move || to.write_all(&body).unwrap());
        assert_eq!(from.read_to_end(&mut Vec::new()).unwrap(), 200_000);
        sender.join().unwrap();
        assert!(io().since(&before).net_sent_bytes >= 200_000);
    }
}
