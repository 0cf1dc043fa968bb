//! Traced requests that wait, by the keys that they wait for.
//!
//! A query serves many requests, and is sent by none of them. So a traced request enters its keys
//! here while it waits, and a query that has ended looks its keys up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotrow_measure::clock::Nanos;
use hotrow_types::key::Key;
use parking_lot::Mutex;

use super::Tracer;
use super::request::{RequestTrace, TraceSlot};

/// Most traced requests that wait at once.
pub(super) const REQUESTS_MAX: usize = 256;
/// Most keys that a request enters. Cold ids of a batch are read in one query, or in few.
const KEYS_PER_REQUEST_MAX: usize = 4;
/// Most requests that one query reports its end to.
const REQUESTS_PER_QUERY_MAX: usize = 64;
/// Most memory of all of them.
pub(super) const MEMORY_BYTES_MAX: usize =
    REQUESTS_MAX * (RequestTrace::BYTES_MAX + KEYS_PER_REQUEST_MAX * ENTRY_BYTES);
/// Most memory of a key: its place in the table, which is up to twice as large as its content, and
/// its list.
const ENTRY_BYTES: usize = 2 * (size_of::<(u64, Vec<Entry>)>() + 1) + 4 * size_of::<Entry>();

/// A request that waits for a key.
#[derive(Debug)]
struct Entry {
    trace: Arc<RequestTrace>,
    /// `true`: a query that was sent before the request arrived may answer it.
    joins: bool,
}

/// All traced requests that wait.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    /// By the hash of the key: keys may be long.
    by_key: Mutex<HashMap<u64, Vec<Entry>>>,
    hasher: RandomState,
    requests: AtomicUsize,
}

impl WaitingRequests {
    /// Reserves a place. `false`: too many wait.
    fn reserve(&self) -> bool {
        let next = |count: usize| (count < REQUESTS_MAX).then_some(count + 1);
        self.requests.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).is_ok()
    }

    fn enter(&self, keys: &[&Key], trace: &Arc<RequestTrace>, joins: bool) -> Vec<u64> {
        let step = keys.len().div_ceil(KEYS_PER_REQUEST_MAX).max(1);
        let hashes: Vec<u64> =
            keys.iter().step_by(step).map(|key| self.hasher.hash_one(key)).collect();
        let mut by_key = self.by_key.lock();
        for hash in &hashes {
            by_key.entry(*hash).or_default().push(Entry { trace: Arc::clone(trace), joins });
        }
        hashes
    }

    fn remove(&self, hashes: &[u64], trace: &Arc<RequestTrace>) {
        let mut by_key = self.by_key.lock();
        for hash in hashes {
            if let Some(entries) = by_key.get_mut(hash) {
                entries.retain(|entry| !Arc::ptr_eq(&entry.trace, trace));
                if entries.is_empty() {
                    by_key.remove(hash);
                }
            }
        }
    }

    fn leave(&self, hashes: &[u64], trace: &Arc<RequestTrace>) {
        self.remove(hashes, trace);
        self.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether no request waits, so that a query has none to report to.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }

    /// Returns the requests that a query for `keys` answers, which was sent at `sent_at`: the one
    /// that has waited longest first, and how many were left out.
    pub(super) fn answered_by(
        &self,
        keys: &[Key],
        sent_at: Nanos,
    ) -> (Vec<Arc<RequestTrace>>, usize) {
        let mut found: Vec<Arc<RequestTrace>> = Vec::new();
        let by_key = self.by_key.lock();
        let lists = keys.iter().filter_map(|key| by_key.get(&self.hasher.hash_one(key)));
        for entry in lists.flatten() {
            let is_answered = entry.joins || entry.trace.waits_since() <= sent_at;
            if is_answered && !found.iter().any(|trace| Arc::ptr_eq(trace, &entry.trace)) {
                found.push(Arc::clone(&entry.trace));
            }
        }
        drop(by_key);
        found.sort_by_key(|trace| trace.waits_since());
        let left_out = found.len().saturating_sub(REQUESTS_PER_QUERY_MAX);
        found.truncate(REQUESTS_PER_QUERY_MAX);
        (found, left_out)
    }
}

/// A traced request while it waits; it leaves when dropped.
#[derive(Debug)]
pub struct WaitingRequest {
    tracer: Arc<Tracer>,
    trace: Arc<RequestTrace>,
    joins: bool,
    /// Of the keys that it waits for now.
    hashes: RefCell<Vec<u64>>,
}

impl WaitingRequest {
    /// Enters a request; `None`: too many wait.
    pub(super) fn enter(
        tracer: &Arc<Tracer>,
        trace: RequestTrace,
        keys: &[&Key],
        joins: bool,
    ) -> Option<Self> {
        if !tracer.waiting.reserve() {
            return None;
        }
        let trace = Arc::new(trace);
        let hashes = RefCell::new(tracer.waiting.enter(keys, &trace, joins));
        Some(Self { tracer: Arc::clone(tracer), trace, joins, hashes })
    }

    /// Waits for these keys instead of those before, whose queries have ended.
    pub fn continue_with(&self, keys: &[Key]) {
        let waiting = &self.tracer.waiting;
        // The old ones first: a request has never more than its share of the table.
        waiting.remove(&self.hashes.take(), &self.trace);
        let keys: Vec<&Key> = keys.iter().collect();
        *self.hashes.borrow_mut() = waiting.enter(&keys, &self.trace, self.joins);
    }

    /// Returns its trace.
    pub fn trace(&self) -> &RequestTrace {
        &self.trace
    }

    /// Returns its trace for the end of the request.
    pub fn slot(&self) -> TraceSlot {
        TraceSlot::new(Arc::clone(&self.trace).into())
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.tracer.waiting.leave(&self.hashes.borrow(), &self.trace);
    }
}
