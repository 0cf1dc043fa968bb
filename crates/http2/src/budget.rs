//! Bound on what a client may repeat: so many at once, so many per second, and one for each answer.

/// A count that is filled up again by time. The clock is not read: most connections never use one
/// up.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u32,
    burst: u32,
    per_s: u32,
    filled_ns: u64,
}

impl Budget {
    /// Creates a full budget at `now_ns`.
    #[must_use]
    pub fn new(burst: u32, per_s: u32, now_ns: u64) -> Self {
        Self { left: burst, burst, per_s, filled_ns: now_ns }
    }

    /// Adds one, unless it is full.
    pub fn give(&mut self) {
        self.left = (self.left + 1).min(self.burst);
    }

    /// Takes one of it. Returns `false` when none is left at `now_ns`.
    #[must_use]
    pub fn take(&mut self, now_ns: u64) -> bool {
        const NS_PER_S: u64 = 1_000_000_000;
        if self.left == 0 {
            let interval_ns = NS_PER_S / u64::from(self.per_s.max(1));
            let due = now_ns.saturating_sub(self.filled_ns) / interval_ns;
            self.left = u32::try_from(due).unwrap_or(u32::MAX).min(self.burst);
            self.filled_ns = now_ns;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn taken(budget: &mut Budget, now_ns: u64) -> usize {
        (0..10_000).take_while(|_| budget.take(now_ns)).count()
    }

    #[test]
    fn a_budget_allows_a_burst_and_then_so_many_per_second() {
        let mut budget = Budget::new(1_000, 100, SECOND_NS);
        assert_eq!(taken(&mut budget, SECOND_NS), 1_000);
        assert_eq!(taken(&mut budget, 3 * SECOND_NS), 200);
        assert_eq!(taken(&mut budget, 3 * SECOND_NS), 0);
        assert_eq!(taken(&mut budget, 1_000 * SECOND_NS), 1_000, "no more than at once");
        budget.give();
        assert_eq!(taken(&mut budget, 1_000 * SECOND_NS), 1);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut budget = Budget::new(1, 1, 5 * SECOND_NS);
        assert!(budget.take(5 * SECOND_NS));
        assert!(!budget.take(SECOND_NS));
    }
}
