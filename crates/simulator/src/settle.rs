//! The end of a run: faults end, and the service has to recover in time, answer all that waits, and
//! equal the database.

use std::time::Duration;

use hotrow_cache::ReadMode;
use hotrow_source::feed_loop;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;

use crate::counts::Counts;
use crate::database::COLLECTIONS;
use crate::engine::FeedKind;
use crate::world::{Instance, World};

/// Longest time from the end of the last fault until a feed is current again, beyond the pause of
/// the back-off: the wait for transactions in flight, the start, and a probe.
const RECOVERY_BOUNDS: u32 = 5;
/// Most requests for a key at the end of a run. Latencies have long tails, but nothing fails.
const ATTEMPTS_MAX: usize = 16;
/// Most steps of a phase; more is a livelock.
const STEPS_MAX: u64 = 200_000;

impl World {
    /// Ends the faults and checks what has to hold then.
    pub(crate) fn settle(&mut self) {
        self.heal();
        let bound = self.settings.cache.max_staleness;
        let began_at = self.now;
        let recovery = feed_loop::PAUSE_MAX + bound * RECOVERY_BOUNDS;
        let is_over = |world: &Self| world.is_recovered() && world.is_idle();
        if !self.step_until(is_over, recovery) {
            let detail = format!(
                "not within {recovery:?}: current {}, idle {}",
                self.is_recovered(),
                self.is_idle()
            );
            return self.violated("no recovery after the last fault", &detail);
        }
        self.counts_of_recovery(began_at);
        // From here on every key has to equal the database (point 4). TTLs alone need their time.
        let (ttl, swr) = (self.settings.policy.ttl, self.settings.cache.stale_while_revalidate);
        let wait = match self.settings.engine.feed {
            FeedKind::Off => ttl.max(self.settings.policy.negative_ttl) + swr,
            FeedKind::Changes | FeedKind::Flushes => bound + self.settings.schema_poll.max(bound),
        };
        // Failures are remembered that long, and an open breaker is probed.
        let wait = wait.max(self.settings.cache.error_ttl) + bound * 16;
        self.step_for(wait);
        for i in 0..self.instances.len() {
            self.check_convergence(i);
            self.check_idle(i);
        }
    }

    /// Returns whether all feeds are within the bound.
    pub(crate) fn is_recovered(&self) -> bool {
        let is_off = self.settings.engine.feed == FeedKind::Off;
        let now = self.now;
        let is_current = |instance: &crate::world::Instance| {
            is_off || instance.feed.is_running() && instance.cache.is_current(SourceId::FIRST, now)
        };
        self.instances.iter().all(is_current)
    }

    /// Returns whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle =
            |i: &Instance| i.requests.is_empty() && i.loaders.is_empty() && i.snapshots.is_empty();
        self.instances.iter().all(is_idle)
    }

    /// Steps until `is_over`, at most for `time`.
    pub(crate) fn step_until(&mut self, is_over: impl Fn(&Self) -> bool, time: Duration) -> bool {
        let until = self.now.after(time);
        for _ in 0..STEPS_MAX {
            if is_over(self) {
                return true;
            }
            if self.now > until || !self.step() {
                return self.violation.is_some();
            }
        }
        false
    }

    fn step_for(&mut self, time: Duration) {
        let until = self.now.after(time);
        for _ in 0..STEPS_MAX {
            if self.now > until || !self.step() {
                break;
            }
        }
        // Without a feed nothing may be pending; the clock goes on all the same.
        self.now = self.now.max(until);
        self.tick();
    }

    fn counts_of_recovery(&mut self, began_at: hotrow_measure::clock::Nanos) {
        let took = self.now.since(began_at).as_micros() as u64;
        self.counts.recovery_us_max = self.counts.recovery_us_max.max(took);
    }

    /// Reads every key once more: each equals the database.
    fn check_convergence(&mut self, i: usize) {
        for key in 0..self.keys.len() {
            if self.violation.is_some() {
                return;
            }
            let row = self.keys.row(key);
            let want = self.database.visible(row);
            // So that an answer is seen even where it is the version of an earlier one.
            self.instances[i].floors[key] = 0;
            let answers = self.answers();
            for _ in 0..ATTEMPTS_MAX {
                self.tick();
                self.request_one(i, 0, key, ReadMode::Normal);
                let wait = self.settings.request_timeout * 2;
                self.step_until(Self::is_idle, wait);
                if self.answers() > answers {
                    break;
                }
                // A latency exceeded the time-out: the failure is remembered, or the circuit open.
                self.step_for(self.settings.cache.error_ttl + self.settings.cache.max_staleness);
            }
            let got = self.instances[i].floors[key];
            if self.answers() == answers || got != want {
                let Counts { failures, timeouts, refused_other, refused_behind, .. } = self.counts;
                let detail = format!(
                    "key {key}: {got} instead of {want}; {} answers, {failures} failures, \
                     {timeouts} time-outs, {refused_other} and {refused_behind} refused",
                    self.answers() - answers
                );
                self.violated("differs from the database when all is quiet (point 4)", &detail);
            }
        }
    }

    pub(crate) fn answers(&self) -> u64 {
        self.counts.fresh
            + self.counts.stale
            + self.counts.expired
            + self.counts.read_answers
            + self.counts.stale_if_error
    }

    /// Checks that nothing is left over.
    fn check_idle(&mut self, i: usize) {
        if self.violation.is_some() {
            return;
        }
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let stats = self.instances[i].cache.stats(collection);
            if (stats.waiting_keys, stats.queries_in_flight) != (0, 0) {
                self.violated("left over when all is quiet", &format!("{stats:?}"));
            }
            #[cfg(feature = "failpoints")]
            if self.instances[i].cache.flights(collection) > 0 {
                self.violated("reads left over when all is quiet", &format!("{stats:?}"));
            }
        }
        let in_flight = self.instances[i].admission.in_flight();
        if in_flight != 0 {
            self.violated("permits left over when all is quiet", &in_flight.to_string());
        }
    }
}
