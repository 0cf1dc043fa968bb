//! Pruning: rows of the log that were delivered long ago go, a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotrow_cache::version::Position;
use hotrow_measure::clock::Nanos;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::log::read_log;
use super::names::{LOG_TABLE, META_TABLE, quote};
use super::shared::{Counted, Shared};
use super::tuning::Tuning;

/// What pruning needs to know.
pub(crate) struct Pruner {
    shared: Arc<Shared>,
    tuning: Tuning,
}

impl Pruner {
    pub(crate) fn new(shared: Arc<Shared>, tuning: Tuning) -> Self {
        Self { shared, tuning }
    }
}

/// Prunes every now and then until `shutdown` is set; the thread may be unparked to see that sooner.
pub(crate) fn run(pruner: &Pruner, shutdown: &AtomicBool) {
    let mut memory = Memory::default();
    let mut next = Nanos::now();
    while !shutdown.load(Ordering::Relaxed) {
        let now = Nanos::now();
        if now < next {
            std::thread::park_timeout(next.since(now));
            continue;
        }
        next = now.after(pruner.tuning.prune_every);
        if let Some(delivered) = pruner.shared.delivered() {
            memory.note(now, delivered);
            if let Some(old) = memory.older_than(now.before(pruner.tuning.prune_after)) {
                pruner.prune_to(old, shutdown);
            }
        }
    }
}

impl Pruner {
    fn prune_to(&self, old: Position, shutdown: &AtomicBool) {
        if let Err(detail) = self.try_prune_to(old, shutdown) {
            tracing::warn!(%detail, "the change log was not pruned; the next round tries again");
        }
    }

    fn try_prune_to(&self, old: Position, shutdown: &AtomicBool) -> Result<(), String> {
        // Without a database there is nothing to prune, and the feed tells about that.
        let Ok(plan) = self.shared.plan() else { return Ok(()) };
        let counted = Counted::open(&self.shared, &plan, self.tuning.prune_busy)?;
        let conn = &counted.conn;
        // Should a power failure undo it, it is done again.
        conn.pragma_update(None, "synchronous", "NORMAL").map_err(|e| e.to_string())?;
        while !shutdown.load(Ordering::Relaxed) {
            match prune_some(conn, old, self.tuning.prune_rows).map_err(|e| e.to_string())? {
                Progress::More => std::thread::sleep(self.tuning.prune_busy),
                Progress::Done => break,
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// Deletes up to `rows_max` rows that are not newer than `old`, and never the last one: it tells the log's end.
fn prune_some(conn: &Connection, old: Position, rows_max: u64) -> rusqlite::Result<Progress> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let Some(log) = read_log(&tx)?.filter(|log| log.end.incarnation == old.incarnation) else {
        return Ok(Progress::Done);
    };
    let (table, meta) = (quote(LOG_TABLE), quote(META_TABLE));
    let goal = old.at.min(log.end.at.saturating_sub(1));
    let to = goal.min(log.pruned_to.saturating_add(rows_max));
    if to <= log.pruned_to {
        return Ok(Progress::Done);
    }
    // First the mark: rows deleted without it give the log a new id. In one transaction, so that another instance sees
    // the gap with the first read that misses the rows.
    tx.execute(&format!("UPDATE main.{meta} SET pruned_to = max(pruned_to, ?1) WHERE id = 1"), [to.cast_signed()])?;
    tx.execute(&format!("DELETE FROM main.{table} WHERE seq <= ?1"), [to.cast_signed()])?;
    tx.commit()?;
    Ok(if to < goal { Progress::More } else { Progress::Done })
}

/// Remembers when the feed was where. The log itself has no times in it, which spares every writer a clock read.
#[derive(Debug, Default)]
struct Memory {
    seen: VecDeque<(Nanos, Position)>,
}

impl Memory {
    fn note(&mut self, now: Nanos, delivered: Position) {
        if self.seen.back().is_some_and(|(_, last)| last.incarnation != delivered.incarnation) {
            self.seen.clear();
        }
        self.seen.push_back((now, delivered));
    }

    /// The newest position that was delivered at `limit` or before. What lies before it is forgotten, so that only
    /// as many rounds are kept as fit between `prune_every` and `prune_after`.
    fn older_than(&mut self, limit: Nanos) -> Option<Position> {
        let old = self.seen.partition_point(|(at, _)| *at <= limit);
        self.seen.drain(..old.saturating_sub(1));
        self.seen.front().filter(|(at, _)| *at <= limit).map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_delivered_long_ago_is_old() {
        let p = |incarnation, at| Position { incarnation, at };
        let mut memory = Memory::default();
        assert_eq!(memory.older_than(Nanos(99)), None);
        for at in 1..=5 {
            memory.note(Nanos(at * 10), p(1, at * 100));
        }
        assert_eq!(memory.older_than(Nanos(9)), None);
        assert_eq!(memory.older_than(Nanos(30)), Some(p(1, 300)));
        assert_eq!(memory.seen.len(), 3);
        assert_eq!(memory.older_than(Nanos(39)), Some(p(1, 300)));
        // Another log: what is known of the old one says nothing.
        memory.note(Nanos(60), p(2, 7));
        assert_eq!(memory.older_than(Nanos(59)), None);
        assert_eq!(memory.older_than(Nanos(60)), Some(p(2, 7)));
    }
}
