//! A few numbers that many threads read together and few change together.

use super::sync::{AtomicU64, Mutex, Ordering, fence};

/// `N` numbers. Readers take no lock and never wait: they copy the side named by the version, and
/// repeat only if two changes intervened.
#[derive(Debug)]
pub(super) struct Snapshot<const N: usize> {
    version: AtomicU64,
    /// The present numbers are at the version modulo 2; the other side is the next change's.
    sides: [[AtomicU64; N]; 2],
    changing: Mutex<()>,
}

impl<const N: usize> Snapshot<N> {
    pub(super) fn new(numbers: [u64; N]) -> Self {
        let side = || numbers.map(AtomicU64::new);
        Self { version: AtomicU64::new(0), sides: [side(), side()], changing: Mutex::new(()) }
    }

    #[inline]
    pub(super) fn read(&self) -> [u64; N] {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let side = &self.sides[(version % 2) as usize];
            let numbers = std::array::from_fn(|i| side[i].load(Ordering::Relaxed));
            // Pairs with the fence in `change`: a number of a later change is seen with that
            // change's version.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return numbers;
            }
        }
    }

    /// Replaces the numbers by the result of `change`.
    pub(super) fn change(&self, change: impl FnOnce([u64; N]) -> [u64; N]) {
        let _changing = self.changing.lock();
        let version = self.version.load(Ordering::Relaxed);
        let side = |version: u64| &self.sides[(version % 2) as usize];
        let before = std::array::from_fn(|i| side(version)[i].load(Ordering::Relaxed));
        fence(Ordering::Release);
        side(version + 1)
            .iter()
            .zip(change(before))
            .for_each(|(to, number)| to.store(number, Ordering::Relaxed));
        self.version.store(version + 1, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn readers_never_see_half_a_change() {
        let snapshot = Snapshot::new([0_u64; 3]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..20_000).for_each(|_| snapshot.change(|[a, b, c]| [a + 1, b + 2, c + 3]))
            });
            let mut last = 0;
            while !writer.is_finished() {
                let [a, b, c] = snapshot.read();
                assert_eq!((2 * a, 3 * a), (b, c));
                assert!(a >= last);
                last = a;
            }
        });
        assert_eq!(snapshot.read(), [20_000, 40_000, 60_000]);
    }
}
