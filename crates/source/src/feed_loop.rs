//! Thread of a feed, for all engines: runs session after session until shutdown.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use hotrow_supervisor::shutdown::Shutdown;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::{LossCause, Sink};

/// Runs `follow` on this thread until everything must end.
///
/// # Errors
/// Fails if the system has no event loop left; nothing was delivered then.
pub fn run(shutdown: &Shutdown, follow: impl Future<Output = Infallible>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let runtime = EventLoop(Some(runtime));
    if let Some(runtime) = &runtime.0 {
        runtime.block_on(async {
            tokio::select! {
                never = follow => match never {},
                () = shutdown.ending() => {}
            }
        });
    }
    Ok(())
}

/// Runtime that shuts down without waiting for its tasks, also after a panic. Tasks of connections
/// and drivers need no orderly shutdown, and name resolution can take long.
struct EventLoop(Option<tokio::runtime::Runtime>);

impl Drop for EventLoop {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reason that a session ended or could not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Cause of the loss, if the session had begun.
    pub cause: LossCause,
    /// Text for the log.
    pub detail: String,
}

impl Ended {
    /// Creates a reason.
    pub fn new(cause: LossCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    /// Creates the reason that `what` did not answer in time.
    pub fn silent(what: &str, after: Duration) -> Self {
        Self::new(LossCause::Unavailable, format!("{what} has not answered for {after:?}"))
    }
}

/// Waits for an answer with a time limit. An error's detail is preceded by `what`.
///
/// # Errors
/// The error of the answer, or [`Ended::silent`].
pub async fn timely<T>(
    limit: Duration,
    what: &str,
    answer: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|e| Ended::new(e.cause, format!("{what}: {}", e.detail))),
        Err(_) => Err(Ended::silent(what, limit)),
    }
}

/// Sessions of a feed. Its position outlives them only where [`Self::keeps_place`] says so.
pub trait Sessions {
    /// Runs one session, from the connection to its end. `random` is a different number for each.
    ///
    /// # Errors
    /// Fails if the session ended before [`Sink::started`] was called.
    fn session(&mut self, random: u64) -> impl Future<Output = Result<Ended, Ended>>;

    /// Reports to the readers why there is no feed.
    fn explain(&self, why: &str);

    /// Returns whether the next session delivers what one that ended did not.
    fn keeps_place(&self, _: LossCause) -> bool {
        false
    }

    /// Prepares the next session after the sink has received the loss of one.
    fn lost(&mut self, _: LossCause) {}
}

/// Runs session after session. The end of one that had begun is a loss. A failure to begin is
/// reported to the log and the readers, once per reason.
pub async fn follow(sessions: &mut impl Sessions, sink: &dyn Sink) -> Infallible {
    let mut pauses = Pauses::new();
    let mut last_failure = String::new();
    loop {
        let began_at = Instant::now();
        match Box::pin(sessions.session(pauses.random())).await {
            Ok(ended) if sessions.keeps_place(ended.cause) => {
                tracing::warn!(
                    detail = %ended.detail,
                    "the change feed was interrupted; the database keeps its place"
                );
                last_failure.clear();
                pauses.worked(began_at.elapsed());
            }
            Ok(ended) => {
                tracing::warn!(
                    cause = ?ended.cause,
                    detail = %ended.detail,
                    "the change feed lost its position; every entry is stale"
                );
                sink.loss(ended.cause, &ended.detail);
                sessions.lost(ended.cause);
                last_failure.clear();
                pauses.worked(began_at.elapsed());
            }
            Err(ended) => {
                if last_failure != ended.detail {
                    tracing::error!(
                        error = %ended.detail,
                        "the change feed cannot start; trying again"
                    );
                    sessions.explain(&ended.detail);
                    last_failure = ended.detail;
                }
            }
        }
        pauses.wait().await;
    }
}

/// Pauses between sessions. They grow until a session has lasted.
pub struct Pauses {
    random: RandomState,
    attempt: u32,
    sessions: u64,
}

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

impl Pauses {
    /// Creates the pauses of a feed that has not failed yet.
    pub fn new() -> Self {
        Self { random: RandomState::new(), attempt: 0, sessions: 0 }
    }

    /// Returns an evenly distributed number, a different one after each pause.
    pub fn random(&self) -> u64 {
        self.random.hash_one(("session", self.sessions))
    }

