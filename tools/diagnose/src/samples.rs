//! Rates and shares over the interval between two samples, which the [`crate::rules`] evaluate.
//! Pure.

mod endpoints;
mod network;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::database::DatabaseWaits;
use crate::probe::cpu::CpuShares;
use crate::probe::disk::{DiskRate, is_partition};
use crate::probe::group::GroupCounters;
use crate::probe::interface::Interface;
use crate::probe::memory::{Memory, VmStat};
use crate::probe::network::{Sockstat, Softnet};
use crate::probe::pressure::Pressure;
use crate::probe::task::Task;
use crate::probe::tcp::{Segments, TcpErrors};
use crate::root::{ProbeError, ProbeResult};
use crate::sampler::sample::{EndpointSample, ProcessSample, Sample};

pub use self::network::{AcceptQueue, Link, Wait, WaitReason};

/// Maximum error of a process's own CPU account: a tick of user and one of system time at each end.
const TICKS: Duration = Duration::from_millis(40);

/// One interval. Values that could not be read are `None` and listed in `probe_errors`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Length.
    pub span: Duration,
    /// CPU shares by CPU.
    pub cores: Vec<CpuShares>,
    /// Share of the time in which some thread waited for a CPU, 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for I/O.
    pub io_pressure: Option<f64>,
    /// Memory at the end of the interval.
    pub memory: Option<Memory>,
    /// Page faults, reclaim and swapping.
    pub vmstat: Option<VmStat>,
    /// Disks, without their partitions.
    pub disks: Vec<DiskRate>,
    /// Network interfaces.
    pub links: Vec<Link>,
    /// TCP segments, in the network namespaces of this process and of the watched ones.
    pub segments: Option<Segments>,
    /// TCP errors, in the same namespaces.
    pub tcp_errors: Option<TcpErrors>,
    /// Incoming packets.
    pub softnet: Option<Softnet>,
    /// TCP sockets at the end of the interval.
    pub sockets: Option<Sockstat>,
    /// Entries and size of the firewall's table at the end; filled in by [`crate::survey`].
    pub conntrack: Option<Occupancy>,
    /// Local ports in use towards the busiest address at the end, and their number; filled in by
    /// [`crate::survey`].
    pub ports: Option<Occupancy>,
    /// The watched processes.
    pub processes: Vec<WatchedProcess>,
    /// The busiest programs, at most five, whose processes were neither watched nor descend from
    /// watched ones. Empty unless both samples come from
    /// [`crate::sampler::Sampler::sample_endpoint`].
    pub others: Vec<OtherProcess>,
    /// Kernel state of this process's own connections, which are the load generator's; filled in by
    /// [`crate::survey`].
    pub connections: Option<Connections>,
    /// Measurements of a load generator.
    pub load: Option<GeneratorLoad>,
    /// What the sessions of the database behind the service waited for, where it was asked.
    pub database: Option<DatabaseWaits>,
    /// Failed probes.
    pub probe_errors: Vec<ProbeError>,
}

/// Use of a limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// In use.
    pub used: u64,
    /// Available.
    pub most: u64,
}

/// The role of a process in the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The measured service.
    #[default]
    Service,
    /// A proxy in front of it.
    Proxy,
    /// A database behind it.
    Database,
    /// The load generator.
    Generator,
}

