//! Fixed window: a number of units in each period, counted from its beginning. Around a window's
//! end up to twice as many may come within one period; a token bucket avoids that.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::sync::{AtomicU64, Ordering};
use super::value::{Period, Rate};
use super::{Decision, Policy};

/// A fixed window per key. A state is the window's number, 32 bits, and the count in it, 32 bits.
#[derive(Debug)]
pub struct FixedWindow {
    period: Period,
    /// Added to the clock before it is divided into windows.
    offset_ns: u64,
    limit: AtomicU64,
}

impl FixedWindow {
    /// Creates windows as long as the rate's period. They begin at multiples of it, counted from
    /// `offset_ns` before the clock's zero: with the wall clock's lead over the process's clock as
    /// offset, at whole seconds, minutes or hours (UTC).
    #[must_use]
    pub fn new(rate: Rate, offset_ns: u64) -> Self {
        Self { period: rate.period(), offset_ns, limit: AtomicU64::new(u64::from(rate.units())) }
    }

    /// Returns the units per window, as a rate.
    pub fn rate(&self) -> Rate {
        // Only limits of rates are stored.
        Rate::from_parts(self.limit.load(Ordering::Relaxed) as u32, self.period)
    }

    /// Sets the units of each window, the present one included. Returns whether that was possible:
    /// the length of windows that have begun cannot change.
    pub fn change(&self, rate: Rate) -> bool {
        let same = rate.period() == self.period;
        if same {
            self.limit.store(u64::from(rate.units()), Ordering::Relaxed);
        }
        same
    }

    /// Returns the window's number, and the time until it ends.
    fn window(&self, now: Nanos) -> (u64, Duration) {
        let at = now.0.saturating_add(self.offset_ns);
        let length = self.period.nanos();
        // Windows of a second since 1970 have 32 bits until 2106.
        ((at / length).min(u64::from(u32::MAX)), Duration::from_nanos(length - at % length))
    }
}

impl Policy for FixedWindow {
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>) {
        let (window, ends_after) = self.window(now);
        let of = state >> 32;
        let count = state & u64::from(u32::MAX);
        // Another thread's clock reading may be ahead of this one: its window is then the present
        // one.
        let (window, used) = if of >= window { (of, count) } else { (window, 0) };
        let limit = self.limit.load(Ordering::Relaxed);
        if cost > limit {
            return (Decision::TooLarge { most: limit }, None);
        }
        match limit.checked_sub(used + cost) {
            Some(remaining) => (
                Decision::Admitted { remaining },
                (cost > 0).then_some(window << 32 | (used + cost)),
            ),
            None => (Decision::Refused { retry_after: ends_after }, None),
        }
    }

    fn settled_after(&self, state: u64, now: Nanos) -> Duration {
        let (window, ends_after) = self.window(now);
        let counts = state >> 32 >= window && state & u64::from(u32::MAX) > 0;
        if counts { ends_after } else { Duration::ZERO }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::rate::Cell;

    const MS: u64 = 1_000_000;

    #[test]
    fn each_window_has_its_own_count_and_begins_at_a_multiple_of_its_length() {
        let window = FixedWindow::new("3/s".parse().unwrap(), 400 * MS);
        let cell = Cell::default();
        let at = |ms: u64| cell.decide(&window, 1, Nanos(ms * MS));
        assert_eq!(at(0), Decision::Admitted { remaining: 2 });
        assert_eq!(at(1), Decision::Admitted { remaining: 1 });
        assert_eq!(at(2), Decision::Admitted { remaining: 0 });
        assert_eq!(at(100), Decision::Refused { retry_after: Duration::from_millis(500) });
        assert_eq!(at(599), Decision::Refused { retry_after: Duration::from_millis(1) });
        assert_eq!(at(600), Decision::Admitted { remaining: 2 }, "the window ends at the grid");
        assert_eq!(
            at(598),
            Decision::Admitted { remaining: 1 },
            "an older reading counts in the newer window"
        );
        assert_eq!(window.settled_after(cell.state(), Nanos(700 * MS)), Duration::from_millis(900));
        assert_eq!(window.settled_after(cell.state(), Nanos(1600 * MS)), Duration::ZERO);
    }

    #[test]
    fn costs_fit_or_are_refused_and_take_nothing() {
        let window = FixedWindow::new("10/m".parse().unwrap(), 0);
        let cell = Cell::default();
        assert_eq!(cell.decide(&window, 11, Nanos(0)), Decision::TooLarge { most: 10 });
        assert_eq!(cell.decide(&window, 7, Nanos(0)), Decision::Admitted { remaining: 3 });
        assert!(matches!(cell.decide(&window, 4, Nanos(0)), Decision::Refused { .. }));
        assert_eq!(cell.decide(&window, 3, Nanos(0)), Decision::Admitted { remaining: 0 });
        assert_eq!(cell.decide(&window, u64::MAX, Nanos(0)), Decision::TooLarge { most: 10 });
    }

    #[test]
    fn a_windows_limit_changes_at_once_and_its_length_never() {
        let window = FixedWindow::new("5/m".parse().unwrap(), 0);
        let cell = Cell::default();
        assert_eq!(cell.decide(&window, 4, Nanos(0)), Decision::Admitted { remaining: 1 });
        assert!(window.change("3/m".parse().unwrap()));
        assert!(matches!(cell.decide(&window, 1, Nanos(0)), Decision::Refused { .. }));
        assert!(window.change("6/m".parse().unwrap()));
        assert_eq!(cell.decide(&window, 1, Nanos(0)), Decision::Admitted { remaining: 1 });
        assert!(!window.change("6/s".parse().unwrap()));
        assert_eq!(window.rate().to_string(), "6/m");
    }
}
