//! Looks at the end of the log that requests wait for, so that a strict answer reflects every
//! commit that had returned to its writer before the request was received.
//!
//! A feed looks at the log's end, and passes that look once it has delivered everything up to
//! there: then it has delivered every commit that had returned when the look was sent. A strict
//! request waits for a look that is sent after it was received. One look serves all requests that
//! wait when it is sent, and none that comes later. The feed's own session makes it, so that it is
//! never one at a server that the feed does not follow.
//!
//! Bounds: one look at a time, and [`Looks::new`]'s number per second. The requests that wait are
//! bounded by those in flight.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::SharedHistogram;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Looks that may follow each other without a pause, as a part of a second: timers are no finer
/// than a millisecond.
const BURSTS_PER_S: u32 = 100;

/// How a wait for a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookEnd {
    /// The feed has delivered every commit that had returned at that time, which is not before the
    /// wait began.
    Passed(Nanos),
    /// No feed makes looks now.
    NotFollowed,
    /// The database allows none, for this reason; a read is no strict answer either.
    Refused(&'static str),
}

/// Looks at the end of one source's log, and the requests that wait for them.
#[derive(Debug)]
pub struct Looks {
    state: Mutex<State>,
    /// Notified when a request waits for a look that is not sent yet.
    wanted: Notify,
    /// Looks that were sent for requests.
    pub sent_total: AtomicU64,
    /// Time that requests waited until the feed had passed their looks, in nanoseconds.
    pub waited_ns: SharedHistogram,
    /// Time from sending a look for requests until the feed had passed it, in nanoseconds.
    pub look_ns: SharedHistogram,
}

#[derive(Debug)]
struct State {
    /// A session of the feed makes looks.
    is_open: bool,
    /// Reason for which the database allows none.
    refusal: Option<&'static str>,
    /// Time at which the newest look was sent.
    sent_at: Nanos,
    pace: Pace,
    /// Time of the newest wait.
    waited_at: Nanos,
    /// In the order of their numbers and of their times.
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Waits with lower numbers that are not in `waiting` were ended because no feed makes looks.
    ended_before: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    since: Nanos,
    waker: Option<Waker>,
}

/// Rate of looks: a bucket of a hundredth of a second's.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    burst: u32,
    /// Time at which the bucket is full again.
    full_at: Nanos,
}

impl Pace {
    /// Returns the time until which the next look has to wait.
    fn due(&self, now: Nanos) -> Duration {
        let room = self.interval * (self.burst - 1);
        Nanos(self.full_at.0.max(now.0)).since(now).saturating_sub(room)
    }

    fn sent(&mut self, now: Nanos) {
        self.full_at = Nanos(self.full_at.0.max(now.0)).after(self.interval);
    }
}

impl Looks {
    /// Creates the looks of a source. At most `per_s` looks are made per second.
    pub fn new(per_s: u32) -> Self {
        let per_s = per_s.max(1);
        let pace = Pace {
            interval: Duration::from_secs(1) / per_s,
            burst: (per_s / BURSTS_PER_S).max(1),
            full_at: Nanos::ZERO,
        };
        Self {
            state: Mutex::new(State {
                is_open: false,
                refusal: None,
                sent_at: Nanos::ZERO,
                pace,
                waited_at: Nanos::ZERO,
                waiting: VecDeque::new(),
                next: 0,
                ended_before: 0,
            }),
            wanted: Notify::new(),
            sent_total: AtomicU64::new(0),
            waited_ns: SharedHistogram::default(),
            look_ns: SharedHistogram::default(),
        }
    }

