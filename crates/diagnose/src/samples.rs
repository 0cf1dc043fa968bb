//! What two samples say of the time between them: rates and shares, which the [`crate::rules`] judge. Pure.

mod ends;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::probe::cpu::CpuShares;
use crate::probe::disk::{DiskRate, is_partition};
use crate::probe::group::Counters;
use crate::probe::interface::Interface;
use crate::probe::memory::Memory;
use crate::probe::pressure::Pressure;
use crate::probe::sockstat::Sockstat;
use crate::probe::softnet::Softnet;
use crate::probe::task::Task;
use crate::probe::tcp::{Segments, Trouble};
use crate::probe::vmstat::VmStat;
use crate::root::{Seen, Unseen};
use crate::sampler::{End, Process, Sample};

/// As much may a process's own account be off: a tick of user and one of system time, at each end.
const TICKS: Duration = Duration::from_millis(40);

/// One stretch of time. What could not be seen is none, and named in `unseen`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// How long it was.
    pub span: Duration,
    /// What each CPU did.
    pub cores: Vec<CpuShares>,
    /// Share of the time in which some thread wanted a CPU, 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for a disk.
    pub io_pressure: Option<f64>,
    /// Memory at the end.
    pub memory: Option<Memory>,
    /// What memory cost meanwhile.
    pub vmstat: Option<VmStat>,
    /// Disks, without their partitions.
    pub disks: Vec<DiskRate>,
    /// Network interfaces.
    pub links: Vec<Link>,
    /// TCP segments meanwhile, in the network namespaces of this process and of those that were watched.
    pub segments: Option<Segments>,
    /// TCP's troubles meanwhile, in the same.
    pub trouble: Option<Trouble>,
    /// Packets that came in meanwhile.
    pub softnet: Option<Softnet>,
    /// TCP sockets at the end.
    pub sockets: Option<Sockstat>,
    /// Entries of the firewall's table at the end, and at most; [`crate::survey`] fills it in.
    pub conntrack: Option<Level>,
    /// Local ports in use towards the busiest address at the end, and all that there are; [`crate::survey`] fills them
    /// in.
    pub ports: Option<Level>,
    /// The processes that were watched.
    pub processes: Vec<Watched>,
    /// Processes that were not watched, do not descend from those, and used CPU time: the busiest, at most five. Empty unless
    /// both samples were taken by [`crate::sampler::Sampler::sample_end`].
    pub others: Vec<Other>,
    /// This process's own connections, which are the load generator's, as the kernel tells of them; [`crate::survey`] fills it
    /// in.
    pub connections: Option<Connections>,
    /// What a load generator saw.
    pub load: Option<Load>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// In use.
    pub used: u64,
    /// There are.
    pub most: u64,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Received, in bits per second.
    pub received_bits_per_s: f64,
    /// Sent, in bits per second.
    pub sent_bits_per_s: f64,
    /// Packets per second, both ways.
    pub packets_per_s: f64,
    /// Packets that were thrown away, both ways, per second.
    pub dropped_per_s: f64,
    /// What it can do each way, in bits per second; virtual ones do not tell. [`crate::survey`] fills it in.
    pub speed_bits_per_s: Option<f64>,
}

