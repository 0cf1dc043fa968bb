//! Probes too expensive for every sample: waits of threads, sockets by process, and use of tables.
//! Taken at the end of an interval, they complete its [`Samples`].
//!
//! Reading order: [`survey`], `table` (all sockets), `waits` (waits of threads), `connections` (the
//! generator's own).

mod connections;
mod table;
mod waits;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::probe::limits::{self, ProcessLimits};
use crate::probe::sockets::{Socket, SocketState};
use crate::probe::{interface, network};
use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};
use crate::samples::{AcceptQueue, Connections, Occupancy, Peer, Samples, WatchedProcess};

use self::table::SocketTable;

/// Most open files of one process whose links are read.
const LINKS_MAX: usize = 200_000;
/// Most peers kept per process.
const PEERS_MAX: usize = 16;

/// Fills in: waits of threads, peers, unread requests, unacknowledged responses and open files of
/// each watched process, ports, the firewall's table, and speeds of links. Errors are added to
/// `probe_errors`. Sampling the threads takes about 50 ms.
pub fn survey(root: &Root, samples: &mut Samples) {
    let mut probe_errors = Vec::new();
    let pids: Vec<u32> = samples.processes.iter().map(|process| process.pid).collect();
    let table = SocketTable::own(root, &mut probe_errors);
    let other_namespaces = OtherNamespaces::of(root, &pids, &mut probe_errors);
    let open: Vec<ProbeResult<Inodes>> = pids.iter().map(|pid| inodes(root, *pid)).collect();
    samples.connections = own_connections(root, &pids, &open);
    // This takes long, and a short load may end first; therefore open files are read before it.
    let found = waits::look(root, &pids);
    let time_wait = samples.sockets.map_or(u64::MAX, |sockets| sockets.time_wait);
    samples.ports = table.fullest_ports(root, time_wait);
    // A table without entries is not in use.
    let tracked = network::read_conntrack(root).ok().filter(|tracked| tracked.count > 0);
    samples.conntrack = tracked.map(|tracked| Occupancy { used: tracked.count, most: tracked.max });
    for link in &mut samples.links {
        link.speed_bits_per_s = interface::speed(root, &link.name).ok().map(|speed| speed as f64);
    }
    // A lack of permission for one process's threads usually applies to the others: it is reported
    // once. For a process without threads, the samples report it.
    let hidden = |found: &ProbeResult<_>| {
        found.as_ref().err().filter(|hidden| !hidden.file.ends_with("/task")).cloned()
    };
    let hidden = found.iter().find_map(hidden);
    for ((process, found), open) in samples.processes.iter_mut().zip(found).zip(open) {
        match open {
            Ok(inodes) => {
                let soft = root
                    .parse(&format!("proc/{}/limits", process.pid), limits::parse)
                    .ok()
                    .and_then(soft);
                process.files = soft.map(|most| Occupancy { used: inodes.open_files, most });
                let own = Sockets::of(
                    other_namespaces.sockets(process.pid).unwrap_or(&table.sockets),
                    &inodes.sockets,
                );
                own.fill_in(process);
                process.waits = found.map(|found| found.waits(&own)).unwrap_or_default();
            }
            Err(why) => probe_errors.push(why),
        }
    }
    probe_errors.extend(hidden.filter(|hidden| {
        !probe_errors.iter().any(|other| same_process(&other.file, &hidden.file))
    }));
    samples.probe_errors.extend(probe_errors);
}

/// Returns the generator's own connections: the kernel answers for this machine and this process's
/// own namespace.
fn own_connections(root: &Root, pids: &[u32], open: &[ProbeResult<Inodes>]) -> Option<Connections> {
    let own = pids
        .iter()
        .position(|pid| *pid == std::process::id())
        .filter(|_| *root == Root::machine())?;
    connections::of(&open.get(own)?.as_ref().ok()?.sockets)
}

/// The sockets among a process's open files.
struct Inodes {
    open_files: u64,
    sockets: HashSet<u64>,
}

fn inodes(root: &Root, pid: u32) -> ProbeResult<Inodes> {
    let file = format!("proc/{pid}/fd");
    let entries = std::fs::read_dir(root.path(&file));
    let entries = entries.map_err(|error| ProbeError { file, why: ProbeErrorKind::of(&error) })?;
    let mut inodes = Inodes { open_files: 0, sockets: HashSet::new() };
    for entry in entries.flatten().take(LINKS_MAX) {
        inodes.open_files += 1;
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        inodes.sockets.extend(link.to_str().and_then(socket_of));
    }
    Ok(inodes)
}

/// Returns the inode in `socket:[4711]`.
fn socket_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns whether both lie below the same `proc/PID`.
fn same_process(one: &str, other: &str) -> bool {
    let process = |file: &str| file.split('/').nth(1).map(str::to_owned);
    process(one) == process(other)
}

