//! Shutdown of the process: it is announced, then a drain, then at once. One switch for all its
//! threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// Stage of the shutdown. Only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Serving.
    Running,
    /// Still serving, and about to end: the process reports that it is not ready, and each answer
    /// is the last of its connection, so that clients leave. Idle connections stay.
    Leaving,
    /// No new connections; requests in flight are finished, within `drain_timeout`. Idle
    /// connections are closed. Feeds and background threads continue.
    Drain,
    /// Everything is cut off, and every thread ends.
    Now,
}

/// A switch shared by all parts of the process: clones are the same switch. Works across threads
/// and runtimes.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Switch>);

#[derive(Debug)]
struct Switch {
    stage: watch::Sender<Stage>,
    /// For threads that wait without a runtime. The lock is held while the stage changes, so that
    /// none of them misses a change.
    change: Mutex<()>,
    changed: Condvar,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(Switch {
            stage: watch::Sender::new(Stage::Running),
            change: Mutex::default(),
            changed: Condvar::new(),
        }))
    }
}

impl Shutdown {
    /// Creates a switch at [`Stage::Running`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the end.
    pub fn leave(&self) {
        self.advance(Stage::Leaving);
    }

    /// Begins the drain; does nothing the second time.
    pub fn drain(&self) {
        self.advance(Stage::Drain);
    }

    /// Ends everything at once.
    pub fn now(&self) {
        self.advance(Stage::Now);
    }

    /// Returns the present stage.
    pub fn stage(&self) -> Stage {
        *self.0.stage.borrow()
    }

    /// Returns whether everything must end at once.
    pub fn is_ending(&self) -> bool {
        self.stage() == Stage::Now
    }

    /// Waits until the end is announced; returns at once when it has been.
    pub async fn leaving(&self) {
        self.reached(Stage::Leaving).await;
    }

    /// Waits until the drain begins; returns at once when it has.
    pub async fn draining(&self) {
        self.reached(Stage::Drain).await;
    }

    /// Waits until everything must end at once.
    pub async fn ending(&self) {
        self.reached(Stage::Now).await;
    }

    /// Blocks this thread for `time`. Returns `false`, and early, when everything must end at once.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut change = self.0.change.lock();
        while !self.is_ending() {
            if self.0.changed.wait_until(&mut change, until).timed_out() {
                return !self.is_ending();
            }
        }
        false
    }

    fn advance(&self, to: Stage) {
        let _change = self.0.change.lock();
        self.0.stage.send_if_modified(|stage| {
            let forward = to > *stage;
            *stage = to.max(*stage);
            forward
        });
        self.0.changed.notify_all();
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_only_move_forward_and_wake_waiters() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.stage(), Stage::Running);
        let waiting = shutdown.clone();
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                waiting.leaving().await;
                waiting.draining().await;
                waiting.ending().await;
            });
        });
        shutdown.leave();
        assert_eq!(shutdown.stage(), Stage::Leaving);
        shutdown.drain();
        shutdown.leave();
        assert_eq!(shutdown.stage(), Stage::Drain);
        shutdown.now();
        shutdown.drain();
        assert_eq!(shutdown.stage(), Stage::Now);
        waiter.join().unwrap();
    }

    #[test]
    fn a_pause_ends_with_its_time_or_with_the_last_stage() {
        let shutdown = Shutdown::new();
        assert!(shutdown.pause(Duration::from_millis(1)));
        shutdown.drain();
        assert!(shutdown.pause(Duration::from_millis(1)), "background threads work in a drain");
        let waiting = shutdown.clone();
        let waiter = std::thread::spawn(move || waiting.pause(Duration::from_secs(3_600)));
        shutdown.now();
        assert!(!waiter.join().unwrap());
        assert!(!shutdown.pause(Duration::from_secs(3_600)));
    }
}
