//! Calls and failures in a sliding window, in a fixed number of slots.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Slots of the window; it slides by one at a time.
const SLOTS: u64 = 10;

/// Counts over a sliding window: the present slot and the nine before it, so between nine tenths
/// and all of its length.
#[derive(Debug)]
pub(super) struct Window {
    slot_ns: u64,
    slots: [Slot; SLOTS as usize],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of the slot since time zero; its index in the ring is this modulo the number of
    /// slots.
    number: u64,
    calls: u32,
    failures: u32,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        let slot_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / SLOTS;
        Self { slot_ns: slot_ns.max(1), slots: Default::default() }
    }

    /// Counts one call.
    pub(super) fn note(&mut self, failed: bool, now: Nanos) {
        let number = now.0 / self.slot_ns;
        let slot = &mut self.slots[(number % SLOTS) as usize];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        slot.calls = slot.calls.saturating_add(1);
        slot.failures = slot.failures.saturating_add(u32::from(failed));
    }

    /// Returns failures and calls in the window that ends at `now`.
    pub(super) fn sum(&self, now: Nanos) -> (u32, u32) {
        let number = now.0 / self.slot_ns;
        let recent = self.slots.iter().filter(|slot| number.saturating_sub(slot.number) < SLOTS);
        recent.fold((0, 0), |(failures, calls), slot| {
            (failures.saturating_add(slot.failures), calls.saturating_add(slot.calls))
        })
    }

    pub(super) fn clear(&mut self) {
        self.slots = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_older_than_the_window_are_forgotten() {
        let mut window = Window::new(Duration::from_secs(10));
        let at = |s: u64| Nanos(s * 1_000_000_000);
        window.note(true, at(100));
        window.note(false, at(105));
        window.note(true, at(109));
        assert_eq!(window.sum(at(109)), (2, 3));
        assert_eq!(window.sum(at(110)), (1, 2), "the slot of 100 has left");
        window.note(false, at(110));
        assert_eq!(window.sum(at(110)), (1, 3), "its place in the ring is used again");
        assert_eq!(window.sum(at(1000)), (0, 0));
        window.clear();
        assert_eq!(window.sum(at(110)), (0, 0));
    }

    #[test]
    fn a_window_of_zero_length_counts_too() {
        let mut window = Window::new(Duration::ZERO);
        window.note(true, Nanos(7));
        assert_eq!(window.sum(Nanos(7)), (1, 1));
    }
}
