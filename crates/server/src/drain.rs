//! Shutdown of the server: first a drain, then at once.

use std::sync::Arc;

use tokio::sync::watch;

/// Stage of the shutdown. Only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Serving.
    Running,
    /// No new connections; requests in flight are finished, within `drain_timeout`.
    Drain,
    /// Everything is cut off.
    Now,
}

/// A switch shared by all parts of the process: clones are the same switch. Works across threads
/// and runtimes.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<Stage>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Stage::Running)))
    }
}

impl Shutdown {
    /// Creates a switch at [`Stage::Running`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Waits until the drain begins; returns at once when it has.
    pub async fn draining(&self) {
        self.reached(Stage::Drain).await;
    }

    /// Waits until everything must end at once.
    pub async fn ending(&self) {
        self.reached(Stage::Now).await;
    }

    fn advance(&self, to: Stage) {
        self.0.send_if_modified(|stage| {
            let forward = to > *stage;
            *stage = to.max(*stage);
            forward
        });
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= stage).await;
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
                waiting.draining().await;
                waiting.ending().await;
            });
        });
        shutdown.drain();
        assert_eq!(shutdown.stage(), Stage::Drain);
        shutdown.now();
        shutdown.drain();
        assert_eq!(shutdown.stage(), Stage::Now);
        waiter.join().unwrap();
    }
}
