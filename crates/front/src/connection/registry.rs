//! Registry of one worker's connections, for the sweep and for the drain.
//!
//! At the limit on connections the registry makes room: a connection that has been idle for
//! `limits.idle_reclaim` is closed, which its client must expect at any time (RFC 9112 section
//! 9.6). The number of connections examined is bounded, so that a flood of connections costs the
//! same for each; as in Redis' approximation of LRU, the longest idle of a few is close to the
//! longest idle of all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hotrow_answer::activity::{Activity, Expiry, KERNEL_BYTES_MAX, SWEEP_INTERVAL};
use hotrow_answer::metrics::CloseCause;
use hotrow_measure::clock::Nanos;

use crate::connection::worker_context::WorkerContext;

const SWEEP_INTERVAL_NS: u64 = SWEEP_INTERVAL.as_nanos() as u64;
/// Number of connections examined to find one to close.
const RECLAIM_CANDIDATES: usize = 32;
/// Most connections per worker that were asked to make room and have not closed yet. The limit may
/// be exceeded by as many.
pub(crate) const LEAVING_MAX: usize = 16;

/// All connections of a worker. One thread uses it.
pub(crate) struct Registry {
    worker: Rc<WorkerContext>,
    connections: RefCell<Vec<Rc<Entry>>>,
    departure: Cell<Departure>,
    /// Start of the next search for an idle connection.
    next_candidate: Cell<usize>,
    /// Number of connections that are leaving.
    leaving: Cell<usize>,
    /// Clients that took nothing at the last sweep.
    blocked: Cell<u64>,
}

/// Departure of all connections of a worker. Only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// They stay.
    None,
    /// Each ends with its next answer.
    AfterAnswer,
    /// They end, idle ones at once.
    Drain,
}

struct Entry {
    activity: Rc<Activity>,
    /// Index in the registry.
    index: Cell<usize>,
    /// `true`: the sweep or the drain asks the connection's task to check its time-outs.
    look: Cell<bool>,
    /// `true`: it makes room for another, and closes as soon as it is idle.
    leaving: Cell<bool>,
    /// `true`: its client is among the slowest, and the kernel holds too much.
    is_slowest: Cell<bool>,
}

/// A connection's entry in the registry and in the count of all workers; removed when dropped, also
/// by a panic.
pub(crate) struct Registered {
    registry: Rc<Registry>,
    entry: Rc<Entry>,
    open: Arc<AtomicUsize>,
    cause: Cell<CloseCause>,
}

impl Registry {
    pub(crate) fn new(worker: Rc<WorkerContext>) -> Rc<Self> {
        Rc::new(Self {
            worker,
            connections: RefCell::default(),
            departure: Cell::new(Departure::None),
            next_candidate: Cell::new(0),
            leaving: Cell::new(0),
            blocked: Cell::new(0),
        })
    }

    /// Registers a connection if fewer than `limit` are open in all workers, or if one of this
    /// worker's makes room; `open` counts them.
    pub(crate) fn enter(
        self: &Rc<Self>,
        open: &Arc<AtomicUsize>,
        limit: usize,
    ) -> Option<Registered> {
        if open.fetch_add(1, Relaxed) >= limit && !self.make_room() {
            open.fetch_sub(1, Relaxed);
            return None;
        }
        self.worker.metrics.accepted.increment();
        let mut connections = self.connections.borrow_mut();
        let entry = Rc::new(Entry {
            activity: Rc::new(Activity::new(self.worker.now.get())),
            index: Cell::new(connections.len()),
            look: Cell::new(self.is_draining()),
            leaving: Cell::new(false),
            is_slowest: Cell::new(false),
        });
        if self.departure.get() != Departure::None {
            entry.activity.leave();
        }
        connections.push(Rc::clone(&entry));
        let registry = Rc::clone(self);
        let open = Arc::clone(open);
        Some(Registered { registry, entry, open, cause: Cell::new(CloseCause::Cut) })
    }

    /// Asks the longest idle of the next few connections to leave. Returns `false` when none has
    /// been idle for long enough.
    fn make_room(&self) -> bool {
        let connections = self.connections.borrow();
        if self.leaving.get() >= LEAVING_MAX || connections.is_empty() {
            return false;
        }
        let from = self.next_candidate.get() % connections.len();
        let candidates = RECLAIM_CANDIDATES.min(connections.len());
        self.next_candidate.set(from + candidates);
        let looked_at = (from..from + candidates).map(|at| &connections[at % connections.len()]);
        let idle = looked_at
            .filter(|entry| !entry.leaving.get())
            .filter_map(|entry| Some((entry.activity.idle_since()?, entry)));
        let Some((since, entry)) = idle.min_by_key(|(since, _)| *since) else { return false };
        let enough = self.worker.now.get().since(since) >= self.worker.limits().idle_reclaim;
        if enough {
            entry.leaving.set(true);
            self.leaving.set(self.leaving.get() + 1);
            entry.activity.wake();
        }
        enough
    }