/// A watched process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedProcess {
    /// Its id.
    pub pid: u32,
    /// Its role.
    pub role: Role,
    /// Its threads, the busiest first.
    pub threads: Vec<Thread>,
    /// Counters of its own cgroups; throttling is that of the most throttled group among its own
    /// and its ancestors.
    pub group: Option<GroupCounters>,
    /// The folder of that group; none without throttling.
    pub held_in: Option<Arc<Path>>,
    /// Its open files and their limit; filled in by [`crate::survey`].
    pub files: Option<Occupancy>,
    /// Connections that it opened to others, by address, most first; filled in by
    /// [`crate::survey`].
    pub peers: Vec<Peer>,
    /// Share of its clients' connections with an unread request, 0 to 1; filled in by
    /// [`crate::survey`].
    pub unread_share: Option<f64>,
    /// Share of them with unacknowledged data, 0 to 1: in transit, or delayed by the link or the
    /// client.
    pub unsent_share: Option<f64>,
    /// The fullest accept queue of its listeners; filled in by [`crate::survey`].
    pub accept_queue: Option<AcceptQueue>,
    /// Share of the connections that it opened which the other side has not accepted, 0 to 1: the
    /// first segment is unanswered, or a segment had to be retransmitted. Filled in by
    /// [`crate::survey`].
    pub untaken_share: Option<f64>,
    /// CPUs that it used, including ended and unsampled threads; `None` where unknown.
    pub cores: Option<f64>,
    /// Voluntary context switches of its threads per second. This and the next require samples of
    /// [`crate::sampler::Sampler::sample_endpoint`].
    pub waits_per_s: Option<f64>,
    /// Involuntary context switches of its threads per second.
    pub preempted_per_s: Option<f64>,
    /// Waits of its threads, the most frequent first; filled in by [`crate::survey`].
    pub waits: Vec<Wait>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Share of the time on a CPU, 0 to 1.
    pub busy: f64,
    /// Share of the time on the run queue, 0 to 1.
    pub waited: Option<f64>,
}

/// A peer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Open connections to it.
    pub connections: u64,
}

/// The processes of one name outside the measurement, with their children that ended in the
/// interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherProcess {
    /// The id of the busiest.
    pub pid: u32,
    /// Their name; kernel threads in brackets.
    pub name: String,
    /// Number of processes: many short or small ones add up.
    pub processes: u32,
    /// CPUs that they used together.
    pub cores: f64,
}

/// Kernel state of a generator's connections (`tcp_info`), as sums or means over the open ones, at
/// most 10,000. Values that an older kernel does not report are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Connections {
    /// Connections examined.
    pub count: u64,
    /// Mean of their smoothed round-trip times.
    pub rtt: Duration,
    /// Mean of their minimum round-trip times.
    pub rtt_min: Duration,
    /// Total retransmitted segments since the connections were opened.
    pub retransmitted: u64,
    /// Share of the sending time limited by the receiver's window, 0 to 1.
    pub receiver_limited: f64,
    /// The same for the send buffer.
    pub send_buffer_limited: f64,
}

/// Measurements of a load generator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GeneratorLoad {
    /// Its connections.
    pub connections: u64,
    /// Responses per second.
    pub rate: f64,
    /// Target rate in requests per second; none in a closed loop.
    pub target_rate: Option<f64>,
    /// Mean service time.
    pub service_time: Duration,
    /// Attempts to connect per second; none where unknown.
    pub connects_per_s: Option<f64>,
    /// Failed attempts to connect per second.
    pub failed_connects_per_s: f64,
    /// Requests that the target refused or broke off; none if there were none.
    pub failures: Option<Failures>,
    /// True if it judges itself to have been the limit.
    pub was_the_limit: bool,
}

/// Requests that the target refused or broke off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// Their share of the due requests, 0 to 1: of the most frequent kind alone.
    pub share: f64,
    /// That kind.
    pub kind: FailureKind,
}

/// A way in which a target refuses a request or breaks it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It answers with this unexpected status.
    Status(u16),
    /// It closes the connection.
    Closed,
    /// It resets the connection.
    Reset,
}

