//! Faults: what breaks in a run, chosen by the seed.

use std::time::Duration;

use hotrow_source::{FlushCause, LossCause, Sink};

use crate::engine::{FeedKind, SchemaChanges};
use crate::queue::{Event, InstanceEvent};
use crate::world::World;

impl World {
    /// Breaks something, and schedules the next fault.
    pub(crate) fn fault(&mut self) {
        if !self.has_faults {
            return;
        }
        let next = self.random.latency(self.settings.typical.faults);
        self.schedule(next, Event::Fault);
        let i = self.random.below(self.instances.len());
        let bound = self.settings.cache.max_staleness;
        let engine = self.settings.engine;
        if engine.standbys > 0 && self.random.one_in(3) {
            return self.standby_fault();
        }
        match self.random.below(36) {
            0..3 => {
                let noticed_after = self.random.up_to(bound);
                self.cut(i, noticed_after);
            }
            3..6 => self.hold(i, bound),
            6..8 => self.prune(i, bound),
            8 => self.fail_over(),
            9..11 => {
                let lasts = self.random.up_to(bound * 4);
                self.outage(lasts);
            }
            11..13 => {
                self.counts.freezes += 1;
                let lasts = self.random.up_to(bound * 3);
                self.instances[i].frozen_until = self.now.after(lasts);
            }
            13..15 if engine.schema == SchemaChanges::InCatalogue => self.change_shape(),
            15..19 if engine.schema == SchemaChanges::InCatalogue => {
                // Long enough for an entry stored before it to become older than any bound.
                let lasts = self.random.up_to(bound * 8);
                self.withdraw(lasts);
            }
            19..22 => self.purge(i),
            22 if engine.feed != FeedKind::Off => {
                // The feed itself fails, and starts again.
                if self.instances[i].feed.is_running() {
                    self.lose(i, LossCause::FeedFailed);
                    self.cut(i, Duration::ZERO);
                }
            }
            23..25 => self.is_failing = !self.is_failing,
            25..30 => {
                let random = self.random.below(usize::MAX);
                if let Some(id) = self.instances[i].loaders.any(random) {
                    self.cancel_loader(i, id);
                }
            }
            _ => {
                let random = self.random.below(usize::MAX);
                if let Some(id) = self.instances[i].requests.any(random) {
                    self.leave(i, id);
                }
            }
        }
    }

    /// The feed's connection stands still for a while.
    fn hold(&mut self, i: usize, bound: Duration) {
        let lasts = self.random.up_to(bound * 2);
        self.instances[i].feed.held_until = self.now.after(lasts);
    }

    /// The log forgets its commits, often while a feed is away.
    fn prune(&mut self, i: usize, bound: Duration) {
        if self.random.one_in(2) {
            let noticed_after = self.random.up_to(bound);
            self.cut(i, noticed_after);
        }
        let lag = self.random.below(3) as u64;
        self.database.pruned = self.database.pruned.max(self.database.end().saturating_sub(lag));
    }

    fn purge(&mut self, i: usize) {
        self.counts.purges += 1;
        let key = self.random.skewed(self.keys.len());
        let instance = &self.instances[i];
        let now = self.now;
        if key % 4 == 3 {
            // All of its collection.
            let collection = self.keys.get(key).collection();
            return instance.sink.flush(collection, FlushCause::Bulk, None);
        }
        instance.cache.purge(self.keys.get(key));
        instance.cache.release_standbys_after(self.keys.get(key).collection(), now);
        instance.sink.with(|calls| calls.changed[key] = calls.now);
    }

    /// Another database takes the place of this one. Sessions end; no instance has noticed
    /// yet.
    fn fail_over(&mut self) {
        if self.settings.engine.feed == FeedKind::Off {
            return;
        }
        self.counts.failovers += 1;
        // Commits that the database loses are excepted.
        for (row, floor) in self.strict_floors.iter_mut().enumerate() {
            *floor = self.database.visible(row).min(*floor);
        }
        self.database.fail_over(self.now);
        self.cut_all();
        self.leave_standbys_behind();
    }

    fn cut_all(&mut self) {
        for i in 0..self.instances.len() {
            let noticed_after = self.random.latency(self.settings.typical.feed);
            self.cut(i, noticed_after);
        }
    }

    /// The database does not answer for a while.
    pub(crate) fn outage(&mut self, lasts: Duration) {
        if self.database.is_down {
            return;
        }
        self.counts.outages += 1;
        self.database.is_down = true;
        self.schedule(lasts, Event::OutageEnds);
        self.cut_all();
    }

    pub(crate) fn outage_ends(&mut self) {
        self.database.is_down = false;
    }

    /// Ends all faults: from now on everything works.
    pub(crate) fn heal(&mut self) {
        self.is_quiet = true;
        self.has_faults = false;
        self.random.cut_tails();
        self.is_failing = false;
        self.database.is_down = false;
        self.database.is_published.fill(true);
        let now = self.now;
        for instance in &mut self.instances {
            instance.frozen_until = now;
            instance.feed.held_until = now;
        }
        for i in 0..self.instances.len() {
            // Requests without a wake-up would wait for ever; `settle` finds them.
            self.push(i, Duration::ZERO, InstanceEvent::Lead(hotrow_types::key::CollectionId(0)));
        }
    }
}
