//! Circuit breaker and load shedding on the admin side.
//!
//! Reference `metrics`: Overload
//!
//! - `hotrow_breaker_state` (`source`, `state`): 1 for the state: `closed`, `open`, `half_open`.
//! - `hotrow_breaker_transitions_total` (`source`, `state`): Times that a state was entered. The
//!   log has the cause.
//! - `hotrow_breaker_refused_keys_total` (`source`): Keys unread because the breaker was open.
//! - `hotrow_pressure` (`source`): 0 normal, 1 elevated, 2 critical: `loop_delay`, `database_wait`,
//!   `memory`, `open_files`. Of several databases, the wait for the slowest one.
//! - `hotrow_pressure_changes_total`: Changes of the highest level.
//! - `hotrow_budget_used_bytes` (`budget`): Reserved of `answers`, `bodies`, `rows`
//!   ([budgets](overload.md#memory)).
//! - `hotrow_budget_limit_bytes` (`budget`): Limit of the budget.
//! - `hotrow_budget_refused_total` (`budget`): Reservations without room. **Any**: untaken large
//!   answers, or low limit.
//! - `hotrow_compressions_total` (`outcome`): [Compressed forms](http.md#compression) asked for:
//!   `stored`; `not_smaller`; `superseded` (the entry was gone); `too_large` for the cache;
//!   `dropped` (32 MiB waited).
//! - `hotrow_compression_queue_bytes`: Bytes of records that wait for it.
//! - `hotrow_answers_too_large_total`: Answers above `limits.answer_bytes` (413).
//! - `hotrow_shed_total` (`level`, `kind`, `priority`): Refused under pressure: `elevated`,
//!   `critical`; `hit`, `batch`, `miss`, `bypass`.

use hotrow_admission::shed::{Kind, Level, Priority, Source};
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::exposition::Exposition;
use serde_json::{Map, Value, json};

use super::View;

impl View {
    pub(super) fn expose_overload(&self, now: Nanos, out: &mut Exposition) {
        self.expose_breakers(now, out);
        let levels = Source::ALL.iter().zip(self.levels());
        let levels = levels.map(|(source, level)| ([("source", source.label())], level as u64));
        out.gauge("hotrow_pressure", "0 normal, 1 elevated, 2 critical, by source.", levels);
        let changes = self.level_changes();
        out.counter(
            "hotrow_pressure_changes_total",
            "Changes of the worst of these levels.",
            [([], changes)],
        );
        let shed = self.shed().into_iter().map(|(level, kind, priority, n)| {
            let kind = ("kind", kind.label());
            ([("level", level.label()), kind, ("priority", priority.label())], n)
        });
        out.counter(
            "hotrow_shed_total",
            "Requests refused because the process was overloaded.",
            shed,
        );
    }

    /// Returns the worst level of each source of pressure: that of the database may differ between
    /// databases.
    pub(super) fn levels(&self) -> [Level; Source::ALL.len()] {
        let mut worst = [Level::Normal; Source::ALL.len()];
        for reads in self.sources() {
            let levels = reads.load_shedder.levels();
            worst.iter_mut().zip(levels).for_each(|(worst, level)| *worst = level.max(*worst));
        }
        worst
    }

    /// Returns how often the level changed, for the database for which it did so most often.
    fn level_changes(&self) -> u64 {
        let changes = self.sources().iter().map(|reads| reads.load_shedder.changes_total());
        changes.max().unwrap_or_default()
    }

    /// Returns all combinations that can be refused, with their counts.
    fn shed(&self) -> Vec<(Level, Kind, Priority, u64)> {
        let kinds = || {
            Kind::ALL.into_iter().flat_map(|kind| Priority::ALL.map(|priority| (kind, priority)))
        };
        let counted = |(level, (kind, priority))| {
            let count =
                self.workers.iter().map(|worker| worker.shed.get(level, kind, priority)).sum();
            (level, kind, priority, count)
        };
        [Level::Elevated, Level::Critical]
            .into_iter()
            .flat_map(|level| kinds().map(move |k| (level, k)))
            .map(counted)
            .collect()
    }

    /// Returns the section `overload` of `/status`.
    pub(super) fn overload_status(&self, now: Nanos) -> Value {
        let levels = self.levels();
        let refused = self.sources().iter().map(|reads| reads.breaker.refused_total());
        let pressure: Map<String, Value> = Source::ALL
            .into_iter()
            .zip(levels)
            .map(|(source, level)| (source.label().to_owned(), level.label().into()))
            .collect();
        json!({
            "breaker": self.worst_breaker(now).label(),
            "breaker_refused_keys": refused.sum::<u64>(),
            "shedding": self.is_shedding,
            "level": levels.into_iter().max().unwrap_or_default().label(),
            "pressure": pressure,
            "shed": self.shed().iter().map(|(.., n)| n).sum::<u64>(),
        })
    }
}
