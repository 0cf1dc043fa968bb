//! Locks of the models' queues, replaceable by shuttle's in tests.

use std::sync::PoisonError;

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// Locks. After a panic the state is still consistent: nothing in these modules panics in
/// mid-update.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, releasing the lock; may return without one.
pub(super) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
