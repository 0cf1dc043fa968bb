//! Messages of a worker to the thread that adds the results up.

use std::collections::BTreeMap;

use crate::latency_map::LatencyMap;
use crate::outcome::ThreadUse;
use crate::stats::LoadStats;

/// A message from a worker.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// Connected as far as possible; waiting for the start.
    Ready { opened: usize, failure_message: Option<String> },
    /// One second of the measurement is over.
    Second { worker: usize, index: u64, length_ns: u64, record: Box<LoadStats> },
    /// The worker is done.
    Done { worker: usize, finish: Box<WorkerReport> },
}

/// The final report of a worker.
#[derive(Debug)]
pub(crate) struct WorkerReport {
    pub(crate) in_flight: u64,
    /// Time of the last response, since the start of the schedule.
    pub(crate) last_answer_ns: u64,
    /// Time of its end, since the start of the schedule.
    pub(crate) end_ns: u64,
    pub(crate) interrupted: bool,
    pub(crate) used: ThreadUse,
    pub(crate) failure_messages: BTreeMap<String, u64>,
    pub(crate) latency_map: LatencyMap,
}
