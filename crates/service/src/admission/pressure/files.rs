//! Used share of the file descriptors.
//!
//! Clients' connections have a budget (`limits.connections`), fitted to the limit at start, that
//! idle ones may fill: they are closed when others need their places. So pressure is not a full
//! budget but anything beyond its share: other descriptors beyond the rest, or everything after
//! the limit was lowered.

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::process::{Resource, getrlimit};

/// Interval of counting descriptors other than clients' connections, which change rarely.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Number of connections above which counting costs too much; the last count then stays valid.
const COUNT_UP_TO: u64 = 1_000;

/// Workers count the connections; the others (listeners, event loops, the database's) are listed
/// here.
#[derive(Debug, Default)]
pub(crate) struct Files {
    others: u64,
    counted_at: Option<Nanos>,
}

/// Returns the limit in force; it may change at run time.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

impl Files {
    /// Returns the share of `limit` in use with `connections` open connections, of which `budget`
    /// may be open; `None` without a limit.
    ///
    /// The smaller of two shares, because either proves that there is room: of all descriptors, and
    /// of those beyond the budget.
    pub(crate) fn share(
        &mut self,
        limit: Option<u64>,
        connections: u64,
        budget: u64,
        now: Nanos,
    ) -> Option<f64> {
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

/// Returns the number of open descriptors, without the one used for listing.
fn open_files() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(listed.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_to_the_last_count() {
        let mut files = Files::default();
        let mut share = |connections, s: u64| {
            files.share(Some(1_000_000), connections, 1_000_000, Nanos(s * 1_000_000_000)).unwrap()
                * 1e6
        };
        let before = share(0, 100);
        assert!(before >= 3.0, "standard streams at least: {before}");
        assert!(
            (share(2_000, 200) - before - 2_000.0).abs() < 1e-6,
            "not counted again among many"
        );
        assert_eq!(Files::default().share(None, 7, 10, Nanos(1)), None);
    }

    #[test]
    fn only_descriptors_beyond_the_connection_budget_count_as_pressure() {
        let of = |others, limit, connections, budget| {
            // Just counted, so that this process's own descriptors play no part.
            let mut files = Files { others, counted_at: Some(Nanos(1)) };
            files.share(Some(limit), connections, budget, Nanos(1)).unwrap()
        };
        // An ordinary limit: idle connections fill the budget.
        assert!(of(30, 10_240, 9_888, 9_888) < 0.1);
        assert!(
            of(330, 10_240, 0, 9_888) < 0.1,
            "and the others may borrow from it while it is free"
        );
        assert!(of(330, 10_240, 9_700, 9_888) > 0.9, "but not while it is taken");
        // The limit was lowered below the budget: every descriptor counts.
        assert!((of(30, 1_000, 870, 9_888) - 0.9).abs() < 1e-9);
    }
}
