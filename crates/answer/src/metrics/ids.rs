//! Distinct ids per day.

use std::sync::atomic::{AtomicU32, Ordering};

use hotrow_measure::sketch::{SharedSketch, Sketch};

/// Sketches of the ids requested on two consecutive days; the day is an argument. One thread
/// writes, any thread reads.
#[derive(Debug)]
pub struct DistinctIds {
    /// A day's sketch is at the day's number modulo 2, so that a new day moves nothing.
    slots: [Slot; 2],
}

#[derive(Debug)]
struct Slot {
    day: AtomicU32,
    sketch: SharedSketch,
}

/// No day.
const UNUSED: u32 = u32::MAX;

impl Default for DistinctIds {
    fn default() -> Self {
        Self {
            slots: [(); 2]
                .map(|()| Slot { day: AtomicU32::new(UNUSED), sketch: SharedSketch::default() }),
        }
    }
}

impl DistinctIds {
    /// Records an id requested on `day` (days since 1970-01-01, UTC). `hash` is the id's, well
    /// distributed. Only for the writing thread.
    #[inline]
    pub fn note(&self, day: u32, hash: u64) {
        let slot = &self.slots[(day % 2) as usize];
        if slot.day.load(Ordering::Relaxed) != day {
            slot.begin(day);
        }
        slot.sketch.insert(hash);
    }

    /// Returns the sketch of `day`; `None` if it has none or precedes the newest day by more than
    /// one. For any thread.
    pub fn of_day(&self, day: u32) -> Option<Sketch> {
        let slot = &self.slots[(day % 2) as usize];
        let before = slot.day.load(Ordering::Acquire);
        let sketch = slot.sketch.snapshot();
        // A day that begins during the copy leaves it partly old, so the copy is discarded.
        std::sync::atomic::fence(Ordering::Acquire);
        (before == day && slot.day.load(Ordering::Relaxed) == day).then_some(sketch)
    }
}

impl Slot {
    #[cold]
    fn begin(&self, day: u32) {
        self.day.store(UNUSED, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release);
        self.sketch.clear();
        self.day.store(day, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fibonacci hashing: distinct inputs stay distinct and spread over the registers.
    fn hash(i: u64) -> u64 {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn days_are_separate_and_only_two_are_kept() {
        let ids = DistinctIds::default();
        assert_eq!(ids.of_day(20_000), None);
        (0..100).for_each(|i| ids.note(20_000, hash(i)));
        (0..40).for_each(|i| ids.note(20_001, hash(i)));
        let count = |day| ids.of_day(day).map(|sketch| sketch.estimate());
        assert!((95..=105).contains(&count(20_000).unwrap()));
        assert!((38..=42).contains(&count(20_001).unwrap()));
        ids.note(20_002, hash(7));
        assert_eq!((count(20_000), count(20_002)), (None, Some(1)));
        ids.note(20_009, hash(7));
        assert_eq!((count(20_001), count(20_008), count(20_009)), (None, None, Some(1)));
    }
}
