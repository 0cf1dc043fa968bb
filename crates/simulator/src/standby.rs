//! Standbys: servers that replay the log of the database and answer reads.
//!
//! A standby may be ahead of what is visible on the primary, or behind it by any time. A commit is
//! visible on it a little before it says so. It may stop, go back when it restarts, be promoted, or
//! stay on the log of a database that was replaced.

use std::time::Duration;

use hotrow_cache::{Answers, Fetched, Safeguard, StandbyBound};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_source::standby::{StateAfter, judge};
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};

use crate::loader::is_cut_short;
use crate::queue::{Event, LoaderEvent};
use crate::slab::SlabId;
use crate::world::World;

/// Waits for the feed after which the primary is read.
const FEED_WAITS_MAX: u32 = 3;

/// One standby.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standby {
    /// Log that it replays.
    incarnation: u64,
    /// Commits that its reads see.
    applied: u64,
    /// Commits that it says it has replayed.
    reported: u64,
    received: u64,
    paused_until: Nanos,
    is_promoted: bool,
    /// Number of its run. Sessions of an earlier one have ended.
    run: u32,
    /// Whether an event of its replay is pending.
    is_replaying: bool,
}

impl Standby {
    pub(crate) fn new(incarnation: u64) -> Self {
        Self { incarnation, ..Self::default() }
    }
}

/// Statements of one read, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Begin = 0,
    First = 1,
    Second = 2,
    State = 3,
}

/// A read of a standby.
#[derive(Debug, Default)]
pub(crate) struct StandbyQuery {
    floor: Option<Position>,
    standby: usize,
    run: u32,
    /// Commits that its reads saw when the session began the read.
    snapshot: u64,
    replayed: Option<u64>,
    rows: Option<Vec<Fetched<ReadFailure>>>,
    state: Option<StateAfter>,
    waits: u32,
}

impl StandbyQuery {
    pub(crate) fn new(floor: Position) -> Self {
        Self { floor: Some(floor), ..Self::default() }
    }
}

impl World {
    /// Sends the query of a loader to a standby.
    pub(crate) fn send_to_standby(&mut self, i: usize, id: SlabId) {
        let n = self.random.below(self.standbys.len());
        let run = self.standbys[n].run;
        if let Some(query) = self.standby_query(i, id) {
            (query.standby, query.run) = (n, run);
        }
        self.push_statement(i, id, Statement::Begin);
    }

    fn standby_query(&mut self, i: usize, id: SlabId) -> Option<&mut StandbyQuery> {
        let loader = self.instances[i].loaders.get_mut(id)?;
        loader.query.as_mut().map(|query| &mut query.standby)
    }

    fn push_statement(&mut self, i: usize, id: SlabId, statement: Statement) {
        let after = self.random.latency(self.settings.typical.query) / 2;
        self.push_loader(i, id, after, LoaderEvent::Standby(statement));
    }

    fn has(&self, i: usize, safeguard: Safeguard) -> bool {
        #[cfg(feature = "failpoints")]
        return self.instances[i].cache.has(safeguard);
        #[cfg(not(feature = "failpoints"))]
        {
            let _ = (i, safeguard);
            true
        }
    }

    /// A standby carries out one statement of a read: what it has replayed, the rows, its state.
    pub(crate) fn standby_statement(&mut self, i: usize, id: SlabId, statement: Statement) {
        let Some(query) = self.standby_query(i, id) else { return };
        let (n, run) = (query.standby, query.run);
        let is_down = self.has_faults && self.random.one_in(64);
        if is_down || self.standbys[n].run != run {
            return self.push_loader(i, id, Duration::ZERO, LoaderEvent::StandbyArrived);
        }
        let standby = self.standbys[n].clone();
        let is_ordered = self.has(i, Safeguard::StandbyOrder);
        match statement {
            Statement::Begin => {
                if let Some(query) = self.standby_query(i, id) {
                    query.snapshot = standby.applied;
                }
                self.push_statement(i, id, Statement::First);
            }
            Statement::First | Statement::Second => {
                if (statement == Statement::First) == is_ordered {
                    if let Some(query) = self.standby_query(i, id) {
                        query.replayed = Some(standby.reported);
                    }
                } else {
                    self.read_rows_of_standby(i, id, n);
                }
                let is_first = statement == Statement::First;
                let next = if is_first { Statement::Second } else { Statement::State };
                self.push_statement(i, id, next);
            }
            Statement::State => {
                let is_streaming = !standby.is_promoted && !self.database.is_down;
                let state = StateAfter {
                    is_in_recovery: !standby.is_promoted,
                    timeline: is_streaming.then_some(standby.incarnation as u32),
                    replayed: standby.reported,
                    received: standby.received,
                };
                if let Some(query) = self.standby_query(i, id) {
                    query.state = Some(state);
                }
                let after = self.random.latency(self.settings.typical.query) / 2;
                self.push_loader(i, id, after, LoaderEvent::StandbyArrived);
            }
        }
    }

    fn read_rows_of_standby(&mut self, i: usize, id: SlabId, n: usize) {
        let Some(loader) = self.instances[i].loaders.get_mut(id) else { return };
        let Some(mut query) = loader.query.take() else { return };
        let own_snapshot = self.has(i, Safeguard::StandbySnapshot);
        let applied = if own_snapshot { self.standbys[n].applied } else { query.standby.snapshot };
        let incarnation = self.standbys[n].incarnation;
        let rows =
            self.rows(i, &query, |world, row| world.replayed_version(row, incarnation, applied));
        query.standby.rows = Some(rows);
        self.put_query(i, id, query);
    }

