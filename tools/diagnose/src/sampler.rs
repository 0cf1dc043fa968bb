//! Samples of all load-related counters, several times a second. Files stay open and buffers are
//! reused; the sampler measures its own cost.
//!
//! Reading order: [`Sampler`], [`Sample`], `endpoints` (values read only at the ends of an
//! interval), `open_file`, `threads` (threads of a process); [`crate::samples`] derives rates from
//! two samples.
//!
//! Reference `diagnosis`: Probes
//!
//! - Bounds: 64 watched processes, `hotrow` included; 4,096 others; 1,024 threads of a process, 256
//!   per sample of waits; 200,000 sockets; 10,000 connections of the generator.
//! - Waits: Where only a tracer may see system calls (`kernel.yama.ptrace_scope`), the socket
//!   behind a wait is unknown. x86-64 and aarch64 only. Evaluated only where a limit is reached.
//! - Namespaces: A service in another network namespace is observed without its interfaces; name it
//!   by `--pid` or `--cgroup`.
//! - **Unreadable files**, and processes beyond the bound, lower the confidence.
//! - Cost: 0.77 ms of CPU time per sample of a process with 50 threads; 25 ms for the survey at the
//!   end ([run](../bench/runs/2026-11-22-sampling.md)).

mod endpoints;
mod open_file;
pub mod sample;
mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_measure::clock::{Nanos, thread_cpu};

pub use self::endpoints::{EndpointSample, PROCESSES_MAX, SWITCHES_THREADS_MAX};
use self::open_file::OpenFile;
pub use self::sample::{ProcessSample, Sample};
use self::threads::ThreadSampler;
use crate::probe::group::{GroupStats, Groups};
use crate::probe::{cpu, disk, interface, limits, memory, network, pressure, task, tcp};
use crate::root::{ProbeResult, Root};
use crate::samples::Samples;
use crate::survey::survey;

/// Default time between two samples.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two samples: the kernel's own figures have ticks of 10 ms.
pub const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Most processes watched individually.
pub const WATCHED_MAX: usize = 64;
/// Most thread files kept open for all processes together: a load generator needs open files for
/// its connections.
const THREADS_OPEN_MAX: usize = 128;
/// Longest sleep of the sampler between checks of its stop flag.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Samples the machine periodically.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    watched: Vec<ProcessSampler>,
    /// Groups of the watched processes, without duplicates: most share one.
    groups: Vec<Groups>,
    open: ProbeFiles,
    /// Counters of the watched processes' other network namespaces.
    other_namespaces: Vec<[OpenFile; 2]>,
    /// Buffer for every file.
    buffer: Vec<u8>,
    first: Option<Nanos>,
    cost: SamplingCost,
}

/// A process whose threads are sampled.
#[derive(Debug)]
struct ProcessSampler {
    pid: u32,
    /// Its own `stat`.
    stat: OpenFile,
    threads: ThreadSampler,
    /// Index in [`Sampler::groups`] at the start of the watch: processes rarely change groups.
    group: Option<usize>,
}

#[derive(Debug)]
struct ProbeFiles {
    cpu: OpenFile,
    pressure: [OpenFile; 3],
    load: OpenFile,
    memory: OpenFile,
    vmstat: OpenFile,
    disks: OpenFile,
    interfaces: OpenFile,
    segments: OpenFile,
    tcp_errors: OpenFile,
    sockets: OpenFile,
    softnet: OpenFile,
    conntrack: OpenFile,
    files: OpenFile,
}

/// The cost of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplingCost {
    /// CPU time of the sampling thread in this sampler.
    pub cpu: Duration,
    /// Time from the first sample to the last.
    pub span: Duration,
    /// Number of samples.
    pub samples: u64,
}

impl SamplingCost {
    /// Returns the share of one CPU, 0 to 1; `None` before the second sample.
    pub fn share(&self) -> Option<f64> {
        // The first sample's cost lies before the span.
        let each = self.cpu.as_secs_f64() / self.samples.max(1) as f64;
        let intervals = self.samples.saturating_sub(1) as f64;
        (!self.span.is_zero()).then(|| each * intervals / self.span.as_secs_f64())
    }
}

