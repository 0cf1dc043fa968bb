//! Phase of a connection and its beginning, recorded in plain cells so that one sweep per worker
//! can enforce every time-out without a timer or a clock read per request.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use hotrow_admission::byte_budget::Reservation;
use hotrow_measure::clock::Nanos;

use hotrow_config::Limits;

/// Interval of the sweep over all connections; a time-out is enforced at most two sweeps late and
/// never early.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Most bytes that the kernel holds for a client that does not read: a write beyond those unsent,
/// with the kernel's own memory for them.
pub const KERNEL_BYTES_MAX: u64 = 256 << 10;

/// Time for the first request of a connection that was accepted shortly before the drain. Its
/// client saw the connection established and would otherwise lose that request.
pub(crate) const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(300);

/// Input that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// None: a request is complete and its answer is not yet written.
    Handling,
}

/// Reason for which a connection is closed by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// `idle_timeout`.
    Idle,
    /// `header_timeout`.
    Head,
    /// `body_timeout`.
    Body,
    /// `write_timeout`.
    Write,
    /// The client takes its answer more slowly than `drain_rate_min`.
    SlowReader,
    /// The kernel holds more than `send_bytes`, and this client is among the slowest.
    SendBytes,
    /// The server drains, and the connection is idle.
    Drained,
    /// The connection is idle, and its place is needed.
    Reclaimed,
}

/// Progress of the client in taking a waiting answer.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Nanos,
    bytes: u64,
}

impl Drain {
    /// Returns whether the client took less than required in `write_timeout`.
    fn is_slow(self, limits: &Limits) -> bool {
        (self.bytes as f64) < limits.drain_rate_min as f64 * limits.write_timeout.as_secs_f64()
    }
}

/// Activity of one connection. Used only by its worker's thread.
#[derive(Debug)]
pub struct Activity {
    phase: Cell<Phase>,
    since: Cell<Nanos>,
    blocked_since: Cell<Option<Nanos>>,
    drain: Cell<Option<Drain>>,
    /// Reservations of answers whose last bytes are not yet in the kernel.
    unsent: RefCell<Vec<Reservation>>,
    answer_bytes: Cell<u64>,
    requests: Cell<u64>,
    /// `true`: the process asks the connection to end.
    is_leaving: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Activity {
    /// Creates the activity of a connection accepted at `now`.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            phase: Cell::new(Phase::Idle),
            since: Cell::new(now),
            blocked_since: Cell::new(None),
            drain: Cell::new(None),
            unsent: RefCell::default(),
            answer_bytes: Cell::new(0),
            requests: Cell::new(0),
            is_leaving: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Returns the beginning of the idle time; `None` while a request is in progress or the client
    /// still takes an answer.
    pub fn idle_since(&self) -> Option<Nanos> {
        let idle = self.phase.get() == Phase::Idle && self.blocked_since.get().is_none();
        idle.then(|| self.since.get())
    }

    /// Returns the number of requests whose head arrived in full.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Returns the bytes of the answer written since the newest request's head arrived.
    pub fn answer_bytes(&self) -> u64 {
        self.answer_bytes.get()
    }

    /// Records `phase`, unless it is the present one: a client that sends a head byte by byte does
    /// not renew its deadline.
    pub fn enter(&self, phase: Phase, now: Nanos) {
        if phase == Phase::Idle {
            self.end_drain();
        }
        if self.phase.get() != phase {
            self.phase.set(phase);
            self.since.set(now);
        }
    }

    /// Records a complete head; a `Body` phase begins now even if the request before ended in one.
    pub fn request(&self, phase: Phase, now: Nanos) {
        self.phase.set(phase);
        self.since.set(now);
        self.end_drain();
        self.requests.set(self.requests.get() + 1);
        self.answer_bytes.set(0);
    }

    /// Records that the client took `bytes` of an answer.
    pub fn wrote(&self, bytes: usize) {
        self.answer_bytes.set(self.answer_bytes.get() + bytes as u64);
        self.blocked_since.set(None);
        if let Some(drain) = self.drain.get() {
            self.drain.set(Some(Drain { bytes: drain.bytes + bytes as u64, ..drain }));
        }
    }

    /// Ends the measurement when the earlier answers are written, unless bytes of them wait in a
    /// buffer.
    fn end_drain(&self) {
        if self.blocked_since.get().is_none() {
            self.drain.set(None);
        }
    }

    /// Keeps the reservation of an answer until [`Activity::all_sent`].
    pub fn keep_until_sent(&self, reservation: Reservation) {
        self.unsent.borrow_mut().push(reservation);
    }

    /// Records that the kernel has all bytes handed over so far. An answer still being written may
    /// produce more: only between requests is nothing waiting.
    pub fn all_sent(&self) {
        if self.phase.get() == Phase::Idle {
            self.drain.set(None);
        }
        if !self.unsent.borrow().is_empty() {
            self.unsent.borrow_mut().clear();
        }
    }

    /// Records that the client has taken all that waited, between requests or not.
    pub fn all_taken(&self) {
        self.blocked_since.set(None);
        self.drain.set(None);
    }

    /// Returns whether the client takes nothing at present.
    #[inline]
    pub fn is_write_blocked(&self) -> bool {
        self.blocked_since.get().is_some()
    }

    /// Returns the bytes per second that the client has taken of what waits, over a second at
    /// least, and since when it takes nothing.
    pub fn progress(&self, now: Nanos) -> (u64, Nanos) {
        let rate = self.drain.get().map_or(0, |Drain { since, bytes }| {
            let seconds = now.since(since).as_secs_f64().max(1.0);
            (bytes as f64 / seconds) as u64
        });
        (rate, self.blocked_since.get().unwrap_or(now))
    }

    /// Asks an answer without an end to end.
    pub fn leave(&self) {
        self.is_leaving.set(true);
    }

    /// Returns whether an answer without an end should end.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.get()
    }

