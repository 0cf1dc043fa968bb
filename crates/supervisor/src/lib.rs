//! Supervision of background threads.
//!
//! A panic is caught and counted, and the thread runs again after a pause. A thread that fails too
//! often in a row makes the process unhealthy.
//!
//! One [`Supervisor`] belongs to one service; clones share its state. A thread's loop calls
//! [`turn`] once per turn, so that tests can make it panic there. A panic of a task on a supervised
//! thread's runtime ends only that task; [`TaskGuard`] counts it for the thread.

mod policy;
pub mod shutdown;

#[cfg(any(test, feature = "failpoints"))]
mod panic_point;

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;

use self::shutdown::Shutdown;

#[cfg(any(test, feature = "failpoints"))]
pub use self::panic_point::{PanicMode, PanicPoint};
pub use self::policy::{
    FAILURES_IN_A_ROW_MAX, RESTART_PAUSE_FIRST, RESTART_PAUSE_MAX, RestartPolicy, STEADY_AFTER,
};

/// Longest sleep between two checks of the stop condition during a pause before a restart.
const STOP_CHECK_EVERY: Duration = Duration::from_millis(20);

/// Supervisor of one service's threads. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    shared: Arc<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    /// One entry per name, in the order of the first start. Names come from the code and the
    /// numbers of workers and readers, so the configuration bounds their number.
    threads: Mutex<Vec<Arc<ThreadState>>>,
    #[cfg(any(test, feature = "failpoints"))]
    panic_points: Vec<PanicPoint>,
}

/// State of one thread over all its runs.
#[derive(Debug)]
struct ThreadState {
    name: String,
    panics_total: AtomicU64,
    policy: Mutex<RestartPolicy>,
    #[cfg(any(test, feature = "failpoints"))]
    registry: std::sync::Weak<Registry>,
}

/// Thread that keeps failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingThread {
    /// Name of the thread.
    pub name: String,
    /// Failures in a row.
    pub failures_in_a_row: u32,
}

thread_local! {
    /// Supervised thread that runs here.
    static CURRENT: RefCell<Option<Arc<ThreadState>>> = const { RefCell::new(None) };
}

impl Supervisor {
    /// Creates a supervisor whose threads panic at `panic_points`.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn with_panic_points(panic_points: Vec<PanicPoint>) -> Self {
        Self { shared: Arc::new(Registry { threads: Mutex::default(), panic_points }) }
    }

    /// Starts a thread that [`Self::run`]s `body`. The result is `None` if it was stopped in a
    /// pause between two runs.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        is_stopping: impl Fn() -> bool + Send + 'static,
        mut after_failure: impl FnMut() + Send + 'static,
        mut body: impl FnMut() -> io::Result<T> + Send + 'static,
    ) -> io::Result<JoinHandle<Option<T>>> {
        let supervisor = self.clone();
        let thread_name = name.to_owned();
        // Makes the thread's counter visible from here on.
        self.state(name);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            supervisor.run(&thread_name, &is_stopping, &mut after_failure, &mut body)
        })
    }

    /// Starts a thread that runs `body`, again after a failure, until everything must end.
    ///
    /// # Errors
    /// As [`Self::spawn`].
    pub fn spawn_until_end(
        &self,
        name: &str,
        shutdown: &Shutdown,
        mut body: impl FnMut(&Shutdown) -> io::Result<()> + Send + 'static,
    ) -> io::Result<JoinHandle<Option<()>>> {
        let (ending, shutdown) = (shutdown.clone(), shutdown.clone());
        self.spawn(name, move || ending.is_ending(), || (), move || body(&shutdown))
    }

    /// Runs `body` on this thread until it returns a value.
    ///
    /// A run that ends by a panic or an error has failed: `after_failure` is called at once, and
    /// `body` again after a pause. Returns `None` if `is_stopping` returns true during that pause.
    ///
    /// `body` must be able to start again from any state that its last run left.
    pub fn run<T>(
        &self,
        name: &str,
        is_stopping: &dyn Fn() -> bool,
        after_failure: &mut dyn FnMut(),
        body: &mut dyn FnMut() -> io::Result<T>,
    ) -> Option<T> {
        let state = self.state(name);
        let _current = Current::enter(Arc::clone(&state));
        loop {
            state.policy.lock().started(Nanos::now());
            match catch_unwind(AssertUnwindSafe(&mut *body)) {
                Ok(Ok(value)) => return Some(value),
                Ok(Err(error)) => tracing::error!(thread = name, %error, "a thread failed"),
                // The panic hook has logged the message and the location.
                Err(_) => state.count_panic(),
            }
            if catch_unwind(AssertUnwindSafe(&mut *after_failure)).is_err() {
                state.count_panic();
            }
            let pause = state.failed();
            if !wait(pause, is_stopping) {
                return None;
            }
        }
    }

    /// Runs `body` once on this thread, which cannot be restarted. Returns `None` after a panic,
    /// which is counted.
    pub fn run_once<T>(&self, name: &str, body: impl FnOnce() -> T) -> Option<T> {
        let state = self.state(name);
        let _current = Current::enter(Arc::clone(&state));
        catch_unwind(AssertUnwindSafe(body)).inspect_err(|_| state.count_panic()).ok()
    }

    /// Returns the number of panics by thread, in the order of the threads' first starts.
    pub fn panics(&self) -> Vec<(String, u64)> {
        let threads = self.shared.threads.lock();
        let count = |thread: &Arc<ThreadState>| {
            (thread.name.clone(), thread.panics_total.load(Ordering::Relaxed))
        };
        threads.iter().map(count).collect()
    }

    /// Returns the first thread that failed too often in a row, if any.
    pub fn failing(&self, now: Nanos) -> Option<FailingThread> {
        let threads = self.shared.threads.lock();
        threads.iter().find_map(|thread| {
            let policy = thread.policy.lock();
            policy.is_failing(now).then(|| FailingThread {
                name: thread.name.clone(),
                failures_in_a_row: policy.failures_in_a_row(),
            })
        })
    }

    /// Returns the state of the named thread; a restarted thread keeps its state.
    fn state(&self, name: &str) -> Arc<ThreadState> {
        let mut threads = self.shared.threads.lock();
        if let Some(known) = threads.iter().find(|thread| thread.name == name) {
            return Arc::clone(known);
        }
        let state = Arc::new(ThreadState {
            name: name.to_owned(),
            panics_total: AtomicU64::new(0),
            policy: Mutex::default(),
            #[cfg(any(test, feature = "failpoints"))]
            registry: Arc::downgrade(&self.shared),
        });
        threads.push(Arc::clone(&state));
        state
    }
}

