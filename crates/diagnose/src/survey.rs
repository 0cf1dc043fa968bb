//! What costs too much for every sample: what threads wait for, whose sockets are whose, how full tables are. Looks at the end
//! of a stretch add it to its [`Samples`].
//!
//! Reading order: [`survey`], `table` (all sockets), `waits` (where threads stand), `connections` (the generator's own).

mod connections;
mod table;
mod waits;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::probe::limits::{self, ProcessLimits};
use crate::probe::sockets::{Socket, State};
use crate::probe::{conntrack, interface, namespace};
use crate::root::{Root, Seen, Unseen, Why};
use crate::samples::{AcceptQueue, Connections, Level, Peer, Samples, Watched};

use self::table::Table;

/// Most open files of one process whose links are read.
const LINKS_MAX: usize = 200_000;
/// Most peers of one process that are kept.
const PEERS_MAX: usize = 16;

/// Looks, and fills in: what threads wait for, peers, unread requests, unsent answers and open files of each watched process,
/// ports, the firewall's table, speeds of links. What cannot be seen is added to `unseen`. The looks at the threads take some 50 ms.
pub fn survey(root: &Root, samples: &mut Samples) {
    let mut unseen = Vec::new();
    let pids: Vec<u32> = samples.processes.iter().map(|process| process.pid).collect();
    let table = Table::own(root, &mut unseen);
    let elsewhere = Elsewhere::of(root, &pids, &mut unseen);
    let open: Vec<Seen<Inodes>> = pids.iter().map(|pid| inodes(root, *pid)).collect();
    samples.connections = own_connections(root, &pids, &open);
    // This takes long, and a short load may end meanwhile: what it had open was read first.
    let found = waits::look(root, &pids);
    let time_wait = samples.sockets.map_or(u64::MAX, |sockets| sockets.time_wait);
    samples.ports = table.fullest_ports(root, time_wait);
    // A table without entries is not in use.
    let tracked = conntrack::read(root).ok().filter(|tracked| tracked.count > 0);
    samples.conntrack = tracked.map(|tracked| Level { used: tracked.count, most: tracked.max });
    for link in &mut samples.links {
        link.speed_bits_per_s = interface::speed(root, &link.name).ok().map(|speed| speed as f64);
    }
    // Whoever may not see one process's threads may not see the others' either: it is named once.
    // Of one that has no threads the samples themselves tell.
    let hidden = |found: &Seen<_>| found.as_ref().err().filter(|hidden| !hidden.file.ends_with("/task")).cloned();
    let hidden = found.iter().find_map(hidden);
    for ((process, found), open) in samples.processes.iter_mut().zip(found).zip(open) {
        match open {
            Ok(inodes) => {
                let soft = root.parse(&format!("proc/{}/limits", process.pid), limits::parse).ok().and_then(soft);
                process.files = soft.map(|most| Level { used: inodes.open_files, most });
                let own = Sockets::of(elsewhere.sockets(process.pid).unwrap_or(&table.sockets), &inodes.sockets);
                own.tell(process);
                process.waits = found.map(|found| found.waits(&own)).unwrap_or_default();
            }
            Err(why) => unseen.push(why),
        }
    }
    unseen.extend(hidden.filter(|hidden| !unseen.iter().any(|other| same_process(&other.file, &hidden.file))));
    samples.unseen.extend(unseen);
}

/// The generator's own connections: the kernel answers for the machine that this runs on, and for its own namespace.
fn own_connections(root: &Root, pids: &[u32], open: &[Seen<Inodes>]) -> Option<Connections> {
    let own = pids.iter().position(|pid| *pid == std::process::id()).filter(|_| *root == Root::machine())?;
    connections::of(&open.get(own)?.as_ref().ok()?.sockets)
}

/// Open files of a process.
struct Inodes {
    open_files: u64,
    sockets: HashSet<u64>,
}

fn inodes(root: &Root, pid: u32) -> Seen<Inodes> {
    let file = format!("proc/{pid}/fd");
    let entries = std::fs::read_dir(root.path(&file));
    let entries = entries.map_err(|error| Unseen { file, why: Why::of(&error) })?;
    let mut inodes = Inodes { open_files: 0, sockets: HashSet::new() };
    for entry in entries.flatten().take(LINKS_MAX) {
        inodes.open_files += 1;
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        inodes.sockets.extend(link.to_str().and_then(socket_of));
    }
    Ok(inodes)
}

