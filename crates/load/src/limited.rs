//! What limited a run: the generator, or the target and the way to it. A pure judgement of an [`Outcome`].

use crate::outcome::{Outcome, Unread};
use crate::record::Known;

/// A thread that is busy for this share of its time has nothing left to give.
pub const BUSY_SHARE: f64 = 0.95;
/// A thread that waits for a CPU for this share of its time measures the scheduler.
pub const WAITING_SHARE: f64 = 0.2;
/// Own lateness of the schedule (99th percentile) that makes an open loop's latencies doubtful, in ns: at least this,
/// and at least this share of the median latency.
pub const OWN_LAG_NS: u64 = 5_000_000;
/// See [`OWN_LAG_NS`].
pub const OWN_LAG_SHARE: f64 = 0.5;
/// When this share of the awaited answers had come and lay unread, the generator, not the target, took most of the time.
pub const UNREAD_SHARE: f64 = 0.5;
/// When not even this share of the awaited answers lay unread on waking, the answers did not wait for the generator, however long
/// it waited for a CPU.
pub const UNREAD_SHARE_NONE: f64 = 0.1;
/// See [`UNREAD_SHARE`]; and at least for this time on average, in ns. Less than that any thread needs to wake up.
pub const UNREAD_NS: u64 = 1_000_000;
/// Fewer awaited answers than this are too few to judge by.
pub const UNREAD_AWAITED_MIN: u64 = 100;
/// Larger answers come in pieces, and a piece that lies there does not mean that the answer does; in bytes, on average.
pub const UNREAD_ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// Waiting for a free connection matters from this share of the service time on, both as 99th percentiles.
pub const CONNECTION_WAIT_SHARE: f64 = 0.5;
/// See [`CONNECTION_WAIT_SHARE`]; and from this time on, in ns.
pub const CONNECTION_WAIT_NS: u64 = 1_000_000;
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
    /// Answers lay in the receive buffers and were not read; the share of those that were awaited, 0 to 1.
    Unread(f64),
    /// A thread wanted to run and was not run, though no other had its CPU; the share of its time, 0 to 1.
    Stopped(f64),
}

/// What set the rate, as far as the generator can know, when it did not do so itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// An open loop that kept its rate: whatever the target can do, it was not asked for it.
    NoneFound,
    /// A closed loop: answers per second are requests in flight over the time of each (Little's law). The target set that
    /// time, or the number of connections was too small for it.
    TargetOrConnections {
        /// Mean time of one request.
        mean: Known,
    },
    /// An open loop in which requests waited for a free connection: the target was too slow for that many connections.
    ConnectionsBusy {
        /// Requests that must be in flight at once to keep the rate at the service time that was seen (Little's law).
        needed: f64,
        /// Lateness of the sends, 99th percentile, in ns; 0 when nothing was sent.
        lag_ns: u64,
    },
    /// An open loop that sent in time and did not get the answers that it expected.
    Failures,
    /// No answer came, or no request went out.
    Nothing,
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
    let harmless = answers_did_not_wait(outcome);
    if waiting >= WAITING_SHARE && !harmless {
        return Limit::NoFreeCpu(waiting);
    }
    // Waiting and running together leave no idle time either.
    let idle_gone = outcome.threads.iter().any(|t| t.busy() + if harmless { 0.0 } else { t.waiting() } >= BUSY_SHARE);
    if idle_gone {
        return Limit::OwnCpu(busy);
    }
    let held_back = outcome.threads.iter().map(|t| t.held_back()).fold(0.0, f64::max);
    if held_back >= WAITING_SHARE && !harmless {
        return Limit::Stopped(held_back);
    }
    let own_lag = outcome.total.own_lag.value_at_quantile(0.99).unwrap_or(0);
    let median = outcome.total.latency.quantile(0.5).map_or(0, Known::ns);
    if outcome.target_rate.is_some() && own_lag >= OWN_LAG_NS && own_lag as f64 >= OWN_LAG_SHARE * median as f64 {
        return Limit::OwnLag(own_lag);
    }
    match outcome.unread_share() {
        Some(share) if share >= UNREAD_SHARE && outcome.unread_ns() >= UNREAD_NS && unread_counts(outcome) => {
            Limit::Unread(share)
        }
        _ => Limit::NotTheGenerator,
    }
}

/// Whether hardly an answer had to wait for the generator to wake. Nothing is known without enough looks, or with answers that
/// come in pieces.
fn answers_did_not_wait(outcome: &Outcome) -> bool {
    let found = outcome.threads.iter().fold(Unread::default(), |sum, t| sum.and(t.unread_on_waking));
    found.awaited >= UNREAD_AWAITED_MIN && found.share().is_some_and(|share| share < UNREAD_SHARE_NONE)
}

