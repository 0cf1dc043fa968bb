//! The locks of the models' queues, so that tests can run them under shuttle's scheduler.

use std::sync::PoisonError;

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// Locks. A thread that panicked with the lock has left the state whole: nothing in these modules panics half-way.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock away until the condition is told; may return without that.
pub(super) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
