//! The location of accepted requests in a service, by the states of its threads. Not a rule;
//! several use it.
//!
//! A thread that waits for a lock waits for another thread, whose state decides: running, or
//! waiting for a peer, a disk, or time. Therefore lock waits are counted separately, and the other
//! states are decisive.

use std::net::SocketAddr;

use super::finding::number;
use crate::samples::{Role, Samples, WaitReason, WatchedProcess};

/// A share of the target rate that counts as all of it.
const RATE_KEPT: f64 = 0.98;

/// Mean number of the service's threads by state. Threads that wait for clients, connections or
/// events hold no visible request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ThreadStates {
    /// Running: CPUs that the service uses.
    pub(super) running: f64,
    /// Waiting for another thread.
    pub(super) lock: f64,
    /// Waiting for a peer's response.
    pub(super) peer: f64,
    /// Waiting for a disk.
    pub(super) disk: f64,
    /// Sleeping.
    pub(super) time: f64,
}

impl ThreadStates {
    /// Returns `None` when thread states are not visible.
    pub(super) fn by(samples: &Samples) -> Option<Self> {
        let services = || samples.with_role(Role::Service);
        let waits = || services().flat_map(|process| &process.waits);
        waits().next()?;
        let threads = |wanted: fn(WaitReason) -> bool| -> f64 {
            waits().filter(|wait| wanted(wait.what)).map(|wait| wait.threads).sum()
        };
        Some(Self {
            running: services().map(WatchedProcess::cores_used).sum(),
            lock: threads(|what| what == WaitReason::Lock),
            peer: threads(|what| matches!(what, WaitReason::Peer(_))),
            disk: threads(|what| what == WaitReason::Disk),
            time: threads(|what| what == WaitReason::Time),
        })
    }

    /// Returns the decisive threads: those that do not wait for each other.
    pub(super) fn decisive(&self) -> f64 {
        self.running + self.peer + self.disk + self.time
    }

    /// Returns a share of the decisive threads, 0 to 1; 0 without any.
    pub(super) fn share(&self, part: f64) -> f64 {
        if self.decisive() > 0.0 { part / self.decisive() } else { 0.0 }
    }

    /// Returns the states as text, the most frequent first.
    pub(super) fn words(&self) -> String {
        let mut parts = [
            (self.lock, "wait for another thread"),
            (self.peer, "for a peer's response"),
            (self.disk, "for a disk"),
            (self.time, "for time"),
            (self.running, "run"),
        ];
        parts.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let states = parts.iter().filter(|(threads, _)| *threads >= 0.05);
        let states: Vec<String> =
            states.map(|(threads, what)| format!("{} {what}", number(*threads))).collect();
        format!("of the service's threads, on average {}", states.join(", "))
    }
}

/// Returns the peer that most threads wait for, where known.
pub(super) fn awaited_peer(samples: &Samples) -> Option<SocketAddr> {
    let waits = samples.with_role(Role::Service).flat_map(|process| &process.waits);
    let peers = waits.filter_map(|wait| match wait.what {
        WaitReason::Peer(Some(peer)) => Some((peer, wait.threads)),
        _ => None,
    });
    peers.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(peer, _)| peer)
}

/// Returns whether an open loop reached its target rate: then nothing was at its limit.
pub(super) fn rate_kept(samples: &Samples) -> bool {
    samples
        .load
        .is_some_and(|load| load.target_rate.is_some_and(|target| load.rate >= RATE_KEPT * target))
}

/// Returns the requests in flight, by Little's law.
pub(super) fn under_way(samples: &Samples) -> Option<f64> {
    samples.load.map(|load| load.rate * load.service_time.as_secs_f64())
}
