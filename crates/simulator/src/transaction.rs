//! Writers: transactions from their beginning to the answer to COMMIT.

use std::time::Duration;

use hotrow_source::FlushCause;
use hotrow_types::key::CollectionId;

use crate::database::{COLLECTIONS, Target};
use crate::engine::{SchemaChanges, VisibilityOrder};
use crate::queue::Event;
use crate::slab::SlabId;
use crate::world::World;

/// Most rows of one transaction.
const ROWS_MAX: usize = 4;

impl World {
    /// Begins a transaction, unless a lock is held that it needs, and schedules the next one.
    pub(crate) fn begin(&mut self) {
        if self.is_quiet {
            return;
        }
        let next = self.random.latency(self.settings.typical.transactions);
        self.schedule(next, Event::Begin);
        if self.database.is_down {
            return;
        }
        let targets = self.targets();
        let Some(id) = self.database.begin(&targets) else { return };
        self.counts.transactions += 1;
        let after = self.random.latency(self.settings.typical.transaction);
        self.schedule(after, Event::Commit(id));
    }

    fn targets(&mut self) -> Vec<Target> {
        if self.random.one_in(48) {
            let collection = CollectionId(self.random.below(usize::from(COLLECTIONS)) as u16);
            let in_log = self.settings.engine.schema == SchemaChanges::InLog;
            let cause =
                if in_log && self.random.one_in(2) { FlushCause::Schema } else { FlushCause::Bulk };
            return vec![Target::Collection(collection, cause)];
        }
        let rows = self.database.rows();
        let count = if self.random.one_in(3) { 1 + self.random.below(ROWS_MAX) } else { 1 };
        let mut targets: Vec<Target> = Vec::with_capacity(count);
        for _ in 0..count {
            let target = Target::Row(self.random.skewed(rows));
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }

    /// Writes a transaction to the log, or rolls it back.
    pub(crate) fn commit(&mut self, id: SlabId) {
        let Some(transaction) = self.database.transactions.get(id) else { return };
        let is_bulk = transaction
            .changes
            .iter()
            .any(|change| matches!(change.target, Target::Collection(..)));
        if self.database.is_down || self.random.one_in(16) {
            self.counts.rollbacks += 1;
            return self.database.roll_back(id);
        }
        self.counts.commits += 1;
        self.counts.bulk_changes += u64::from(is_bulk);
        let random = &mut self.random;
        self.database.commit(id, |_| (!random.one_in(4)).then_some(0));
        if self.settings.engine.visibility == VisibilityOrder::WithLog {
            self.visible(id);
        } else {
            self.counts.hidden_commits += 1;
            // Now and then a commit waits long for another server (Race B).
            let after = match self.random.below(40) {
                0 if self.has_faults => self.random.up_to(self.settings.cache.max_staleness * 2),
                _ => self.random.latency(self.settings.typical.visibility),
            };
            self.schedule(after, Event::Visible(id));
        }
        self.log_grew();
    }

    /// A commit becomes visible, where no earlier one holds it back.
    pub(crate) fn visible(&mut self, id: SlabId) {
        for id in self.database.make_visible(id, self.now) {
            let after = self.random.latency(self.settings.typical.answer);
            self.schedule(after, Event::Returned(id));
        }
    }

    /// COMMIT returned: what it changed is due from now on. Its writer may read it at once.
    pub(crate) fn returned(&mut self, id: SlabId) {
        let rows = self.database.returned(id, self.now);
        let Some(&row) = rows.first() else { return };
        if self.settings.engine.has_positions() && !self.is_quiet && self.random.one_in(4) {
            let session = self.random.below(self.sessions.len());
            self.sessions[session] = Some(self.database.position(self.database.end()));
            self.request_at_least(session, row);
        }
    }

    /// Changes the shape of a table where only the catalogue shows it.
    pub(crate) fn change_shape(&mut self) {
        let collection = CollectionId(self.random.below(usize::from(COLLECTIONS)) as u16);
        if self.database.change_shape(collection, self.now) {
            self.counts.schema_changes += 1;
        }
    }

    /// Takes a collection out of the publication for a while.
    pub(crate) fn withdraw(&mut self, lasts: Duration) {
        let collection = CollectionId(self.random.below(usize::from(COLLECTIONS)) as u16);
        let c = usize::from(collection.0);
        if self.database.is_published[c] {
            self.database.is_published[c] = false;
            self.database.withdrawals[c] += 1;
            self.schedule(lasts, Event::Publish(collection));
        }
    }
}
