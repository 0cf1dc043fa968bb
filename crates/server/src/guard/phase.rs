//! What a connection is doing and since when, noted in plain cells so that one sweep per worker can enforce every time-out: no
//! timer and no clock read per request.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::config::Limits;

/// How long a connection that was accepted shortly before the drain may take to send its first request. Its client saw
/// the connection established and would otherwise find its first request lost.
pub const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(300);

/// What a connection waits for, seen from its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// Us: a request is complete and its answer is not yet written.
    Handling,
}

/// Why a connection's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// `idle_timeout`.
    Idle,
    /// `header_timeout`.
    Head,
    /// `body_timeout`.
    Body,
    /// `write_timeout`.
    Write,
    /// The server drains and the connection is idle.
    Drained,
    /// It is idle and makes room for another.
    Reclaimed,
}

/// The notes of one connection. One thread uses it: the worker's.
#[derive(Debug)]
pub struct Activity {
    phase: Cell<Phase>,
    since: Cell<Nanos>,
    blocked_since: Cell<Option<Nanos>>,
    answer_bytes: Cell<u64>,
    requests: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Activity {
    /// A connection accepted at `now`.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            phase: Cell::new(Phase::Idle),
            since: Cell::new(now),
            blocked_since: Cell::new(None),
            answer_bytes: Cell::new(0),
            requests: Cell::new(0),
            waker: RefCell::new(None),
        }
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Since when it is idle; none while a request is at work or its client still takes an answer.
    #[must_use]
    pub fn idle_since(&self) -> Option<Nanos> {
        let idle = self.phase.get() == Phase::Idle && self.blocked_since.get().is_none();
        idle.then(|| self.since.get())
    }

    /// Requests whose head arrived whole.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Bytes of the answer written since the newest request's head arrived.
    #[must_use]
    pub fn answer_bytes(&self) -> u64 {
        self.answer_bytes.get()
    }

    /// Notes `phase`, unless it is the present one: a client that sends a head byte by byte does not renew its deadline.
    pub fn enter(&self, phase: Phase, now: Nanos) {
        if self.phase.get() != phase {
            self.phase.set(phase);
            self.since.set(now);
        }
    }

    /// Notes that a head arrived whole; a `Body` phase begins now even if the request before ended in one.
    pub fn request(&self, phase: Phase, now: Nanos) {
        self.phase.set(phase);
        self.since.set(now);
        self.requests.set(self.requests.get() + 1);
        self.answer_bytes.set(0);
    }

    /// Notes that the client took `bytes` of an answer.
    pub fn wrote(&self, bytes: usize) {
        self.answer_bytes.set(self.answer_bytes.get() + bytes as u64);
        self.blocked_since.set(None);
    }