    /// Notes the time and wakes every connection with an expired time-out.
    pub(crate) fn sweep(&self, now: Nanos) {
        let last = self.worker.now.replace(now);
        let draining = self.is_draining();
        let limits = self.worker.limits();
        for entry in &*self.connections.borrow() {
            entry.activity.forward(last, Nanos(now.0.saturating_sub(SWEEP_INTERVAL_NS)));
            if draining || entry.activity.overdue(now, SWEEP_INTERVAL, &limits, false).is_some() {
                entry.look.set(true);
                entry.activity.wake();
            } else {
                entry.activity.measure_drain_anew(now, SWEEP_INTERVAL, &limits);
            }
        }
        self.bound_send_bytes(now, limits.send_bytes);
    }

    /// Counts clients that take nothing, of all workers, and ends the slowest of its own if the
    /// kernel may hold more than `limit` for them.
    fn bound_send_bytes(&self, now: Nanos, limit: u64) {
        let connections = self.connections.borrow();
        let blocked = || connections.iter().filter(|entry| entry.activity.is_write_blocked());
        let own = blocked().count() as u64;
        self.worker.metrics.unread_clients.store(own, Relaxed);
        let added = own.wrapping_sub(self.blocked.replace(own));
        let all = self.worker.blocked.fetch_add(added, Relaxed).wrapping_add(added);
        let excess = all.saturating_sub(limit / KERNEL_BYTES_MAX);
        if limit == 0 || excess == 0 {
            return;
        }
        // Other workers end theirs.
        let share = (excess * own).div_ceil(all);
        let mut slowest: Vec<_> = blocked().collect();
        slowest.sort_by_cached_key(|entry| entry.activity.progress(now));
        for entry in slowest.iter().take(usize::try_from(share).unwrap_or(usize::MAX)) {
            entry.is_slowest.set(true);
            entry.look.set(true);
            entry.activity.wake();
        }
    }

    /// Makes the next answer of every connection its last, and ends answers without an end.
    /// Connections of HTTP/2 are woken, so that they announce it at once.
    pub(crate) fn leave(&self) {
        if self.departure.get() == Departure::None {
            self.departure.set(Departure::AfterAnswer);
            for entry in &*self.connections.borrow() {
                entry.activity.leave();
                entry.activity.wake();
            }
        }
    }

    /// Ends every connection: idle ones at once, others after their answer.
    pub(crate) fn drain(&self, now: Nanos) {
        self.departure.set(Departure::Drain);
        self.sweep(now);
    }

    fn is_draining(&self) -> bool {
        self.departure.get() == Departure::Drain
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }
}

impl Registered {
    pub(crate) fn worker(&self) -> &Rc<WorkerContext> {
        &self.registry.worker
    }

    pub(crate) fn activity(&self) -> &Rc<Activity> {
        &self.entry.activity
    }

    fn draining(&self) -> bool {
        self.registry.is_draining()
    }

    /// Returns whether the request in progress is the connection's last.
    pub(crate) fn ending(&self) -> bool {
        self.registry.departure.get() != Departure::None || self.entry.leaving.get()
    }

    /// Returns whether the connection must check its time-outs; always while it is ending.
    pub(crate) fn must_look(&self) -> bool {
        self.entry.look.replace(self.draining()) || self.entry.leaving.get()
    }

    pub(crate) fn overdue(&self) -> Option<Expiry> {
        if self.entry.is_slowest.get() {
            return Some(Expiry::SendBytes);
        }
        if self.entry.leaving.get() && self.entry.activity.idle_since().is_some() {
            return Some(Expiry::Reclaimed);
        }
        let worker = &self.registry.worker;
        self.entry.activity.overdue(
            worker.now.get(),
            SWEEP_INTERVAL,
            &worker.limits(),
            self.draining(),
        )
    }

    /// Leaves the registry, and records why the connection ended.
    pub(crate) fn close(self, cause: CloseCause) {
        self.cause.set(cause);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.worker.blocked.fetch_sub(self.blocked.get(), Relaxed);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut connections = self.registry.connections.borrow_mut();
        let index = self.entry.index.get();
        connections.swap_remove(index);
        if let Some(moved) = connections.get(index) {
            moved.index.set(index);
        }
        if self.entry.leaving.get() {
            self.registry.leaving.set(self.registry.leaving.get() - 1);
        }
        self.open.fetch_sub(1, Relaxed);
        self.registry.worker.metrics.closed(self.cause.get());
    }
}