impl Samples {
    /// Derives the interval between two samples. `role` returns the role of each watched process.
    #[must_use]
    pub fn between(earlier: &Sample, later: &Sample, role: impl Fn(u32) -> Role) -> Self {
        let span = later.at.since(earlier.at);
        let mut seen = ErrorCollector::default();
        let pressure = |seen: &mut ErrorCollector,
                        before: &ProbeResult<Pressure>,
                        after: &ProbeResult<Pressure>| {
            let (before, after) = seen.both(before, after)?;
            share(after.some.saturating_sub(before.some), span)
        };
        let mut samples = Self {
            span,
            cpu_pressure: pressure(&mut seen, &earlier.cpu_pressure, &later.cpu_pressure),
            memory_pressure: pressure(&mut seen, &earlier.memory_pressure, &later.memory_pressure),
            io_pressure: pressure(&mut seen, &earlier.io_pressure, &later.io_pressure),
            memory: seen.one(&later.memory).copied(),
            vmstat: seen
                .both(&earlier.vmstat, &later.vmstat)
                .map(|(before, after)| after.since(before)),
            segments: seen
                .both(&earlier.segments, &later.segments)
                .map(|(before, after)| after.since(before)),
            tcp_errors: seen
                .both(&earlier.tcp_errors, &later.tcp_errors)
                .map(|(before, after)| after.since(before)),
            softnet: seen
                .both(&earlier.softnet, &later.softnet)
                .map(|(before, after)| after.since(before)),
            sockets: seen.one(&later.sockets).copied(),
            ..Self::default()
        };
        if let Some((before, after)) = seen.both(&earlier.cpu, &later.cpu) {
            let pairs = after.cores.iter().filter_map(|(cpu, time)| {
                let (_, before) = before.cores.iter().find(|(other, _)| other == cpu)?;
                time.since(before).shares()
            });
            samples.cores = pairs.collect();
        }
        if let Some((before, after)) = seen.both(&earlier.disks, &later.disks) {
            let whole = after
                .iter()
                .filter(|disk| !after.iter().any(|other| is_partition(&disk.name, &other.name)));
            let rate = |disk: &crate::probe::disk::Disk| {
                disk.rate(before.iter().find(|b| b.name == disk.name)?, span)
            };
            samples.disks = whole.filter_map(rate).collect();
        }
        if let Some((before, after)) = seen.both(&earlier.interfaces, &later.interfaces) {
            let link = |now: &Interface| {
                Link::between(before.iter().find(|b| b.name == now.name)?, now, span)
            };
            samples.links = after.iter().filter_map(link).collect();
        }
        let of = |pid: u32| earlier.processes.iter().find(|process| process.pid == pid);
        let watched = |now: &ProcessSample| {
            WatchedProcess::between(of(now.pid)?, now, span, role(now.pid), &mut seen)
        };
        samples.processes = later.processes.iter().filter_map(watched).collect();
        samples.add_elsewhere(earlier, later, &mut seen);
        if let (Some(before), Some(now)) = (&earlier.end, &later.end) {
            samples.add_ends(before, now, &mut seen);
        }
        samples.probe_errors = seen.probe_errors;
        samples
    }

    fn add_elsewhere(&mut self, earlier: &Sample, later: &Sample, seen: &mut ErrorCollector) {
        for ((old_segments, old_errors), (segments, errors)) in
            earlier.other_namespaces.iter().zip(&later.other_namespaces)
        {
            if let (Some((before, now)), Some(sum)) =
                (seen.both(old_segments, segments), &mut self.segments)
            {
                *sum = sum.and(&now.since(before));
            }
            if let (Some((before, now)), Some(sum)) =
                (seen.both(old_errors, errors), &mut self.tcp_errors)
            {
                *sum = sum.and(&now.since(before));
            }
        }
    }

    fn add_ends(
        &mut self,
        before: &EndpointSample,
        now: &EndpointSample,
        seen: &mut ErrorCollector,
    ) {
        let watched: f64 = self.processes.iter().map(WatchedProcess::cores_used).sum();
        let busy: f64 = self.cores.iter().map(|core| core.busy).sum();
        let most = (!self.cores.is_empty()).then(|| (busy - watched).max(0.0));
        self.others = endpoints::others(before, now, &self.processes, self.span, most);
        for process in &mut self.processes {
            let switches = endpoints::switches(before, now, process.pid, self.span);
            (process.waits_per_s, process.preempted_per_s) = switches.unzip();
        }
        seen.both(&before.processes_of_machine, &now.processes_of_machine);
        if let Some(hidden) = &now.hidden {
            seen.one::<()>(&Err(hidden.clone()));
        }
    }

    /// Returns the mean busy share of all CPUs, 0 to 1.
    pub fn busy(&self) -> Option<f64> {
        self.mean(|core| core.busy)
    }

    /// Returns the mean stolen share, 0 to 1.
    pub fn steal(&self) -> Option<f64> {
        self.mean(|core| core.steal)
    }

