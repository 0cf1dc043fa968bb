//! Counts of snapshot batches.

use std::sync::Arc;

use hotrow_measure::counter::Counter;
use hotrow_telemetry::exposition::Exposition;

use super::WorkerMetrics;

/// How a snapshot came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotWay {
    /// Memory had all records.
    Memory,
    /// The feed had to come up to a record.
    Awaited,
    /// Records that changed were read again.
    Reread,
    /// One read transaction of the database.
    Transaction,
}

const WAYS: [&str; 4] = ["memory", "awaited", "reread", "transaction"];

/// Snapshot batches answered, by way.
#[derive(Debug, Default)]
pub struct SnapshotCounts([Counter; WAYS.len()]);

impl SnapshotCounts {
    /// Counts one.
    pub fn count(&self, way: SnapshotWay) {
        self.0[way as usize].increment();
    }
}

pub(super) fn expose(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
    let count =
        |way: usize| -> u64 { workers.iter().map(|worker| worker.snapshots.0[way].get()).sum() };
    let samples = WAYS.iter().enumerate().map(|(i, way)| ([("way", *way)], count(i)));
    out.counter("hotrow_snapshots_total", "Snapshot batches answered, by way.", samples);
}
