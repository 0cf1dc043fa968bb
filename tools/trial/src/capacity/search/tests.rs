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

/// RateVerdict of a simulated load, with its score if known.
struct SimulatedResult(RateVerdict, Option<f64>);

impl From<RateVerdict> for SimulatedResult {
    fn from(verdict: RateVerdict) -> Self {
        Self(verdict, None)
    }
}

/// Runs a search against a simulated server; returns its result and the loads.
fn drive<S: Into<SimulatedResult>>(
    limits: Limits,
    mut server: impl FnMut(&Trial) -> S,
) -> (SearchOutcome, Vec<(Trial, RateVerdict)>) {
    let (mut search, mut last, mut trials) = (Search::new(limits), None, Vec::new());
    loop {
        match search.next(last) {
            Step::Done(found) => return (found, trials),
            Step::Run(trial) => {
                let SimulatedResult(verdict, z) = server(&trial).into();
                trials.push((trial, verdict));
                last = Some(Judged { verdict, z, took: trial.cost() });
            }
        }
        assert!(trials.len() <= STEPS_MAX, "{trials:#?}");
    }
}

/// Judges by the objective `p99<10ms`.
fn judged(seconds: &[Second]) -> SimulatedResult {
    let (bad, all) =
        seconds.iter().fold((0.0, 0.0), |(bad, all), s| (bad + s.bad, all + s.requests));
    let verdict = if bad * 100.0 <= all { RateVerdict::Kept } else { RateVerdict::Missed };
    SimulatedResult(verdict, score(seconds, 0.01).map(|score| score.z))
}

/// Token bucket: serves `rate` a second and a burst of 100; requests that come too early wait.
/// Objective: 99 % within 10 ms.
fn bucket(rate: f64) -> impl Fn(&Trial) -> SimulatedResult {
    move |trial| judged(&bucket_seconds(rate, trial))
}