impl ThreadState {
    fn count_panic(&self) {
        self.panics_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed run and returns the pause before the next one.
    fn failed(&self) -> Duration {
        let mut policy = self.policy.lock();
        let pause = policy.failed(Nanos::now());
        if policy.failures_in_a_row() == FAILURES_IN_A_ROW_MAX {
            tracing::error!(
                thread = self.name,
                failures_in_a_row = FAILURES_IN_A_ROW_MAX,
                "a thread keeps failing; /healthz fails until it runs steadily or the process is \
                 restarted"
            );
        }
        pause
    }
}

/// Guard that makes a thread the supervised one until it is dropped.
struct Current(Option<Arc<ThreadState>>);

impl Current {
    fn enter(state: Arc<ThreadState>) -> Self {
        Self(CURRENT.replace(Some(state)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Guard that counts a panic of its task for the supervised thread. The runtime catches panics of
/// tasks, so the thread continues.
#[derive(Debug)]
pub struct TaskGuard(());

impl TaskGuard {
    /// Creates a guard to keep for as long as the task runs.
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }
}

impl Default for TaskGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            CURRENT.with_borrow(|current| current.iter().for_each(|state| state.count_panic()));
        }
    }
}

/// Runs the task that `make` creates until it returns, on the caller's runtime. After a panic,
/// which is counted for the thread, `make` creates another one.
pub async fn keep_task<F: Future<Output = ()> + Send + 'static>(make: impl Fn() -> F) {
    let mut policy = RestartPolicy::new();
    loop {
        policy.started(Nanos::now());
        let task = make();
        let guard = TaskGuard::new();
        let ended = tokio::spawn(async move {
            let _guard = guard;
            task.await;
        });
        match ended.await {
            Err(error) if error.is_panic() => {}
            // The task has done its work, or the runtime ends.
            Ok(()) | Err(_) => return,
        }
        tokio::time::sleep(policy.failed(Nanos::now())).await;
    }
}

/// Marks the beginning of a turn of a supervised thread's loop. Test builds panic here at a
/// failpoint.
#[inline]
#[cfg_attr(any(test, feature = "failpoints"), allow(clippy::panic, reason = "a test asks for it"))]
pub fn turn() {
    #[cfg(any(test, feature = "failpoints"))]
    CURRENT.with_borrow(|current| {
        let Some(state) = current else { return };
        let registry = state.registry.upgrade();
        let acts = |point: &PanicPoint| point.acts_on(&state.name);
        if registry.is_some_and(|registry| registry.panic_points.iter().any(acts)) {
            panic!("the failpoint for thread {} acts", state.name);
        }
    });
}

/// Waits for `pause`. Returns `false` when the thread has to end.
fn wait(pause: Duration, is_stopping: &dyn Fn() -> bool) -> bool {
    let until = Nanos::now().after(pause);
    loop {
        if is_stopping() {
            return false;
        }
        let left = until.since(Nanos::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STOP_CHECK_EVERY));
    }
}

#[cfg(test)]
mod tests;