/// Sockets of processes in other network namespaces: each namespace has its own tables.
struct OtherNamespaces {
    namespaces: Vec<(PathBuf, Vec<Socket>)>,
    of: BTreeMap<u32, usize>,
}

impl OtherNamespaces {
    fn of(root: &Root, pids: &[u32], probe_errors: &mut Vec<ProbeError>) -> Self {
        let mut found = Self { namespaces: Vec::new(), of: BTreeMap::new() };
        for (pid, name) in network::foreign_namespaces(root, pids) {
            let known = found.namespaces.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or_else(|| {
                let sockets =
                    SocketTable::read(root, &format!("proc/{pid}/net"), probe_errors).sockets;
                found.namespaces.push((name, sockets));
                found.namespaces.len() - 1
            });
            found.of.insert(pid, at);
        }
        found
    }

    fn sockets(&self, pid: u32) -> Option<&[Socket]> {
        let (_, sockets) = self.namespaces.get(*self.of.get(&pid)?)?;
        Some(sockets)
    }
}

/// The sockets of one process.
struct Sockets<'a> {
    /// Its sockets that are not listeners.
    own: Vec<&'a Socket>,
    /// Its listeners.
    listeners: Vec<&'a Socket>,
    /// Ports of its listeners: connections to them are its clients'; it opened the others itself.
    listening_ports: HashSet<u16>,
}

impl<'a> Sockets<'a> {
    fn of(all: &'a [Socket], inodes: &HashSet<u64>) -> Self {
        let own = all.iter().filter(|socket| socket.inode != 0 && inodes.contains(&socket.inode));
        let (listening, own): (Vec<&Socket>, Vec<&Socket>) =
            own.partition(|socket| socket.state == SocketState::Listening);
        let listening_ports = listening.iter().map(|socket| socket.local.port()).collect();
        Self { own, listeners: listening, listening_ports }
    }

    fn clients(&self) -> impl Iterator<Item = &'a Socket> {
        self.open().filter(|socket| self.listening_ports.contains(&socket.local.port()))
    }

    fn others(&self) -> impl Iterator<Item = &'a Socket> {
        self.open().filter(|socket| !self.listening_ports.contains(&socket.local.port()))
    }

    fn open(&self) -> impl Iterator<Item = &'a Socket> {
        self.own.iter().copied().filter(|socket| socket.state == SocketState::Established)
    }

    /// Returns the queue with the largest share of its room in use, or the longest where the room
    /// is unknown.
    fn fullest_queue(&self) -> Option<AcceptQueue> {
        let queues = self
            .listeners
            .iter()
            .map(|socket| AcceptQueue { waiting: socket.unread, most: socket.backlog });
        let taken =
            |queue: &AcceptQueue| queue.waiting as f64 / queue.most.unwrap_or(0).max(1) as f64;
        queues.max_by(|one, other| taken(one).total_cmp(&taken(other)))
    }

    /// Returns the share of the connections opened by this side which the other has not accepted.
    fn untaken_share(&self) -> Option<f64> {
        let asks = |socket: &&&Socket| {
            matches!(socket.state, SocketState::SynSent | SocketState::Established)
        };
        let from_here = self
            .own
            .iter()
            .filter(|socket| !self.listening_ports.contains(&socket.local.port()))
            .filter(asks);
        // Over a long distance the first reply takes time; on this machine it takes none.
        let untaken = |socket: &&Socket| {
            socket.retransmits > 0
                || socket.state == SocketState::SynSent && socket.peer.ip().is_loopback()
        };
        let (untaken, all) = from_here
            .fold((0, 0), |(some, all), socket| (some + u64::from(untaken(socket)), all + 1));
        (all > 0).then(|| untaken as f64 / f64::from(all))
    }

    fn fill_in(&self, process: &mut WatchedProcess) {
        (process.accept_queue, process.untaken_share) =
            (self.fullest_queue(), self.untaken_share());
        let clients = self.clients().count();
        let share = |some: usize| (clients > 0).then(|| some as f64 / clients as f64);
        process.unread_share = share(self.clients().filter(|socket| socket.unread > 0).count());
        process.unsent_share =
            share(self.clients().filter(|socket| socket.unsent_bytes > 0).count());
        let mut peers: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        self.others().for_each(|socket| *peers.entry(socket.peer).or_default() += 1);
        process.peers =
            peers.into_iter().map(|(address, connections)| Peer { address, connections }).collect();
        process.peers.sort_by_key(|peer| std::cmp::Reverse(peer.connections));
        process.peers.truncate(PEERS_MAX);
    }
}

fn soft(limits: ProcessLimits) -> Option<u64> {
    limits.open_files.soft
}

#[cfg(test)]
mod tests;
