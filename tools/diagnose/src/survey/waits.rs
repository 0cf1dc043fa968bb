//! Waits of threads: several looks at their blocking points, followed by a lookup of the sockets.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::Sockets;
use crate::probe::task;
use crate::probe::wait::{self, Arch, BlockedOn};
use crate::root::{ProbeError, ProbeResult, Root};
use crate::samples::{Wait, WaitReason};

/// Pauses between the looks, in ms; uneven, to avoid aliasing with periodic activity.
const PAUSES_MS: [u64; 9] = [4, 7, 3, 8, 5, 9, 3, 6, 5];
/// Most threads of all processes per look; beyond, each look takes others.
const THREADS_MAX: usize = 256;
/// No look begins later than this after the first.
const TIME_MAX: Duration = Duration::from_millis(150);
/// Most kinds of waits kept per process.
const KINDS_MAX: usize = 16;

/// Blocking points of one process's threads.
#[derive(Debug, Default)]
pub(super) struct WaitCounts {
    /// Threads, added up over the looks.
    counts: HashMap<WaitLocation, f64>,
    looks: u32,
}

/// A blocking point, with the file resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WaitLocation {
    Known(WaitReason),
    /// The socket with this inode.
    Inode(u64),
    /// An unknown socket.
    Socket,
}

/// Samples the threads of some processes, in about 50 ms; an error for a process that is not
/// visible.
pub(super) fn look(root: &Root, pids: &[u32]) -> Vec<ProbeResult<WaitCounts>> {
    let (began, each) = (Nanos::now(), THREADS_MAX / pids.len().max(1));
    let mut found: Vec<ProbeResult<WaitCounts>> =
        pids.iter().map(|_| Ok(WaitCounts::default())).collect();
    for turn in 0..=PAUSES_MS.len() {
        for (pid, found) in pids.iter().zip(&mut found) {
            // A process that failed is not sampled again.
            let Ok(so_far) = found else { continue };
            if let Err(probe_error) = so_far.look(root, *pid, turn, each.max(1)) {
                *found = Err(probe_error);
            }
        }
        match PAUSES_MS.get(turn) {
            Some(pause)
                if Nanos::now().since(began) < TIME_MAX && found.iter().any(Result::is_ok) =>
            {
                std::thread::sleep(Duration::from_millis(*pause));
            }
            _ => break,
        }
    }
    found
}

impl WaitCounts {
    fn look(&mut self, root: &Root, pid: u32, turn: usize, most: usize) -> Result<(), ProbeError> {
        let tids = task::ids(root, pid)?;
        let picked = pick(&tids, most, turn);
        // Each sampled thread represents several.
        let weight = tids.len() as f64 / picked.len().max(1) as f64;
        for tid in picked {
            if let Some(spot) = spot(root, pid, tid)? {
                *self.counts.entry(spot).or_default() += weight;
            }
        }
        self.looks += 1;
        Ok(())
    }

    /// Returns means over the looks, the most frequent first. `own` are the process's sockets.
    pub(super) fn waits(&self, sockets: &Sockets<'_>) -> Vec<Wait> {
        let mut threads: HashMap<WaitReason, f64> = HashMap::new();
        for (spot, count) in &self.counts {
            *threads.entry(sockets.wait_reason(*spot)).or_default() +=
                count / f64::from(self.looks.max(1));
        }
        let mut waits: Vec<Wait> =
            threads.into_iter().map(|(what, threads)| Wait { what, threads }).collect();
        waits.sort_by(|one, other| other.threads.total_cmp(&one.threads));
        waits.truncate(KINDS_MAX);
        waits
    }
}

