//! The used share of the file descriptors.

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
    /// The share of `limit` in use with so many connections; `None` where there is no limit.
    pub(super) fn share(&mut self, limit: Option<u64>, connections: u64, now: Nanos) -> Option<f64> {
        let limit = limit?.max(1);
        let due = self.counted_at.is_none_or(|at| now.since(at) >= COUNT_EVERY);
        if due && connections <= COUNT_UP_TO {
            self.counted_at = Some(now);
            self.others = open_files().map_or(self.others, |open| open.saturating_sub(connections));
        }
        Some((connections + self.others) as f64 / limit as f64)
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
        let mut share =
            |connections, s: u64| files.share(Some(1_000_000), connections, Nanos(s * 1_000_000_000)).unwrap() * 1e6;
        let before = share(0, 100);
        assert!(before >= 3.0, "standard streams at least: {before}");
        assert!((share(2_000, 200) - before - 2_000.0).abs() < 1e-6, "not counted again among many");
        assert_eq!(Files::default().share(None, 7, Nanos(1)), None);
    }
}
