//! The locks and atomics of the limiters, so that tests can run them under shuttle's scheduler.

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(feature = "shuttle"))]
pub(super) use parking_lot::Mutex;

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::atomic::{AtomicU64, Ordering, fence};

/// shuttle's mutex with the signature of `parking_lot`'s.
#[cfg(feature = "shuttle")]
#[derive(Debug, Default)]
pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "shuttle")]
impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        // A poisoned lock means that a test already failed in another thread.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
