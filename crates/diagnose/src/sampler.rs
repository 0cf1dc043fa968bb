//! Everything that tells about load, read together some times a second. Files stay open and buffers are used again;
//! what it costs itself is measured.
//!
//! Reading order: [`Sampler`], [`Sample`], `open` (a file that stays open); [`crate::samples`] makes rates of two
//! samples.

mod open;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_measure::clock::{Nanos, thread_cpu};

use self::open::Open;
use crate::probe::group::{Counters, Groups};
use crate::probe::{
    conntrack, cpu, disk, files, interface, loadavg, memory, pressure, sockstat, softnet, task, tcp, vmstat,
};
use crate::root::{Root, Seen};

/// Time between two samples, unless the user says otherwise.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two samples: the kernel's own figures have ticks of 10 ms.
pub const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Most processes that are watched one by one.
pub const WATCHED_MAX: usize = 64;
/// Longest that the sampler sleeps without looking whether it must stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Reads the machine, again and again.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    watched: Vec<Watched>,
    open: Files,
    /// Used for every file.
    buffer: Vec<u8>,
    first: Option<Nanos>,
    cost: Cost,
}

/// A process whose threads are looked at.
#[derive(Debug)]
struct Watched {
    pid: u32,
    /// Where it was when the watch began: moving a process between groups is rare.
    groups: Option<Groups>,
}

#[derive(Debug)]
struct Files {
    cpu: Open,
    pressure: [Open; 3],
    load: Open,
    memory: Open,
    vmstat: Open,
    disks: Open,
    interfaces: Open,
    segments: Open,
    trouble: Open,
    sockets: Open,
    softnet: Open,
    conntrack: Open,
    files: Open,
}

/// What one look at the machine told; each part, or why it could not be seen. Counts go on from sample to sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was taken.
    pub at: Nanos,
    /// CPUs.
    pub cpu: Seen<cpu::CpuStat>,
    /// Want of CPU.
    pub cpu_pressure: Seen<pressure::Pressure>,
    /// Want of memory.
    pub memory_pressure: Seen<pressure::Pressure>,
    /// Want of a disk.
    pub io_pressure: Seen<pressure::Pressure>,
    /// Threads.
    pub load: Seen<loadavg::Load>,
    /// Memory.
    pub memory: Seen<memory::Memory>,
    /// What memory cost.
    pub vmstat: Seen<vmstat::VmStat>,
    /// Disks.
    pub disks: Seen<Vec<disk::Disk>>,
    /// Network interfaces.
    pub interfaces: Seen<Vec<interface::Interface>>,
    /// TCP segments and connections.
    pub segments: Seen<tcp::Segments>,
    /// TCP's troubles.
    pub trouble: Seen<tcp::Trouble>,
    /// TCP sockets.
    pub sockets: Seen<sockstat::Sockstat>,
    /// Packets that came in.
    pub softnet: Seen<softnet::Softnet>,
    /// Connections that the firewall remembers.
    pub conntrack: Seen<u64>,
    /// Open files of the machine.
    pub files: Seen<files::FileNr>,
    /// The processes that are watched.
    pub processes: Vec<Process>,
}

/// One process that is watched.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its threads.
    pub tasks: Seen<Vec<task::Task>>,
    /// What its own cgroups count.
    pub group: Option<Counters>,
}

/// What sampling itself has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the sampling thread, spent in [`Sampler::sample`].
    pub cpu: Duration,
    /// Time from the first sample to the last.
    pub span: Duration,
    /// Samples taken.
    pub samples: u64,
}

impl Cost {
    /// Share of one CPU, 0 to 1; none before the second sample.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        // The first sample's cost lies before the span.
        let each = self.cpu.as_secs_f64() / self.samples.max(1) as f64;
        let intervals = self.samples.saturating_sub(1) as f64;
        (!self.span.is_zero()).then(|| each * intervals / self.span.as_secs_f64())
    }
}