    /// Notes that the client takes nothing at present.
    pub fn write_blocked(&self, now: Nanos) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
        }
    }

    /// What was noted at `from` may have been as late as `to`: a worker that was held up noted the time of its last sweep. No limit is to
    /// run out early for that.
    pub fn forward(&self, from: Nanos, to: Nanos) {
        let later = |noted: Nanos| if noted == from { noted.max(to) } else { noted };
        self.since.set(later(self.since.get()));
        self.blocked_since.set(self.blocked_since.get().map(later));
    }

    /// Whether a limit has run out at `now`. The notes are up to `slack` older than what they note.
    #[must_use]
    pub fn overdue(&self, now: Nanos, slack: Duration, limits: &Limits, draining: bool) -> Option<Overdue> {
        let over = |since: Nanos, limit: Duration| now.since(since) >= limit.saturating_add(slack);
        if self.blocked_since.get().is_some_and(|since| over(since, limits.write_timeout)) {
            return Some(Overdue::Write);
        }
        // An answer that the client still takes keeps an otherwise idle connection.
        let idle = self.idle_since().is_some();
        match self.phase.get() {
            Phase::Idle if idle && draining && self.requests.get() > 0 => Some(Overdue::Drained),
            Phase::Idle if idle && draining && over(self.since.get(), FIRST_REQUEST_GRACE) => Some(Overdue::Drained),
            Phase::Idle if idle && over(self.since.get(), limits.idle_timeout) => Some(Overdue::Idle),
            Phase::Head if over(self.since.get(), limits.header_timeout) => Some(Overdue::Head),
            Phase::Body if over(self.since.get(), limits.body_timeout) => Some(Overdue::Body),
            _ => None,
        }
    }

    /// Remembers whom to wake when the connection must look at its deadlines.
    pub fn register(&self, waker: &Waker) {
        let mut mine = self.waker.borrow_mut();
        if !mine.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *mine = Some(waker.clone());
        }
    }

    /// Makes the connection's task look at its deadlines and at the drain.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000 + ms * 1_000_000)
    }

    fn overdue(activity: &Activity, ms: u64, draining: bool) -> Option<Overdue> {
        // header 1 s, body 2 s, idle 3 s, write 4 s
        activity.overdue(at(ms), SLACK, &crate::guard::tests::limits(), draining)
    }

    #[test]
    fn each_phase_has_its_own_limit_and_none_runs_out_early() {
        for (phase, limit_ms, cause) in [
            (Phase::Idle, 3_000, Some(Overdue::Idle)),
            (Phase::Head, 1_000, Some(Overdue::Head)),
            (Phase::Body, 2_000, Some(Overdue::Body)),
            (Phase::Handling, 1_000_000, None),
        ] {
            let activity = Activity::new(at(0));
            activity.enter(phase, at(0));
            assert_eq!(overdue(&activity, limit_ms + 99, false), None, "{phase:?}");
            assert_eq!(overdue(&activity, limit_ms + 100, false), cause, "{phase:?}");
        }
    }

    #[test]
    fn dripping_a_head_renews_nothing() {
        let activity = Activity::new(at(0));
        for ms in 0..1_100 {
            activity.enter(Phase::Head, at(ms));
        }
        assert_eq!(overdue(&activity, 1_100, false), Some(Overdue::Head));
    }

    #[test]
    fn a_client_that_takes_something_renews_the_write_limit() {
        let activity = Activity::new(at(0));
        activity.enter(Phase::Handling, at(0));
        activity.write_blocked(at(0));
        activity.write_blocked(at(3_000));
        assert_eq!(overdue(&activity, 4_100, false), Some(Overdue::Write));
        activity.wrote(1);
        assert_eq!(overdue(&activity, 4_100, false), None);
        activity.write_blocked(at(4_100));
        assert_eq!(overdue(&activity, 8_199, false), None);
        assert_eq!(overdue(&activity, 8_200, false), Some(Overdue::Write));
    }

    #[test]
    fn what_a_held_up_worker_noted_too_early_is_forwarded() {
        let (old, new) = (Activity::new(at(0)), Activity::new(at(1_000)));
        new.enter(Phase::Handling, at(1_000));
        new.write_blocked(at(1_000));
        // The sweep that was due at 1,100 came at 3,000: the notes of 1,000 may be of 2,999.
        for activity in [&old, &new] {
            activity.forward(at(1_000), at(2_900));
        }
        assert_eq!(overdue(&old, 3_100, false), Some(Overdue::Idle));
        assert_eq!(overdue(&new, 6_999, false), None);
        assert_eq!(overdue(&new, 7_000, false), Some(Overdue::Write));
        new.forward(at(2_900), at(2_800));
        assert_eq!(overdue(&new, 7_000, false), Some(Overdue::Write), "never backwards");
    }

    #[test]
    fn a_drain_ends_idle_connections_at_once_and_new_ones_after_a_grace() {
        let fresh = Activity::new(at(0));
        assert_eq!(overdue(&fresh, 399, true), None);
        assert_eq!(overdue(&fresh, 400, true), Some(Overdue::Drained));
        let used = Activity::new(at(0));
        used.request(Phase::Handling, at(0));
        assert_eq!(overdue(&used, 0, true), None, "it is being answered");
        used.enter(Phase::Idle, at(1));
        assert_eq!(overdue(&used, 1, true), Some(Overdue::Drained));
        used.enter(Phase::Head, at(1));
        assert_eq!(overdue(&used, 1, true), None, "a half-sent head may be finished");
    }
}