    /// Records that the client takes nothing at present.
    pub fn write_blocked(&self, now: Nanos) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
        }
        if self.drain.get().is_none() {
            self.drain.set(Some(Drain { since: now, bytes: 0 }));
        }
    }

    /// Moves times recorded at `from` to `to`: a delayed worker records the time of its last sweep,
    /// and no limit may expire early because of that.
    pub fn forward(&self, from: Nanos, to: Nanos) {
        let later = |noted: Nanos| if noted == from { noted.max(to) } else { noted };
        self.since.set(later(self.since.get()));
        self.blocked_since.set(self.blocked_since.get().map(later));
        self.drain.set(self.drain.get().map(|drain| Drain { since: later(drain.since), ..drain }));
    }

    /// Returns the limit that has expired at `now`. Recorded times are up to `slack` early.
    pub fn overdue(
        &self,
        now: Nanos,
        slack: Duration,
        limits: &Limits,
        draining: bool,
    ) -> Option<Expiry> {
        let over = |since: Nanos, limit: Duration| now.since(since) >= limit.saturating_add(slack);
        if self.blocked_since.get().is_some_and(|since| over(since, limits.write_timeout)) {
            return Some(Expiry::Write);
        }
        if self
            .drain
            .get()
            .is_some_and(|drain| over(drain.since, limits.write_timeout) && drain.is_slow(limits))
        {
            return Some(Expiry::SlowReader);
        }
        // An answer that the client still takes keeps an otherwise idle connection open.
        let idle = self.idle_since().is_some();
        match self.phase.get() {
            Phase::Idle if idle && draining && self.requests.get() > 0 => Some(Expiry::Drained),
            Phase::Idle if idle && draining && over(self.since.get(), FIRST_REQUEST_GRACE) => {
                Some(Expiry::Drained)
            }
            Phase::Idle if idle && over(self.since.get(), limits.idle_timeout) => {
                Some(Expiry::Idle)
            }
            Phase::Head if over(self.since.get(), limits.header_timeout) => Some(Expiry::Head),
            Phase::Body if over(self.since.get(), limits.body_timeout) => Some(Expiry::Body),
            _ => None,
        }
    }

    /// Restarts the measurement of the client's progress after `write_timeout`.
    pub fn measure_drain_anew(&self, now: Nanos, slack: Duration, limits: &Limits) {
        let is_over =
            |drain: Drain| now.since(drain.since) >= limits.write_timeout.saturating_add(slack);
        if self.drain.get().is_some_and(is_over) {
            self.drain.set(Some(Drain { since: now, bytes: 0 }));
        }
    }

    /// Stores the waker of the connection's task.
    pub fn register(&self, waker: &Waker) {
        let mut mine = self.waker.borrow_mut();
        if !mine.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *mine = Some(waker.clone());
        }
    }

    /// Wakes the connection's task to check its deadlines and the drain.
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

    fn overdue(activity: &Activity, ms: u64, draining: bool) -> Option<Expiry> {
        // header 1 s, body 2 s, idle 3 s, write 4 s
        activity.overdue(at(ms), SLACK, &Limits::small(), draining)
    }

    #[test]
    fn each_phase_has_its_own_limit_and_none_runs_out_early() {
        for (phase, limit_ms, cause) in [
            (Phase::Idle, 3_000, Some(Expiry::Idle)),
            (Phase::Head, 1_000, Some(Expiry::Head)),
            (Phase::Body, 2_000, Some(Expiry::Body)),
            (Phase::Handling, 1_000_000, None),
        ] {
            let activity = Activity::new(at(0));
            activity.enter(phase, at(0));
            assert_eq!(overdue(&activity, limit_ms + 99, false), None, "{phase:?}");
            assert_eq!(overdue(&activity, limit_ms + 100, false), cause, "{phase:?}");
        }
    }

    #[test]
    fn dripping_a_head_does_not_renew_its_deadline() {
        let activity = Activity::new(at(0));
        for ms in 0..1_100 {
            activity.enter(Phase::Head, at(ms));
        }
        assert_eq!(overdue(&activity, 1_100, false), Some(Expiry::Head));
    }

    #[test]
    fn a_client_that_takes_something_renews_the_write_limit() {
        let activity = Activity::new(at(0));
        activity.enter(Phase::Handling, at(0));
        activity.write_blocked(at(0));
        activity.write_blocked(at(3_000));
        assert_eq!(overdue(&activity, 4_100, false), Some(Expiry::Write));
        activity.wrote(1);
        assert_eq!(overdue(&activity, 4_100, false), None);
        activity.write_blocked(at(4_100));
        assert_eq!(overdue(&activity, 8_199, false), None);
        assert_eq!(overdue(&activity, 8_200, false), Some(Expiry::Write));
    }

    #[test]
    fn a_client_that_takes_its_answer_too_slowly_is_overdue() {
        // At least 100 bytes a second, measured over 4 s.
        let limits = Limits { drain_rate_min: 100, ..Limits::small() };
        let activity = Activity::new(at(0));
        activity.enter(Phase::Handling, at(0));
        let overdue = |ms| activity.overdue(at(ms), SLACK, &limits, false);
        for ms in (0..4_000).step_by(1_000) {
            activity.write_blocked(at(ms));
            activity.wrote(100);
        }
        assert_eq!(overdue(4_100), None, "fast enough");
        activity.measure_drain_anew(at(4_100), SLACK, &limits);
        for ms in (4_100..8_100).step_by(1_000) {
            activity.write_blocked(at(ms));
            activity.wrote(99);
        }
        assert_eq!(overdue(8_199), None, "not measured for long enough");
        assert_eq!(overdue(8_200), Some(Expiry::SlowReader));
        activity.all_sent();
        assert_eq!(
            overdue(8_200),
            Some(Expiry::SlowReader),
            "a piece is sent, and the answer goes on"
        );
        activity.enter(Phase::Idle, at(8_200));
        assert_eq!(overdue(8_200), None, "nothing waits");
        activity.request(Phase::Handling, at(8_200));
        activity.write_blocked(at(8_200));
        activity.wrote(1);
        activity.forward(at(8_200), at(9_000));
        assert_eq!(overdue(12_400), None, "noted later than it was");
        assert_eq!(overdue(13_100), Some(Expiry::SlowReader));
    }

    #[test]
    fn times_recorded_early_by_a_delayed_worker_are_forwarded() {
        let old = Activity::new(at(0));
        let new = Activity::new(at(1_000));
        new.enter(Phase::Handling, at(1_000));
        new.write_blocked(at(1_000));
        // The sweep due at 1,100 ran at 3,000: times recorded as 1,000 may mean 2,999.
        for activity in [&old, &new] {
            activity.forward(at(1_000), at(2_900));
        }
        assert_eq!(overdue(&old, 3_100, false), Some(Expiry::Idle));
        assert_eq!(overdue(&new, 6_999, false), None);
        assert_eq!(overdue(&new, 7_000, false), Some(Expiry::Write));
        new.forward(at(2_900), at(2_800));
        assert_eq!(overdue(&new, 7_000, false), Some(Expiry::Write), "never backwards");
    }

    #[test]
    fn a_drain_ends_idle_connections_at_once_and_new_ones_after_a_grace() {
        let fresh = Activity::new(at(0));
        assert_eq!(overdue(&fresh, 399, true), None);
        assert_eq!(overdue(&fresh, 400, true), Some(Expiry::Drained));
        let used = Activity::new(at(0));
        used.request(Phase::Handling, at(0));
        assert_eq!(overdue(&used, 0, true), None, "it is being answered");
        used.enter(Phase::Idle, at(1));
        assert_eq!(overdue(&used, 1, true), Some(Expiry::Drained));
        used.enter(Phase::Head, at(1));
        assert_eq!(overdue(&used, 1, true), None, "a half-sent head may be finished");
    }
}
