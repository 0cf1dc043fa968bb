//! Handling of SIGTERM and SIGINT, and for some commands of SIGHUP and SIGQUIT: the first signal
//! requests a drain, the second ends the process at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::{fmt, io};

use hotrow_supervisor::{self as supervisor, Supervisor};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::Exit;

/// Phase of the process. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serving.
    Running,
    /// A stop was requested: no new work starts, work in flight is finished.
    Draining,
}

/// Cleanup for a second signal, which ends the process without unwinding: one folder to remove and
/// one action to run.
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
    /// Creates a cleanup that runs an action.
    pub fn act(action: impl Fn() + Send + Sync + 'static) -> Self {
        Self { folder: Arc::default(), action: Some(Arc::new(action)) }
    }

    /// Sets the folder to remove; `None` if it is removed already.
    pub fn remove_folder(&self, folder: Option<&Path>) {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder.map(Path::to_path_buf);
    }

    fn run(&self) {
        if let Some(action) = &self.action {
            action();
        }
        if let Some(folder) = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A folder that remains is removed by the next demonstration.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Reaction to SIGHUP, which is sent when the terminal closes or to have a log file reopened.
#[derive(Clone, Debug)]
pub enum Hangup {
    /// Ends the process, as by default.
    Default,
    /// Counts the signals.
    Counted(watch::Sender<u64>),
    /// Requests a drain, as SIGTERM does.
    Drains,
}

/// Starts a supervised thread that receives signals. Once this function has returned, a first
/// SIGTERM or SIGINT does not kill the process.
///
/// # Errors
/// Returns the system's error if a handler or the thread could not be set up.
pub fn listen(
    on_hangup: Hangup,
    on_abort: OnAbort,
    supervisor: &Supervisor,
) -> io::Result<watch::Receiver<Phase>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let mut signals = Signals::install(on_hangup)?;
    drop(entered);
    let (sender, receiver) = watch::channel(Phase::Running);
    let body = move || -> io::Result<()> {
        runtime.block_on(async {
            // After a panic the thread runs again and keeps its phase.
            if *sender.borrow() == Phase::Running {
                signals.next().await;
                sender.send_replace(Phase::Draining);
            }
            let exit = signals.next().await;
            on_abort.run();
            std::process::exit(exit as i32);
        })
    };
    supervisor.spawn("signals", || false, || (), body)?;
    Ok(receiver)
}

/// Signals that the process handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Further signals that request a drain.
    more: Vec<Signal>,
    /// SIGHUP, if it is counted.
    hangup: Option<(Signal, watch::Sender<u64>)>,
}

impl Signals {
    /// Installs the handlers. A signal that was ignored at start, as under nohup, stays ignored.
    fn install(on_hangup: Hangup) -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let unless_ignored = |kind: SignalKind| {
            let wanted = (!ignored(&status, kind)).then_some(kind);
            wanted.map(signal).transpose()
        };
        let drains = match &on_hangup {
            Hangup::Drains => vec![SignalKind::hangup(), SignalKind::quit()],
            Hangup::Default | Hangup::Counted(_) => Vec::new(),
        };
        let mut more = Vec::new();
        for kind in drains {
            more.extend(unless_ignored(kind)?);
        }
        let hangup = match on_hangup {
            Hangup::Counted(counter) => {
                unless_ignored(SignalKind::hangup())?.map(|signal| (signal, counter))
            }
            Hangup::Default | Hangup::Drains => None,
        };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            more,
            hangup,
        })
    }

    /// Waits for a signal that requests a stop. Returns the exit status of a process killed by it.
    async fn next(&mut self) -> Exit {
        loop {
            supervisor::turn();
            let any_more = std::future::poll_fn(|context| {
                // Polls until the first one that is ready; every one before it registers the waker.
                match self.more.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            let hangup = async {
                match &mut self.hangup {
                    Some((signal, counter)) => {
                        signal.recv().await;
                        &*counter
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = any_more => return Exit::Failed,
                _ = self.terminate.recv() => return Exit::Failed,
                _ = self.interrupt.recv() => return Exit::Interrupted,
                counter = hangup => counter.send_modify(|count| *count += 1),
            }
        }
    }
}

/// Returns a flag that the first SIGINT or SIGTERM sets; the second one ends the process.
///
/// # Errors
/// Returns the system's error if a handler or a thread could not be set up.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    flag_from(listen(Hangup::Default, OnAbort::default(), &Supervisor::default())?)
}

/// Returns a flag as [`stop_flag`] does, for a command that must undo something however it ends:
/// SIGHUP (closed terminal) and SIGQUIT (Ctrl-\\) count too, and the second signal runs
/// `on_abort`.
///
/// # Errors
/// Returns the system's error if a handler or a thread could not be set up.
pub fn stop_flag_with(on_abort: OnAbort) -> io::Result<Arc<AtomicBool>> {
    flag_from(listen(Hangup::Drains, on_abort, &Supervisor::default())?)
}

fn flag_from(mut phase: watch::Receiver<Phase>) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let body = move || {
        // An error means that the receiving thread is gone: the process ends.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            set.store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    Supervisor::default().spawn("stop", || false, || (), body)?;
    Ok(stop)
}

/// Detector of SIGCONT, which continues the process after Ctrl-Z.
pub struct Continued {
    runtime: Runtime,
    signal: Signal,
}

impl Continued {
    /// Installs the handler.
    ///
    /// # Errors
    /// Returns the system's error if a handler could not be set up.
    pub fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let signal = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        drop(entered);
        Ok(Self { runtime, signal })
    }

    /// Returns whether SIGCONT arrived since the last call. Does not wait.
    pub fn take(&mut self) -> bool {
        let signal = &mut self.signal;
        self.runtime.block_on(async {
            // Lets the runtime process pending signals.
            tokio::task::yield_now().await;
            std::future::poll_fn(|context| Poll::Ready(signal.poll_recv(context).is_ready())).await
        })
    }
}

/// Returns whether the process ignores a signal, by its `/proc/PID/status`: each signal has one bit
/// of the mask, number 1 the lowest.
fn ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 != 0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_continuation_is_reported_once() {
        let mut continued = Continued::listen().unwrap();
        assert!(!continued.take(), "no signal was sent");
        kill_process(getpid(), Signal::CONT).unwrap();
        let begun = Instant::now();
        while !continued.take() {
            assert!(begun.elapsed() < Duration::from_secs(30), "SIGCONT was not received");
        }
        assert!(!continued.take(), "once");
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\thotrow\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001004\n";
        let signals = [SignalKind::hangup(), SignalKind::quit(), SignalKind::pipe()];
        assert_eq!(signals.map(|kind| ignored(status, kind)), [false, true, true]);
        assert!(!ignored("", SignalKind::quit()));
    }

    /// Without a handler, SIGQUIT would end this process.
    #[test]
    fn sigquit_requests_a_stop_from_a_command_with_cleanup() {
        let stop = stop_flag_with(OnAbort::default()).expect("threads");
        if ignored(
            &std::fs::read_to_string("/proc/self/status").expect("Linux"),
            SignalKind::quit(),
        ) {
            return;
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::QUIT)
            .expect("a signal");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !stop.load(Ordering::Relaxed) {
            assert!(std::time::Instant::now() < until, "SIGQUIT was not received");
            std::thread::yield_now();
        }
    }
}
