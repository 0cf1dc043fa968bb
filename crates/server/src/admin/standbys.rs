//! Standbys in `/metrics` and `/status`.

use hotrow_source::Source;
use hotrow_source::standby::StandbyView;
use hotrow_telemetry::exposition::{Exposition, Labels};
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
        let labels: Vec<[(&str, &str); 2]> = views
            .iter()
            .map(|(source, view)| [("source", *source), ("standby", view.name.as_str())])
            .collect();
        let views = || labels.iter().zip(views.iter().map(|(_, view)| view));
        let reads: Vec<(Labels<'_>, u64)> =
            views().map(|(labels, view)| (&labels[..], view.reads_total)).collect();
        out.counter("hotrow_standby_reads_total", "Queries that a standby answered.", &reads);
        let lag = |view: &StandbyView| view.lag_bytes.map_or(f64::NAN, |lag| lag as f64);
        let lags: Vec<(Labels<'_>, f64)> =
            views().map(|(labels, view)| (&labels[..], lag(view))).collect();
        out.gauge(
            "hotrow_standby_lag_bytes",
            "Log that a standby had not replayed when it was read last; NaN before.",
            &lags,
        );
        let usable: Vec<(Labels<'_>, u64)> = views()
            .map(|(labels, view)| (&labels[..], u64::from(view.trouble.is_none())))
            .collect();
        out.gauge("hotrow_standby_usable", "0 while a standby is not asked.", &usable);
        let totals: Vec<_> = self
            .sources()
            .iter()
            .filter(|reads| !reads.source.standbys().is_empty())
            .flat_map(|reads| reads.standbys.refusals().totals().map(|of| (&*reads.name, of)))
            .collect();
        let reasons: Vec<[(&str, &str); 2]> = totals
            .iter()
            .map(|(source, (reason, _))| [("source", *source), ("reason", *reason)])
            .collect();
        let refusals: Vec<(Labels<'_>, u64)> =
            reasons.iter().zip(&totals).map(|(labels, (_, (_, n)))| (&labels[..], *n)).collect();
        out.counter(
            "hotrow_standby_refusals_total",
            "Queries sent to the primary because no standby could answer.",
            &refusals,
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