    /// Records the duration of a session. Only a session that lasted resets the pauses.
    pub fn worked(&mut self, lasted: Duration) {
        if lasted > PAUSE_MAX {
            self.attempt = 0;
        }
    }

    /// Waits until the next session may start.
    pub async fn wait(&mut self) {
        self.sessions += 1;
        tokio::time::sleep(pause(self.attempt, self.random.hash_one(self.sessions))).await;
        self.attempt = self.attempt.saturating_add(1);
    }
}

/// Probes of the log's end per staleness bound. Four leave room for a late probe.
const PROBES_PER_STALENESS: u32 = 4;

/// Returns the interval between two probes of the log's end.
pub fn probe_every(max_staleness: Duration) -> Duration {
    (max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(1))
}

/// Returns the time without an answer after which a session is given up and a new one is tried.
pub fn silence_max(max_staleness: Duration) -> Duration {
    (max_staleness * 10).clamp(Duration::from_secs(10), Duration::from_secs(60))
}

/// Returns an interval that first ticks after one `period` (at least 1 ms). A missed tick delays
/// all later ticks.
pub fn every(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Least time between two early probes: a probe is a small query.
const EARLY_PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Times of early probes, beside those that are due, while something waits for one.
#[derive(Debug, Default)]
pub struct EarlyProbe {
    sent_at: Option<Instant>,
}

impl EarlyProbe {
    /// Returns the time of the next one, if one is wanted.
    pub fn due(&self, is_wanted: bool) -> Option<Instant> {
        let after = |sent_at: Instant| sent_at + EARLY_PROBE_INTERVAL;
        is_wanted.then(|| self.sent_at.map_or_else(Instant::now, after))
    }

    /// Records that one is sent now.
    pub fn sent(&mut self) {
        self.sent_at = Some(Instant::now());
    }
}

/// Waits until `at`; pending for ever without a time.
pub async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Work that runs beside a feed's stream, at most one at a time.
pub struct BackgroundTask<'a, T>(Option<Pin<Box<dyn Future<Output = T> + 'a>>>);

impl<'a, T> BackgroundTask<'a, T> {
    /// Creates a task that does nothing.
    pub fn idle() -> Self {
        Self(None)
    }

    /// Returns whether nothing runs.
    pub fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Starts work; what ran before is dropped.
    pub fn start(&mut self, work: impl Future<Output = T> + 'a) {
        self.0 = Some(Box::pin(work));
    }

    /// Waits for the result; never completes while idle. Dropping this future loses nothing.
    pub async fn done(&mut self) -> T {
        let Some(work) = &mut self.0 else { return std::future::pending().await };
        let result = work.await;
        self.0 = None;
        result
    }
}

/// Upper bound of the first pause. The bound grows exponentially up to [`PAUSE_MAX`], and each
/// pause is drawn evenly between zero and its bound ("full jitter"), so that instances which lost
/// the same server do not reconnect at the same time.
const PAUSE_FIRST_MAX: Duration = Duration::from_millis(50);
/// Longest pause between two attempts to reach the database.
pub const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Returns the pause before attempt `attempt`; 0 is the first attempt after a loss. `random` is any
/// evenly distributed number.
pub fn pause(attempt: u32, random: u64) -> Duration {
    let bound = PAUSE_FIRST_MAX.saturating_mul(2_u32.saturating_pow(attempt)).min(PAUSE_MAX);
    // At most 5 s in microseconds: fits.
    let bound_us = bound.as_micros() as u64;
    Duration::from_micros(random % (bound_us + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_are_spread() {
        let longest = |attempt| {
            (0..60_000_u64).map(|r| pause(attempt, r.wrapping_mul(0x9e37_79b9_7f4a_7c15))).max()
        };
        assert!(
            longest(0).unwrap() <= PAUSE_FIRST_MAX && longest(0).unwrap() > PAUSE_FIRST_MAX / 2
        );
        assert!(
            longest(3).unwrap() > PAUSE_FIRST_MAX * 6 && longest(3).unwrap() <= PAUSE_FIRST_MAX * 8
        );
        for attempt in [7, 31, 32, u32::MAX] {
            assert!(
                longest(attempt).unwrap() <= PAUSE_MAX && longest(attempt).unwrap() > PAUSE_MAX / 2,
                "{attempt}"
            );
        }
        assert_eq!(pause(9, 0), Duration::ZERO);
    }
}