impl Sampler {
    /// Begins to watch a machine and at most [`WATCHED_MAX`] of its processes; the others are left
    /// out.
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
        let watch = |pid: &u32| ProcessSampler {
            pid: *pid,
            stat: OpenFile::new(format!("proc/{pid}/stat")),
            threads: ThreadSampler::new(*pid, open_max),
            group: Groups::of(&root, &pid.to_string()).ok().map(&mut place),
        };
        let watched = pids.iter().map(watch).collect();
        let other_namespaces = other_namespaces(&root, pids);
        let (open, buffer, cost) = (ProbeFiles::new(), Vec::new(), SamplingCost::default());
        Self { root, watched, groups, open, other_namespaces, buffer, first: None, cost }
    }

    /// Takes a sample that includes the values compared only between the ends of an interval: all
    /// processes of the machine, and context switches of the watched threads.
    pub fn sample_endpoint(&mut self, at: Nanos) -> Sample {
        let mut sample = self.sample_once(at, true);
        let before = thread_cpu();
        sample.end =
            Some(EndpointSample::of(&self.root, self.watched.iter().map(|watched| watched.pid)));
        self.cost.cpu += thread_cpu().saturating_sub(before);
        sample
    }

    /// Takes a [`survey`], whose cost counts as this sampler's. It takes about 50 ms.
    pub fn survey(&mut self, samples: &mut Samples) {
        let before = thread_cpu();
        survey(&self.root, samples);
        self.cost.cpu += thread_cpu().saturating_sub(before);
    }

    /// Takes a sample.
    pub fn sample(&mut self, at: Nanos) -> Sample {
        self.sample_once(at, false)
    }

    fn sample_once(&mut self, at: Nanos, renamed: bool) -> Sample {
        let before = thread_cpu();
        let (root, buffer, open) = (&self.root, &mut self.buffer, &mut self.open);
        let groups: Vec<GroupStats> = self.groups.iter().map(Groups::counted).collect();
        let [pressure_cpu, pressure_memory, pressure_io] = &mut open.pressure;
        let sample = Sample {
            at,
            cpu: open.cpu.parse(root, buffer, cpu::parse),
            cpu_pressure: pressure_cpu.parse(root, buffer, pressure::parse),
            memory_pressure: pressure_memory.parse(root, buffer, pressure::parse),
            io_pressure: pressure_io.parse(root, buffer, pressure::parse),
            load: open.load.parse(root, buffer, cpu::parse_load),
            memory: open.memory.parse(root, buffer, memory::parse_meminfo),
            vmstat: open.vmstat.parse(root, buffer, memory::parse_vmstat),
            disks: open.disks.parse(root, buffer, disk::parse),
            interfaces: open.interfaces.parse(root, buffer, interface::parse),
            segments: open.segments.parse(root, buffer, tcp::parse_segments),
            tcp_errors: open.tcp_errors.parse(root, buffer, tcp::parse_errors),
            other_namespaces: self
                .other_namespaces
                .iter_mut()
                .map(|files| counters(files, root, buffer))
                .collect(),
            sockets: open.sockets.parse(root, buffer, network::parse_sockstat),
            softnet: open.softnet.parse(root, buffer, network::parse_softnet),
            conntrack: open.conntrack.parse(root, buffer, |text| text.trim().parse().ok()),
            files: open.files.parse(root, buffer, limits::parse_files),
            processes: self
                .watched
                .iter_mut()
                .map(|watched| watched.sample_once(root, buffer, &groups, renamed))
                .collect(),
            end: None,
        };
        let first = *self.first.get_or_insert(at);
        self.cost.span = at.since(first);
        self.cost.cpu += thread_cpu().saturating_sub(before);
        self.cost.samples += 1;
        sample
    }

    /// Samples every `interval`, at least [`INTERVAL_MIN`], until `stop` is set. Late samples are
    /// not made up for.
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

    /// Returns the cost so far.
    pub fn cost(&self) -> SamplingCost {
        self.cost
    }
}

impl ProcessSampler {
    fn sample_once(
        &mut self,
        root: &Root,
        buffer: &mut Vec<u8>,
        groups: &[GroupStats],
        renamed: bool,
    ) -> ProcessSample {
        let group = self.group.and_then(|place| groups.get(place)).cloned();
        let cpu =
            self.stat.parse(root, buffer, |text| task::parse(self.pid, text).map(|task| task.cpu));
        ProcessSample {
            pid: self.pid,
            tasks: self.threads.sample_once(root, buffer, renamed),
            cpu,
            group,
        }
    }
}

/// Lists each namespace once.
fn other_namespaces(root: &Root, pids: &[u32]) -> Vec<[OpenFile; 2]> {
    let mut foreign = network::foreign_namespaces(root, pids);
    foreign.sort_by(|(_, one), (_, other)| one.cmp(other));
    foreign.dedup_by(|(_, one), (_, other)| one == other);
    foreign
        .iter()
        .map(|(pid, _)| {
            ["snmp", "netstat"].map(|file| OpenFile::new(format!("proc/{pid}/net/{file}")))
        })
        .collect()
}

fn counters(
    files: &mut [OpenFile; 2],
    root: &Root,
    buffer: &mut Vec<u8>,
) -> (ProbeResult<tcp::Segments>, ProbeResult<tcp::TcpErrors>) {
    let [segments, errors] = files;
    (
        segments.parse(root, buffer, tcp::parse_segments),
        errors.parse(root, buffer, tcp::parse_errors),
    )
}

impl ProbeFiles {
    fn new() -> Self {
        Self {
            cpu: OpenFile::new(cpu::FILE),
            pressure: [pressure::CPU_FILE, pressure::MEMORY_FILE, pressure::IO_FILE]
                .map(OpenFile::new),
            load: OpenFile::new(cpu::LOADAVG_FILE),
            memory: OpenFile::new(memory::MEMINFO_FILE),
            vmstat: OpenFile::new(memory::VMSTAT_FILE),
            disks: OpenFile::new(disk::FILE),
            interfaces: OpenFile::new(interface::FILE),
            segments: OpenFile::new(tcp::SNMP_FILE),
            tcp_errors: OpenFile::new(tcp::NETSTAT_FILE),
            sockets: OpenFile::new(network::SOCKSTAT_FILE),
            softnet: OpenFile::new(network::SOFTNET_FILE),
            conntrack: OpenFile::new(network::CONNTRACK_COUNT_FILE),
            files: OpenFile::new(limits::FILES_FILE),
        }
    }
}

#[cfg(test)]
mod tests;
