//! Standbys in `/metrics` and `/status`.

use serde_json::{Value, json};

use super::View;
use crate::metrics::{Exposition, Labels};

impl View {
    /// Writes the metrics of standbys, if any are configured.
    pub(super) fn expose_standbys(&self, out: &mut Exposition) {
        let views = self.shared.fetcher.source.standbys();
        if views.is_empty() {
            return;
        }
        let labels: Vec<[(&str, &str); 1]> =
            views.iter().map(|view| [("standby", view.name.as_str())]).collect();
        let reads: Vec<(Labels<'_>, u64)> = labels
            .iter()
            .zip(&views)
            .map(|(labels, view)| (&labels[..], view.reads_total))
            .collect();
        out.counter("hotrow_standby_reads_total", "Queries that a standby answered.", &reads);
        let lags: Vec<(Labels<'_>, f64)> = labels
            .iter()
            .zip(&views)
            .map(|(labels, view)| (&labels[..], view.lag_bytes.map_or(f64::NAN, |lag| lag as f64)))
            .collect();
        out.gauge(
            "hotrow_standby_lag_bytes",
            "Log that a standby had not replayed when it was read last; NaN before.",
            &lags,
        );
        let paused: Vec<(Labels<'_>, f64)> = labels
            .iter()
            .zip(&views)
            .map(|(labels, view)| (&labels[..], f64::from(u8::from(view.trouble.is_none()))))
            .collect();
        out.gauge("hotrow_standby_usable", "0 while a standby is not asked.", &paused);
        let totals = self.shared.fetcher.standbys.refusals().totals();
        let reasons: Vec<[(&str, &str); 1]> =
            totals.iter().map(|(reason, _)| [("reason", *reason)]).collect();
        let refusals: Vec<(Labels<'_>, u64)> =
            reasons.iter().zip(&totals).map(|(labels, (_, n))| (&labels[..], *n)).collect();
        out.counter(
            "hotrow_standby_refusals_total",
            "Queries sent to the primary because no standby could answer.",
            &refusals,
        );
    }

    /// Returns the standbys for `/status`.
    pub(super) fn standbys(&self) -> Value {
        let views = self.shared.fetcher.source.standbys();
        let view = |view: &hotrow_source::standby::StandbyView| {
            json!({
                "name": view.name,
                "reads": view.reads_total,
                "lag_bytes": view.lag_bytes,
                "trouble": view.trouble,
            })
        };
        views.iter().map(view).collect()
    }
}
