//! The connections of one worker, for the sweep and for the drain.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hotrow_measure::clock::Nanos;

use super::SWEEP_INTERVAL;
use crate::guard::Shared;
use crate::guard::phase::{Activity, Overdue};
use crate::metrics::CloseCause;

/// All connections of a worker. One thread uses it.
pub(crate) struct Registry {
    shared: Rc<Shared>,
    connections: RefCell<Vec<Rc<Entry>>>,
    draining: Cell<bool>,
}

struct Entry {
    activity: Rc<Activity>,
    /// Where it stands in the registry.
    index: Cell<usize>,
    /// The sweep or the drain wants the connection's task to look at its time.
    look: Cell<bool>,
}

/// A connection's place in the registry and in the count of all workers; given back when dropped, also by a panic.
pub(crate) struct Registered {
    registry: Rc<Registry>,
    entry: Rc<Entry>,
    open: Arc<AtomicUsize>,
    cause: Cell<CloseCause>,
}

impl Registry {
    pub(crate) fn new(shared: Rc<Shared>) -> Rc<Self> {
        Rc::new(Self { shared, connections: RefCell::default(), draining: Cell::new(false) })
    }

    /// Enters a connection if fewer than `limit` are open in all workers; `open` counts them.
    pub(crate) fn enter(self: &Rc<Self>, open: &Arc<AtomicUsize>, limit: usize) -> Option<Registered> {
        if open.fetch_add(1, Relaxed) >= limit {
            open.fetch_sub(1, Relaxed);
            return None;
        }
        self.shared.metrics.accepted.increment();
        let mut connections = self.connections.borrow_mut();
        let entry = Rc::new(Entry {
            activity: Rc::new(Activity::new(self.shared.now.get())),
            index: Cell::new(connections.len()),
            look: Cell::new(self.draining.get()),
        });
        connections.push(Rc::clone(&entry));
        let (registry, open) = (Rc::clone(self), Arc::clone(open));
        Some(Registered { registry, entry, open, cause: Cell::new(CloseCause::Cut) })
    }

    /// Notes the time and wakes every connection whose time is over.
    pub(crate) fn sweep(&self, now: Nanos) {
        self.shared.now.set(now);
        let draining = self.draining.get();
        for entry in &*self.connections.borrow() {
            if draining || entry.activity.overdue(now, SWEEP_INTERVAL, &self.shared.limits, false).is_some() {
                entry.look.set(true);
                entry.activity.wake();
            }
        }
    }

    /// Lets every connection end: idle ones at once, others after their answer.
    pub(crate) fn drain(&self, now: Nanos) {
        self.draining.set(true);
        self.sweep(now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }
}

impl Registered {
    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.registry.shared
    }

    pub(crate) fn activity(&self) -> &Rc<Activity> {
        &self.entry.activity
    }

    pub(crate) fn draining(&self) -> bool {
        self.registry.draining.get()
    }

    /// Whether the connection was asked to look at its time; while draining, always.
    pub(crate) fn must_look(&self) -> bool {
        self.entry.look.replace(self.draining())
    }

    pub(crate) fn overdue(&self) -> Option<Overdue> {
        let shared = &self.registry.shared;
        self.entry.activity.overdue(shared.now.get(), SWEEP_INTERVAL, &shared.limits, self.draining())
    }

    /// Leaves the registry, and tells why the connection ended.
    pub(crate) fn close(self, cause: CloseCause) {
        self.cause.set(cause);
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
        self.open.fetch_sub(1, Relaxed);
        self.registry.shared.metrics.closed(self.cause.get());
    }
}