/// What a process is in the set-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// What is measured.
    #[default]
    Service,
    /// Stands in front of it.
    Proxy,
    /// Stands behind it: what it asks.
    Database,
    /// Measures.
    Generator,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Its id.
    pub pid: u32,
    /// What it is.
    pub role: Role,
    /// Its threads, the busiest first.
    pub threads: Vec<Thread>,
    /// What its own cgroups counted meanwhile; how it was held up, of the group that did so most, of all from the own one up.
    pub group: Option<Counters>,
    /// The folder of that group; none where no quota held it up.
    pub held_in: Option<Arc<Path>>,
    /// Its open files, and how many it may have; [`crate::survey`] fills them in.
    pub files: Option<Level>,
    /// Connections that it opened to others, by address, the most first; [`crate::survey`] fills them in.
    pub peers: Vec<Peer>,
    /// Share of its clients' connections on which a request lies unread, 0 to 1; [`crate::survey`] fills it in.
    pub unread_share: Option<f64>,
    /// Share of them on which something sent is not confirmed yet, 0 to 1: under way, or held up by the link or the client.
    pub unsent_share: Option<f64>,
    /// The fullest queue of its listeners; [`crate::survey`] fills it in.
    pub accept_queue: Option<AcceptQueue>,
    /// Share of the connections that it opens or has opened which the other side has not taken in, 0 to 1: the first segment is not
    /// answered, or something had to be sent again. [`crate::survey`] fills it in.
    pub untaken_share: Option<f64>,
    /// CPUs that it used, threads that have ended meanwhile or were too many to look at included; none where it could not be
    /// seen.
    pub cores: Option<f64>,
    /// Switches of its threads per second because they waited for something. This and the next need samples taken by
    /// [`crate::sampler::Sampler::sample_end`].
    pub waits_per_s: Option<f64>,
    /// Switches of its threads per second because another was to run.
    pub preempted_per_s: Option<f64>,
    /// What its threads were found waiting for, the most frequent first; [`crate::survey`] fills it in.
    pub waits: Vec<Wait>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Share of the time on a CPU, 0 to 1.
    pub busy: f64,
    /// Share of the time that it waited for one, 0 to 1.
    pub waited: Option<f64>,
}

/// Somebody that a process asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where.
    pub address: SocketAddr,
    /// Open connections to it.
    pub connections: u64,
}

/// Connections that a listener holds and nobody has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// There are so many.
    pub waiting: u64,
    /// With more than so many, further ones are dropped; none where that is not told.
    pub most: Option<u64>,
}

/// What a thread stands at when it does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFor {
    /// A lock, or a signal of another thread (futex).
    Lock,
    /// Whatever comes next on any of its sockets (epoll, poll, select).
    Events,
    /// A new connection.
    Connection,
    /// An answer of somebody it asks, or room to send; who that is, where it can be seen.
    Peer(Option<SocketAddr>),
    /// A client: its next request, or that it takes an answer.
    Client,
    /// A disk.
    Disk,
    /// The time (sleep).
    Time,
    /// Something else, or what may not be seen.
    Other,
}

/// How often threads of a process were found waiting for something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// For what.
    pub what: WaitFor,
    /// Threads that did, on average over the looks.
    pub threads: f64,
}

/// A process that is not part of what is measured, with those of its children that have ended meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Other {
    /// Its id.
    pub pid: u32,
    /// Its name; the kernel's own threads have theirs in brackets.
    pub name: String,
    /// CPUs that it used.
    pub cores: f64,
}

/// What the kernel tells of a generator's connections (`tcp_info`), added up or as means over those that were open: at most
/// 10,000. What an older kernel does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Connections {
    /// Connections that were looked at.
    pub count: u64,
    /// Mean of their smoothed round trip times.
    pub rtt: Duration,
    /// Mean of their shortest round trip times.
    pub rtt_min: Duration,
    /// Segments that were sent again, all together, since the connections were opened.
    pub retransmitted: u64,
    /// Share of the time that data was under way in which the receiver's window held it back, 0 to 1.
    pub receiver_limited: f64,
    /// The same of the own send buffer.
    pub send_buffer_limited: f64,
}

/// What a load generator saw meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Its connections.
    pub connections: u64,
    /// Answers per second.
    pub rate: f64,
    /// Requests per second that it was asked for; none in a closed loop.
    pub target_rate: Option<f64>,
    /// Mean time from sending a request to its answer.
    pub service_time: Duration,
    /// Connections that it tried to open per second; none where that is not known.
    pub connects_per_s: Option<f64>,
    /// Of those, that it could not open.
    pub failed_connects_per_s: f64,
    /// Whether it judges itself to have been the limit.
    pub was_the_limit: bool,
}

