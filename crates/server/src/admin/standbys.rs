//! Standbys in `/metrics` and `/status`.

use hotrow_source::Source;
use hotrow_source::standby::StandbyView;
use hotrow_telemetry::exposition::Exposition;
use serde_json::{Value, json};

use super::View;

impl View {
    /// Writes the metrics of standbys, if any are configured. Each is named by its source too.
    pub(super) fn expose_standbys(&self, out: &mut Exposition) {
        let views: Vec<_> = self
            .sources()
            .iter()
            .flat_map(|reads| reads.source.standbys().into_iter().map(|view| (&*reads.name, view)))
            .collect();
        if views.is_empty() {
            return;
        }
        let views = || {
            let views = views.iter();
            views.map(|(source, view)| ([("source", *source), ("standby", &*view.name)], view))
        };
        let reads = views().map(|(labels, view)| (labels, view.reads_total));
        out.counter("hotrow_standby_reads_total", "Queries that a standby answered.", reads);
        let lag = |view: &StandbyView| view.lag_bytes.map_or(f64::NAN, |lag| lag as f64);
        out.gauge(
            "hotrow_standby_lag_bytes",
            "Log that a standby had not replayed when it was read last; NaN before.",
            views().map(|(labels, view)| (labels, lag(view))),
        );
        let usable = views().map(|(labels, view)| (labels, u64::from(view.trouble.is_none())));
        out.gauge("hotrow_standby_usable", "0 while a standby is not asked.", usable);
        let refusals =
            self.sources().iter().filter(|reads| !reads.source.standbys().is_empty()).flat_map(
                |reads| {
                    let source = ("source", &*reads.name);
                    let totals = reads.standbys.refusals().totals();
                    totals.map(|(reason, n)| ([source, ("reason", reason)], n))
                },
            );
        out.counter(
            "hotrow_standby_refusals_total",
            "Queries sent to the primary because no standby could answer.",
            refusals,
        );
    }
}

/// Returns the standbys of a source for `/status`.
pub(super) fn status(source: &dyn Source) -> Value {
    let view = |view: &StandbyView| {
        json!({
            "name": view.name,
            "reads": view.reads_total,
            "lag_bytes": view.lag_bytes,
            "trouble": view.trouble,
        })
    };
    source.standbys().iter().map(view).collect()
}
