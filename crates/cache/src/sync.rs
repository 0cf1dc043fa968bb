//! The locks and atomics of this crate, so that tests can run them under shuttle's scheduler.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::MutexGuard;

/// shuttle's mutex with the signature of `parking_lot`'s.
#[cfg(feature = "shuttle")]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "shuttle")]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        // A poisoned lock means that a test already failed in another thread.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// shuttle's lock of readers and writers with the signature of `parking_lot`'s.
#[cfg(feature = "shuttle")]
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

#[cfg(feature = "shuttle")]
impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