    /// Waits until the feed has passed a look that is sent after this call.
    pub fn wait(&self, now: Nanos) -> LookWait<'_> {
        let mut state = self.state.lock();
        // A look that was sent before serves it in no case, whatever the clock said when it came:
        // what the look has to prove was decided for the requests that waited then.
        let after_look = state.sent_at.after(Duration::from_nanos(1)).max(now);
        let since = state.waiting.back().map_or(after_look, |last| last.since.max(after_look));
        let number = state.next;
        if state.is_open {
            state.next += 1;
            let is_first = state.waiting.back().is_none_or(|last| last.since <= state.sent_at);
            state.waiting.push_back(Waiting { number, since, waker: None });
            state.waited_at = since;
            drop(state);
            if is_first {
                self.wanted.notify_one();
            }
            return LookWait { looks: self, number: Some(number), since };
        }
        LookWait { looks: self, number: None, since }
    }

    /// Waits, for a session of the feed, until requests wait for a look and one may be sent. The
    /// session sends it then, and reports [`Looks::sent`].
    pub async fn due(&self) {
        loop {
            match self.due_in(Nanos::now()) {
                Some(Duration::ZERO) => return,
                Some(pause) => tokio::time::sleep(pause).await,
                None => self.wanted.notified().await,
            }
        }
    }

    /// Returns the time until which a look that requests wait for may be sent; `None`: none waits.
    fn due_in(&self, now: Nanos) -> Option<Duration> {
        let state = self.state.lock();
        let is_wanted = state.waiting.back().is_some_and(|last| last.since > state.sent_at);
        is_wanted.then(|| state.pace.due(now))
    }

    /// Returns whether requests wait, for a look that is sent or one that is not.
    pub fn is_awaited(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Returns whether a request waited within the last second, for a feed that polls.
    pub fn is_used(&self, now: Nanos) -> bool {
        now.since(self.state.lock().waited_at) < Duration::from_secs(1)
    }

    /// Records that a look is sent after `now`, for requests or because a probe is due.
    pub fn sent(&self, now: Nanos) {
        let mut state = self.state.lock();
        if state.waiting.back().is_some_and(|last| last.since > state.sent_at) {
            state.pace.sent(now);
            self.sent_total.fetch_add(1, Relaxed);
        }
        state.sent_at = now;
    }

    /// Records that everything is delivered that the look sent at `sent_at` has shown. The cache
    /// has applied it before.
    pub fn passed(&self, sent_at: Nanos) {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        if state.waiting.front().is_none_or(|first| first.since > sent_at) {
            return;
        }
        let now = Nanos::now();
        while let Some(first) = state.waiting.pop_front_if(|first| first.since <= sent_at) {
            self.waited_ns.record(now.since(first.since).as_nanos() as u64);
            wakers.extend(first.waker);
        }
        drop(state);
        self.look_ns.record(now.since(sent_at).as_nanos() as u64);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Records that a session of the feed makes looks from now on.
    pub fn open(&self) {
        self.state.lock().is_open = true;
    }

    /// Records that the database allows no looks, and why. The text is for clients.
    pub fn refuse(&self, why: &'static str) {
        self.end(|state| state.refusal = Some(why));
    }

    /// Ends all waits, because no session makes looks, or none of them can be passed soon.
    pub fn give_up(&self) {
        self.end(|_| {});
    }

    /// Records that no session makes looks any more.
    pub fn close(&self) {
        self.end(|state| state.is_open = false);
    }

    fn end(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.ended_before = state.next;
        let ended = std::mem::take(&mut state.waiting);
        drop(state);
        ended.into_iter().filter_map(|waiting| waiting.waker).for_each(Waker::wake);
    }
}

/// Like [`Looks::due`]; without looks it never completes.
pub async fn due(looks: Option<&Looks>) {
    match looks {
        Some(looks) => looks.due().await,
        None => std::future::pending().await,
    }
}

/// Wait for a look. Dropping it ends the wait.
#[derive(Debug)]
pub struct LookWait<'a> {
    looks: &'a Looks,
    /// `None`: it has ended.
    number: Option<u64>,
    since: Nanos,
}

