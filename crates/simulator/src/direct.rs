//! The database as scenarios use it whose writers have no time of their own: a transaction is
//! written in one step, and visible and returned in another.

use std::ops::RangeInclusive;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::Key;
use hotrow_types::version::ChangeId;

use crate::database::{Database, LogEntry, RowVersion, Target};
use crate::engine::{Engine, VisibilityOrder};
use crate::random::Random;
use crate::sink::key;
use crate::slab::SlabId;

impl Database {
    /// Creates an empty one of an engine of this name, with `ids` rows per collection.
    pub(crate) fn of(engine: &str, ids: usize) -> Self {
        let engine = Engine::named(engine).unwrap_or(crate::ENGINES[0]);
        Self::new(engine, ids, Nanos::ZERO, |_| None)
    }

    /// Returns the key of a row.
    pub(crate) fn key(&self, row: usize) -> Key {
        let collection = self.collection_of(row);
        key(collection, (row - self.rows_of(collection).start) as i64)
    }

    /// Returns the row of a key.
    pub(crate) fn row_of(&self, key: &Key) -> Option<usize> {
        self.rows_of(key.collection()).find(|row| self.key(*row) == *key)
    }

    /// Writes a transaction to the log. A writer waits for locks: their holders end first.
    pub(crate) fn write(
        &mut self,
        targets: &[Target],
        now: Nanos,
        state: impl FnMut(usize) -> Option<u16>,
    ) {
        let begun = self.begin(targets).or_else(|| {
            self.show_holders(targets, now);
            self.begin(targets)
        });
        // A transaction that began and has not reached the log holds the lock otherwise.
        let Some(id) = begun else { return };
        self.log_begun(id, now, state);
    }

    /// Makes the transactions of the log visible that hold locks of these objects.
    fn show_holders(&mut self, targets: &[Target], now: Nanos) {
        let rows: Vec<usize> = targets.iter().flat_map(|own| self.targets(*own)).collect();
        let holds = |id: &SlabId| {
            let changes = self.transactions.get(*id).map(|own| own.changes.iter());
            let mut held = changes.into_iter().flatten().flat_map(|own| self.targets(own.target));
            held.any(|row| rows.contains(&row))
        };
        let holders: Vec<SlabId> = self.hidden().into_iter().filter(holds).collect();
        holders.into_iter().for_each(|id| self.show(id, now));
    }

    /// Writes a transaction that began to the log; readers see it at once where the engine has it
    /// so.
    pub(crate) fn log_begun(
        &mut self,
        id: SlabId,
        now: Nanos,
        state: impl FnMut(usize) -> Option<u16>,
    ) {
        self.commit(id, state);
        if self.engine.visibility == VisibilityOrder::WithLog {
            self.show(id, now);
        }
    }

    /// Makes a transaction of the log visible, and returns its COMMIT.
    pub(crate) fn show(&mut self, id: SlabId, now: Nanos) {
        for id in self.make_visible(id, now) {
            self.returned(id, now);
        }
    }

    /// Returns the transactions of the log that readers do not see.
    pub(crate) fn hidden(&self) -> Vec<SlabId> {
        let is_hidden = |entry: &&LogEntry| !entry.is_visible;
        self.log.iter().filter(is_hidden).map(|entry| entry.transaction).collect()
    }

    pub(crate) fn show_all(&mut self, now: Nanos) {
        self.hidden().into_iter().for_each(|id| self.show(id, now));
    }

    /// Makes one of the hidden transactions visible.
    pub(crate) fn show_any(&mut self, random: &mut Random, now: Nanos) {
        let hidden = self.hidden();
        if !hidden.is_empty() {
            self.show(hidden[random.below(hidden.len())], now);
        }
    }

    /// Returns the mark of a commit in the log, by its number.
    pub(crate) fn mark(&self, number: u64) -> ChangeId {
        self.change_id(number, self.log[number as usize - 1].xid)
    }

    /// Returns the number of the last commit of a row that readers see; 0 without one.
    pub(crate) fn seen(&self, row: usize) -> u64 {
        self.version(row, self.visible(row)).place.map_or(0, |(_, number)| number)
    }

    /// Returns whether one of the commits of these numbers changed a row.
    pub(crate) fn has_commit(&self, row: usize, numbers: RangeInclusive<u64>) -> bool {
        let own = |version: &RowVersion| version.place.is_some_and(|own| numbers.contains(&own.1));
        self.histories[row].iter().any(own)
    }

    /// Returns the number of the version of a row that a read at `time` saw.
    pub(crate) fn version_at(&self, row: usize, time: Nanos) -> usize {
        self.newest(row, |version| version.visible_at <= time)
    }

    /// Returns the versions of a row that reads saw at some time of a span.
    pub(crate) fn versions_within(
        &self,
        row: usize,
        (from, to): (Nanos, Nanos),
    ) -> impl Iterator<Item = &RowVersion> {
        let first = self.version_at(row, from);
        (first..=self.visible(row))
            .map(move |version| self.version(row, version))
            .take_while(move |version| version.visible_at <= to)
    }

    /// Returns the transaction that holds the lock of an object and has not reached the log.
    pub(crate) fn begun(&self, target: Target) -> Option<SlabId> {
        let is_it = |id: &SlabId| {
            let transaction = self.transactions.get(*id);
            transaction.is_some_and(|own| {
                own.number == 0 && own.changes.iter().any(|change| change.target == target)
            })
        };
        self.transactions.ids().into_iter().find(is_it)
    }

    /// Returns the server that takes over, with the whole log. Clients do not know of it yet, nor
    /// of the commits that were under way.
    pub(crate) fn promoted(&self, now: Nanos) -> Self {
        let mut next = self.clone();
        for id in next.hidden() {
            next.make_visible(id, now);
        }
        next.end_begun();
        next.incarnation += 1;
        next
    }

    /// Ends the transactions that have not reached the log.
    pub(crate) fn end_begun(&mut self) {
        for id in self.transactions.ids() {
            if self.transactions.get(id).is_some_and(|own| own.number == 0) {
                self.roll_back(id);
            }
        }
    }

    /// Clients use this server from now on.
    pub(crate) fn open(&mut self, now: Nanos) {
        let is_open =
            |own: &&mut RowVersion| own.visible_at != Nanos::MAX && own.returned_at == Nanos::MAX;
        let versions = self.histories.iter_mut().flatten();
        versions.filter(is_open).for_each(|own| own.returned_at = now);
    }
}
