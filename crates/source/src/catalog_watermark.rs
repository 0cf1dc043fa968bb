//! Watermark that limits a feed's freshness by the age of the last catalogue look.
//!
//! A feed of rows carries no changes of schema, so a feed that keeps up proves nothing about the
//! schema of a table. A *catalogue look* is the query that shows whether the schema changed. It is
//! timed like a probe of the log's end: only the time at which the newest confirming look was
//! *sent* counts, however long its answer took.
//!
//! `max_staleness` bounds the age of the log's watermark, and `schema_poll` the age of the schema.
//! A `schema_poll` below `max_staleness` makes looks more frequent but leaves the bound at
//! `max_staleness`, because an answer may be that old anyway. A sink compares one watermark with
//! `max_staleness`. Therefore a look counts as younger than it is by the part of `schema_poll` that
//! exceeds `max_staleness`.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Looks sent within one `schema_poll`: three may be late or slow before an idle service is stale.
const LOOKS_PER_SCHEMA_POLL: u32 = 4;
/// Shortest time between two looks, so that a short `schema_poll` does not occupy a core of the
/// database.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// Returns the time between two catalogue looks.
pub fn check_interval(schema_poll: Duration) -> Duration {
    (schema_poll / LOOKS_PER_SCHEMA_POLL).max(LOOK_EVERY_MIN)
}

/// Returns the maximum age of a confirmed schema; answers that depend on an older one are stale.
pub fn shape_age_max(schema_poll: Duration, max_staleness: Duration) -> Duration {
    schema_poll.max(max_staleness)
}

/// Time of the newest confirming look, with the allowance for its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogWatermark {
    /// Excess of the bound on the schema's age over `max_staleness`.
    allowance: Duration,
    /// Send time of the newest look that confirmed the schema.
    confirmed_at: Nanos,
}

impl CatalogWatermark {
    /// Creates the watermark for a schema read by a look that was sent at `look_sent_at`.
    pub fn new(schema_poll: Duration, max_staleness: Duration, look_sent_at: Nanos) -> Self {
        let allowance = shape_age_max(schema_poll, max_staleness).saturating_sub(max_staleness);
        Self { allowance, confirmed_at: look_sent_at }
    }

    /// Records a look that confirmed the schema, or whose changes the sink and the readers have
    /// applied. Looks may be reported in any order; the newest counts.
    pub fn confirm(&mut self, look_sent_at: Nanos) {
        self.confirmed_at = self.confirmed_at.max(look_sent_at);
    }

    /// Returns the watermark to report for a log watermark of `log`: never newer than `log`, and
    /// held back by a late look.
    pub fn effective(&self, log: Nanos) -> Nanos {
        log.min(self.confirmed_at.after(self.allowance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Nanos {
        Nanos(ms * MS)
    }

    /// Returns the largest staleness of a service, in virtual time after its start, if each look
    /// takes `look_takes`.
    fn worst_staleness(
        schema_poll: Duration,
        max_staleness: Duration,
        look_takes: Duration,
    ) -> Duration {
        let probe_every = max_staleness / 4;
        let check_interval = check_interval(schema_poll);
        let start = at(1_000_000);
        let mut watermark = CatalogWatermark::new(schema_poll, max_staleness, start);
        let mut log = start;
        let mut probe_due = start;
        let mut look_sent = start;
        let mut worst = Duration::ZERO;
        for step in 1..20_000 {
            let now = start.after(ms(step));
            // A probe is answered within a millisecond; a look may take longer than the interval of
            // looks.
            if now >= probe_due {
                (log, probe_due) = (now, now.after(probe_every));
            }
            if now >= look_sent.after(look_takes.max(check_interval)) {
                watermark.confirm(look_sent);
                look_sent = now;
            } else if now >= look_sent.after(look_takes) {
                watermark.confirm(look_sent);
            }
            worst = worst.max(now.since(watermark.effective(log)));
        }
        worst
    }

    #[test]
    fn an_idle_service_stays_fresh() {
        for (schema_poll, max_staleness) in [
            (1_000, 1_000),
            (10, 1_000),
            (100, 1_000),
            (1_000, 100),
            (60_000, 1_000),
            (5_000, 1_000),
            (1_000, 10_000),
        ] {
            let worst = worst_staleness(ms(schema_poll), ms(max_staleness), ms(5));
            assert!(
                worst <= ms(max_staleness) / 2,
                "schema_poll {schema_poll} ms, max_staleness {max_staleness} ms: {worst:?}"
            );
        }
    }

    #[test]
    fn a_look_that_takes_half_the_bound_leaves_an_idle_service_fresh() {
        let worst = worst_staleness(ms(1_000), ms(1_000), ms(490));
        assert!(worst <= ms(1_000) && worst > ms(900), "{worst:?}");
    }

    #[test]
    fn looks_without_an_answer_make_the_feed_stale_at_the_bound() {
        for (schema_poll, max_staleness, bound) in [
            (1_000, 1_000, 1_000),
            (100, 1_000, 1_000),
            (5_000, 1_000, 5_000),
            (1_000, 10_000, 10_000),
        ] {
            let schema_poll = ms(schema_poll);
            let max_staleness = ms(max_staleness);
            let mut watermark = CatalogWatermark::new(schema_poll, max_staleness, at(10_000));
            watermark.confirm(at(20_000));
            // The log itself is always current.
            let is_stale = |now: Nanos| now.since(watermark.effective(now)) > max_staleness;
            assert!(!is_stale(at(20_000 + bound)), "{schema_poll:?} {max_staleness:?}");
            assert!(is_stale(at(20_000 + bound + 1)), "{schema_poll:?} {max_staleness:?}");
        }
    }

    #[test]
    fn the_effective_watermark_is_the_older_one_and_never_decreases() {
        let mut watermark = CatalogWatermark::new(ms(1_000), ms(1_000), at(500));
        assert_eq!(watermark.effective(at(400)), at(400));
        assert_eq!(watermark.effective(at(900)), at(500));
        watermark.confirm(at(800));
        watermark.confirm(at(700));
        assert_eq!(watermark.effective(at(900)), at(800));
        assert_eq!(watermark.effective(Nanos::MAX), at(800));
        let unbounded = CatalogWatermark::new(Duration::MAX, ms(1_000), at(500));
        assert_eq!(unbounded.effective(at(900)), at(900));
    }

    #[test]
    fn looks_are_sent_four_times_within_the_bound_but_not_without_end() {
        assert_eq!(check_interval(ms(1_000)), ms(250));
        assert_eq!(check_interval(ms(10)), ms(10));
        assert_eq!(check_interval(Duration::from_hours(1)), Duration::from_mins(15));
    }
}