impl Sampler {
    /// Begins to watch a machine, and some of its processes: at most [`WATCHED_MAX`], the rest is left out.
    #[must_use]
    pub fn new(root: Root, pids: &[u32]) -> Self {
        let watch = |pid: &u32| Watched { pid: *pid, groups: Groups::of(&root, &pid.to_string()).ok() };
        let watched = pids.iter().take(WATCHED_MAX).map(watch).collect();
        Self { watched, open: Files::new(), buffer: Vec::new(), first: None, cost: Cost::default(), root }
    }

    /// Looks at everything once.
    pub fn sample(&mut self, at: Nanos) -> Sample {
        let before = thread_cpu();
        let (root, buffer, open) = (&self.root, &mut self.buffer, &mut self.open);
        let [pressure_cpu, pressure_memory, pressure_io] = &mut open.pressure;
        let sample = Sample {
            at,
            cpu: open.cpu.parse(root, buffer, cpu::parse),
            cpu_pressure: pressure_cpu.parse(root, buffer, pressure::parse),
            memory_pressure: pressure_memory.parse(root, buffer, pressure::parse),
            io_pressure: pressure_io.parse(root, buffer, pressure::parse),
            load: open.load.parse(root, buffer, loadavg::parse),
            memory: open.memory.parse(root, buffer, memory::parse),
            vmstat: open.vmstat.parse(root, buffer, vmstat::parse),
            disks: open.disks.parse(root, buffer, disk::parse),
            interfaces: open.interfaces.parse(root, buffer, interface::parse),
            segments: open.segments.parse(root, buffer, tcp::parse_segments),
            trouble: open.trouble.parse(root, buffer, tcp::parse_trouble),
            sockets: open.sockets.parse(root, buffer, sockstat::parse),
            softnet: open.softnet.parse(root, buffer, softnet::parse),
            conntrack: open.conntrack.parse(root, buffer, |text| text.trim().parse().ok()),
            files: open.files.parse(root, buffer, files::parse),
            processes: self.watched.iter().map(|watched| watched.look(root)).collect(),
        };
        let first = *self.first.get_or_insert(at);
        self.cost.span = at.since(first);
        self.cost.cpu += thread_cpu().saturating_sub(before);
        self.cost.samples += 1;
        sample
    }

    /// Samples every `interval`, at least [`INTERVAL_MIN`], until `stop` is set. A look that comes late is not made up
    /// for.
    pub fn run(&mut self, interval: Duration, stop: &AtomicBool, mut take: impl FnMut(Sample)) {
        let interval = interval.max(INTERVAL_MIN);
        let mut due = Nanos::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Nanos::now();
            if now < due {
                std::thread::sleep(due.since(now).min(NAP_MAX));
                continue;
            }
            take(self.sample(now));
            due = due.after(interval).max(now);
        }
    }

    /// What it has cost until now.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl Watched {
    fn look(&self, root: &Root) -> Process {
        let group = self.groups.as_ref().map(Groups::counters);
        Process { pid: self.pid, tasks: task::read(root, self.pid), group }
    }
}

impl Files {
    fn new() -> Self {
        Self {
            cpu: Open::new(cpu::FILE),
            pressure: [pressure::CPU_FILE, pressure::MEMORY_FILE, pressure::IO_FILE].map(Open::new),
            load: Open::new(loadavg::FILE),
            memory: Open::new(memory::FILE),
            vmstat: Open::new(vmstat::FILE),
            disks: Open::new(disk::FILE),
            interfaces: Open::new(interface::FILE),
            segments: Open::new(tcp::SNMP_FILE),
            trouble: Open::new(tcp::NETSTAT_FILE),
            sockets: Open::new(sockstat::FILE),
            softnet: Open::new(softnet::FILE),
            conntrack: Open::new(conntrack::COUNT_FILE),
            files: Open::new(files::FILE),
        }
    }
}

#[cfg(test)]
mod tests;
