//! A count that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A single-writer counter: an increment is a plain load and store, without the locked instruction that a counter
/// shared between writers needs. Two writers at once lose increments; they do no other harm. Wraps at 2⁶⁴.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one. For the one thread that writes.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`. For the one thread that writes.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count at about this moment. For any thread.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_count_grow_and_end_right() {
        const N: u64 = 100_000;
        let counter = Counter::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..N).for_each(|_| counter.increment()));
            let mut last = 0;
            while !writer.is_finished() {
                let now = counter.get();
                assert!(now >= last);
                last = now;
            }
        });
        counter.add(5);
        assert_eq!(counter.get(), N + 5);
    }
}
