//! The miss-ratio curve in `/status` and `/metrics`.

use hotrow_cache::miniature::{Curve, FACTORS};
use hotrow_telemetry::exposition::Exposition;
use hotrow_telemetry::miss_ratio_curve::{Report, sentence};
use serde_json::{Map, Value, json};

use super::View;

/// Rounds a ratio to five digits.
fn ratio(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

/// Rounds to one digit.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl View {
    /// Returns the curve, or why it is unknown.
    pub(super) fn miss_ratio_curve(&self) -> Value {
        match self.shared.miss_ratio_curve.published().report {
            Report::Unknown(reason) => json!({ "unknown": reason.to_string() }),
            Report::Known(curve) => self.known_curve(&curve),
        }
    }

    fn known_curve(&self, curve: &Curve) -> Value {
        let points: Vec<Value> = curve
            .points
            .iter()
            .map(|point| {
                json!({
                    "factor": point.factor,
                    "capacity_bytes": point.capacity_bytes,
                    "hit_ratio": ratio(point.hit_ratio.value),
                    "low": ratio(point.hit_ratio.low),
                    "high": ratio(point.hit_ratio.high),
                    "database_reads_per_s": tenth(point.database_reads_per_s),
                })
            })
            .collect();
        let names = self.shared.collections.all().iter().map(|own| own.name.clone());
        let collections: Map<String, Value> = names
            .zip(&curve.collections)
            .map(|(name, own)| {
                let value = json!({
                    "lookups_per_s": tenth(own.lookups / curve.window_s.max(1.0)),
                    "measured_hit_ratio": own.measured.map(ratio),
                    "hit_ratios": own.hit_ratios.map(|ratios| ratios.map(ratio)),
                });
                (name, value)
            })
            .collect();
        json!({
            "sampling_rate": curve.sampling_rate,
            "sampled_lookups": curve.sampled_lookups,
            "dropped": curve.dropped,
            "window_s": curve.window_s.round() as u64,
            "current": {
                "capacity_bytes": curve.current().capacity_bytes,
                "predicted_hit_ratio": ratio(curve.current().hit_ratio.value),
                "measured_hit_ratio": ratio(curve.measured),
            },
            "points": points,
            "collections": collections,
            "sentence": sentence(curve),
        })
    }

    pub(super) fn expose_miss_ratio_curve(&self, out: &mut Exposition) {
        let published = self.shared.miss_ratio_curve.published();
        let curve = match &published.report {
            Report::Known(curve) => Some(curve),
            Report::Unknown(_) => None,
        };
        let factors = FACTORS.map(|factor| factor.to_string());
        let predicted = factors.iter().enumerate().map(|(at, factor)| {
            let ratio = curve.map_or(f64::NAN, |curve| curve.points[at].hit_ratio.value);
            ([("capacity_factor", factor.as_str())], ratio)
        });
        out.gauge(
            "hotrow_cache_predicted_hit_ratio",
            "Hit ratio that a multiple of the capacity would have; NaN while unknown.",
            predicted,
        );
        out.gauge(
            "hotrow_cache_measured_hit_ratio",
            "Hit ratio in the window of the predicted ones; NaN while they are unknown.",
            [([], curve.map_or(f64::NAN, |curve| curve.measured))],
        );
        out.gauge(
            "hotrow_cache_sampling_ratio",
            "Share of the keys whose lookups are replayed to predict hit ratios.",
            [([], published.rate.share())],
        );
        out.counter(
            "hotrow_cache_samples_total",
            "Events of sampled keys, replayed or lost because a queue was full.",
            [
                ([("result", "replayed")], published.replayed_total),
                ([("result", "dropped")], published.dropped_total),
            ],
        );
        out.gauge(
            "hotrow_cache_simulation_bytes",
            "Memory of the copies in which they are replayed.",
            [([], published.memory_bytes)],
        );
    }
}