    /// Returns the sum of idle CPUs.
    pub fn idle_cores(&self) -> Option<f64> {
        let idle = self.cores.iter().map(|core| (1.0 - core.busy - core.steal).max(0.0)).sum();
        (!self.cores.is_empty()).then_some(idle)
    }

    /// Returns the processes with a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &WatchedProcess> {
        self.processes.iter().filter(move |process| process.role == role)
    }

    fn mean(&self, part: impl Fn(&CpuShares) -> f64) -> Option<f64> {
        let sum: f64 = self.cores.iter().map(part).sum();
        (!self.cores.is_empty()).then(|| sum / self.cores.len() as f64)
    }
}

impl WatchedProcess {
    fn between(
        before: &ProcessSample,
        now: &ProcessSample,
        span: Duration,
        role: Role,
        seen: &mut ErrorCollector,
    ) -> Option<Self> {
        let (old, new) = seen.both(&before.tasks, &now.tasks)?;
        // A thread that is new began with nothing.
        let thread = |task: &Task| {
            let earlier =
                old.iter().find(|other| other.tid == task.tid).cloned().unwrap_or_default();
            let waited =
                task.waited.map(|waited| waited.saturating_sub(earlier.waited.unwrap_or_default()));
            Some(Thread {
                name: task.name.clone(),
                busy: share(task.cpu.saturating_sub(earlier.cpu), span)?,
                waited: waited.and_then(|waited| share(waited, span)),
            })
        };
        let mut threads: Vec<Thread> = new.iter().filter_map(thread).collect();
        threads.sort_by(|one, other| other.busy.total_cmp(&one.busy));
        let group =
            now.group.as_ref().zip(before.group.as_ref()).map(|(now, before)| now.since(before));
        let (group, held_in) = group.unzip();
        let cores = match (&before.cpu, &now.cpu) {
            (Ok(before), Ok(now)) => cores(&threads, now.saturating_sub(*before), span),
            _ => None,
        };
        Some(Self {
            pid: now.pid,
            role,
            threads,
            group,
            held_in: held_in.flatten(),
            cores,
            ..Self::default()
        })
    }

    /// Returns the CPUs that it used; where its total is unknown, those of its living threads.
    pub fn cores_used(&self) -> f64 {
        self.cores.unwrap_or_else(|| self.threads.iter().map(|thread| thread.busy).sum())
    }
}

/// Returns the CPUs that a process used. Its own account covers all threads, but in ticks of 10 ms,
/// truncated separately for user and system time. The account of its threads is exact, but lacks
/// ended and unsampled ones. Therefore the threads' account is used where the two agree.
fn cores(threads: &[Thread], account: Duration, span: Duration) -> Option<f64> {
    let (account, ticks) = (share(account, span)?, share(TICKS, span)?);
    let threads = threads.iter().map(|thread| thread.busy).sum::<f64>();
    Some(if (account - threads).abs() <= ticks { threads } else { account })
}

impl Occupancy {
    /// Returns the share in use, 0 to 1; `None` when none are available.
    pub fn share(&self) -> Option<f64> {
        (self.most > 0).then(|| self.used as f64 / self.most as f64)
    }
}

/// Collects probe errors without duplicates.
#[derive(Default)]
struct ErrorCollector {
    probe_errors: Vec<ProbeError>,
}

impl ErrorCollector {
    fn one<'a, T>(&mut self, seen: &'a ProbeResult<T>) -> Option<&'a T> {
        match seen {
            Ok(value) => Some(value),
            Err(probe_error) => {
                if !self.probe_errors.contains(probe_error) {
                    self.probe_errors.push(probe_error.clone());
                }
                None
            }
        }
    }

    fn both<'a, T>(
        &mut self,
        before: &'a ProbeResult<T>,
        after: &'a ProbeResult<T>,
    ) -> Option<(&'a T, &'a T)> {
        let (before, after) = (self.one(before), self.one(after));
        before.zip(after)
    }
}

fn share(part: Duration, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| part.as_secs_f64() / span.as_secs_f64())
}

#[cfg(test)]
mod tests;
