//! Metrics and `/status` of purges.
//!
//! Reference `metrics`: Purges
//!
//! With [`[purge.targets]`](purging.md). The label `target` is the name of a target.
//!
//! - `hotrow_purge_requests_total` (`target`, `outcome`): Requests `accepted` and `failed`. Failed
//!   ones are sent again.
//! - `hotrow_purges_total` (`target`, `kind`): Purges accepted, of a `record` or a `collection`.
//!   Each change is purged twice.
//! - `hotrow_purge_collections_total` (`cause`): Whole collections queued to be purged: `start`,
//!   `loss` and `resumed` (of the feed), `flush` (TRUNCATE and similar), `overrun` and `overflow`
//!   (more changes than the window or a queue keeps), `request` (admin API). **Any** `loss`,
//!   `overrun` or `overflow`.
//! - `hotrow_purge_queue_entries` (`target`): Records and collections that wait for a purge, also
//!   for the second one.
//! - `hotrow_purge_queue_bytes` (`target`): Memory of the records among them.
//! - `hotrow_purge_overdue_seconds` (`target`): How long the oldest has been due. **Above 10**: the
//!   target does not accept purges, and its cache is old.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_answer::units::millis;
use hotrow_telemetry::exposition::Exposition;

use super::{Cause, Purger, Target, clock};

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Purger {
    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        self.expose_by(
            out,
            ("hotrow_purge_requests_total", "Requests to a target of purges, by their outcome."),
            ("outcome", ["accepted", "failed"]),
            |target| [get(&target.counts.accepted), get(&target.counts.failed)],
        );
        self.expose_by(
            out,
            ("hotrow_purges_total", "Purges that a target has accepted, by what they purge."),
            ("kind", ["record", "collection"]),
            |target| [get(&target.counts.records), get(&target.counts.collections)],
        );
        let causes = Cause::ALL.iter().zip(&self.causes);
        out.counter(
            "hotrow_purge_collections_total",
            "Whole collections queued to be purged, by cause.",
            causes.map(|(cause, count)| ([("cause", cause.label())], get(count))),
        );
        let now = clock();
        self.expose_gauge(out, "hotrow_purge_queue_entries", ENTRIES, |target| {
            target.queue.lock().entries() as u64
        });
        self.expose_gauge(
            out,
            "hotrow_purge_queue_bytes",
            "Bytes of the records that wait to be purged at a target.",
            |target| target.queue.lock().bytes() as u64,
        );
        self.expose_gauge(out, "hotrow_purge_overdue_seconds", OVERDUE, |target| {
            target.queue.lock().overdue_by(now).as_secs()
        });
    }

    fn expose_by<const N: usize>(
        &self,
        out: &mut Exposition,
        (name, help): (&str, &str),
        (label, values): (&'static str, [&'static str; N]),
        counts: impl Fn(&Target) -> [u64; N],
    ) {
        let mut series = Vec::new();
        for target in &self.targets {
            for (value, count) in values.iter().zip(counts(target)) {
                series.push(([("target", &*target.settings.name), (label, *value)], count));
            }
        }
        out.counter(name, help, series);
    }

    fn expose_gauge(
        &self,
        out: &mut Exposition,
        name: &str,
        help: &str,
        value: impl Fn(&Target) -> u64,
    ) {
        let targets = self.targets.iter();
        let series = targets.map(|own| ([("target", &*own.settings.name)], value(own)));
        out.gauge(name, help, series);
    }

    /// Returns the part of `/status` about purges.
    pub fn status(&self) -> serde_json::Value {
        let now = clock();
        let target = |target: &Target| {
            let queue = target.queue.lock();
            let (entries, bytes) = (queue.entries(), queue.bytes());
            let (overdue_by, failures) = (queue.overdue_by(now), queue.failures());
            drop(queue);
            serde_json::json!({
                "name": target.settings.name,
                "kind": target.settings.kind.label(),
                "entries": entries,
                "bytes": bytes,
                "overdue_ms": millis(overdue_by),
                "failures": failures,
                "last_error": *target.last_error.lock(),
            })
        };
        let targets: Vec<_> = self.targets.iter().map(target).collect();
        serde_json::json!({ "targets": targets })
    }
}

const ENTRIES: &str =
    "Records and collections that wait to be purged at a target, for the first or second time.";
const OVERDUE: &str = "Time for which the oldest purge has waited for a target since it was due.";
