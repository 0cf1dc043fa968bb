//! Searches against simulated servers whose limit is known by construction, in virtual time.

use hotrow_load::random::Random;

use super::*;
use crate::capacity::certainty::{Second, score};

const LIMITS: Limits = Limits {
    start_rps: 100.0,
    rate_max_rps: 1e6,
    requests: 10_000,
    step: Duration::from_secs(2),
    plateau: Duration::from_secs(10),
    time: Duration::from_secs(300),
};

/// What a load says: the verdict, and how sure it is, if that is known.
struct Said(Verdict, Option<f64>);

impl From<Verdict> for Said {
    fn from(verdict: Verdict) -> Self {
        Self(verdict, None)
    }
}

/// Carries a search out on a simulated server; what it found, and the loads.
fn drive<S: Into<Said>>(limits: Limits, mut server: impl FnMut(&Trial) -> S) -> (Found, Vec<(Trial, Verdict)>) {
    let (mut search, mut last, mut trials) = (Search::new(limits), None, Vec::new());
    loop {
        match search.next(last) {
            Step::Done(found) => return (found, trials),
            Step::Run(trial) => {
                let Said(verdict, z) = server(&trial).into();
                trials.push((trial, verdict));
                last = Some(Judged { verdict, z, took: trial.cost() });
            }
        }
        assert!(trials.len() <= STEPS_MAX, "{trials:#?}");
    }
}

/// Of the objective `p99<10ms`.
fn judged(seconds: &[Second]) -> Said {
    let (bad, all) = seconds.iter().fold((0.0, 0.0), |(bad, all), s| (bad + s.bad, all + s.requests));
    let verdict = if bad * 100.0 <= all { Verdict::Kept } else { Verdict::Missed };
    Said(verdict, score(seconds, 0.01).map(|score| score.z))
}

/// Serves `rate` a second and 100 more at once; what comes too early waits. The objective: 99 % within 10 ms.
fn bucket(rate: f64) -> impl Fn(&Trial) -> Said {
    move |trial| judged(&bucket_seconds(rate, trial))
}

fn bucket_seconds(rate: f64, trial: &Trial) -> Vec<Second> {
    // From what time on requests wait for too long.
    let late_s = match trial.rate_rps - rate {
        surplus if surplus > 0.0 => (100.0 + 0.010 * rate) / surplus - trial.warmup.as_secs_f64(),
        _ => f64::INFINITY,
    };
    let second = |i: u64| {
        let length_s = (trial.length.as_secs_f64() - i as f64).min(1.0);
        let good_s = (late_s - i as f64).clamp(0.0, length_s);
        Second { requests: trial.rate_rps * length_s, bad: trial.rate_rps * (length_s - good_s) }
    };
    (0..trial.length.as_secs_f64().ceil() as u64).map(second).collect()
}

/// Poisson arrivals, exponential work, one worker; the same objective. Its sojourn times are exponential with rate
/// μ − λ, so that the objective is kept up to λ = μ − ln(100) / 10 ms (Kleinrock, "Queueing Systems", 1975).
fn mm1(work_rps: f64, mut random: Random) -> impl FnMut(&Trial) -> Said {
    move |trial| {
        let (warmup_s, end_s) = (trial.warmup.as_secs_f64(), (trial.warmup + trial.length).as_secs_f64());
        let mut seconds = vec![Second::default(); (end_s - warmup_s).ceil() as usize];
        let (mut now_s, mut wait_s) = (0.0_f64, 0.0_f64);
        while now_s < end_s {
            let sojourn_s = wait_s + random.exponential() / work_rps;
            if now_s >= warmup_s {
                let second = &mut seconds[(now_s - warmup_s) as usize];
                second.requests += 1.0;
                second.bad += f64::from(u8::from(sojourn_s >= 0.010));
            }
            let gap_s = random.exponential() / trial.rate_rps;
            // Lindley's recursion.
            wait_s = (sojourn_s - gap_s).max(0.0);
            now_s += gap_s;
        }
        judged(&seconds)
    }
}

fn covers(found: &Found, truth: f64) -> bool {
    let (Some(kept), Some(refuted)) = (found.kept, found.refuted) else { return false };
    found.end == End::Found && kept.firm && refuted.firm && kept.rate_rps <= truth && truth <= refuted.rate_rps
}