impl Samples {
    /// The time between two samples. `role` says what each watched process is.
    #[must_use]
    pub fn between(earlier: &Sample, later: &Sample, role: impl Fn(u32) -> Role) -> Self {
        let span = later.at.since(earlier.at);
        let mut seen = Seer::default();
        let pressure = |seen: &mut Seer, before: &Seen<Pressure>, after: &Seen<Pressure>| {
            let (before, after) = seen.both(before, after)?;
            share(after.some.saturating_sub(before.some), span)
        };
        let mut samples = Self {
            span,
            cpu_pressure: pressure(&mut seen, &earlier.cpu_pressure, &later.cpu_pressure),
            memory_pressure: pressure(&mut seen, &earlier.memory_pressure, &later.memory_pressure),
            io_pressure: pressure(&mut seen, &earlier.io_pressure, &later.io_pressure),
            memory: seen.one(&later.memory).copied(),
            vmstat: seen.both(&earlier.vmstat, &later.vmstat).map(|(before, after)| after.since(before)),
            segments: seen.both(&earlier.segments, &later.segments).map(|(before, after)| after.since(before)),
            trouble: seen.both(&earlier.trouble, &later.trouble).map(|(before, after)| after.since(before)),
            softnet: seen.both(&earlier.softnet, &later.softnet).map(|(before, after)| after.since(before)),
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
            let whole = after.iter().filter(|disk| !after.iter().any(|other| is_partition(&disk.name, &other.name)));
            let rate = |disk: &crate::probe::disk::Disk| disk.rate(before.iter().find(|b| b.name == disk.name)?, span);
            samples.disks = whole.filter_map(rate).collect();
        }
        if let Some((before, after)) = seen.both(&earlier.interfaces, &later.interfaces) {
            let link = |now: &Interface| Link::between(before.iter().find(|b| b.name == now.name)?, now, span);
            samples.links = after.iter().filter_map(link).collect();
        }
        let of = |pid: u32| earlier.processes.iter().find(|process| process.pid == pid);
        let watched = |now: &Process| Watched::between(of(now.pid)?, now, span, role(now.pid), &mut seen);
        samples.processes = later.processes.iter().filter_map(watched).collect();
        samples.add_elsewhere(earlier, later, &mut seen);
        if let (Some(before), Some(now)) = (&earlier.end, &later.end) {
            samples.add_ends(before, now, &mut seen);
        }
        samples.unseen = seen.unseen;
        samples
    }

    fn add_elsewhere(&mut self, earlier: &Sample, later: &Sample, seen: &mut Seer) {
        for ((old_segments, old_trouble), (segments, trouble)) in earlier.elsewhere.iter().zip(&later.elsewhere) {
            if let (Some((before, now)), Some(sum)) = (seen.both(old_segments, segments), &mut self.segments) {
                *sum = sum.and(&now.since(before));
            }
            if let (Some((before, now)), Some(sum)) = (seen.both(old_trouble, trouble), &mut self.trouble) {
                *sum = sum.and(&now.since(before));
            }
        }
    }

    fn add_ends(&mut self, before: &End, now: &End, seen: &mut Seer) {
        let watched: f64 = self.processes.iter().map(Watched::cores_used).sum();
        let busy: f64 = self.cores.iter().map(|core| core.busy).sum();
        let most = (!self.cores.is_empty()).then(|| (busy - watched).max(0.0));
        self.others = ends::others(before, now, &self.processes, self.span, most);
        for process in &mut self.processes {
            let switches = ends::switches(before, now, process.pid, self.span);
            (process.waits_per_s, process.preempted_per_s) = switches.unzip();
        }
        seen.both(&before.everyone, &now.everyone);
        if let Some(hidden) = &now.hidden {
            seen.one::<()>(&Err(hidden.clone()));
        }
    }

    /// Mean share of all CPUs that was work, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> Option<f64> {
        self.mean(|core| core.busy)
    }

    /// Mean share that the hypervisor took, 0 to 1.
    #[must_use]
    pub fn steal(&self) -> Option<f64> {
        self.mean(|core| core.steal)
    }

    /// CPUs that had nothing to do, added up.
    #[must_use]
    pub fn idle_cores(&self) -> Option<f64> {
        let idle = self.cores.iter().map(|core| (1.0 - core.busy - core.steal).max(0.0)).sum();
        (!self.cores.is_empty()).then_some(idle)
    }

    /// The processes with a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &Watched> {
        self.processes.iter().filter(move |process| process.role == role)
    }

    fn mean(&self, part: impl Fn(&CpuShares) -> f64) -> Option<f64> {
        let sum: f64 = self.cores.iter().map(part).sum();
        (!self.cores.is_empty()).then(|| sum / self.cores.len() as f64)
    }
}

