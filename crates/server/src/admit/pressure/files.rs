//! The used share of the file descriptors.
//!
//! Clients' connections have a budget (`limits.connections`), which was fitted to the limit at start and which idle ones may fill:
//! they are closed when others need their places. So what presses is not that budget, but whatever eats into it: the other
//! descriptors where they grow beyond what the budget leaves them, or everything where the limit was lowered since.

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::process::{Resource, getrlimit};

/// Descriptors that are not clients' connections change seldom; they are counted so often.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// With more connections than this counting costs too much, and what was counted last stands.
const COUNT_UP_TO: u64 = 1_000;

/// Connections are counted by the workers; the others (listeners, event loops, the database's) here, by listing them.
#[derive(Debug, Default)]
pub(super) struct Files {
    others: u64,
    counted_at: Option<Nanos>,
}

/// The limit in force now: others may change it while we run.
pub(super) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

impl Files {
    /// The share of `limit` in use with so many connections, of which `budget` may be open; `None` where there is no limit.
    ///
    /// The smaller of two shares, for either proves that there is room: of all descriptors, and of those beyond the budget.
    pub(super) fn share(&mut self, limit: Option<u64>, connections: u64, budget: u64, now: Nanos) -> Option<f64> {
        let limit = limit?.max(1);
        let due = self.counted_at.is_none_or(|at| now.since(at) >= COUNT_EVERY);
        if due && connections <= COUNT_UP_TO {
            self.counted_at = Some(now);
            self.others = open_files().map_or(self.others, |open| open.saturating_sub(connections));
        }
        let of_all = (connections + self.others) as f64 / limit as f64;
        let beyond = limit.saturating_sub(budget);
        Some(if beyond > 0 { of_all.min(self.others as f64 / beyond as f64) } else { of_all })
    }
}

/// Descriptors open now, the one that looks not among them.
fn open_files() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(listed.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_to_what_was_counted() {
        let mut files = Files::default();
        let mut share = |connections, s: u64| {
            files.share(Some(1_000_000), connections, 1_000_000, Nanos(s * 1_000_000_000)).unwrap() * 1e6
        };
        let before = share(0, 100);
        assert!(before >= 3.0, "standard streams at least: {before}");
        assert!((share(2_000, 200) - before - 2_000.0).abs() < 1e-6, "not counted again among many");
        assert_eq!(Files::default().share(None, 7, 10, Nanos(1)), None);
    }

    #[test]
    fn connections_within_their_budget_do_not_press_and_what_eats_into_it_does() {
        let of = |others, limit, connections, budget| {
            // Just counted, so that this process's own descriptors play no part.
            let mut files = Files { others, counted_at: Some(Nanos(1)) };
            files.share(Some(limit), connections, budget, Nanos(1)).unwrap()
        };
        // An ordinary limit: idle connections fill what was fitted to it.
        assert!(of(30, 10_240, 9_888, 9_888) < 0.1);
        assert!(of(330, 10_240, 0, 9_888) < 0.1, "and the others may borrow from it while it is free");
        assert!(of(330, 10_240, 9_700, 9_888) > 0.9, "but not while it is taken");
        // The limit was lowered below the budget: all that is open counts.
        assert!((of(30, 1_000, 870, 9_888) - 0.9).abs() < 1e-9);
    }
}
