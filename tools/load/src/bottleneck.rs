//! Attribution of a run's limit: to the generator, or to the target and the path to it. A pure
//! function of an [`Outcome`].

pub mod stall;

use crate::outcome::{Outcome, Unread};
use crate::stats::CensoredNs;

/// A thread busy for at least this share of its time has no capacity left.
pub const BUSY_SHARE: f64 = 0.95;
/// A thread that waits for a CPU for at least this share of its time measures the scheduler.
pub const WAITING_SHARE: f64 = 0.2;
/// The generator's own lateness (99th percentile) that makes an open loop's latencies doubtful, in
/// ns: at least this, and at least [`OWN_LAG_SHARE`] of the median latency.
pub const OWN_LAG_NS: u64 = 5_000_000;
/// See [`OWN_LAG_NS`].
pub const OWN_LAG_SHARE: f64 = 0.5;
/// From this share of awaited responses that had arrived and lay unread on, the generator, not
/// the target, caused most of the service time.
pub const UNREAD_SHARE: f64 = 0.5;
/// Below this share of awaited responses that lay unread on waking, responses did not wait
/// for the generator, however long it waited for a CPU.
pub const UNREAD_SHARE_NONE: f64 = 0.1;
/// Minimum mean time that responses lay unread, in ns, for [`UNREAD_SHARE`] to apply. Every thread
/// needs less than that to wake up.
pub const UNREAD_NS: u64 = 1_000_000;
/// Minimum number of awaited responses for a judgement.
pub const UNREAD_AWAITED_MIN: u64 = 100;
/// Mean response size, in bytes, above which responses arrive in pieces, so that an unread piece is
/// no unread response.
pub const UNREAD_ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// Waiting for a free connection matters from this share of the service time on, both as 99th
/// percentiles.
pub const CONNECTION_WAIT_SHARE: f64 = 0.5;
/// Minimum wait for a connection that matters, in ns; see [`CONNECTION_WAIT_SHARE`].
pub const CONNECTION_WAIT_NS: u64 = 1_000_000;
/// An open loop that reaches this share of its target rate has kept it.
pub const RATE_KEPT: f64 = 0.98;

/// Limit that the generator put on the run, if any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bottleneck {
    /// The figures are those of the target and of the path to it.
    NotGenerator,
    /// A thread had no CPU time left; its share of a CPU, 0 to 1.
    OwnCpu(f64),
    /// A thread waited for a CPU that others used; the share of its time, 0 to 1.
    NoFreeCpu(f64),
    /// Requests were sent late although connections were free; 99th percentile in ns.
    OwnLag(u64),
    /// Responses lay unread in the receive buffers; the share of the awaited ones, 0 to 1.
    Unread(f64),
    /// A thread was runnable and did not run although no other thread had its CPU; the share of its
    /// time, 0 to 1.
    HeldBack(f64),
}

/// The factor that set the rate when the generator did not, as far as the generator can know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateCause {
    /// An open loop that kept its rate: the target's maximum was not reached.
    NoneFound,
    /// A closed loop: responses per second are requests in flight divided by the service time
    /// (Little's law). Either the target set that time, or there were too few connections.
    TargetOrConnections {
        /// Mean service time.
        mean: CensoredNs,
        /// Mean number of requests in flight, as measured; see [`mean_in_flight`].
        in_flight: f64,
    },
    /// An open loop in which requests waited for a free connection: the target was too slow for
    /// that number of connections.
    ConnectionsBusy {
        /// Requests in flight that the rate needs at the observed service time (Little's law).
        needed: f64,
        /// Lateness of the sends, 99th percentile, in ns; 0 when nothing was sent.
        lag_ns: u64,
    },
    /// An open loop that sent in time and did not receive the expected responses.
    Failures,
    /// No response arrived, or no request was sent.
    Nothing,
}

/// Returns the mean number of requests in flight: all service times over the window, at most the
/// room for requests. 0 without a window.
pub fn mean_in_flight(outcome: &Outcome) -> f64 {
    let window_ns = outcome.window.as_nanos() as f64;
    if window_ns == 0.0 {
        return 0.0;
    }
    (outcome.total.service.all().sum() as f64 / window_ns).min(outcome.max_in_flight as f64)
}

impl Outcome {
    /// Returns whether and how the generator was the limit.
    pub fn limit(&self) -> Bottleneck {
        evaluate(self)
    }
}

impl Bottleneck {
    /// Returns whether the generator may have read responses late, so that service times are upper
    /// bounds, too.
    #[must_use]
    pub fn delays_reading(self) -> bool {
        !matches!(self, Self::NotGenerator | Self::OwnLag(_))
    }

    /// Returns whether the generator was the limit: rates are then lower bounds, latencies upper
    /// bounds.
    #[must_use]
    pub fn is_generator(self) -> bool {
        self != Self::NotGenerator
    }
}