impl Sockets<'_> {
    fn wait_reason(&self, spot: WaitLocation) -> WaitReason {
        match spot {
            WaitLocation::Known(what) => what,
            WaitLocation::Inode(inode)
                if self.listeners.iter().any(|listener| listener.inode == inode) =>
            {
                WaitReason::Connection
            }
            WaitLocation::Inode(inode) => {
                match self.own.iter().find(|socket| socket.inode == inode) {
                    Some(socket) if self.listening_ports.contains(&socket.local.port()) => {
                        WaitReason::Client
                    }
                    Some(socket) => WaitReason::Peer(Some(socket.peer)),
                    // Closed since, or not TCP.
                    None => WaitReason::Other,
                }
            }
            // The socket is unknown: a peer's only when there are no others.
            WaitLocation::Socket if self.own.is_empty() || self.clients().next().is_some() => {
                WaitReason::Other
            }
            WaitLocation::Socket => {
                let peers: HashSet<SocketAddr> = self.others().map(|socket| socket.peer).collect();
                WaitReason::Peer(peers.iter().next().copied().filter(|_| peers.len() == 1))
            }
        }
    }
}

/// Picks evenly from all, different ones at each turn.
fn pick(tids: &[u32], most: usize, turn: usize) -> Vec<u32> {
    let step = tids.len().div_ceil(most).max(1);
    tids.iter().skip(turn % step).step_by(step).copied().collect()
}

/// Returns a thread's blocking point; `None` when it runs or has ended.
fn spot(root: &Root, pid: u32, tid: u32) -> Result<Option<WaitLocation>, ProbeError> {
    let folder = format!("proc/{pid}/task/{tid}");
    let Ok(state) = root.parse(&format!("{folder}/stat"), task::parse_state) else {
        return Ok(None);
    };
    let call = root.parse(&format!("{folder}/syscall"), wait::parse_syscall);
    // "0" means that a thread runs, or that this user may not see it.
    let function = root.read(&format!("{folder}/wchan")).unwrap_or_default();
    let function = function.trim().trim_start_matches('0');
    if let (Err(probe_error), 'S', "") = (&call, state, function) {
        // The whole folder is missing: the thread has just ended.
        return if root.path(&folder).exists() { Err(probe_error.clone()) } else { Ok(None) };
    }
    let Some(blocked_on) = wait::blocked_on(state, function, call.ok(), Arch::own()) else {
        return Ok(None);
    };
    Ok(Some(match blocked_on {
        BlockedOn::Lock => WaitLocation::Known(WaitReason::Lock),
        BlockedOn::Events => WaitLocation::Known(WaitReason::Events),
        BlockedOn::Accept => WaitLocation::Known(WaitReason::Connection),
        BlockedOn::Disk => WaitLocation::Known(WaitReason::Disk),
        BlockedOn::Time => WaitLocation::Known(WaitReason::Time),
        BlockedOn::Other => WaitLocation::Known(WaitReason::Other),
        BlockedOn::Socket => WaitLocation::Socket,
        BlockedOn::File(descriptor) => file(root, pid, descriptor),
        BlockedOn::Polled(at) => match polled(root, pid, at) {
            Some(descriptor) => file(root, pid, descriptor),
            None => WaitLocation::Known(WaitReason::Events),
        },
    }))
}

fn file(root: &Root, pid: u32, descriptor: u32) -> WaitLocation {
    let link =
        std::fs::read_link(root.path(&format!("proc/{pid}/fd/{descriptor}"))).unwrap_or_default();
    match link.to_str() {
        Some("anon_inode:[timerfd]") => WaitLocation::Known(WaitReason::Time),
        link => link
            .and_then(super::socket_of)
            .map_or(WaitLocation::Known(WaitReason::Other), WaitLocation::Inode),
    }
}

/// Returns the file of the single `struct pollfd` at an address of a process: its first four bytes
/// (poll(2)). Database libraries wait for a response in this way.
fn polled(root: &Root, pid: u32, at: u64) -> Option<u32> {
    let memory = File::open(root.path(&format!("proc/{pid}/mem"))).ok()?;
    let mut descriptor = [0; 4];
    memory.read_exact_at(&mut descriptor, at).ok()?;
    u32::try_from(i32::from_ne_bytes(descriptor)).ok()
}
