//! SIGTERM and SIGINT, and for some commands SIGHUP: the first asks for a drain, the second ends the process at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::{fmt, io};

use tokio::runtime::Runtime;
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

/// What must still be done when a second signal ends the process without unwinding: one folder to remove, and one action.
#[derive(Clone, Default)]
pub struct OnAbort {
    folder: Arc<Mutex<Option<PathBuf>>>,
    action: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for OnAbort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnAbort").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl OnAbort {
    /// Carries out an action.
    pub fn act(action: impl Fn() + Send + Sync + 'static) -> Self {
        Self { folder: Arc::default(), action: Some(Arc::new(action)) }
    }

    /// The folder to remove; `None` when it is gone already.
    pub fn remove_folder(&self, folder: Option<&Path>) {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder.map(Path::to_path_buf);
    }

    fn run(&self) {
        if let Some(action) = &self.action {
            action();
        }
        if let Some(folder) = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take() {
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
    listen_to(false, on_abort)
}

/// The same; `hangup`: a terminal that goes (SIGHUP) asks for it too, unless the process was told to ignore that, as by nohup.
fn listen_to(hangup: bool, on_abort: OnAbort) -> io::Result<watch::Receiver<Phase>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = if hangup && !hangup_ignored() { Some(signal(SignalKind::hangup())?) } else { None };
    drop(entered);
    let (sender, receiver) = watch::channel(Phase::Running);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            next(&mut terminate, &mut interrupt, &mut hangup).await;
            sender.send_replace(Phase::Draining);
            let exit = next(&mut terminate, &mut interrupt, &mut hangup).await;
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
    flag_of(listen(OnAbort::default())?)
}

/// The same, for a command that must undo something however it ends: SIGHUP counts too, and the second signal carries `on_abort` out.
///
/// # Errors
/// What the system said when a handler or a thread could not be set up.
pub fn stop_flag_with(on_abort: OnAbort) -> io::Result<Arc<AtomicBool>> {
    flag_of(listen_to(true, on_abort)?)
}

fn flag_of(mut phase: watch::Receiver<Phase>) -> io::Result<Arc<AtomicBool>> {
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

/// Tells whether the process was made to go on (SIGCONT), as after a Ctrl-Z.
pub(crate) struct Continued {
    runtime: Runtime,
    signal: Signal,
}

impl Continued {
    /// Begins to listen.
    ///
    /// # Errors
    /// What the system said when a handler could not be set up.
    pub(crate) fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let signal = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        drop(entered);
        Ok(Self { runtime, signal })
    }

    /// Whether it was since the last call. Does not wait.
    pub(crate) fn take(&mut self) -> bool {
        let signal = &mut self.signal;
        self.runtime.block_on(async {
            // Lets the runtime look at what has come.
            tokio::task::yield_now().await;
            std::future::poll_fn(|context| Poll::Ready(signal.poll_recv(context).is_ready())).await
        })
    }
}

/// Whether SIGHUP is to be ignored: the first bit of the mask.
fn hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// Waits for a signal; answers with the status that a process killed by it should show.
async fn next(terminate: &mut Signal, interrupt: &mut Signal, hangup: &mut Option<Signal>) -> Exit {
    let hung_up = async {
        match hangup {
            Some(hangup) => {
                hangup.recv().await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = hung_up => Exit::Failed,
        _ = terminate.recv() => Exit::Failed,
        _ = interrupt.recv() => Exit::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_continuation_is_heard_once() {
        let mut continued = Continued::listen().unwrap();
        assert!(!continued.take(), "nobody was stopped");
        kill_process(getpid(), Signal::CONT).unwrap();
        let begun = Instant::now();
        while !continued.take() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is not heard");
        }
        assert!(!continued.take(), "once");
    }
}