fn bucket_seconds(rate: f64, trial: &Trial) -> Vec<Second> {
    // Time from which on requests wait too long.
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

/// M/M/1 queue with the same objective. Sojourn times are exponential with rate μ − λ, so the
/// objective is met up to λ = μ − ln(100) / 10 ms (Kleinrock, "Queueing Systems", 1975).
fn mm1(work_rps: f64, mut random: Random) -> impl FnMut(&Trial) -> SimulatedResult {
    move |trial| {
        let (warmup_s, end_s) =
            (trial.warmup.as_secs_f64(), (trial.warmup + trial.length).as_secs_f64());
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

fn covers(found: &SearchOutcome, truth: f64) -> bool {
    let (Some(kept), Some(refuted)) = (found.kept, found.refuted) else { return false };
    found.end == SearchEnd::Found
        && kept.firm
        && refuted.firm
        && kept.rate_rps <= truth
        && truth <= refuted.rate_rps
}

fn within_5_percent(found: &SearchOutcome, truth: f64) -> bool {
    found.kept.is_some_and(|kept| (kept.rate_rps / truth - 1.0).abs() <= 0.05)
}

#[test]
fn the_rate_of_a_token_bucket_is_found() {
    let runs: Vec<SearchOutcome> = (0..50)
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

/// Runs 20 default searches for the knee of a random queue. Returns how many come within 5 % of it,
/// how many intervals contain it, and how many ended in time.
fn knees_found(work_rps: f64, time: Duration) -> (usize, usize, usize) {
    let truth = work_rps - 100.0_f64.ln() / 0.010;
    let search = |seed| {
        let start_rps = 500.0 * (1.0 + Random::new(seed, 1).unit());
        drive(Limits { start_rps, time, ..LIMITS }, mm1(work_rps, Random::new(seed, 2))).0
    };
    let runs: Vec<SearchOutcome> = (0..20).map(search).collect();
    let near = runs.iter().filter(|found| within_5_percent(found, truth)).count();
    let ended = runs.iter().filter(|found| found.end == SearchEnd::Found).count();
    (near, runs.iter().filter(|found| covers(found, truth)).count(), ended)
}

/// The knees lie at 93 and 85 % of the worker's capacity. Queues change slowly there, and a plateau
/// of the slower worker sees few bursts, so its interval is wider and takes longer.
#[test]
fn the_knee_of_a_random_queue_is_found() {
    let (near, covered, ended) = knees_found(7_000.0, LIMITS.time);
    assert!(
        near >= 19 && covered >= 18 && ended == 20,
        "{near} near, {covered} cover it, {ended} ended, of 20"
    );
    let (near, covered, ended) = knees_found(3_000.0, LIMITS.time * 2);
    assert!(
        near >= 16 && covered >= 18 && ended >= 19,
        "{near} near, {covered} cover it, {ended} ended, of 20"
    );
}

/// The machine stalls for half a second in every tenth load. The seconds show it, and it alone
/// moves no end.
#[test]
fn the_limit_is_found_despite_stalls() {
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
    let found: Vec<SearchOutcome> = searches.collect();
    let covered = found.iter().filter(|found| covers(found, 7_000.0)).count();
    let near = found.iter().filter(|found| within_5_percent(found, 7_000.0)).count();
    assert!(covered >= 48 && near >= 45, "{covered} cover it, {near} near, of 50: {found:#?}");
}

/// Machine that loses half of its capacity for some plateaus.
#[test]
fn contradicting_plateaus_are_reported() {
    let mut plateaus = 0;
    let changes = |trial: &Trial| {
        plateaus += u32::from(trial.is_plateau());
        bucket(if trial.is_plateau() && plateaus % 2 == 1 { 3_500.0 } else { 7_000.0 })(trial)
    };
    let (found, trials) = drive(Limits { start_rps: 1_000.0, ..LIMITS }, changes);
    assert!(
        found.noise.contradiction.is_some_and(|(kept, missed)| missed <= kept),
        "{found:?} {trials:#?}"
    );
    let (found, _) = drive(LIMITS, bucket(7_000.0));
    assert_eq!((found.noise.contradiction, found.noise.unsure), (None, 0), "{found:?}");
}

/// Server that fails in one step of twenty at every rate.
#[test]
fn a_flaky_servers_rate_is_found() {
    let covered = (0..100).filter(|seed| {
        let (mut random, steady) = (Random::new(*seed, 3), bucket(7_000.0));
        let start_rps = 100.0 * (1.0 + random.unit());
        let flaky = |trial: &Trial| {
            if random.unit() < 0.05 { RateVerdict::Missed.into() } else { steady(trial) }
        };
        covers(
            &drive(Limits { start_rps, time: Duration::from_secs(900), ..LIMITS }, flaky).0,
            7_000.0,
        )
    });
    let covered = covered.count();
    assert!(covered >= 90, "{covered} of 100");
}

#[test]
fn an_unreached_limit_has_no_upper_end() {
    let (found, trials) = drive(Limits { rate_max_rps: 1_500.0, ..LIMITS }, bucket(7_000.0));
    assert_eq!((found.end, found.refuted), (SearchEnd::AboveRateMax, None));
    assert!(found.kept.is_some_and(|kept| kept.firm && kept.rate_rps == 1_500.0), "{found:?}");
    assert!(trials.iter().all(|(trial, _)| trial.rate_rps <= 1_500.0), "{trials:?}");
    let generator = |trial: &Trial| {
        if trial.rate_rps > 3_000.0 { RateVerdict::GeneratorLimited } else { RateVerdict::Kept }
    };
    let (found, _) = drive(LIMITS, generator);
    assert_eq!(found.end, SearchEnd::GeneratorLimited);
    assert!(
        found.kept.is_some_and(|kept| kept.firm && (2_850.0..=3_000.0).contains(&kept.rate_rps)),
        "{found:?}"
    );
    assert!(found.refuted.is_some_and(|top| top.generator && top.firm), "{found:?}");
}

/// The generator loses its CPU in every tenth load, which then says nothing about the target.
#[test]
fn a_busy_machine_is_not_reported_as_the_generators_limit() {
    let covered = (0..50).filter(|seed| {
        let (mut random, steady) = (Random::new(*seed, 6), bucket(7_000.0));
        let start_rps = 100.0 * (1.0 + random.unit());
        let busy = |trial: &Trial| {
            if random.unit() < 0.1 { RateVerdict::GeneratorLimited.into() } else { steady(trial) }
        };
        covers(&drive(Limits { start_rps, ..LIMITS }, busy).0, 7_000.0)
    });
    let covered = covered.count();
    assert!(covered >= 45, "{covered} of 50");
}

/// The generator loses its CPU in the first loads only; that must be no ceiling for the search.
#[test]
fn noise_at_the_beginning_is_no_ceiling() {
    for disturbed in 1..=6 {
        let (mut loads, steady) = (0, bucket(1_500.0));
        let busy = |trial: &Trial| {
            loads += 1;
            if loads <= disturbed { RateVerdict::GeneratorLimited.into() } else { steady(trial) }
        };
        let (found, trials) = drive(LIMITS, busy);
        assert!(covers(&found, 1_500.0), "{disturbed}: {found:?} {trials:#?}");
    }
}

#[test]
fn a_first_rate_that_is_too_high_is_halved() {
    let (found, trials) = drive(Limits { start_rps: 50_000.0, ..LIMITS }, bucket(7_000.0));
    assert!(covers(&found, 7_000.0), "{found:?}");
    assert_eq!(trials[2].0.purpose, Purpose::Fall, "tried twice, then halved");
    let (found, trials) = drive(LIMITS, |_| RateVerdict::Missed);
    assert_eq!((found.end, found.kept), (SearchEnd::NothingKept, None));
    assert!(trials.iter().all(|(trial, _)| trial.rate_rps >= LIMITS.start_rps / FALL_MAX));
    assert_eq!(drive(LIMITS, |_| RateVerdict::GeneratorLimited).0.end, SearchEnd::GeneratorLimited);
}

/// Plateaus at the highest rate are uncertain; there is no rate above, and short steps cannot
/// decide it.
#[test]
fn an_undecided_highest_rate_ends_the_search() {
    let unsure = |trial: &Trial| match (trial.is_plateau(), trial.rate_rps >= 1_500.0) {
        (false, _) => SimulatedResult(RateVerdict::Kept, None),
        (true, true) => SimulatedResult(RateVerdict::Kept, Some(-0.5)),
        (true, false) => SimulatedResult(RateVerdict::Kept, Some(-3.0)),
    };
    for all in [false, true] {
        let server = |trial: &Trial| {
            let SimulatedResult(verdict, z) = unsure(trial);
            SimulatedResult(verdict, if all { z.map(|_| -1.0) } else { z })
        };
        let (found, trials) =
            drive(Limits { rate_max_rps: 1_500.0, time: LIMITS.time * 10, ..LIMITS }, server);
        assert_eq!((found.end, found.refuted), (SearchEnd::AboveRateMax, None), "{trials:#?}");
        assert!(found.kept.is_some_and(|kept| kept.rate_rps <= 1_500.0), "{found:?}");
        let climbs = trials
            .iter()
            .filter(|(trial, _)| !trial.is_plateau() && trial.rate_rps == 1_500.0)
            .count();
        assert_eq!(climbs, 1, "{trials:#?}");
    }
}

/// The score belongs to an objective that is met by far; another one is missed.
#[test]
fn a_missed_objective_is_not_met_by_the_score_of_another() {
    let (low, high) = (RateVerdict::Kept, RateVerdict::Missed);
    let server = |trial: &Trial| {
        SimulatedResult(if trial.rate_rps <= 3_000.0 { low } else { high }, Some(-4.0))
    };
    let (found, _) = drive(LIMITS, server);
    assert!(found.kept.is_some_and(|kept| kept.rate_rps <= 3_000.0), "{found:?}");
    let turned = |trial: &Trial| {
        let kept = trial.rate_rps <= 3_000.0;
        SimulatedResult(if kept { low } else { high }, Some(if kept { 4.0 } else { -4.0 }))
    };
    let (found, _) = drive(LIMITS, turned);
    assert!(!found.kept.is_some_and(|kept| kept.rate_rps > 3_000.0), "{found:?}");
    assert!(!found.refuted.is_some_and(|top| top.firm), "nothing is sure: {found:?}");
}

/// Assumed scores are never certain and never contradict.
#[test]
fn assumed_scores_do_not_contradict() {
    let mut plateaus = 0;
    let changes = |trial: &Trial| {
        plateaus += u32::from(trial.is_plateau());
        let most = if trial.is_plateau() && plateaus % 2 == 1 { 3_500.0 } else { 7_000.0 };
        if trial.rate_rps <= most { RateVerdict::Kept } else { RateVerdict::Missed }
    };
    let noise = drive(LIMITS, changes).0.noise;
    assert!(
        noise.contradiction.is_none() && noise.plateaus > 2 && noise.unsure == noise.plateaus,
        "{noise:?}"
    );
}

#[test]
fn harm_ends_it_at_once() {
    let harmed = |trial: &Trial| {
        if trial.rate_rps > 500.0 { RateVerdict::Harmed } else { RateVerdict::Kept }
    };
    let (found, trials) = drive(LIMITS, harmed);
    assert_eq!((found.end, trials.len()), (SearchEnd::Harmed, 4), "100, 200, 400, 800");
    assert_eq!(found.kept.map(|kept| (kept.rate_rps, kept.firm)), Some((400.0, false)));
}

/// The server holds the rate for a few seconds only. A plateau shows it, and the reported rate held
/// on one.
#[test]
fn a_rate_that_only_short_steps_meet_is_not_reported() {
    let tires = |trial: &Trial| {
        let most = if trial.length > Duration::from_secs(5) { 4_000.0 } else { 7_000.0 };
        bucket(most)(trial)
    };
    let (found, trials) = drive(Limits { time: Duration::from_secs(900), ..LIMITS }, tires);
    assert!(covers(&found, 4_000.0) || within_5_percent(&found, 4_000.0), "{found:?} {trials:#?}");
    assert!(found.kept.is_some_and(|kept| kept.firm), "{found:?}");
}

#[test]
fn the_time_limit_holds_and_leaves_room_for_a_confirmation() {
    for time_s in 1..120 {
        let limits = Limits { time: Duration::from_secs(time_s), ..LIMITS };
        let (found, trials) = drive(limits, bucket(7_000.0));
        let took: Duration = trials.iter().map(|(trial, _)| trial.cost()).sum();
        assert!(took <= limits.time, "{took:?} of {time_s} s");
        let firm = found.kept.is_some_and(|kept| kept.firm);
        assert!(firm || trials.len() <= 2, "{time_s} s: {found:?} after {trials:#?}");
        assert!(matches!(found.end, SearchEnd::TimeUp | SearchEnd::Found), "{found:?}");
    }
}

#[test]
fn the_search_ends_with_any_server() {
    let verdicts = [
        RateVerdict::Kept,
        RateVerdict::Missed,
        RateVerdict::GeneratorLimited,
        RateVerdict::Missed,
    ];
    for seed in 0..300 {
        let mut random = Random::new(seed, 4);
        let limits = Limits { time: Duration::from_secs(100_000), ..LIMITS };
        let (found, _) = drive(limits, |_| verdicts[random.below(4) as usize]);
        if let (Some(kept), Some(refuted)) = (found.kept, found.refuted) {
            assert!(kept.rate_rps < refuted.rate_rps, "{found:?}");
        }
    }
}
