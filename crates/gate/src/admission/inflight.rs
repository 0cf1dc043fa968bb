//! Requests in flight that wait for the database or the feed: a bounded count of all, and one of
//! those that bypass memory. A hit never waits and does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hotrow_answer::http_error::HttpError;
use hotrow_config::Limits;

/// Both counts.
#[derive(Debug)]
pub struct InflightLimits {
    /// Requests waiting for the database or the feed.
    pub waiting: Gauge,
    /// Those of them with `no-cache` or `Hotrow-Min-Position`.
    pub privileged: Gauge,
}

impl InflightLimits {
    /// Creates bounds without waiting requests.
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            waiting: Gauge::new(limits.requests_in_flight),
            privileged: Gauge::new(limits.privileged_waiters),
        })
    }

    /// Puts other limits in force, for requests that come.
    pub fn set(&self, limits: &Limits) {
        self.waiting.max.store(limits.requests_in_flight, Ordering::Relaxed);
        self.privileged.max.store(limits.privileged_waiters, Ordering::Relaxed);
    }

    /// Takes a place, and a privileged one too if the request bypasses memory.
    ///
    /// # Errors
    /// [`HttpError::Overloaded`] when all are taken.
    pub fn enter(self: &Arc<Self>, privileged: bool) -> Result<InflightGuard, HttpError> {
        if !self.waiting.enter() {
            return Err(HttpError::Overloaded("too many requests are waiting for the database"));
        }
        let mut place = InflightGuard { limits: Arc::clone(self), privileged: false };
        if privileged {
            place.privileged = self.privileged.enter();
            if !place.privileged {
                return Err(HttpError::Overloaded(
                    "too many requests with no-cache or Hotrow-Min-Position are waiting",
                ));
            }
        }
        Ok(place)
    }
}

/// Bounded count of waiting requests. Written only by requests that wait anyway, never by a hit; on
/// cache lines of its own, so that it does not take a line from neighbours that hits read.
#[derive(Debug)]
#[repr(align(128))]
pub struct Gauge {
    now: AtomicUsize,
    max: AtomicUsize,
    refused: AtomicU64,
}

impl Gauge {
    fn new(max: usize) -> Self {
        Self { now: AtomicUsize::new(0), max: AtomicUsize::new(max), refused: AtomicU64::new(0) }
    }

    /// Returns how many wait now.
    pub fn get(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns how many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn enter(&self) -> bool {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        let is_free = before < self.max.load(Ordering::Relaxed);
        if !is_free {
            self.leave();
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_free
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiting request's place in the counts; returned when dropped.
#[derive(Debug)]
pub struct InflightGuard {
    limits: Arc<InflightLimits>,
    privileged: bool,
}

impl Drop for InflightGuard {
    fn drop(&mut self) {
        self.limits.waiting.leave();
        if self.privileged {
            self.limits.privileged.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_returned() {
        let limits = Arc::new(InflightLimits { waiting: Gauge::new(2), privileged: Gauge::new(1) });
        let counts = || (limits.waiting.get(), limits.privileged.get());
        let first = limits.enter(true).unwrap();
        assert_eq!(counts(), (1, 1));
        assert!(limits.enter(true).is_err());
        assert_eq!(counts(), (1, 1), "a refused request keeps neither place");
        let _second = limits.enter(false).unwrap();
        assert!(limits.enter(false).is_err());
        drop(first);
        assert_eq!(counts(), (1, 0));
        assert_eq!((limits.waiting.refused(), limits.privileged.refused()), (1, 1));
    }
}
