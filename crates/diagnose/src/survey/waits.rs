//! What threads wait for: several looks at where each stands, and afterwards whose the sockets were.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::Sockets;
use crate::probe::task;
use crate::probe::wait::{self, Arch, Stand};
use crate::root::{Root, Seen, Unseen};
use crate::samples::{Wait, WaitFor};

/// Pauses between the looks, in ms; uneven, so that what happens every so many ms is not met each time or never.
const PAUSES_MS: [u64; 9] = [4, 7, 3, 8, 5, 9, 3, 6, 5];
/// Most threads of all processes together that one look takes in; of more, each look takes others.
const THREADS_MAX: usize = 256;
/// No look begins later than this after the first.
const TIME_MAX: Duration = Duration::from_millis(150);
/// Most kinds of waits of one process that are kept.
const KINDS_MAX: usize = 16;

/// What one process's threads were found at.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Threads, added up over the looks.
    counts: HashMap<Spot, f64>,
    looks: u32,
}

/// Where a thread was found, with the file's number resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Spot {
    Known(WaitFor),
    /// At the socket with this inode.
    Inode(u64),
    /// At some socket.
    Socket,
}

/// Looks at the threads of some processes, in some 50 ms; an error for a process of which nothing may be known.
pub(super) fn look(root: &Root, pids: &[u32]) -> Vec<Seen<Found>> {
    let (began, each) = (Nanos::now(), THREADS_MAX / pids.len().max(1));
    let mut found: Vec<Seen<Found>> = pids.iter().map(|_| Ok(Found::default())).collect();
    for turn in 0..=PAUSES_MS.len() {
        for (pid, found) in pids.iter().zip(&mut found) {
            // What may not be known is asked once.
            let Ok(so_far) = found else { continue };
            if let Err(unseen) = so_far.look(root, *pid, turn, each.max(1)) {
                *found = Err(unseen);
            }
        }
        match PAUSES_MS.get(turn) {
            Some(pause) if Nanos::now().since(began) < TIME_MAX && found.iter().any(Result::is_ok) => {
                std::thread::sleep(Duration::from_millis(*pause));
            }
            _ => break,
        }
    }
    found
}

impl Found {
    fn look(&mut self, root: &Root, pid: u32, turn: usize, most: usize) -> Result<(), Unseen> {
        let tids = task::ids(root, pid)?;
        let picked = pick(&tids, most, turn);
        // Each stands for some that were not looked at.
        let weight = tids.len() as f64 / picked.len().max(1) as f64;
        for tid in picked {
            if let Some(spot) = spot(root, pid, tid)? {
                *self.counts.entry(spot).or_default() += weight;
            }
        }
        self.looks += 1;
        Ok(())
    }

    /// On average over the looks, the most frequent first. `own` are the process's sockets.
    pub(super) fn waits(&self, sockets: &Sockets<'_>) -> Vec<Wait> {
        let mut threads: HashMap<WaitFor, f64> = HashMap::new();
        for (spot, count) in &self.counts {
            *threads.entry(sockets.whose(*spot)).or_default() += count / f64::from(self.looks.max(1));
        }
        let mut waits: Vec<Wait> = threads.into_iter().map(|(what, threads)| Wait { what, threads }).collect();
        waits.sort_by(|one, other| other.threads.total_cmp(&one.threads));
        waits.truncate(KINDS_MAX);
        waits
    }
}

impl Sockets<'_> {
    fn whose(&self, spot: Spot) -> WaitFor {
        match spot {
            Spot::Known(what) => what,
            Spot::Inode(inode) if self.listeners.iter().any(|listener| listener.inode == inode) => WaitFor::Connection,
            Spot::Inode(inode) => match self.own.iter().find(|socket| socket.inode == inode) {
                Some(socket) if self.doors.contains(&socket.local.port()) => WaitFor::Client,
                Some(socket) => WaitFor::Peer(Some(socket.peer)),
                // Closed meanwhile, or no TCP.
                None => WaitFor::Other,
            },
            // Which one is not known: a peer's only where there are no others.
            Spot::Socket if self.own.is_empty() || self.clients().next().is_some() => WaitFor::Other,
            Spot::Socket => {
                let peers: HashSet<SocketAddr> = self.others().map(|socket| socket.peer).collect();
                WaitFor::Peer(peers.iter().next().copied().filter(|_| peers.len() == 1))
            }
        }
    }
}

/// Evenly from all, at each turn others.
fn pick(tids: &[u32], most: usize, turn: usize) -> Vec<u32> {
    let step = tids.len().div_ceil(most).max(1);
    tids.iter().skip(turn % step).step_by(step).copied().collect()
}

/// Where one thread stands; none of one that runs or has ended.
fn spot(root: &Root, pid: u32, tid: u32) -> Result<Option<Spot>, Unseen> {
    let folder = format!("proc/{pid}/task/{tid}");
    let Ok(state) = root.parse(&format!("{folder}/stat"), task::parse_state) else { return Ok(None) };
    let call = root.parse(&format!("{folder}/syscall"), wait::parse_syscall);
    // "0" is what a thread that runs shows, and what this user sees of others' threads.
    let function = root.read(&format!("{folder}/wchan")).unwrap_or_default();
    let function = function.trim().trim_start_matches('0');
    if let (Err(unseen), 'S', "") = (&call, state, function) {
        // Missing with the whole folder, it has just ended.
        return if root.path(&folder).exists() { Err(unseen.clone()) } else { Ok(None) };
    }
    let Some(stand) = wait::stand(state, function, call.ok(), Arch::own()) else { return Ok(None) };
    Ok(Some(match stand {
        Stand::Lock => Spot::Known(WaitFor::Lock),
        Stand::Events => Spot::Known(WaitFor::Events),
        Stand::Accept => Spot::Known(WaitFor::Connection),
        Stand::Disk => Spot::Known(WaitFor::Disk),
        Stand::Time => Spot::Known(WaitFor::Time),
        Stand::Other => Spot::Known(WaitFor::Other),
        Stand::Socket => Spot::Socket,
        Stand::File(descriptor) => file(root, pid, descriptor),
        Stand::Polled(at) => match polled(root, pid, at) {
            Some(descriptor) => file(root, pid, descriptor),
            None => Spot::Known(WaitFor::Events),
        },
    }))
}

fn file(root: &Root, pid: u32, descriptor: u32) -> Spot {
    let link = std::fs::read_link(root.path(&format!("proc/{pid}/fd/{descriptor}"))).unwrap_or_default();
    match link.to_str() {
        Some("anon_inode:[timerfd]") => Spot::Known(WaitFor::Time),
        link => link.and_then(super::socket_of).map_or(Spot::Known(WaitFor::Other), Spot::Inode),
    }
}

/// The file of the one `struct pollfd` at an address of a process: its first four bytes (poll(2)). Libraries of databases wait so
/// for an answer.
fn polled(root: &Root, pid: u32, at: u64) -> Option<u32> {
    let memory = File::open(root.path(&format!("proc/{pid}/mem"))).ok()?;
    let mut descriptor = [0; 4];
    memory.read_exact_at(&mut descriptor, at).ok()?;
    u32::try_from(i32::from_ne_bytes(descriptor)).ok()
}