    /// Returns the version of a row that a standby shows.
    fn replayed_version(&self, row: usize, incarnation: u64, applied: u64) -> usize {
        let database = &self.database;
        if incarnation != database.incarnation {
            return database.newest(row, |version| version.visible_at < database.replaced_at);
        }
        database.newest(row, |version| match version.place {
            Some((log, number)) => log == incarnation && number <= applied,
            None => version.after <= applied,
        })
    }

    /// The answer of a standby has arrived.
    pub(crate) fn standby_arrived(&mut self, i: usize, id: SlabId) {
        let timeline = self.instances[i].feed.incarnation.unwrap_or_default() as u32;
        let is_checked = self.has(i, Safeguard::StandbyTimeline);
        let Some(query) = self.standby_query(i, id) else { return };
        let (Some(floor), Some(replayed), Some(state), true) =
            (query.floor, query.replayed, query.state, query.rows.is_some())
        else {
            return self.standby_refused(i, id);
        };
        let timeline = if is_checked { timeline } else { state.timeline.unwrap_or(timeline) };
        let Ok(seen) = judge(floor.at, replayed, &state, timeline, 0) else {
            return self.standby_refused(i, id);
        };
        let cache = &self.instances[i].cache;
        let bound = StandbyBound { past: seen.past, end: seen.end };
        let Some(to) = cache.delivered_through(SourceId::FIRST, floor, bound) else {
            return self.wait_for_feed(i, id);
        };
        self.counts.standby_answers += 1;
        let now = self.now;
        let Some(loader) = self.instances[i].loaders.get_mut(id) else { return };
        let Some(query) = loader.query.take() else { return };
        let from = Position { at: seen.from, ..floor };
        let version = Version::Replayed { from, to };
        let rows = query.standby.rows.unwrap_or_default();
        let has_failed = is_cut_short(&rows, query.keys.len());
        loader.suspects = if has_failed { query.keys } else { Vec::new() };
        loader.batches.arrived(Ok(Answers { version, position: Some(to), rows }), now);
        self.answer_some(i, id);
    }

    fn wait_for_feed(&mut self, i: usize, id: SlabId) {
        self.counts.standby_waits += 1;
        let Some(query) = self.standby_query(i, id) else { return };
        query.waits += 1;
        if query.waits > FEED_WAITS_MAX {
            return self.standby_refused(i, id);
        }
        let after = self.random.latency(self.settings.typical.feed) * 2;
        self.push_loader(i, id, after, LoaderEvent::StandbyArrived);
    }

    fn standby_refused(&mut self, i: usize, id: SlabId) {
        self.counts.standby_refusals += 1;
        let Some(loader) = self.instances[i].loaders.get_mut(id) else { return };
        loader.query = None;
        loader.batches.read_primary();
        let after = self.random.latency(self.settings.typical.task);
        self.push_loader(i, id, after, LoaderEvent::NextBatch);
    }

    /// Wakes the standbys because the log has grown.
    pub(crate) fn wake_standbys(&mut self) {
        for n in 0..self.standbys.len() {
            if !self.standbys[n].is_replaying {
                self.standbys[n].is_replaying = true;
                self.schedule_replay(n);
            }
        }
    }

    fn schedule_replay(&mut self, n: usize) {
        let paused = self.standbys[n].paused_until.since(self.now);
        let after = paused + self.random.latency(self.settings.typical.feed);
        self.schedule(after, Event::Replay(n));
    }

    /// A standby replays a commit, or says so.
    pub(crate) fn replay(&mut self, n: usize) {
        let standby = &mut self.standbys[n];
        standby.is_replaying = false;
        if standby.is_promoted || standby.incarnation != self.database.incarnation {
            return;
        }
        if !self.database.is_down {
            standby.received = self.database.end();
        }
        if standby.reported < standby.applied {
            standby.reported = standby.applied;
        } else if standby.applied < standby.received {
            standby.applied += 1;
        }
        if standby.reported < standby.received {
            standby.is_replaying = true;
            self.schedule_replay(n);
        }
    }

    /// A standby follows the database that answers now, as a new copy.
    pub(crate) fn rejoin(&mut self, n: usize) {
        let run = self.standbys[n].run + 1;
        let is_replaying = self.standbys[n].is_replaying;
        let end = self.database.visible_end();
        let new = Standby::new(self.database.incarnation);
        self.standbys[n] =
            Standby { applied: end, reported: end, received: end, run, is_replaying, ..new };
    }

    /// The database was replaced: its standbys stay on the old log for a while.
    pub(crate) fn leave_standbys_behind(&mut self) {
        for n in 0..self.standbys.len() {
            let lasts = self.random.up_to(self.settings.cache.max_staleness * 20);
            self.schedule(lasts, Event::Rejoin(n));
        }
    }

    /// Breaks a standby.
    pub(crate) fn standby_fault(&mut self) {
        self.counts.standby_faults += 1;
        let n = self.random.below(self.standbys.len());
        let bound = self.settings.cache.max_staleness;
        let kind = self.random.below(5);
        let back = self.random.below(6) as u64;
        let lasts = self.random.up_to(bound * 10);
        let now = self.now;
        let standby = &mut self.standbys[n];
        match kind {
            0 | 1 => standby.paused_until = now.after(lasts),
            2 => {
                // It restarts from an earlier point.
                standby.run += 1;
                standby.applied = standby.applied.saturating_sub(back);
                standby.reported = standby.applied;
                self.wake_standbys();
            }
            3 => {
                standby.is_promoted = true;
                self.schedule(lasts, Event::Rejoin(n));
            }
            _ => self.schedule(lasts, Event::Rejoin(n)),
        }
    }
}