/// Attributes the limit of a finished run.
pub fn evaluate(outcome: &Outcome) -> Bottleneck {
    let busy = outcome.cpu_share();
    let waiting = outcome.threads.iter().map(|t| t.waiting()).fold(0.0, f64::max);
    let harmless = answers_did_not_wait(outcome);
    if waiting >= WAITING_SHARE && !harmless {
        return Bottleneck::NoFreeCpu(waiting);
    }
    // Waiting and running together leave no idle time either.
    let idle_gone = outcome
        .threads
        .iter()
        .any(|t| t.busy() + if harmless { 0.0 } else { t.waiting() } >= BUSY_SHARE);
    if idle_gone {
        return Bottleneck::OwnCpu(busy);
    }
    let held_back = outcome.threads.iter().map(|t| t.held_back()).fold(0.0, f64::max);
    if held_back >= WAITING_SHARE && !harmless {
        return Bottleneck::HeldBack(held_back);
    }
    let own_lag = outcome.total.own_lag.value_at_quantile(0.99).unwrap_or(0);
    let median = outcome.total.latency.quantile(0.5).map_or(0, CensoredNs::ns);
    if outcome.target_rate.is_some()
        && own_lag >= OWN_LAG_NS
        && own_lag as f64 >= OWN_LAG_SHARE * median as f64
    {
        return Bottleneck::OwnLag(own_lag);
    }
    match outcome.unread_share() {
        Some(share)
            if share >= UNREAD_SHARE
                && outcome.unread_ns() >= UNREAD_NS
                && unread_counts(outcome) =>
        {
            Bottleneck::Unread(share)
        }
        _ => Bottleneck::NotGenerator,
    }
}

/// Returns whether hardly any response waited for the generator to wake. False with too few
/// samples, or when responses arrive in pieces.
pub(crate) fn answers_did_not_wait(outcome: &Outcome) -> bool {
    let found =
        outcome.threads.iter().fold(Unread::default(), |sum, t| sum.and(t.unread_on_waking));
    found.awaited >= UNREAD_AWAITED_MIN
        && found.share().is_some_and(|share| share < UNREAD_SHARE_NONE)
}

/// Returns whether unread bytes count as unread responses, and enough responses were sampled.
fn unread_counts(outcome: &Outcome) -> bool {
    let counts = &outcome.total.counts;
    let answers = counts.ok + counts.errors.unexpected_status;
    outcome.unread().awaited >= UNREAD_AWAITED_MIN
        && counts.bytes_received / answers.max(1) <= UNREAD_ANSWER_BYTES_MAX
}

