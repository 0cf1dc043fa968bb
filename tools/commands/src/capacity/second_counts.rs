//! Per-second counts of one load for the statistics of its verdict: requests that violated an
//! objective, and due requests without a response.

use std::time::Duration;

use hotrow_load::bottleneck::RATE_KEPT;
use hotrow_load::objective::{Objective, ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome;
use hotrow_load::stats::LoadStats;
use hotrow_trial::capacity::certainty::{SURE, Score, Second, score, score_level};
use hotrow_trial::capacity::search::Trial;

/// The seconds of one load.
pub(super) struct SecondCounts<'a> {
    objectives: &'a [Objective],
    /// By second, then by objective; the last entry of each second counts due requests without a
    /// response.
    seconds: Vec<Vec<Option<Second>>>,
}

impl<'a> SecondCounts<'a> {
    pub(super) fn new(objectives: &'a [Objective]) -> Self {
        Self { objectives, seconds: Vec::new() }
    }

    pub(super) fn add(&mut self, _: &outcome::Second, record: &LoadStats) {
        let of = |(all, bad): (u64, u64)| Second { requests: all as f64, bad: bad as f64 };
        let mut second: Vec<Option<Second>> =
            self.objectives.iter().map(|objective| objective.beyond(record).map(of)).collect();
        let counts = &record.counts;
        // More requests may be answered in a second than become due in it.
        let unanswered = counts.scheduled as f64 - counts.answered_in_window() as f64;
        second.push(Some(Second { requests: counts.scheduled as f64, bad: unanswered }));
        self.seconds.push(second);
    }

    /// Returns the certainty of the load's verdict: that of the objective closest to being missed,
    /// or furthest beyond its bound. `None` when the load is too short, or no objective counts a
    /// share of requests. `latency` is the mean latency.
    pub(super) fn noise(
        &self,
        trial: &Trial,
        judged: &[ObjectiveResult],
        latency: Duration,
    ) -> Option<Score> {
        let whole = trial.length.as_secs_f64().ceil() as usize;
        let allowed = self.objectives.iter().map(Objective::allowed_share).enumerate();
        let shares = allowed.filter_map(|(at, allowed)| score(&self.of(at, whole), allowed?));
        // In the first seconds fewer responses arrive than requests become due, until the number in
        // flight is steady.
        let full = latency.as_secs_f64().ceil() as usize + 1;
        let unanswered = self.of(self.objectives.len(), whole);
        let unanswered =
            unanswered.get(full..).and_then(|seconds| score_level(seconds, 1.0 - RATE_KEPT));
        let worst = shares.chain(unanswered).max_by(|one, other| one.z.total_cmp(&other.z))?;
        // An objective without a share has an unknown certainty.
        let without_share = |judged: &ObjectiveResult| judged.objective.allowed_share().is_none();
        if judged
            .iter()
            .any(|judged| without_share(judged) && judged.met == ObjectiveStatus::Missed)
        {
            return Some(worst).filter(|worst| worst.z >= SURE);
        }
        let counted = judged.iter().any(|judged| !without_share(judged)) || worst.z > 0.0;
        counted.then_some(worst)
    }

