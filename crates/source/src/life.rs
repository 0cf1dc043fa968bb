//! A feed's life, whatever the engine: it runs on a thread of its own until it shall end, and goes from session to session.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::{LossCause, Sink, backoff};

/// How long a wait may keep the feed from seeing that it shall end.
const SHUTDOWN_CHECK_EVERY: Duration = Duration::from_millis(20);

/// Runs `follow` on this thread until `shutdown` is set. Where the system gives no event loop, that is told to the sink as a
/// loss, and nothing is delivered.
pub(crate) fn run(sink: &dyn Sink, shutdown: &AtomicBool, follow: impl Future<Output = Infallible>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            tracing::error!(error = %e, "the change feed cannot run: the system gives no event loop");
            sink.loss(LossCause::Unavailable, &format!("no event loop: {e}"));
            return;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            never = follow => match never {},
            () = stopped(shutdown) => {}
        }
    });
    // The tasks of connections and drivers hold nothing that must be put away in order.
    runtime.shutdown_background();
}

/// Returns when the process shall end.
async fn stopped(shutdown: &AtomicBool) {
    while !shutdown.load(Ordering::Relaxed) {
        tokio::time::sleep(SHUTDOWN_CHECK_EVERY).await;
    }
}

/// The pauses between sessions: longer and longer, until one has lasted.
pub(crate) struct Pauses {
    random: RandomState,
    attempt: u32,
    sessions: u64,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { random: RandomState::new(), attempt: 0, sessions: 0 }
    }

    /// An evenly distributed number, another one after each pause.
    pub(crate) fn random(&self) -> u64 {
        self.random.hash_one(("session", self.sessions))
    }

    /// A session worked for so long. What ends at once again and again is not tried without a pause.
    pub(crate) fn worked(&mut self, lasted: Duration) {
        if lasted > backoff::LONGEST {
            self.attempt = 0;
        }
    }

    /// Waits until the next session may be tried.
    pub(crate) async fn wait(&mut self) {
        self.sessions += 1;
        tokio::time::sleep(backoff::pause(self.attempt, self.random.hash_one(self.sessions))).await;
        self.attempt = self.attempt.saturating_add(1);
    }
}

/// Ticks every `period`, at least 1 ms, the first time after one; a tick that is missed delays all others.
pub(crate) fn every(period: Duration) -> Interval {
    let period = period.max(Duration::from_millis(1));
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Something that runs beside a feed's stream, at most once at a time.
pub(crate) struct Job<'a, T>(Option<Pin<Box<dyn Future<Output = T> + 'a>>>);

impl<'a, T> Job<'a, T> {
    pub(crate) fn idle() -> Self {
        Self(None)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn start(&mut self, work: impl Future<Output = T> + 'a) {
        self.0 = Some(Box::pin(work));
    }

    /// Its result; never when it is idle. Nothing is lost when this future is dropped.
    pub(crate) async fn done(&mut self) -> T {
        let Some(work) = &mut self.0 else { return std::future::pending().await };
        let result = work.await;
        self.0 = None;
        result
    }
}
