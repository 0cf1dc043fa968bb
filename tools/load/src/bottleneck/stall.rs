//! Stalls that a closed loop hides: while its connections wait for slow responses, it sends
//! nothing, so that a stall of a second is one slow response per connection. Users would have gone
//! on sending. The estimate adds the requests that they would have sent, as the correction of
//! HdrHistogram for coordinated omission does. Pure.

use hotrow_measure::histogram::Histogram;

use crate::outcome::Outcome;
use crate::stats::CensoredNs;

/// A stall is reported when the estimated 99th percentile is at least this many times the measured
/// one.
const FACTOR_MIN: f64 = 2.0;
/// Shorter longest responses are not reported, in ns.
const LONGEST_NS_MIN: u64 = 50_000_000;
/// Most values added per bucket; further ones are represented by these.
const STEPS_MAX: u64 = 1_000;

/// A stall in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HiddenStall {
    /// The longest response, in ns.
    pub longest_ns: u64,
    /// 99th percentile as measured, in ns.
    pub p99_ns: u64,
    /// Estimated 99th percentile of an open loop at the same rate, in ns.
    pub open_p99_ns: u64,
    /// That rate, in requests per second.
    pub rate_rps: f64,
}

/// Returns the stall that a closed loop hid; `None` in an open loop, and where its percentiles
/// would have been similar.
pub fn hidden_stall(outcome: &Outcome) -> Option<HiddenStall> {
    let service = &outcome.total.service;
    let (None, Some(CensoredNs::Exact(p99_ns))) = (outcome.target_rate, service.quantile(0.99))
    else {
        return None;
    };
    let longest_ns = service.answered.max();
    let rate_rps = outcome.throughput_rps();
    if longest_ns < LONGEST_NS_MIN || rate_rps <= 0.0 {
        return None;
    }
    // Between two requests of one connection.
    let interval_ns = outcome.max_in_flight as f64 / rate_rps * 1e9;
    let open = with_omitted(&service.answered, (interval_ns as u64).max(1));
    let open_p99_ns = open.value_at_quantile(0.99)?;
    (open_p99_ns as f64 >= FACTOR_MIN * p99_ns as f64).then_some(HiddenStall {
        longest_ns,
        p99_ns,
        open_p99_ns,
        rate_rps,
    })
}

/// Returns the durations together with those of the requests that were not sent in that time: one
/// per `interval_ns`, each waiting that much shorter, down to `interval_ns`.
fn with_omitted(measured: &Histogram, interval_ns: u64) -> Histogram {
    let mut all = measured.clone();
    for bucket in measured.iter() {
        let value_ns = bucket.high.min(measured.max());
        let omitted = (value_ns / interval_ns).saturating_sub(1);
        let steps = omitted.min(STEPS_MAX);
        for step in 1..=steps {
            // Step k represents the omitted requests from (k-1)/steps to k/steps of all.
            let number = omitted * step / steps - omitted * (step - 1) / steps;
            let waited_ns = value_ns - interval_ns * (omitted * step / steps);
            all.record_n(waited_ns, bucket.count * number);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms per response, 10 connections, and a stall of a second in ten.
    fn measured() -> Histogram {
        let mut measured = Histogram::default();
        measured.record_n(1_000_000, 90_000);
        measured.record_n(1_000_000_000, 10);
        measured
    }

    #[test]
    fn requests_that_were_not_sent_are_added() {
        let open = with_omitted(&measured(), 1_000_000);
        // 10,000 due in the stall, evenly spread over its second.
        assert!((99_900..=100_200).contains(&open.count()), "{}", open.count());
        let p99_ns = open.value_at_quantile(0.99).unwrap();
        assert!((880_000_000..=920_000_000).contains(&p99_ns), "{p99_ns}");
        let fine = with_omitted(&measured(), 1_000);
        assert!(fine.count() > 10_000_000, "many omitted requests take few steps");
    }
}
