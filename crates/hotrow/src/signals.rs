//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::Exit;

/// Where the process stands. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serving.
    Running,
    /// Asked to stop: no new work, finish what is begun.
    Draining,
}

/// What must still be done when a second signal ends the process without unwinding: one folder to remove.
#[derive(Clone, Debug, Default)]
pub struct OnAbort(Arc<Mutex<Option<PathBuf>>>);

impl OnAbort {
    /// The folder to remove; `None` when it is gone already.
    pub fn remove_folder(&self, folder: Option<&Path>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = folder.map(Path::to_path_buf);
    }

    fn run(&self) {
        if let Some(folder) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The process ends here and now; a folder that stays is removed by the next demonstration.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Begins to listen, on a thread of its own. From the return on, no first signal kills the process.
///
/// # Errors
/// What the system said when a handler or the thread could not be set up.
pub fn listen(on_abort: OnAbort) -> io::Result<watch::Receiver<Phase>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(entered);
    let (sender, receiver) = watch::channel(Phase::Running);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            next(&mut terminate, &mut interrupt).await;
            sender.send_replace(Phase::Draining);
            let exit = next(&mut terminate, &mut interrupt).await;
            on_abort.run();
            std::process::exit(exit as i32);
        });
    })?;
    Ok(receiver)
}

/// A flag that the first SIGINT or SIGTERM sets; the second one ends the process.
///
/// # Errors
/// What the system said when a handler or a thread could not be set up.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let mut phase = listen(OnAbort::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        // An error means that nobody listens to signals any more: the process ends.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            set.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(stop)
}

/// Waits for either signal; answers with the status that a process killed by it should show.
async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> Exit {
    tokio::select! {
        _ = terminate.recv() => Exit::Failed,
        _ = interrupt.recv() => Exit::Interrupted,
    }
}