fn within_5_percent(found: &Found, truth: f64) -> bool {
    found.kept.is_some_and(|kept| (kept.rate_rps / truth - 1.0).abs() <= 0.05)
}

#[test]
fn the_rate_of_a_token_bucket_is_found() {
    let runs: Vec<Found> = (0..50)
        .map(|seed| {
            let start_rps = 37.0 * (1.0 + Random::new(seed, 0).unit() * 20.0);
            let (found, trials) = drive(Limits { start_rps, ..LIMITS }, bucket(7_000.0));
            let took: Duration = trials.iter().map(|(trial, _)| trial.cost()).sum();
            assert!(took < Duration::from_secs(150), "{took:?}");
            found
        })
        .collect();
    assert!(runs.iter().all(|found| within_5_percent(found, 7_000.0)), "{runs:#?}");
    let covered = runs.iter().filter(|found| covers(found, 7_000.0)).count();
    assert!(covered >= 45, "{covered} of 50: {runs:#?}");
}

/// Of 20 searches for the knee of a random queue, as by default: those that come within 5 % of it, those whose interval holds
/// it, and those that ended in time.
fn knees_found(work_rps: f64, time: Duration) -> (usize, usize, usize) {
    let truth = work_rps - 100.0_f64.ln() / 0.010;
    let search = |seed| {
        let start_rps = 500.0 * (1.0 + Random::new(seed, 1).unit());
        drive(Limits { start_rps, time, ..LIMITS }, mm1(work_rps, Random::new(seed, 2))).0
    };
    let runs: Vec<Found> = (0..20).map(search).collect();
    let near = runs.iter().filter(|found| within_5_percent(found, truth)).count();
    let ended = runs.iter().filter(|found| found.end == End::Found).count();
    (near, runs.iter().filter(|found| covers(found, truth)).count(), ended)
}

/// The knees lie at 93 and 85 % of what the worker can do: queues change slowly there, and of the slower worker a plateau sees few
/// crowds. So its interval becomes wider, and takes longer.
#[test]
fn the_knee_of_a_random_queue_is_found() {
    let (near, covered, ended) = knees_found(7_000.0, LIMITS.time);
    assert!(near >= 19 && covered >= 18 && ended == 20, "{near} near, {covered} cover it, {ended} ended, of 20");
    let (near, covered, ended) = knees_found(3_000.0, LIMITS.time * 2);
    assert!(near >= 16 && covered >= 18 && ended >= 19, "{near} near, {covered} cover it, {ended} ended, of 20");
}

/// The machine stands still for half a second in every tenth load: that is seen in the seconds, and moves no end by itself.
#[test]
fn what_stands_still_at_times_is_found() {
    let searches = (0..50).map(|seed| {
        let (mut random, rate) = (Random::new(seed, 5), 7_000.0);
        let limits = Limits { start_rps: 100.0 * (1.0 + random.unit()), ..LIMITS };
        let server = |trial: &Trial| {
            let mut seconds = bucket_seconds(rate, trial);
            if random.unit() < 0.1 {
                let at = random.below(seconds.len() as u64) as usize;
                seconds[at].bad = seconds[at].bad.max(seconds[at].requests / 2.0);
            }
            judged(&seconds)
        };
        drive(limits, server).0
    });
    let found: Vec<Found> = searches.collect();
    let covered = found.iter().filter(|found| covers(found, 7_000.0)).count();
    let near = found.iter().filter(|found| within_5_percent(found, 7_000.0)).count();
    assert!(covered >= 48 && near >= 45, "{covered} cover it, {near} near, of 50: {found:#?}");
}

/// A machine of which half is taken away for some plateaus.
#[test]
fn plateaus_that_contradict_each_other_are_told() {
    let mut plateaus = 0;
    let changes = |trial: &Trial| {
        plateaus += u32::from(trial.is_plateau());
        bucket(if trial.is_plateau() && plateaus % 2 == 1 { 3_500.0 } else { 7_000.0 })(trial)
    };
    let (found, trials) = drive(Limits { start_rps: 1_000.0, ..LIMITS }, changes);
    assert!(found.noise.contradiction.is_some_and(|(kept, missed)| missed <= kept), "{found:?} {trials:#?}");
    let (found, _) = drive(LIMITS, bucket(7_000.0));
    assert_eq!((found.noise.contradiction, found.noise.unsure), (None, 0), "{found:?}");
}

