//! The thread that drives the readers' connections.

use std::sync::mpsc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::OpenError;

/// A thread with a runtime; it ends when this is dropped, and with it every connection.
pub(super) struct Background {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has none left.
    pub(super) fn start(name: &str) -> Result<Self, OpenError> {
        let failed = |e: std::io::Error| OpenError::Failed { detail: format!("cannot start a thread: {e}") };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || drop(runtime.block_on(stopped));
        std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
        Ok(Self { handle, _stop: stop })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `work` there and waits for it, whether or not the caller is on a runtime itself.
    ///
    /// # Errors
    /// Those of `work`.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, OpenError>> + Send + 'static,
    ) -> Result<T, OpenError> {
        let (give, take) = mpsc::channel();
        self.handle.spawn(async move { drop(give.send(work.await)) });
        take.recv().unwrap_or_else(|_| Err(OpenError::Failed { detail: "the thread has ended".into() }))
    }
}
