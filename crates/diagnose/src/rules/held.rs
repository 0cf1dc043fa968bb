//! Where the requests are that a service has taken, by what its threads were found doing. Not a rule; several ask it.
//!
//! A thread that waits for a lock waits for another thread, and what *that* one does decides: it runs, waits for a peer, a
//! disk, the time. So those that wait for locks are counted apart, and the rest tells why.

use std::net::SocketAddr;

use super::finding::number;
use crate::samples::{Role, Samples, WaitFor, Watched};

/// A share of the target rate that is as good as all of it.
const RATE_KEPT: f64 = 0.98;

/// Threads of the service, on average, by what they do. Those that wait for clients, connections or events hold no
/// request that could be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    /// Run: CPUs that the service uses.
    pub(super) running: f64,
    /// Wait for another thread.
    pub(super) lock: f64,
    /// Wait for somebody else's answer.
    pub(super) peer: f64,
    /// Wait for a disk.
    pub(super) disk: f64,
    /// Sleep.
    pub(super) time: f64,
}

impl Held {
    /// None when nobody could see what threads wait for.
    pub(super) fn by(samples: &Samples) -> Option<Self> {
        let services = || samples.with_role(Role::Service);
        let waits = || services().flat_map(|process| &process.waits);
        waits().next()?;
        let threads = |wanted: fn(WaitFor) -> bool| -> f64 {
            waits().filter(|wait| wanted(wait.what)).map(|wait| wait.threads).sum()
        };
        Some(Self {
            running: services().map(Watched::cores_used).sum(),
            lock: threads(|what| what == WaitFor::Lock),
            peer: threads(|what| matches!(what, WaitFor::Peer(_))),
            disk: threads(|what| what == WaitFor::Disk),
            time: threads(|what| what == WaitFor::Time),
        })
    }

    /// Threads that do something else than to wait for each other.
    pub(super) fn decisive(&self) -> f64 {
        self.running + self.peer + self.disk + self.time
    }

    /// Share of the decisive ones, 0 to 1; 0 without any.
    pub(super) fn share(&self, part: f64) -> f64 {
        if self.decisive() > 0.0 { part / self.decisive() } else { 0.0 }
    }

    /// In words, the most frequent first.
    pub(super) fn words(&self) -> String {
        let mut parts = [
            (self.lock, "wait for another thread"),
            (self.peer, "for an answer of somebody else"),
            (self.disk, "for a disk"),
            (self.time, "for the time"),
            (self.running, "run"),
        ];
        parts.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let told = parts.iter().filter(|(threads, _)| *threads >= 0.05);
        let told: Vec<String> = told.map(|(threads, what)| format!("{} {what}", number(*threads))).collect();
        format!("of the service's threads, on average {}", told.join(", "))
    }
}

/// Whom most threads wait for, where that is known.
pub(super) fn awaited_peer(samples: &Samples) -> Option<SocketAddr> {
    let waits = samples.with_role(Role::Service).flat_map(|process| &process.waits);
    let peers = waits.filter_map(|wait| match wait.what {
        WaitFor::Peer(Some(peer)) => Some((peer, wait.threads)),
        _ => None,
    });
    peers.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(peer, _)| peer)
}

/// Whether an open loop got what it asked for: then nothing has been at its limit.
pub(super) fn rate_kept(samples: &Samples) -> bool {
    samples.load.is_some_and(|load| load.target_rate.is_some_and(|target| load.rate >= RATE_KEPT * target))
}

/// Requests under way at once, by Little's law.
pub(super) fn under_way(samples: &Samples) -> Option<f64> {
    samples.load.map(|load| load.rate * load.service_time.as_secs_f64())
}
