//! A counter that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A single-writer counter: an increment is a plain load and store, without the locked instruction
/// of a counter with several writers. Two concurrent writers lose increments and do no other harm.
/// Wraps at 2⁶⁴.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one. Only the writing thread may call this.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`. Only the writing thread may call this.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Returns the approximate current count. Any thread may call this.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_count_grow_to_the_exact_end() {
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