impl Future for LookWait<'_> {
    type Output = LookEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LookEnd> {
        let mut state = self.looks.state.lock();
        let not_followed = state.refusal.map_or(LookEnd::NotFollowed, LookEnd::Refused);
        let Some(number) = self.number else { return Poll::Ready(not_followed) };
        match state.waiting.binary_search_by_key(&number, |waiting| waiting.number) {
            Ok(place) => {
                if let Some(waiting) = state.waiting.get_mut(place) {
                    waiting.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Err(_) => {
                let is_ended = number < state.ended_before;
                drop(state);
                self.number = None;
                Poll::Ready(if is_ended { not_followed } else { LookEnd::Passed(self.since) })
            }
        }
    }
}

impl Drop for LookWait<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.looks.state.lock();
        if let Ok(place) = state.waiting.binary_search_by_key(&number, |waiting| waiting.number) {
            state.waiting.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    fn poll(wait: &mut Pin<&mut LookWait<'_>>) -> Option<LookEnd> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    fn opened(per_s: u32) -> Looks {
        let looks = Looks::new(per_s);
        looks.open();
        looks
    }

    #[test]
    fn a_look_serves_those_that_wait_when_it_is_sent_and_none_that_comes_later() {
        let looks = opened(1_000);
        let mut first = pin!(looks.wait(at(1)));
        let mut second = pin!(looks.wait(at(2)));
        assert_eq!(looks.due_in(at(2)), Some(Duration::ZERO));
        looks.sent(at(3));
        assert_eq!(looks.due_in(at(3)), None, "it is on its way");
        let mut late = pin!(looks.wait(at(4)));
        assert!(looks.due_in(at(4)).is_some());
        assert_eq!([poll(&mut first), poll(&mut second), poll(&mut late)], [None; 3]);
        looks.passed(at(3));
        assert_eq!(poll(&mut first), Some(LookEnd::Passed(at(1))));
        assert_eq!(poll(&mut second), Some(LookEnd::Passed(at(2))));
        assert_eq!(poll(&mut late), None);
        looks.passed(at(4));
        assert_eq!(poll(&mut late), Some(LookEnd::Passed(at(4))));
        assert!(!looks.is_awaited());
    }

    #[test]
    fn an_earlier_clock_of_a_later_request_does_not_count() {
        let looks = opened(1_000);
        let mut first = pin!(looks.wait(at(5)));
        let mut second = pin!(looks.wait(at(4)));
        looks.passed(at(4));
        assert_eq!([poll(&mut first), poll(&mut second)], [None; 2]);
        looks.passed(at(5));
        assert_eq!(poll(&mut second), Some(LookEnd::Passed(at(5))));
    }

    /// The clock was read before the look was sent, and the request registered after it.
    #[test]
    fn a_request_is_not_added_to_a_look_that_was_sent() {
        let looks = opened(1_000);
        looks.sent(at(3));
        assert!(!looks.is_awaited(), "so that the look proves nothing for requests");
        let mut late = pin!(looks.wait(at(2)));
        assert!(looks.due_in(at(4)).is_some());
        looks.passed(at(3));
        assert_eq!(poll(&mut late), None);
        looks.sent(at(5));
        looks.passed(at(5));
        assert!(matches!(poll(&mut late), Some(LookEnd::Passed(_))));
    }

    #[test]
    fn a_request_that_leaves_is_not_waited_for() {
        let looks = opened(1_000);
        drop(looks.wait(at(1)));
        assert_eq!(looks.due_in(at(1)), None);
        assert!(!looks.is_awaited());
    }

    #[test]
    fn without_a_session_no_request_waits() {
        let looks = Looks::new(1_000);
        assert_eq!(poll(&mut pin!(looks.wait(at(1)))), Some(LookEnd::NotFollowed));
        looks.open();
        let mut waits = pin!(looks.wait(at(2)));
        assert_eq!(poll(&mut waits), None);
        looks.close();
        assert_eq!(poll(&mut waits), Some(LookEnd::NotFollowed));
        assert_eq!(poll(&mut pin!(looks.wait(at(3)))), Some(LookEnd::NotFollowed));
    }

    #[test]
    fn looks_keep_to_their_rate_but_for_a_hundredth_of_a_second() {
        let looks = opened(1_000);
        let mut sent = 0;
        for us in (0..1_000_000).step_by(100) {
            let now = Nanos(us * 1_000 + 1);
            let _wait = looks.wait(now);
            if looks.due_in(now) == Some(Duration::ZERO) {
                looks.sent(now);
                sent += 1;
            }
        }
        assert!((1_000..=1_010).contains(&sent), "{sent}");
        assert_eq!(looks.sent_total.load(Relaxed), sent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_woken_by_the_first_request() {
        let looks = std::sync::Arc::new(opened(1_000));
        let session = std::sync::Arc::clone(&looks);
        let due = tokio::spawn(async move { session.due().await });
        tokio::task::yield_now().await;
        let _wait = looks.wait(Nanos::now());
        due.await.unwrap();
    }
}