/// The inode in `socket:[4711]`.
fn socket_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether both lie below the same `proc/PID`.
fn same_process(one: &str, other: &str) -> bool {
    let process = |file: &str| file.split('/').nth(1).map(str::to_owned);
    process(one) == process(other)
}

/// Sockets of processes whose network namespace is not this process's: each namespace has tables of its own.
struct Elsewhere {
    namespaces: Vec<(PathBuf, Vec<Socket>)>,
    of: BTreeMap<u32, usize>,
}

impl Elsewhere {
    fn of(root: &Root, pids: &[u32], unseen: &mut Vec<Unseen>) -> Self {
        let mut found = Self { namespaces: Vec::new(), of: BTreeMap::new() };
        for (pid, name) in namespace::foreign(root, pids) {
            let known = found.namespaces.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or_else(|| {
                let sockets = Table::read(root, &format!("proc/{pid}/net"), unseen).sockets;
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
    /// Those that are not listeners.
    own: Vec<&'a Socket>,
    /// Its listeners.
    listeners: Vec<&'a Socket>,
    /// Ports of its listeners: connections to them are its clients'; the others it opened itself.
    doors: HashSet<u16>,
}

impl<'a> Sockets<'a> {
    fn of(all: &'a [Socket], inodes: &HashSet<u64>) -> Self {
        let own = all.iter().filter(|socket| socket.inode != 0 && inodes.contains(&socket.inode));
        let (listening, own): (Vec<&Socket>, Vec<&Socket>) = own.partition(|socket| socket.state == State::Listening);
        let doors = listening.iter().map(|socket| socket.local.port()).collect();
        Self { own, listeners: listening, doors }
    }

    fn clients(&self) -> impl Iterator<Item = &'a Socket> {
        self.open().filter(|socket| self.doors.contains(&socket.local.port()))
    }

    fn others(&self) -> impl Iterator<Item = &'a Socket> {
        self.open().filter(|socket| !self.doors.contains(&socket.local.port()))
    }

    fn open(&self) -> impl Iterator<Item = &'a Socket> {
        self.own.iter().copied().filter(|socket| socket.state == State::Established)
    }

    /// The queue with the largest part of its room taken, or the most in it where the room is not told.
    fn fullest_queue(&self) -> Option<AcceptQueue> {
        let queues = self.listeners.iter().map(|socket| AcceptQueue { waiting: socket.unread, most: socket.backlog });
        let taken = |queue: &AcceptQueue| queue.waiting as f64 / queue.most.unwrap_or(0).max(1) as f64;
        queues.max_by(|one, other| taken(one).total_cmp(&taken(other)))
    }

    /// Share of the connections that were opened from here which the other side has not taken in.
    fn untaken_share(&self) -> Option<f64> {
        let asks = |socket: &&&Socket| matches!(socket.state, State::SynSent | State::Established);
        let from_here = self.own.iter().filter(|socket| !self.doors.contains(&socket.local.port())).filter(asks);
        // Over a long way the first answer takes its time; on this machine it takes none.
        let untaken = |socket: &&Socket| {
            socket.retransmits > 0 || socket.state == State::SynSent && socket.peer.ip().is_loopback()
        };
        let (untaken, all) = from_here.fold((0, 0), |(some, all), socket| (some + u64::from(untaken(socket)), all + 1));
        (all > 0).then(|| untaken as f64 / f64::from(all))
    }

    fn tell(&self, process: &mut Watched) {
        (process.accept_queue, process.untaken_share) = (self.fullest_queue(), self.untaken_share());
        let clients = self.clients().count();
        let share = |some: usize| (clients > 0).then(|| some as f64 / clients as f64);
        process.unread_share = share(self.clients().filter(|socket| socket.unread > 0).count());
        process.unsent_share = share(self.clients().filter(|socket| socket.unsent_bytes > 0).count());
        let mut peers: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        self.others().for_each(|socket| *peers.entry(socket.peer).or_default() += 1);
        process.peers = peers.into_iter().map(|(address, connections)| Peer { address, connections }).collect();
        process.peers.sort_by_key(|peer| std::cmp::Reverse(peer.connections));
        process.peers.truncate(PEERS_MAX);
    }
}

fn soft(limits: ProcessLimits) -> Option<u64> {
    limits.open_files.soft
}

#[cfg(test)]
mod tests;
