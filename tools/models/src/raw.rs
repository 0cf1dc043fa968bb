//! The parts that need `unsafe`: threads whose start can fail without a panic, and the resource
//! usage of the process.
//!
//! A thread of the standard library maps a guarded signal stack after its start, and panics when
//! that fails (rust-lang/rust#78497). Near a limit the process would die before it can report the
//! limit.

#![allow(
    unsafe_code,
    reason = "pthreads and getrusage have no safe interface here; each call says why it is sound"
)]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Stack of every thread that serves requests; a request needs a few kilobytes.
pub(super) const STACK_BYTES: usize = 64 << 10;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that is not joined yet. Until then its stack stays mapped, even after its end.
#[derive(Debug)]
pub(super) struct RawThread(libc::pthread_t);

impl RawThread {
    /// Starts a thread. A panic in `work` aborts the process.
    ///
    /// # Errors
    /// The system's error; `work` is dropped.
    pub(super) fn spawn(stack_bytes: usize, work: Work) -> io::Result<Self> {
        // A thin pointer; that of a `dyn FnOnce` is two words.
        let argument = Box::into_raw(Box::new(work));
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: the attributes are used only after `pthread_attr_init` has succeeded, and are
        // destroyed once. `start` takes the box that `argument` points to; `spawn` gives up its
        // ownership here and takes it back only on failure.
        let status = unsafe {
            match libc::pthread_attr_init(attributes.as_mut_ptr()) {
                0 => {
                    let mut status =
                        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
                    if status == 0 {
                        status = libc::pthread_create(
                            thread.as_mut_ptr(),
                            attributes.as_ptr(),
                            start,
                            argument.cast(),
                        );
                    }
                    libc::pthread_attr_destroy(attributes.as_mut_ptr());
                    status
                }
                status => status,
            }
        };
        if status == 0 {
            // SAFETY: `pthread_create` writes the id of the thread before it returns 0.
            return Ok(Self(unsafe { thread.assume_init() }));
        }
        // SAFETY: no thread was started, so the box is still ours alone.
        drop(unsafe { Box::from_raw(argument) });
        Err(io::Error::from_raw_os_error(status))
    }

    /// Waits for its end and releases its stack.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn join(self) -> io::Result<()> {
        // SAFETY: the thread was started joinable, and joining consumes `self`, so it happens once.
        match unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            status => Err(io::Error::from_raw_os_error(status)),
        }
    }
}

/// Keeps `count` threads alive at once, calls `look`, and lets them end.
///
/// # Errors
/// The number of threads when the system refused the next one, and its error.
pub(super) fn hold_threads<T>(
    count: u64,
    stack_bytes: usize,
    look: impl FnOnce() -> T,
) -> Result<T, (u64, io::Error)> {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    // Nothing else may be mapped in between.
    let mut threads = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let started: Result<(), (u64, io::Error)> = (0..count).try_for_each(|started| {
        let gate = gate.clone();
        let wait = move || {
            let mut open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*open {
                open = gate.1.wait(open).unwrap_or_else(PoisonError::into_inner);
            }
        };
        threads
            .push(RawThread::spawn(stack_bytes, Box::new(wait)).map_err(|error| (started, error))?);
        Ok(())
    });
    let seen = started.map(|()| look());
    *gate.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    gate.1.notify_all();
    // A thread that cannot be joined only ends.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    seen
}

/// Entry point of a thread.
extern "C" fn start(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `argument` is the box that `RawThread::spawn` gave away for this thread alone.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}

/// Resource usage of this process so far, with all threads, including ended ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) switches_voluntary: u64,
    pub(super) switches_involuntary: u64,
}

impl Usage {
    /// Reads it from the kernel.
    pub(super) fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `getrusage` writes into a struct of its own type; all zeros are a valid value if
        // it fails.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |time: libc::timeval| {
            Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default())
                + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or_default())
        };
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            switches_voluntary: u64::try_from(usage.ru_nvcsw).unwrap_or_default(),
            switches_involuntary: u64::try_from(usage.ru_nivcsw).unwrap_or_default(),
        }
    }

    /// Returns the usage since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn threads_run_and_a_too_small_stack_is_refused() {
        let done = Arc::new(AtomicU32::new(0));
        let work = |done: &Arc<AtomicU32>| -> Work {
            let done = done.clone();
            Box::new(move || {
                done.fetch_add(1, SeqCst);
            })
        };
        let threads: Vec<RawThread> =
            (0..20).map(|_| RawThread::spawn(64 << 10, work(&done)).unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(SeqCst), 20);
        assert_eq!(
            RawThread::spawn(1, work(&done)).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(Arc::strong_count(&done), 1, "what no thread took is dropped");
    }

    #[test]
    fn threads_coexist_and_a_refusal_is_reported() {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(hold_threads(16, 64 << 10, threads).unwrap() > 16);
        let (started, error) = hold_threads(3, 1, threads).unwrap_err();
        assert_eq!((started, error.raw_os_error()), (0, Some(libc::EINVAL)));
    }

    #[test]
    fn usage_is_counted() {
        let before = Usage::now();
        while Usage::now().since(&before).user < Duration::from_millis(5) {}
        std::thread::sleep(Duration::from_millis(1));
        let used = Usage::now().since(&before);
        assert!(used.switches_voluntary >= 1 && used.user < Duration::from_secs(60), "{used:?}");
    }
}
