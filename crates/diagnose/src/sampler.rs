//! Everything that tells about load, read together some times a second. Files stay open and buffers are used again;
//! what it costs itself is measured.
//!
//! Reading order: [`Sampler`], [`Sample`], `ends` (what is read only at the ends of a stretch), `open` (a file that stays open),
//! `threads` (those of a process); [`crate::samples`] makes rates of two samples.

mod ends;
mod open;
mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_measure::clock::{Nanos, thread_cpu};

pub use self::ends::{End, PROCESSES_MAX, SWITCHES_THREADS_MAX};
use self::open::Open;
use self::threads::Threads;
use crate::probe::group::{Counted, Groups};
use crate::probe::{
    conntrack, cpu, disk, files, interface, loadavg, memory, namespace, pressure, sockstat, softnet, task, tcp, vmstat,
};
use crate::root::{Root, Seen};
use crate::samples::Samples;
use crate::survey::survey;

/// Time between two samples, unless the user says otherwise.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two samples: the kernel's own figures have ticks of 10 ms.
pub const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Most processes that are watched one by one.
pub const WATCHED_MAX: usize = 64;
/// Most files of threads that stay open, of all processes together: a load generator needs open files for its connections.
const THREADS_OPEN_MAX: usize = 128;
/// Longest that the sampler sleeps without looking whether it must stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Reads the machine, again and again.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    watched: Vec<Watched>,
    /// Those of the watched processes, each once: most are in the same.
    groups: Vec<Groups>,
    open: Files,
    /// Counters of the network namespaces of watched processes that are not this process's.
    elsewhere: Vec<[Open; 2]>,
    /// Used for every file.
    buffer: Vec<u8>,
    first: Option<Nanos>,
    cost: Cost,
}

/// A process whose threads are looked at.
#[derive(Debug)]
struct Watched {
    pid: u32,
    /// Its own `stat`.
    stat: Open,
    threads: Threads,
    /// Where it was when the watch began, as a place in [`Sampler::groups`]: moving a process between groups is rare.
    group: Option<usize>,
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
    /// The last two of the other network namespaces in which watched processes are.
    pub elsewhere: Vec<(Seen<tcp::Segments>, Seen<tcp::Trouble>)>,
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
    /// What only [`Sampler::sample_end`] reads.
    pub end: Option<End>,
}

/// One process that is watched.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its threads.
    pub tasks: Seen<Vec<task::Task>>,
    /// CPU time of all threads that it has had, in ticks of 10 ms.
    pub cpu: Seen<Duration>,
    /// What its cgroups count.
    pub group: Option<Counted>,
}

/// What sampling itself has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time of the sampling thread, spent in this sampler.
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
        let pids = pids.get(..WATCHED_MAX).unwrap_or(pids);
        let open_max = THREADS_OPEN_MAX / pids.len().max(1);
        let mut groups: Vec<Groups> = Vec::new();
        let mut place = |found: Groups| {
            groups.iter().position(|known| *known == found).unwrap_or_else(|| {
                groups.push(found);
                groups.len() - 1
            })
        };
        let watch = |pid: &u32| Watched {
            pid: *pid,
            stat: Open::new(format!("proc/{pid}/stat")),
            threads: Threads::new(*pid, open_max),
            group: Groups::of(&root, &pid.to_string()).ok().map(&mut place),
        };
        let watched = pids.iter().map(watch).collect();
        let elsewhere = elsewhere(&root, pids);
        let (open, buffer, cost) = (Files::new(), Vec::new(), Cost::default());
        Self { root, watched, groups, open, elsewhere, buffer, first: None, cost }
    }

    /// Looks at everything once, and also at all that is to be compared only between the ends of a stretch: all processes of the
    /// machine and the switches of the watched ones' threads.
    pub fn sample_end(&mut self, at: Nanos) -> Sample {
        let mut sample = self.look(at, true);
        let before = thread_cpu();
        sample.end = Some(End::of(&self.root, self.watched.iter().map(|watched| watched.pid)));
        self.cost.cpu += thread_cpu().saturating_sub(before);
        sample
    }

    /// A [`survey`], whose cost counts as this sampler's. It takes some 50 ms.
    pub fn survey(&mut self, samples: &mut Samples) {
        let before = thread_cpu();
        survey(&self.root, samples);
        self.cost.cpu += thread_cpu().saturating_sub(before);
    }

    /// Looks at everything once.
    pub fn sample(&mut self, at: Nanos) -> Sample {
        self.look(at, false)
    }

    fn look(&mut self, at: Nanos, renamed: bool) -> Sample {
        let before = thread_cpu();
        let (root, buffer, open) = (&self.root, &mut self.buffer, &mut self.open);
        let groups: Vec<Counted> = self.groups.iter().map(Groups::counted).collect();
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
            elsewhere: self.elsewhere.iter_mut().map(|files| counters(files, root, buffer)).collect(),
            sockets: open.sockets.parse(root, buffer, sockstat::parse),
            softnet: open.softnet.parse(root, buffer, softnet::parse),
            conntrack: open.conntrack.parse(root, buffer, |text| text.trim().parse().ok()),
            files: open.files.parse(root, buffer, files::parse),
            processes: self.watched.iter_mut().map(|watched| watched.look(root, buffer, &groups, renamed)).collect(),
            end: None,
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
    fn look(&mut self, root: &Root, buffer: &mut Vec<u8>, groups: &[Counted], renamed: bool) -> Process {
        let group = self.group.and_then(|place| groups.get(place)).cloned();
        let cpu = self.stat.parse(root, buffer, |text| task::parse(self.pid, text).map(|task| task.cpu));
        Process { pid: self.pid, tasks: self.threads.look(root, buffer, renamed), cpu, group }
    }
}

/// Each namespace once.
fn elsewhere(root: &Root, pids: &[u32]) -> Vec<[Open; 2]> {
    let mut foreign = namespace::foreign(root, pids);
    foreign.sort_by(|(_, one), (_, other)| one.cmp(other));
    foreign.dedup_by(|(_, one), (_, other)| one == other);
    foreign.iter().map(|(pid, _)| ["snmp", "netstat"].map(|file| Open::new(format!("proc/{pid}/net/{file}")))).collect()
}

fn counters(files: &mut [Open; 2], root: &Root, buffer: &mut Vec<u8>) -> (Seen<tcp::Segments>, Seen<tcp::Trouble>) {
    let [segments, trouble] = files;
    (segments.parse(root, buffer, tcp::parse_segments), trouble.parse(root, buffer, tcp::parse_trouble))
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
