//! The two things that need `unsafe`: threads whose start can fail without a panic, and what the process has used.
//!
//! A thread of the standard library maps a guarded stack for signals after it has begun, and panics there when it cannot
//! (rust-lang/rust#78497): near a limit the process dies before anybody can say which limit it was.

#![allow(unsafe_code, reason = "pthreads and getrusage have no safe interface here; each call says why it is sound")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that is not joined yet. Until it is, its stack stays mapped, even when it has ended.
#[derive(Debug)]
pub(super) struct RawThread(libc::pthread_t);

impl RawThread {
    /// Starts a thread. A panic in `work` ends the process.
    ///
    /// # Errors
    /// What the system said; `work` is dropped.
    pub(super) fn spawn(stack_bytes: usize, work: Work) -> io::Result<Self> {
        // A thin pointer: that of a `dyn FnOnce` is two words.
        let argument = Box::into_raw(Box::new(work));
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: the attributes are used only after `pthread_attr_init` has succeeded, and destroyed once. `start` takes the
        // box that `argument` points to; it is whole, for `spawn` gives it away here and takes it back only on failure.
        let status = unsafe {
            match libc::pthread_attr_init(attributes.as_mut_ptr()) {
                0 => {
                    let mut status = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
                    if status == 0 {
                        status = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), start, argument.cast());
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

    /// Waits until it has ended, and gives its stack back.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn join(self) -> io::Result<()> {
        // SAFETY: the id is of a thread that was started joinable, and joining takes `self`, so it happens once.
        match unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            status => Err(io::Error::from_raw_os_error(status)),
        }
    }
}

/// Has so many threads together, looks, and lets them end.
///
/// # Errors
/// How many there were when the system refused the next one, and what it said.
pub(super) fn together<T>(count: u64, stack_bytes: usize, look: impl FnOnce() -> T) -> Result<T, (u64, io::Error)> {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    // Nothing else is to be mapped meanwhile.
    let mut threads = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let started: Result<(), (u64, io::Error)> = (0..count).try_for_each(|started| {
        let gate = gate.clone();
        let wait = move || {
            let mut open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*open {
                open = gate.1.wait(open).unwrap_or_else(PoisonError::into_inner);
            }
        };
        threads.push(RawThread::spawn(stack_bytes, Box::new(wait)).map_err(|error| (started, error))?);
        Ok(())
    });
    let seen = started.map(|()| look());
    *gate.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    gate.1.notify_all();
    // One that cannot be joined has only this to do.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    seen
}

/// Where a thread begins.
extern "C" fn start(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `argument` is the box that `RawThread::spawn` gave away for this thread alone.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}

/// What this process has used until now, all its threads together, those that have ended too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) switches_voluntary: u64,
    pub(super) switches_involuntary: u64,
}

impl Usage {
    /// Asks the kernel.
    pub(super) fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `getrusage` writes into a struct of its own type; all zeros are a valid value of it, should it fail.
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

    /// What was used since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self.switches_involuntary.saturating_sub(earlier.switches_involuntary),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn threads_do_their_work_and_a_stack_that_is_too_small_is_refused() {
        let done = Arc::new(AtomicU32::new(0));
        let work = |done: &Arc<AtomicU32>| -> Work {
            let done = done.clone();
            Box::new(move || {
                done.fetch_add(1, SeqCst);
            })
        };
        let threads: Vec<RawThread> = (0..20).map(|_| RawThread::spawn(64 << 10, work(&done)).unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(SeqCst), 20);
        assert_eq!(RawThread::spawn(1, work(&done)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(Arc::strong_count(&done), 1, "what no thread took is dropped");
    }

    #[test]
    fn threads_are_there_together_and_a_refusal_is_told() {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(together(16, 64 << 10, threads).unwrap() > 16);
        let (started, error) = together(3, 1, threads).unwrap_err();
        assert_eq!((started, error.raw_os_error()), (0, Some(libc::EINVAL)));
    }

    #[test]
    fn what_is_used_is_counted() {
        let before = Usage::now();
        while Usage::now().since(&before).user < Duration::from_millis(5) {}
        std::thread::sleep(Duration::from_millis(1));
        let used = Usage::now().since(&before);
        assert!(used.switches_voluntary >= 1 && used.user < Duration::from_secs(60), "{used:?}");
    }
}