impl Link {
    fn between(before: &Interface, now: &Interface, span: Duration) -> Option<Self> {
        let (received, sent) = (now.received.since(&before.received), now.sent.since(&before.sent));
        let per_s = |count: u64| count as f64 / span.as_secs_f64();
        (!span.is_zero()).then(|| Self {
            name: now.name.clone(),
            received_bits_per_s: per_s(received.bytes.saturating_mul(8)),
            sent_bits_per_s: per_s(sent.bytes.saturating_mul(8)),
            packets_per_s: per_s(received.packets.saturating_add(sent.packets)),
            dropped_per_s: per_s(received.dropped.saturating_add(sent.dropped)),
            speed_bits_per_s: None,
        })
    }
}

impl Watched {
    fn between(before: &Process, now: &Process, span: Duration, role: Role, seen: &mut Seer) -> Option<Self> {
        let (old, new) = seen.both(&before.tasks, &now.tasks)?;
        // A thread that is new began with nothing.
        let thread = |task: &Task| {
            let earlier = old.iter().find(|other| other.tid == task.tid).cloned().unwrap_or_default();
            let waited = task.waited.map(|waited| waited.saturating_sub(earlier.waited.unwrap_or_default()));
            Some(Thread {
                name: task.name.clone(),
                busy: share(task.cpu.saturating_sub(earlier.cpu), span)?,
                waited: waited.and_then(|waited| share(waited, span)),
            })
        };
        let mut threads: Vec<Thread> = new.iter().filter_map(thread).collect();
        threads.sort_by(|one, other| other.busy.total_cmp(&one.busy));
        let group = now.group.as_ref().zip(before.group.as_ref()).map(|(now, before)| now.since(before));
        let (group, held_in) = group.unzip();
        let cores = match (&before.cpu, &now.cpu) {
            (Ok(before), Ok(now)) => cores(&threads, now.saturating_sub(*before), span),
            _ => None,
        };
        Some(Self { pid: now.pid, role, threads, group, held_in: held_in.flatten(), cores, ..Self::default() })
    }

    /// CPUs that it used: all of it, or where that is not known its threads that live still.
    #[must_use]
    pub fn cores_used(&self) -> f64 {
        self.cores.unwrap_or_else(|| self.threads.iter().map(|thread| thread.busy).sum())
    }
}

/// CPUs that a process used. Its own account has all threads that it ever had, but ticks of 10 ms, cut off for user and system
/// apart; that of the threads is exact, but lacks those that have ended or were too many. So the threads' where the two agree.
fn cores(threads: &[Thread], account: Duration, span: Duration) -> Option<f64> {
    let (account, ticks) = (share(account, span)?, share(TICKS, span)?);
    let threads = threads.iter().map(|thread| thread.busy).sum::<f64>();
    Some(if (account - threads).abs() <= ticks { threads } else { account })
}

impl AcceptQueue {
    /// Whether the next one is dropped, or finds room for one at most; not where its room is not told.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.most.is_some_and(|most| self.waiting > 0 && self.waiting >= most)
    }
}

impl Level {
    /// Share in use, 0 to 1; none of nothing.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.most > 0).then(|| self.used as f64 / self.most as f64)
    }
}

/// Collects what could not be seen, each once.
#[derive(Default)]
struct Seer {
    unseen: Vec<Unseen>,
}

impl Seer {
    fn one<'a, T>(&mut self, seen: &'a Seen<T>) -> Option<&'a T> {
        match seen {
            Ok(value) => Some(value),
            Err(unseen) => {
                if !self.unseen.contains(unseen) {
                    self.unseen.push(unseen.clone());
                }
                None
            }
        }
    }

    fn both<'a, T>(&mut self, before: &'a Seen<T>, after: &'a Seen<T>) -> Option<(&'a T, &'a T)> {
        let (before, after) = (self.one(before), self.one(after));
        before.zip(after)
    }
}

fn share(part: Duration, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| part.as_secs_f64() / span.as_secs_f64())
}

#[cfg(test)]
mod tests;
