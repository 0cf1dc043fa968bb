//! The seconds of one load, counted as its verdict's statistics want them: of the requests of each, how many were beyond what
//! an objective asks, and how many were due and not answered.

use std::time::Duration;

use hotrow_lab::capacity::certainty::{SURE, Score, Second, score, score_level};
use hotrow_lab::capacity::search::Trial;
use hotrow_load::limited::RATE_KEPT;
use hotrow_load::objective::{Judged, Met, Objective};
use hotrow_load::outcome;
use hotrow_load::record::Record;

/// One load's seconds.
pub(super) struct Counted<'a> {
    objectives: &'a [Objective],
    /// By second, then by objective; the last of each second is what was due and not answered in it.
    seconds: Vec<Vec<Option<Second>>>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(objectives: &'a [Objective]) -> Self {
        Self { objectives, seconds: Vec::new() }
    }

    pub(super) fn add(&mut self, _: &outcome::Second, record: &Record) {
        let of = |(all, bad): (u64, u64)| Second { requests: all as f64, bad: bad as f64 };
        let mut second: Vec<Option<Second>> =
            self.objectives.iter().map(|objective| objective.beyond(record).map(of)).collect();
        let counts = &record.counts;
        // More may be answered in a second than become due in it.
        let unanswered = counts.scheduled as f64 - counts.answered_in_window() as f64;
        second.push(Some(Second { requests: counts.scheduled as f64, bad: unanswered }));
        self.seconds.push(second);
    }

    /// How sure the load is: as sure as the objective that is nearest to being missed, or furthest beyond. None when it is too
    /// short to tell, or when only objectives were judged that count no share of requests.
    /// `latency` is the mean one.
    pub(super) fn noise(&self, trial: &Trial, judged: &[Judged], latency: Duration) -> Option<Score> {
        let whole = trial.length.as_secs_f64().ceil() as usize;
        let allowed = self.objectives.iter().map(Objective::allowed_share).enumerate();
        let shares = allowed.filter_map(|(at, allowed)| score(&self.of(at, whole), allowed?));
        // In the first seconds less is answered than becomes due, until as much is under way as always will be.
        let full = latency.as_secs_f64().ceil() as usize + 1;
        let unanswered = self.of(self.objectives.len(), whole);
        let unanswered = unanswered.get(full..).and_then(|seconds| score_level(seconds, 1.0 - RATE_KEPT));
        let worst = shares.chain(unanswered).max_by(|one, other| one.z.total_cmp(&other.z))?;
        // What no share tells of, but a verdict does: how sure that is nobody knows.
        let told = |judged: &Judged| judged.objective.allowed_share().is_none();
        if judged.iter().any(|judged| told(judged) && judged.met == Met::No) {
            return Some(worst).filter(|worst| worst.z >= SURE);
        }
        let counted = judged.iter().any(|judged| !told(judged)) || worst.z > 0.0;
        counted.then_some(worst)
    }

    /// One objective's seconds. What came after the planned end belongs to the last second.
    fn of(&self, at: usize, whole: usize) -> Vec<Second> {
        let all = self.seconds.iter().map(|second| second.get(at).copied().flatten().unwrap_or_default());
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
    use hotrow_lab::capacity::search::Purpose;
    use hotrow_load::objective::{Value, parse};
    use hotrow_measure::clock::Nanos;

    use super::*;

    const TRIAL: Trial = Trial {
        rate_rps: 1_000.0,
        warmup: Duration::ZERO,
        length: Duration::from_secs(10),
        pause: Duration::ZERO,
        purpose: Purpose::Confirm,
    };

    /// 1,000 requests, of which `late` took 20 ms, and `unanswered` are not answered in this second.
    fn record(late: u64, unanswered: u64) -> Record {
        let mut record = Record::default();
        record.latency.answered.record_n(1_000_000, 1_000 - late);
        record.latency.answered.record_n(20_000_000, late);
        (record.counts.scheduled, record.counts.ok_in_window) = (1_000, 1_000 - unanswered);
        record
    }

    fn noise(slo: &str, met: Met, seconds: &[(u64, u64)]) -> Option<f64> {
        noise_of(slo, met, seconds, Duration::from_millis(1))
    }

    fn noise_of(slo: &str, met: Met, seconds: &[(u64, u64)], latency: Duration) -> Option<f64> {
        let objectives = parse(slo).unwrap();
        let mut counted = Counted::new(&objectives);
        for (index, (late, unanswered)) in (0..).zip(seconds) {
            let record = record(*late, *unanswered);
            counted.add(&outcome::Second::of(index, Nanos::ZERO, Duration::from_secs(1), &record), &record);
        }
        let judged = |objective: &Objective| Judged { objective: objective.clone(), value: Value::Nothing, met };
        let judged: Vec<Judged> = objectives.iter().map(judged).collect();
        counted.noise(&TRIAL, &judged, latency).map(|noise| noise.z)
    }

    #[test]
    fn the_objective_that_is_nearest_to_being_missed_counts() {
        let kept = noise("p99<10ms,p50<5ms", Met::Yes, &[(1, 0); 10]).unwrap();
        assert!(kept < -SURE && kept > -30.0, "{kept}");
        assert!(noise("p99<10ms", Met::No, &[(50, 0); 10]).unwrap() > SURE);
        // A queue that grows, however fast the answers were that came.
        assert!(noise("p99<10ms", Met::Yes, &[(0, 50); 10]).unwrap() > SURE);
        // But not one whose last second happens to be full.
        let mut seconds = [(0, 0); 10];
        seconds[9] = (0, 300);
        assert!(noise("p99<10ms", Met::Yes, &seconds).unwrap() < SURE);
    }

    /// A server that refuses quickly what is too much: how many refusals are too many is the objective's business.
    #[test]
    fn refusals_are_no_queue_that_grows() {
        let objectives = parse("errors<5%").unwrap();
        let mut counted = Counted::new(&objectives);
        for index in 0..10 {
            let mut record = record(0, 30);
            (record.counts.errors.unexpected_status, record.counts.unexpected_in_window) = (30, 30);
            counted.add(&outcome::Second::of(index, Nanos::ZERO, Duration::from_secs(1), &record), &record);
        }
        let judged = Judged { objective: objectives[0].clone(), value: Value::Nothing, met: Met::Yes };
        let noise = counted.noise(&TRIAL, &[judged], Duration::from_millis(1)).unwrap();
        assert!(noise.z < -SURE, "{noise:?}");
    }

    /// Each takes 2.5 s, so that nothing is answered in the first two seconds, and half of it in the third.
    #[test]
    fn a_slow_server_is_no_queue_that_grows() {
        let mut seconds = [(0, 0); 10];
        (seconds[0], seconds[1], seconds[2]) = ((0, 1_000), (0, 1_000), (0, 500));
        let z = noise_of("p99<9s", Met::Yes, &seconds, Duration::from_millis(2_500)).unwrap();
        assert!(z < -SURE, "{z}");
    }

    #[test]
    fn what_comes_after_the_end_belongs_to_its_last_second() {
        let mut seconds = [(0, 0); 12];
        (seconds[10], seconds[11]) = ((100, 0), (100, 0));
        assert!(noise("p99<10ms", Met::No, &seconds).unwrap() < SURE, "one second is no proof");
    }

    #[test]
    fn what_counts_no_share_is_believed() {
        assert_eq!(noise("mean<10ms", Met::Yes, &[(0, 0); 10]), None);
        assert_eq!(noise("mean<10ms,p99<10ms", Met::No, &[(0, 0); 10]), None);
        assert!(noise("mean<10ms,p99<10ms", Met::No, &[(50, 0); 10]).unwrap() > SURE);
        // Not as sure to be kept as the queue is not to grow.
        assert_eq!(noise("errors<=0%", Met::No, &[(0, 0); 10]), None);
        assert_eq!(noise("errors<=0%,p99<10ms", Met::No, &[(0, 0); 10]), None);
        assert_eq!(noise("p99<10ms", Met::Yes, &[(0, 0); 3]), None, "too short");
    }
}
