//! What is open on a connection that speaks HTTP/2: its requests, and the answers that its client
//! has not taken. It drives the connection's [`Activity`], whose time-outs then apply as they do to
//! HTTP/1.1.
//!
//! An answer is taken when its last byte has left for the socket. A client that opens no window, or
//! does not read, takes nothing: `write_timeout`. One that takes little at a time meets
//! `drain_rate_min`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hotrow_admission::byte_budget::Reservation;
use hotrow_measure::clock::Nanos;

use super::frames::{Frames, Seen};
use crate::connection::activity::{Activity, Phase};
use crate::connection::worker_context::WorkerContext;

/// State of one connection. One thread uses it.
pub(super) struct Streams {
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    frames: RefCell<Frames>,
    is_flooded: Cell<bool>,
    is_closing: Cell<bool>,
    /// Requests whose answer is not taken.
    open: Cell<usize>,
    /// Answers with content that is not taken.
    untaken: Cell<usize>,
}

/// A request from its head to the last byte of its answer.
pub(super) struct OpenRequest(Rc<Streams>);

/// Content that is not taken. Shared by a body and its pieces.
pub(super) struct Untaken {
    request: OpenRequest,
    /// Reservations of the answer.
    reservations: RefCell<Vec<Reservation>>,
}

impl Streams {
    pub(super) fn new(worker: Rc<WorkerContext>, activity: Rc<Activity>) -> Rc<Self> {
        let frames = RefCell::new(Frames::new(Nanos::now()));
        Rc::new(Self {
            worker,
            activity,
            frames,
            is_flooded: Cell::new(false),
            is_closing: Cell::new(false),
            open: Cell::new(0),
            untaken: Cell::new(0),
        })
    }

    pub(super) fn worker(&self) -> &Rc<WorkerContext> {
        &self.worker
    }

    /// Follows received bytes.
    pub(super) fn follow(&self, bytes: &[u8]) -> Seen {
        let mut frames = self.frames.borrow_mut();
        let was_open = frames.is_head_open();
        let seen = frames.follow(bytes, self.worker.now.get());
        self.is_flooded.set(self.is_flooded.get() || seen == Seen::Flood);
        let is_open = frames.is_head_open();
        drop(frames);
        if is_open != was_open {
            self.settle();
        }
        seen
    }

    /// Returns whether the client has sent more control frames than allowed.
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded.get()
    }

    /// Notes bytes that the socket took.
    pub(super) fn sent(&self, bytes: usize) {
        self.worker.metrics.bytes_sent.add(bytes as u64);
    }

    /// Ends the connection when the open requests are answered.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
        self.activity.wake();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Begins a request.
    pub(super) fn begin(self: &Rc<Self>) -> OpenRequest {
        self.open.set(self.open.get() + 1);
        self.activity.request(Phase::Handling, self.worker.now.get());
        OpenRequest(Rc::clone(self))
    }

    /// Notes the phase that follows from what is open.
    fn settle(&self) {
        let phase = if self.open.get() > 0 {
            Phase::Handling
        } else if self.frames.borrow().is_head_open() {
            Phase::Head
        } else {
            Phase::Idle
        };
        self.activity.enter(phase, self.worker.now.get());
    }
}

impl OpenRequest {
    /// Begins the answer's content.
    pub(super) fn into_untaken(self) -> Rc<Untaken> {
        let streams = &self.0;
        streams.untaken.set(streams.untaken.get() + 1);
        streams.activity.write_blocked(streams.worker.now.get());
        Rc::new(Untaken { request: self, reservations: RefCell::default() })
    }

    /// Returns the reservations of an answer without content.
    pub(super) fn give_back(&self) {
        drop(self.0.activity.take_unsent());
    }
}

impl Untaken {
    /// Notes that `bytes` of the content were taken.
    pub(super) fn took(&self, bytes: usize) {
        let streams = &self.request.0;
        streams.activity.wrote(bytes);
        streams.activity.write_blocked(streams.worker.now.get());
    }
}

impl Untaken {
    /// Keeps the reservation of the body that was dropped last until the content is taken.
    pub(super) fn keep_reservations(&self) {
        self.reservations.borrow_mut().extend(self.request.0.activity.take_unsent());
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let streams = &self.request.0;
        let left = streams.untaken.get() - 1;
        streams.untaken.set(left);
        if left == 0 {
            streams.activity.all_taken();
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let left = self.0.open.get() - 1;
        self.0.open.set(left);
        if left == 0 {
            self.0.settle();
            self.0.activity.all_sent();
        }
    }
}
