//! Thread that drives the connections of the readers, for all engines.

use std::sync::mpsc;

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use hotrow_supervisor::{self as supervisor, Supervisor};

/// Period of the thread's own loop. The work is in the other tasks of its runtime.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// Failure to start the thread or to complete its work.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The system has no thread left, or no event loop.
    #[error("cannot start a thread: {0}")]
    Start(#[from] std::io::Error),
    /// The thread has ended.
    #[error("the thread has ended")]
    Ended,
}

/// Thread with a runtime. Dropping it ends the thread and every connection on it.
pub struct Background {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn start(name: &str, supervisor: &Supervisor) -> Result<Self, ThreadError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, mut stopped) = oneshot::channel::<()>();
        // After a panic the runtime continues with all its tasks.
        let body = move || {
            drive(&runtime, &mut stopped);
            Ok(())
        };
        supervisor.spawn(name, || false, || (), body)?;
        Ok(Self { handle, _stop: stop })
    }

    /// Runs a task on the thread until it returns. After a panic, `make` creates it again.
    pub fn keep<F: Future<Output = ()> + Send + 'static>(
        &self,
        make: impl Fn() -> F + Send + Sync + 'static,
    ) {
        self.handle.spawn(async move { supervisor::keep_task(make).await });
    }

    /// Returns a handle that spawns tasks on the thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `work` on the thread and waits for its result. The caller may be on a runtime itself.
    ///
    /// # Errors
    /// Returns the errors of `work`, or [`ThreadError::Ended`].
    pub fn run<T: Send + 'static, E: From<ThreadError> + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        let (sender, receiver) = mpsc::channel();
        self.handle.spawn(async move { drop(sender.send(work.await)) });
        receiver.recv().unwrap_or_else(|_| Err(ThreadError::Ended.into()))
    }
}

/// Drives the runtime's tasks until `stopped` completes.
fn drive(runtime: &Runtime, stopped: &mut oneshot::Receiver<()>) {
    runtime.block_on(async {
        let mut ticks = tokio::time::interval(TURN_EVERY);
        loop {
            tokio::select! {
                // The sender is never used, only dropped.
                _ = &mut *stopped => return,
                _ = ticks.tick() => supervisor::turn(),
            }
        }
    });
}