/// Whether what lies in receive buffers are answers, and enough of them were looked for.
fn unread_counts(outcome: &Outcome) -> bool {
    let counts = &outcome.total.counts;
    let answers = counts.ok + counts.errors.unexpected_status;
    outcome.unread().awaited >= UNREAD_AWAITED_MIN && counts.bytes_received / answers.max(1) <= UNREAD_ANSWER_BYTES_MAX
}

/// Judges what set the rate of a run that the generator did not limit.
#[must_use]
pub fn cause(outcome: &Outcome) -> Cause {
    let total = &outcome.total;
    let Some(service) = total.service.mean() else { return Cause::Nothing };
    let (Some(rate), Some(ratio)) = (outcome.target_rate, outcome.rate_ratio()) else {
        return Cause::TargetOrConnections { mean: service };
    };
    let lag_ns = total.schedule_lag.value_at_quantile(0.99).unwrap_or(0);
    let own_lag_ns = total.own_lag.value_at_quantile(0.99).unwrap_or(0);
    let service_ns = total.service.quantile(0.99).map_or(0, Known::ns);
    let waited_ns = lag_ns.saturating_sub(own_lag_ns);
    let waited = waited_ns >= CONNECTION_WAIT_NS && waited_ns as f64 >= CONNECTION_WAIT_SHARE * service_ns as f64;
    let left_over = total.counts.unsent as f64 > (1.0 - RATE_KEPT) * total.counts.scheduled as f64;
    if waited || left_over {
        return Cause::ConnectionsBusy { needed: rate * service.ns() as f64 / 1e9, lag_ns };
    }
    if ratio < RATE_KEPT { Cause::Failures } else { Cause::NoneFound }
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
            not_run: Duration::ZERO,
            unread: Unread::default(),
            unread_on_waking: Unread::default(),
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
            places: 10,
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

    #[test]
    fn answers_that_lie_unread_are_the_generators() {
        let mut run = outcome(&[(200, 0), (200, 0)], 50_000, None);
        (run.total.counts.ok, run.total.counts.bytes_received) = (1000, 100_000);
        run.total.service.answered.record(2_000_000);
        run.threads[1].unread = Unread { awaited: 99, lying: 99 };
        assert_eq!(judge(&run), Limit::NotTheGenerator, "too few");
        run.threads[0].unread = Unread { awaited: 101, lying: 21 };
        assert_eq!(judge(&run), Limit::Unread(0.6));
        run.total.counts.bytes_received = 100_000_000;
        assert_eq!(judge(&run), Limit::NotTheGenerator, "large answers come in pieces");
        assert_eq!((run.unread_share(), run.unread_ns()), (Some(0.6), 1_200_000));
        run.total.counts.bytes_received = 100_000;
        run.total.service.answered.record_n(20_000, 100);
        assert_eq!(judge(&run), Limit::NotTheGenerator, "waking up takes that long");
    }

    /// It waits for a CPU, but the answers do not wait for it.
    #[test]
    fn waiting_for_a_cpu_is_harmless_while_no_answer_waits() {
        let mut run = outcome(&[(10, 500)], 50_000, None);
        assert_eq!(judge(&run), Limit::NoFreeCpu(0.5));
        run.threads[0].unread_on_waking = Unread { awaited: 1000, lying: 99 };
        assert_eq!(judge(&run), Limit::NotTheGenerator);
        run.threads[0].unread_on_waking = Unread { awaited: 1000, lying: 100 };
        assert_eq!(judge(&run), Limit::NoFreeCpu(0.5));
        run.threads[0].unread_on_waking = Unread { awaited: 99, lying: 0 };
        assert_eq!(judge(&run), Limit::NoFreeCpu(0.5), "too few looks");
        let mut stopped = outcome(&[(10, 0)], 50_000, None);
        stopped.threads[0].not_run = Duration::from_millis(300);
        assert_eq!(judge(&stopped), Limit::Stopped(0.3));
    }

    #[test]
    fn what_set_the_rate_is_told_apart() {
        let mut run = outcome(&[(100, 0)], 50_000, None);
        assert_eq!(cause(&run), Cause::Nothing);
        run.total.service.answered.record(20_000_000);
        assert!(matches!(cause(&run), Cause::TargetOrConnections { mean: Known::Exactly(20_000_000) }));
        run.target_rate = Some(1000.0);
        (run.total.counts.scheduled, run.total.counts.ok_in_window) = (1000, 990);
        run.total.schedule_lag.record(60_000);
        assert_eq!(cause(&run), Cause::NoneFound);
        run.total.counts.ok_in_window = 500;
        assert_eq!(cause(&run), Cause::Failures);
        run.total.schedule_lag.record_n(300_000_000, 100);
        let Cause::ConnectionsBusy { needed, lag_ns } = cause(&run) else { panic!("{:?}", cause(&run)) };
        assert!((needed - 20.0).abs() < 1e-9 && lag_ns >= 300_000_000, "{needed} {lag_ns}");
    }
}