/// A server that fails in one step of twenty, whatever the rate.
#[test]
fn a_flaky_servers_rate_is_found() {
    let covered = (0..100).filter(|seed| {
        let (mut random, steady) = (Random::new(*seed, 3), bucket(7_000.0));
        let start_rps = 100.0 * (1.0 + random.unit());
        let flaky = |trial: &Trial| if random.unit() < 0.05 { Verdict::Missed.into() } else { steady(trial) };
        covers(&drive(Limits { start_rps, time: Duration::from_secs(900), ..LIMITS }, flaky).0, 7_000.0)
    });
    let covered = covered.count();
    assert!(covered >= 90, "{covered} of 100");
}

#[test]
fn a_limit_that_is_not_reached_is_no_number() {
    let (found, trials) = drive(Limits { rate_max_rps: 1_500.0, ..LIMITS }, bucket(7_000.0));
    assert_eq!((found.end, found.refuted), (End::AboveRateMax, None));
    assert!(found.kept.is_some_and(|kept| kept.firm && kept.rate_rps == 1_500.0), "{found:?}");
    assert!(trials.iter().all(|(trial, _)| trial.rate_rps <= 1_500.0), "{trials:?}");
    let generator = |trial: &Trial| if trial.rate_rps > 3_000.0 { Verdict::GeneratorLimited } else { Verdict::Kept };
    let (found, _) = drive(LIMITS, generator);
    assert_eq!(found.end, End::GeneratorLimited);
    assert!(found.kept.is_some_and(|kept| kept.firm && (2_850.0..=3_000.0).contains(&kept.rate_rps)), "{found:?}");
    assert!(found.refuted.is_some_and(|top| top.generator && top.firm), "{found:?}");
}

/// The generator loses its CPU in every tenth load: nothing is known of the target then.
#[test]
fn a_busy_machine_is_not_taken_for_the_generators_limit() {
    let covered = (0..50).filter(|seed| {
        let (mut random, steady) = (Random::new(*seed, 6), bucket(7_000.0));
        let start_rps = 100.0 * (1.0 + random.unit());
        let busy = |trial: &Trial| if random.unit() < 0.1 { Verdict::GeneratorLimited.into() } else { steady(trial) };
        covers(&drive(Limits { start_rps, ..LIMITS }, busy).0, 7_000.0)
    });
    let covered = covered.count();
    assert!(covered >= 45, "{covered} of 50");
}

#[test]
fn a_first_rate_that_is_too_high_is_halved() {
    let (found, trials) = drive(Limits { start_rps: 50_000.0, ..LIMITS }, bucket(7_000.0));
    assert!(covers(&found, 7_000.0), "{found:?}");
    assert_eq!(trials[2].0.purpose, Purpose::Fall, "tried twice, then halved");
    let (found, trials) = drive(LIMITS, |_| Verdict::Missed);
    assert_eq!((found.end, found.kept), (End::NothingKept, None));
    assert!(trials.iter().all(|(trial, _)| trial.rate_rps >= LIMITS.start_rps / FALL_MAX));
    assert_eq!(drive(LIMITS, |_| Verdict::GeneratorLimited).0.end, End::GeneratorLimited);
}

/// Its plateaus at the highest rate are not sure: there is nothing above, and short steps cannot decide it.
#[test]
fn a_highest_rate_that_stays_undecided_ends_it() {
    let unsure = |trial: &Trial| match (trial.is_plateau(), trial.rate_rps >= 1_500.0) {
        (false, _) => Said(Verdict::Kept, None),
        (true, true) => Said(Verdict::Kept, Some(-0.5)),
        (true, false) => Said(Verdict::Kept, Some(-3.0)),
    };
    for all in [false, true] {
        let server = |trial: &Trial| {
            let Said(verdict, z) = unsure(trial);
            Said(verdict, if all { z.map(|_| -1.0) } else { z })
        };
        let (found, trials) = drive(Limits { rate_max_rps: 1_500.0, time: LIMITS.time * 10, ..LIMITS }, server);
        assert_eq!((found.end, found.refuted), (End::AboveRateMax, None), "{trials:#?}");
        assert!(found.kept.is_some_and(|kept| kept.rate_rps <= 1_500.0), "{found:?}");
        let climbs = trials.iter().filter(|(trial, _)| !trial.is_plateau() && trial.rate_rps == 1_500.0).count();
        assert_eq!(climbs, 1, "{trials:#?}");
    }
}

