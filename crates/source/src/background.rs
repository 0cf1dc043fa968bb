//! The thread that drives the readers' connections, whatever the engine.

use std::sync::mpsc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Why there is no thread, or why it did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThreadError {
    /// The system has none left.
    #[error("cannot start a thread: {0}")]
    Start(#[from] std::io::Error),
    /// It ended before its work was done.
    #[error("the thread has ended")]
    Ended,
}

/// A thread with a runtime; it ends when this is dropped, and with it every connection.
pub(crate) struct Background {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has none left.
    pub(crate) fn start(name: &str) -> Result<Self, ThreadError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || drop(runtime.block_on(stopped));
        std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { handle, _stop: stop })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `work` there and waits for it, whether or not the caller is on a runtime itself.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn run<T: Send + 'static, E: From<ThreadError> + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        let (give, take) = mpsc::channel();
        self.handle.spawn(async move { drop(give.send(work.await)) });
        take.recv().unwrap_or_else(|_| Err(ThreadError::Ended.into()))
    }
}
