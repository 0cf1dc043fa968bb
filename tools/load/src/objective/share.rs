//! Objectives as shares of requests: `p99<5ms` allows 1 % of them to take 5 ms or longer,
//! `errors<0.1%` one in a thousand to fail. Shares can be counted per second and added up.

use super::{Metric, Objective, Operator, Statistic, Unit};
use crate::stats::{LoadStats, Timing};

impl Objective {
    /// Returns the share of requests that may violate the bound, 0 to 1. `None` for objectives that
    /// define no share (means, maxima, error counts, rates, lower bounds), and for shares of 0
    /// (`errors<=0%`) or 1, which have no standard error.
    pub fn allowed_share(&self) -> Option<f64> {
        let share = match (self.metric, self.unit) {
            _ if !matches!(self.operator, Operator::Below | Operator::AtMost) => None,
            (
                Metric::Latency(Statistic::Quantile(q, _))
                | Metric::Service(Statistic::Quantile(q, _))
                | Metric::Lag(Statistic::Quantile(q, _)),
                _,
            ) => Some(1.0 - q),
            (Metric::Errors, Unit::Percent) => Some(self.bound / 100.0),
            _ => None,
        };
        share.filter(|share| *share > 0.0 && *share < 1.0)
    }

    /// Returns the number of requests in the statistics and of those that violate the bound, within
    /// the error of the histograms. `None` where [`Objective::allowed_share`] is `None`.
    pub fn beyond(&self, record: &LoadStats) -> Option<(u64, u64)> {
        self.allowed_share()?;
        let of = |timing: &Timing| {
            let all = timing.count();
            (all, all - timing.answered.count_up_to(self.bound_ns()))
        };
        match self.metric {
            Metric::Latency(_) => Some(of(&record.latency)),
            Metric::Service(_) => Some(of(&record.service)),
            Metric::Lag(_) => {
                let lag = &record.schedule_lag;
                Some((lag.count(), lag.count() - lag.count_up_to(self.bound_ns())))
            }
            Metric::Errors => {
                let counts = &record.counts;
                Some((counts.scheduled, counts.errors.total() + counts.timeouts + counts.unsent))
            }
            Metric::Rate => None,
        }
    }

    fn bound_ns(&self) -> u64 {
        // Larger values saturate; no bound is negative.
        (self.bound * self.unit_ns()) as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::objective::parse;
    use crate::stats::LoadStats;

    #[test]
    fn shares_are_counted() {
        let mut record = LoadStats::default();
        (1..=100).for_each(|ms| record.latency.answered.record(ms * 1_000_000));
        record.latency.record_unbounded(1_000_000, 3);
        (record.counts.scheduled, record.counts.timeouts, record.counts.unsent) = (103, 2, 1);
        let beyond = |text: &str| {
            let objective = parse(text).unwrap().remove(0);
            (
                objective.allowed_share().map(|share| (share * 1e6).round()),
                objective.beyond(&record),
            )
        };
        assert_eq!(
            beyond("p50<1s"),
            (Some(500_000.0), Some((103, 3))),
            "what was given up is beyond any bound"
        );
        let (share, counted) = beyond("p99<=90.5ms");
        assert!(
            share == Some(10_000.0)
                && counted.is_some_and(|(all, late)| all == 103 && (12..=14).contains(&late))
        );
        assert_eq!(beyond("errors<0.5%"), (Some(5_000.0), Some((103, 3))));
        for none in [
            "p99>5ms",
            "mean<5ms",
            "max<1s",
            "errors<5",
            "rate>=5",
            "errors>1%",
            "errors<=0%",
            "errors<100%",
        ] {
            assert_eq!(beyond(none), (None, None), "{none}");
        }
    }
}