    /// Returns one objective's seconds. Responses after the planned end belong to the last second.
    fn of(&self, at: usize, whole: usize) -> Vec<Second> {
        let all =
            self.seconds.iter().map(|second| second.get(at).copied().flatten().unwrap_or_default());
        let mut seconds: Vec<Second> = all.clone().take(whole).collect();
        if let Some(last) = seconds.last_mut() {
            for late in all.skip(whole) {
                last.requests += late.requests;
                last.bad += late.bad;
            }
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use hotrow_load::objective::{MeasuredValue, parse};
    use hotrow_measure::clock::Nanos;
    use hotrow_trial::capacity::search::Purpose;

    use super::*;

    const TRIAL: Trial = Trial {
        rate_rps: 1_000.0,
        warmup: Duration::ZERO,
        length: Duration::from_secs(10),
        pause: Duration::ZERO,
        purpose: Purpose::Confirm,
    };

    /// 1,000 requests, of which `late` took 20 ms; `unanswered` have no response in this second.
    fn record(late: u64, unanswered: u64) -> LoadStats {
        let mut record = LoadStats::default();
        record.latency.answered.record_n(1_000_000, 1_000 - late);
        record.latency.answered.record_n(20_000_000, late);
        (record.counts.scheduled, record.counts.ok_in_window) = (1_000, 1_000 - unanswered);
        record
    }

    fn noise(slo: &str, met: ObjectiveStatus, seconds: &[(u64, u64)]) -> Option<f64> {
        noise_of(slo, met, seconds, Duration::from_millis(1))
    }

    fn noise_of(
        slo: &str,
        met: ObjectiveStatus,
        seconds: &[(u64, u64)],
        latency: Duration,
    ) -> Option<f64> {
        let objectives = parse(slo).unwrap();
        let mut counted = SecondCounts::new(&objectives);
        for (index, (late, unanswered)) in (0..).zip(seconds) {
            let record = record(*late, *unanswered);
            counted.add(
                &outcome::Second::of(index, Nanos::ZERO, Duration::from_secs(1), &record),
                &record,
            );
        }
        let judged = |objective: &Objective| ObjectiveResult {
            objective: objective.clone(),
            value: MeasuredValue::Nothing,
            met,
        };
        let judged: Vec<ObjectiveResult> = objectives.iter().map(judged).collect();
        counted.noise(&TRIAL, &judged, latency).map(|noise| noise.z)
    }

    #[test]
    fn the_objective_that_is_nearest_to_being_missed_counts() {
        let kept = noise("p99<10ms,p50<5ms", ObjectiveStatus::Met, &[(1, 0); 10]).unwrap();
        assert!(kept < -SURE && kept > -30.0, "{kept}");
        assert!(noise("p99<10ms", ObjectiveStatus::Missed, &[(50, 0); 10]).unwrap() > SURE);
        // A growing queue, however fast its responses.
        assert!(noise("p99<10ms", ObjectiveStatus::Met, &[(0, 50); 10]).unwrap() > SURE);
        // But not a single full last second.
        let mut seconds = [(0, 0); 10];
        seconds[9] = (0, 300);
        assert!(noise("p99<10ms", ObjectiveStatus::Met, &seconds).unwrap() < SURE);
    }

    /// A server that rejects excess load quickly: the objective decides how many rejections are
    /// allowed.
    #[test]
    fn rejections_are_no_growing_queue() {
        let objectives = parse("errors<5%").unwrap();
        let mut counted = SecondCounts::new(&objectives);
        for index in 0..10 {
            let mut record = record(0, 30);
            (record.counts.errors.unexpected_status, record.counts.unexpected_in_window) = (30, 30);
            counted.add(
                &outcome::Second::of(index, Nanos::ZERO, Duration::from_secs(1), &record),
                &record,
            );
        }
        let judged = ObjectiveResult {
            objective: objectives[0].clone(),
            value: MeasuredValue::Nothing,
            met: ObjectiveStatus::Met,
        };
        let noise = counted.noise(&TRIAL, &[judged], Duration::from_millis(1)).unwrap();
        assert!(noise.z < -SURE, "{noise:?}");
    }

    /// Each takes 2.5 s, so that nothing is answered in the first two seconds, and half of it in
    /// the third.
    #[test]
    fn a_slow_server_is_no_growing_queue() {
        let mut seconds = [(0, 0); 10];
        (seconds[0], seconds[1], seconds[2]) = ((0, 1_000), (0, 1_000), (0, 500));
        let z = noise_of("p99<9s", ObjectiveStatus::Met, &seconds, Duration::from_millis(2_500))
            .unwrap();
        assert!(z < -SURE, "{z}");
    }

    #[test]
    fn late_responses_belong_to_the_last_second() {
        let mut seconds = [(0, 0); 12];
        (seconds[10], seconds[11]) = ((100, 0), (100, 0));
        assert!(
            noise("p99<10ms", ObjectiveStatus::Missed, &seconds).unwrap() < SURE,
            "one second is no proof"
        );
    }

    #[test]
    fn an_objective_without_a_share_decides() {
        assert_eq!(noise("mean<10ms", ObjectiveStatus::Met, &[(0, 0); 10]), None);
        assert_eq!(noise("mean<10ms,p99<10ms", ObjectiveStatus::Missed, &[(0, 0); 10]), None);
        assert!(
            noise("mean<10ms,p99<10ms", ObjectiveStatus::Missed, &[(50, 0); 10]).unwrap() > SURE
        );
        // Less certain to be kept than the queue is not to grow.
        assert_eq!(noise("errors<=0%", ObjectiveStatus::Missed, &[(0, 0); 10]), None);
        assert_eq!(noise("errors<=0%,p99<10ms", ObjectiveStatus::Missed, &[(0, 0); 10]), None);
        assert_eq!(noise("p99<10ms", ObjectiveStatus::Met, &[(0, 0); 3]), None, "too short");
    }
}
