//! Pruning of the log: deletes rows that were delivered long ago, a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::Position;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::config::Tuning;
use super::log::read_log;
use super::names::{LOG_TABLE, META_TABLE, quote};
use super::shared::{Counted, Shared};
use hotrow_supervisor::{self as supervisor, shutdown::Shutdown};

/// Pruner of one database's log.
pub(crate) struct Pruner {
    shared: Arc<Shared>,
    tuning: Tuning,
}

impl Pruner {
    pub(crate) fn new(shared: Arc<Shared>, tuning: Tuning) -> Self {
        Self { shared, tuning }
    }
}

/// Prunes at intervals until `shutdown`.
pub(crate) fn run(pruner: &Pruner, shutdown: &Shutdown) {
    let mut history = DeliveryHistory::default();
    let mut next = Nanos::now();
    while shutdown.pause(next.since(Nanos::now())) {
        supervisor::turn();
        let now = Nanos::now();
        next = now.after(pruner.tuning.prune_every);
        if let Some(delivered) = pruner.shared.delivered() {
            history.record(now, delivered);
            if let Some(old) = history.older_than(now.before(pruner.tuning.prune_after)) {
                pruner.prune_to(old, shutdown);
            }
        }
    }
}

impl Pruner {
    fn prune_to(&self, old: Position, shutdown: &Shutdown) {
        if let Err(detail) = self.try_prune_to(old, shutdown) {
            tracing::warn!(%detail, "the change log was not pruned; the next round tries again");
        }
    }

    fn try_prune_to(&self, old: Position, shutdown: &Shutdown) -> Result<(), String> {
        // Without a database there is nothing to prune; the feed reports that.
        let Ok(plan) = self.shared.published.plan() else { return Ok(()) };
        let counted = Counted::open(&self.shared, &plan, self.tuning.prune_busy)?;
        let conn = &counted.conn;
        // A pruning step undone by a power failure is repeated later.
        conn.pragma_update(None, "synchronous", "NORMAL").map_err(|e| e.to_string())?;
        loop {
            let progress =
                prune_some(conn, old, self.tuning.prune_rows).map_err(|e| e.to_string())?;
            if progress == Progress::Done || !shutdown.pause(self.tuning.prune_busy) {
                return Ok(());
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// Deletes up to `rows_max` rows that are not newer than `old`. It never deletes the last row,
/// which holds the log's end.
fn prune_some(conn: &Connection, old: Position, rows_max: u64) -> rusqlite::Result<Progress> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let Some(log) = read_log(&tx)?.filter(|log| log.end.incarnation == old.incarnation) else {
        return Ok(Progress::Done);
    };
    let table = quote(LOG_TABLE);
    let meta = quote(META_TABLE);
    let goal = old.at.min(log.end.at.saturating_sub(1));
    let to = goal.min(log.pruned_to.saturating_add(rows_max));
    if to <= log.pruned_to {
        return Ok(Progress::Done);
    }
    // The mark first: rows deleted without it give the log a new id. One transaction, so that
    // another instance sees the gap with the first read that misses the rows.
    tx.execute(
        &format!("UPDATE main.{meta} SET pruned_to = max(pruned_to, ?1) WHERE id = 1"),
        [to.cast_signed()],
    )?;
    tx.execute(&format!("DELETE FROM main.{table} WHERE seq <= ?1"), [to.cast_signed()])?;
    tx.commit()?;
    Ok(if to < goal { Progress::More } else { Progress::Done })
}

/// History of delivered positions with their times. The log itself has no times, which spares every
/// writer a clock read.
#[derive(Debug, Default)]
struct DeliveryHistory {
    deliveries: VecDeque<(Nanos, Position)>,
}

impl DeliveryHistory {
    fn record(&mut self, now: Nanos, delivered: Position) {
        if self.deliveries.back().is_some_and(|(_, last)| last.incarnation != delivered.incarnation)
        {
            self.deliveries.clear();
        }
        self.deliveries.push_back((now, delivered));
    }

    /// Returns the newest position delivered at `limit` or before, and forgets older ones.
    /// Therefore only as many rounds are kept as fit between `prune_every` and `prune_after`.
    fn older_than(&mut self, limit: Nanos) -> Option<Position> {
        let old = self.deliveries.partition_point(|(at, _)| *at <= limit);
        self.deliveries.drain(..old.saturating_sub(1));
        self.deliveries.front().filter(|(at, _)| *at <= limit).map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positions_delivered_long_ago_are_old() {
        let p = |incarnation, at| Position { incarnation, at };
        let mut history = DeliveryHistory::default();
        assert_eq!(history.older_than(Nanos(99)), None);
        for at in 1..=5 {
            history.record(Nanos(at * 10), p(1, at * 100));
        }
        assert_eq!(history.older_than(Nanos(9)), None);
        assert_eq!(history.older_than(Nanos(30)), Some(p(1, 300)));
        assert_eq!(history.deliveries.len(), 3);
        assert_eq!(history.older_than(Nanos(39)), Some(p(1, 300)));
        // Positions of another log are not comparable, so the history starts again.
        history.record(Nanos(60), p(2, 7));
        assert_eq!(history.older_than(Nanos(59)), None);
        assert_eq!(history.older_than(Nanos(60)), Some(p(2, 7)));
    }
}
