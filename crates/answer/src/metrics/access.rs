//! Counts of checked credentials, by outcome.

use std::sync::Arc;

use hotrow_measure::counter::Counter;
use hotrow_telemetry::exposition::Exposition;

use super::WorkerMetrics;

/// Outcome of the check of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// No credential, and requests without one are allowed.
    Anonymous,
    /// An API key.
    Key,
    /// A client certificate.
    Certificate,
    /// A token that was verified before.
    KnownToken,
    /// A token whose signature was checked.
    Token,
    /// No credential.
    Missing,
    /// A refused credential.
    Refused,
    /// Not checked, because its client sent too many that were refused.
    Limited,
    /// Not checked, because the keys that verify tokens are missing or too old.
    NoKeys,
    /// A good credential whose roles lack the grant.
    Forbidden,
}

const LABELS: [&str; 10] = [
    "anonymous",
    "key",
    "certificate",
    "known_token",
    "token",
    "missing",
    "refused",
    "limited",
    "no_keys",
    "forbidden",
];

/// Counters of one worker.
#[derive(Debug, Default)]
pub struct AccessCounts([Counter; LABELS.len()]);

impl AccessCounts {
    /// Counts one request.
    #[inline]
    pub fn count(&self, outcome: AccessOutcome) {
        self.0[outcome as usize].increment();
    }

    /// Returns the number of requests with this outcome.
    pub fn get(&self, outcome: AccessOutcome) -> u64 {
        self.0[outcome as usize].get()
    }
}

/// Writes the sums over `workers`.
pub fn expose(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
    let sum = |i: usize| workers.iter().map(|worker| worker.access.0[i].get()).sum::<u64>();
    let checks = LABELS.iter().enumerate().map(|(i, outcome)| ([("outcome", *outcome)], sum(i)));
    out.counter("hotrow_access_total", "Requests with [access], by outcome.", checks);
}