/// The score is that of an objective that is kept by far; another one is missed.
#[test]
fn what_was_missed_is_not_kept_by_another_score() {
    let (low, high) = (Verdict::Kept, Verdict::Missed);
    let server = |trial: &Trial| Said(if trial.rate_rps <= 3_000.0 { low } else { high }, Some(-4.0));
    let (found, _) = drive(LIMITS, server);
    assert!(found.kept.is_some_and(|kept| kept.rate_rps <= 3_000.0), "{found:?}");
    let turned = |trial: &Trial| {
        let kept = trial.rate_rps <= 3_000.0;
        Said(if kept { low } else { high }, Some(if kept { 4.0 } else { -4.0 }))
    };
    let (found, _) = drive(LIMITS, turned);
    assert!(!found.kept.is_some_and(|kept| kept.rate_rps > 3_000.0), "{found:?}");
    assert!(!found.refuted.is_some_and(|top| top.firm), "nothing is sure: {found:?}");
}

/// Without statistics there is nothing to be sure of, and nothing to contradict.
#[test]
fn what_is_believed_is_no_contradiction() {
    let mut plateaus = 0;
    let changes = |trial: &Trial| {
        plateaus += u32::from(trial.is_plateau());
        let most = if trial.is_plateau() && plateaus % 2 == 1 { 3_500.0 } else { 7_000.0 };
        if trial.rate_rps <= most { Verdict::Kept } else { Verdict::Missed }
    };
    let noise = drive(LIMITS, changes).0.noise;
    assert!(noise.contradiction.is_none() && noise.plateaus > 2 && noise.unsure == noise.plateaus, "{noise:?}");
}

#[test]
fn harm_ends_it_at_once() {
    let harmed = |trial: &Trial| if trial.rate_rps > 500.0 { Verdict::Harmed } else { Verdict::Kept };
    let (found, trials) = drive(LIMITS, harmed);
    assert_eq!((found.end, trials.len()), (End::Harmed, 4), "100, 200, 400, 800");
    assert_eq!(found.kept.map(|kept| (kept.rate_rps, kept.firm)), Some((400.0, false)));
}

/// Fine for a few seconds, not for longer: the plateau tells, and what is reported held on one.
#[test]
fn what_only_short_steps_keep_is_not_reported() {
    let tires = |trial: &Trial| {
        let most = if trial.length > Duration::from_secs(5) { 4_000.0 } else { 7_000.0 };
        bucket(most)(trial)
    };
    let (found, trials) = drive(Limits { time: Duration::from_secs(900), ..LIMITS }, tires);
    assert!(covers(&found, 4_000.0) || within_5_percent(&found, 4_000.0), "{found:?} {trials:#?}");
    assert!(found.kept.is_some_and(|kept| kept.firm), "{found:?}");
}

#[test]
fn the_time_is_kept_and_a_confirmation_fits_in_it() {
    for time_s in 1..120 {
        let limits = Limits { time: Duration::from_secs(time_s), ..LIMITS };
        let (found, trials) = drive(limits, bucket(7_000.0));
        let took: Duration = trials.iter().map(|(trial, _)| trial.cost()).sum();
        assert!(took <= limits.time, "{took:?} of {time_s} s");
        let firm = found.kept.is_some_and(|kept| kept.firm);
        assert!(firm || trials.len() <= 2, "{time_s} s: {found:?} after {trials:#?}");
        assert!(matches!(found.end, End::TimeUp | End::Found), "{found:?}");
    }
}

#[test]
fn whatever_a_server_says_it_ends() {
    let verdicts = [Verdict::Kept, Verdict::Missed, Verdict::GeneratorLimited, Verdict::Missed];
    for seed in 0..300 {
        let mut random = Random::new(seed, 4);
        let limits = Limits { time: Duration::from_secs(100_000), ..LIMITS };
        let (found, _) = drive(limits, |_| verdicts[random.below(4) as usize]);
        if let (Some(kept), Some(refuted)) = (found.kept, found.refuted) {
            assert!(kept.rate_rps < refuted.rate_rps, "{found:?}");
        }
    }
}
