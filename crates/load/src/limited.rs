//! What limited a run: the generator, or the target and the way to it. A pure judgement of an [`Outcome`].

use crate::outcome::Outcome;

/// A thread that is busy for this share of its time has nothing left to give.
pub const BUSY_SHARE: f64 = 0.95;
/// A thread that waits for a CPU for this share of its time measures the scheduler.
pub const WAITING_SHARE: f64 = 0.2;
/// Own lateness of the schedule (99th percentile) that makes an open loop's latencies doubtful, in ns: at least this,
/// and at least this share of the median latency.
pub const OWN_LAG_NS: u64 = 5_000_000;
/// See [`OWN_LAG_NS`].
pub const OWN_LAG_SHARE: f64 = 0.5;
/// An open loop that keeps this much of its target rate has kept it.
pub const RATE_KEPT: f64 = 0.98;

/// Whether the generator was the limit, and by what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// It was not: the figures are the target's, and of the way to it.
    NotTheGenerator,
    /// A thread had no CPU time left; its share of it, 0 to 1.
    OwnCpu(f64),
    /// A thread waited for a CPU that others used; the share of its time, 0 to 1.
    NoFreeCpu(f64),
    /// Requests were sent late though connections were free; 99th percentile in ns.
    OwnLag(u64),
}

impl Limit {
    /// Whether the generator was the limit: rates are lower bounds then, latencies upper bounds.
    #[must_use]
    pub fn is_generator(self) -> bool {
        self != Self::NotTheGenerator
    }
}

/// Judges a finished run.
#[must_use]
pub fn judge(outcome: &Outcome) -> Limit {
    let busy = outcome.cpu_share();
    let waiting = outcome.threads.iter().map(|t| t.waiting()).fold(0.0, f64::max);
    if waiting >= WAITING_SHARE {
        return Limit::NoFreeCpu(waiting);
    }
    // Waiting and running together leave no idle time either.
    let idle_gone = outcome.threads.iter().any(|t| t.busy() + t.waiting() >= BUSY_SHARE);
    if idle_gone {
        return Limit::OwnCpu(busy);
    }
    let own_lag = outcome.total.own_lag.value_at_quantile(0.99).unwrap_or(0);
    let median = outcome.total.latency.quantile(0.5).map_or(0, crate::record::Known::ns);
    if outcome.target_rate.is_some() && own_lag >= OWN_LAG_NS && own_lag as f64 >= OWN_LAG_SHARE * median as f64 {
        return Limit::OwnLag(own_lag);
    }
    Limit::NotTheGenerator
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::{End, ThreadUse};
    use crate::record::Record;

    fn outcome(threads: &[(u64, u64)], own_lag_ns: u64, target_rate: Option<f64>) -> Outcome {
        let ms = Duration::from_millis;
        let used = |(i, (cpu, wait)): (usize, &(u64, u64))| ThreadUse {
            tid: i as i32,
            cpu: ms(*cpu),
            wall: ms(1000),
            runqueue_wait: Some(ms(*wait)),
        };
        let mut total = Record::default();
        total.own_lag.record(own_lag_ns);
        total.latency.answered.record(1_000_000);
        Outcome {
            end: End::Complete,
            window: ms(1000),
            total,
            in_flight_at_end: 0,
            target_rate,
            seconds: Vec::new(),
            threads: threads.iter().enumerate().map(used).collect(),
            troubles: Vec::new(),
        }
    }

    #[test]
    fn each_limit_is_named() {
        let open = Some(100.0);
        assert_eq!(judge(&outcome(&[(500, 10), (400, 0)], 50_000, open)), Limit::NotTheGenerator);
        assert_eq!(judge(&outcome(&[(500, 10), (970, 0)], 50_000, open)), Limit::OwnCpu(0.97));
        assert_eq!(judge(&outcome(&[(880, 90)], 0, None)), Limit::OwnCpu(0.88));
        assert_eq!(judge(&outcome(&[(500, 400)], 50_000_000, open)), Limit::NoFreeCpu(0.4));
        assert!(matches!(judge(&outcome(&[(100, 0)], 50_000_000, open)), Limit::OwnLag(_)));
        assert_eq!(judge(&outcome(&[(100, 0)], 50_000_000, None)), Limit::NotTheGenerator);
        assert!(!Limit::NotTheGenerator.is_generator() && Limit::OwnLag(1).is_generator());
    }
}