/// Returns the factor that set the rate of a run that the generator did not limit.
pub fn cause(outcome: &Outcome) -> RateCause {
    let total = &outcome.total;
    let Some(service) = total.service.mean() else { return RateCause::Nothing };
    let (Some(rate), Some(ratio)) = (outcome.target_rate, outcome.rate_ratio()) else {
        return RateCause::TargetOrConnections {
            mean: service,
            in_flight: mean_in_flight(outcome),
        };
    };
    let lag_ns = total.schedule_lag.value_at_quantile(0.99).unwrap_or(0);
    let own_lag_ns = total.own_lag.value_at_quantile(0.99).unwrap_or(0);
    let service_ns = total.service.quantile(0.99).map_or(0, CensoredNs::ns);
    let waited_ns = lag_ns.saturating_sub(own_lag_ns);
    let waited = waited_ns >= CONNECTION_WAIT_NS
        && waited_ns as f64 >= CONNECTION_WAIT_SHARE * service_ns as f64;
    let left_over = total.counts.unsent as f64 > (1.0 - RATE_KEPT) * total.counts.scheduled as f64;
    if waited || left_over {
        return RateCause::ConnectionsBusy { needed: rate * service.ns() as f64 / 1e9, lag_ns };
    }
    if ratio < RATE_KEPT { RateCause::Failures } else { RateCause::NoneFound }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::{RunEnd, ThreadUse};
    use crate::stats::LoadStats;

    fn outcome(threads: &[(u64, u64)], own_lag_ns: u64, target_rate: Option<f64>) -> Outcome {
        let ms = Duration::from_millis;
        let used = |(i, (cpu, wait)): (usize, &(u64, u64))| ThreadUse {
            tid: i as i32,
            cpu: ms(*cpu),
            wall: ms(1000),
            runqueue_wait: Some(ms(*wait)),
            not_run: Duration::ZERO,
            unread: Unread::default(),
            unread_on_waking: Unread::default(),
        };
        let mut total = LoadStats::default();
        total.own_lag.record(own_lag_ns);
        total.latency.answered.record(1_000_000);
        Outcome {
            end: RunEnd::Complete,
            window: ms(1000),
            total,
            in_flight_at_end: 0,
            target_rate,
            max_in_flight: 10,
            seconds: Vec::new(),
            threads: threads.iter().enumerate().map(used).collect(),
            failure_messages: Vec::new(),
            latency_map: crate::latency_map::LatencyMap::default(),
        }
    }

    #[test]
    fn each_limit_is_named() {
        let open = Some(100.0);
        assert_eq!(
            evaluate(&outcome(&[(500, 10), (400, 0)], 50_000, open)),
            Bottleneck::NotGenerator
        );
        assert_eq!(
            evaluate(&outcome(&[(500, 10), (970, 0)], 50_000, open)),
            Bottleneck::OwnCpu(0.97)
        );
        assert_eq!(evaluate(&outcome(&[(880, 90)], 0, None)), Bottleneck::OwnCpu(0.88));
        assert_eq!(evaluate(&outcome(&[(500, 400)], 50_000_000, open)), Bottleneck::NoFreeCpu(0.4));
        assert!(matches!(evaluate(&outcome(&[(100, 0)], 50_000_000, open)), Bottleneck::OwnLag(_)));
        assert_eq!(evaluate(&outcome(&[(100, 0)], 50_000_000, None)), Bottleneck::NotGenerator);
        assert!(!Bottleneck::NotGenerator.is_generator() && Bottleneck::OwnLag(1).is_generator());
    }

    #[test]
    fn answers_that_lie_unread_are_the_generators() {
        let mut run = outcome(&[(200, 0), (200, 0)], 50_000, None);
        (run.total.counts.ok, run.total.counts.bytes_received) = (1000, 100_000);
        run.total.service.answered.record(2_000_000);
        run.threads[1].unread = Unread { awaited: 99, unread: 99 };
        assert_eq!(evaluate(&run), Bottleneck::NotGenerator, "too few");
        run.threads[0].unread = Unread { awaited: 101, unread: 21 };
        assert_eq!(evaluate(&run), Bottleneck::Unread(0.6));
        run.total.counts.bytes_received = 100_000_000;
        assert_eq!(evaluate(&run), Bottleneck::NotGenerator, "large answers come in pieces");
        assert_eq!((run.unread_share(), run.unread_ns()), (Some(0.6), 1_200_000));
        run.total.counts.bytes_received = 100_000;
        run.total.service.answered.record_n(20_000, 100);
        assert_eq!(evaluate(&run), Bottleneck::NotGenerator, "waking up takes that long");
    }

    /// The generator waits for a CPU, but responses do not wait for the generator.
    #[test]
    fn waiting_for_a_cpu_is_harmless_while_no_answer_waits() {
        let mut run = outcome(&[(10, 500)], 50_000, None);
        assert_eq!(evaluate(&run), Bottleneck::NoFreeCpu(0.5));
        run.threads[0].unread_on_waking = Unread { awaited: 1000, unread: 99 };
        assert_eq!(evaluate(&run), Bottleneck::NotGenerator);
        run.threads[0].unread_on_waking = Unread { awaited: 1000, unread: 100 };
        assert_eq!(evaluate(&run), Bottleneck::NoFreeCpu(0.5));
        run.threads[0].unread_on_waking = Unread { awaited: 99, unread: 0 };
        assert_eq!(evaluate(&run), Bottleneck::NoFreeCpu(0.5), "too few looks");
        let mut stopped = outcome(&[(10, 0)], 50_000, None);
        stopped.threads[0].not_run = Duration::from_millis(300);
        assert_eq!(evaluate(&stopped), Bottleneck::HeldBack(0.3));
    }

    #[test]
    fn causes_of_the_rate_are_distinguished() {
        let mut run = outcome(&[(100, 0)], 50_000, None);
        assert_eq!(cause(&run), RateCause::Nothing);
        run.total.service.answered.record(20_000_000);
        assert!(matches!(
            cause(&run),
            RateCause::TargetOrConnections { mean: CensoredNs::Exact(20_000_000), in_flight }
                if (in_flight - 0.02).abs() < 1e-9
        ));
        run.target_rate = Some(1000.0);
        (run.total.counts.scheduled, run.total.counts.ok_in_window) = (1000, 990);
        run.total.schedule_lag.record(60_000);
        assert_eq!(cause(&run), RateCause::NoneFound);
        run.total.counts.ok_in_window = 500;
        assert_eq!(cause(&run), RateCause::Failures);
        run.total.schedule_lag.record_n(300_000_000, 100);
        let RateCause::ConnectionsBusy { needed, lag_ns } = cause(&run) else {
            panic!("{:?}", cause(&run))
        };
        assert!((needed - 20.0).abs() < 1e-9 && lag_ns >= 300_000_000, "{needed} {lag_ns}");
    }
}
