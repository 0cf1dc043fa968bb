//! From events to the displayed state.

use std::time::Duration;

use hotrow_diagnose::probe::cpu::CpuShares;
use hotrow_diagnose::samples::{Role, Samples, Thread, WatchedProcess};
use hotrow_load::outcome::Second;
use hotrow_load::plan::{Arrivals, LoadModel, Rate, StopCondition};
use hotrow_load::run::ExpectedStatus;
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;

use crate::tui::display_state::{DisplayState, Run};
use crate::tui::view::{Process, StepRow, View};

const BEGUN: Nanos = Nanos(1_000_000_000_000);

fn at(seconds: u64) -> Nanos {
    BEGUN.after(Duration::from_secs(seconds))
}

fn run() -> Run {
    let rate = Rate::new(100.0, 300.0).expect("rates");
    Run {
        begun: BEGUN,
        measured_from: None,
        warmup: Duration::from_secs(5),
        stop: StopCondition { duration: Some(Duration::from_secs(20)), requests: None },
        model: LoadModel::Open { rate, arrivals: Arrivals::Uniform },
        connections: 50,
        threads: 1,
        expect: ExpectedStatus::Success,
    }
}

fn loaded(run: Run) -> DisplayState {
    let mut state = DisplayState::new("hotrow load".to_owned(), true);
    state.begins(run);
    state
}

/// A second with `ok` responses after 2 ms each.
fn second(state: &mut DisplayState, index: u64, ok: u64, change: impl FnOnce(&mut LoadStats)) {
    let mut record = LoadStats::default();
    (record.counts.ok, record.counts.scheduled) = (ok, ok);
    for timing in [&mut record.latency, &mut record.service] {
        timing.answered.record_n(2_000_000, ok);
    }
    change(&mut record);
    state.second(&Second::of(index, at(6 + index), Duration::from_secs(1), &record), &record);
}

fn passed(view: &View) -> (Option<u64>, &str) {
    (view.passed.share.map(|share| (share * 100.0).round() as u64), &view.passed.words)
}

#[test]
fn the_time_is_counted_from_the_measurement() {
    let mut state = loaded(run());
    assert_eq!(passed(&state.view(at(2))), (None, "warming up, 3 s left"));
    assert_eq!(passed(&state.view(at(10))), (Some(25), "5 s of 20 s, 15 s left"));
    // Connecting took a second, as the first report shows.
    second(&mut state, 0, 100, |_| {});
    assert_eq!(passed(&state.view(at(10))), (Some(20), "4 s of 20 s, 16 s left"));
    assert_eq!(passed(&state.view(at(30))), (Some(100), "waiting for the last answers"));
    assert_eq!(state.view(at(16)).rate.target_rps, Some(200.0), "halfway up the ramp");
}

#[test]
fn a_number_of_requests_is_counted() {
    let stop = StopCondition { duration: None, requests: Some(1_000) };
    let mut state = loaded(Run { stop, model: LoadModel::Closed, warmup: Duration::ZERO, ..run() });
    second(&mut state, 0, 400, |_| {});
    let view = state.view(at(7));
    assert_eq!(passed(&view), (Some(40), "400 of 1,000 requests"));
    assert_eq!(view.rate.target_rps, None);
}

#[test]
fn the_last_second_and_the_total_are_separate() {
    let mut state = loaded(run());
    second(&mut state, 0, 100, |record| record.latency.answered.record_n(900_000_000, 100));
    second(&mut state, 1, 300, |record| {
        (record.counts.timeouts, record.counts.errors.unexpected_status) = (2, 7);
        record.counts.status.extend([(200, 300), (503, 7)]);
    });
    let view = state.view(at(8));
    assert_eq!(
        (view.rate.last_rps, view.rate.history_rps.as_slice()),
        (Some(300.0), &[100.0, 300.0][..])
    );
    let p99 = view.times.iter().find(|time| time.name == "p99").expect("p99");
    let ms = |time: Option<hotrow_load::stats::CensoredNs>| time.map(|time| time.ns() / 1_000_000);
    assert_eq!((ms(p99.second), ms(p99.overall).map(|ms| ms >= 900)), (Some(2), Some(true)));
    assert_eq!(view.failures, [("status 503".to_owned(), 7), ("timed out".to_owned(), 2)]);
    // 300 per second of 2 ms each.
    assert!(view.connections.busy.is_some_and(|busy| (busy - 0.6).abs() < 0.02), "{view:?}");
}

fn sampled() -> Samples {
    let process = |pid, role, name: &str, busy| WatchedProcess {
        pid,
        role,
        threads: vec![Thread { name: name.to_owned(), busy, waited: None }],
        ..WatchedProcess::default()
    };
    Samples {
        span: Duration::from_secs(1),
        cores: vec![CpuShares { busy: 1.0, ..CpuShares::default() }; 2],
        processes: vec![
            process(1, Role::Generator, "load-0", 0.3),
            process(7, Role::Service, "worker", 0.8),
            process(8, Role::Service, "worker", 0.6),
            process(9, Role::Proxy, "nginx", 0.1),
        ],
        ..Samples::default()
    }
}

#[test]
fn processes_are_named_and_the_rest_is_summed() {
    let mut state = loaded(run());
    state.sampled(sampled(), at(7), |pid| Some(if pid == 9 { "nginx" } else { "shop" }.to_owned()));
    let view = state.view(at(8));
    let machine = view.machine.expect("it was sampled");
    let named: Vec<(&str, u64)> = machine
        .processes
        .iter()
        .map(|Process { name, cores }| (name.as_str(), (cores * 10.0).round() as u64))
        .collect();
    assert_eq!(named, [("shop ×2", 14), ("nginx (9)", 1), ("this generator", 3)]);
    assert!((machine.others_cores - 0.2).abs() < 1e-9, "{machine:?}");
    assert_eq!(view.generator.busiest, Some(0.3));
    let suspicion = view.suspicion.expect("the rules were evaluated");
    assert!(
        suspicion.words.contains("CPU: all of them") && suspicion.confidence.is_some(),
        "{suspicion:?}"
    );
}

#[test]
fn without_a_full_resource_nothing_is_suspected() {
    let mut state = loaded(run());
    let idle = Samples {
        cores: vec![CpuShares { busy: 0.3, ..CpuShares::default() }; 2],
        ..Samples::default()
    };
    state.sampled(idle, at(7), |_| None);
    let suspicion = state.view(at(8)).suspicion.expect("the rules were evaluated");
    assert_eq!((suspicion.words.as_str(), suspicion.confidence), ("none in the last second", None));
}

#[test]
fn a_search_remembers_its_latest_steps_and_each_step_begins_anew() {
    let mut state = loaded(run());
    assert_eq!(state.view(BEGUN).search, None);
    state.search(Duration::from_secs(300), BEGUN);
    for i in 0..1_000 {
        state.step_done(StepRow { target: i.to_string(), ..StepRow::default() });
    }
    second(&mut state, 0, 100, |_| {});
    state.step("200/s".to_owned(), "kept 100/s".to_owned());
    state.begins(run());
    let view = state.view(at(30));
    assert_eq!((view.rate.last_rps, view.rate.history_rps.len()), (None, 1), "the curve continues");
    let search = view.search.expect("a search");
    assert_eq!((search.step.as_str(), search.so_far.as_str()), ("200/s", "kept 100/s"));
    assert_eq!(search.budget.words, "30 s of 5:00 min, 4:30 min left at most");
    assert!(
        search.steps.len() < 100 && search.steps.last().is_some_and(|step| step.target == "999")
    );
}

/// A test takes hardly longer than a second: its second is reported at its end, and stays until the
/// next one's.
#[test]
fn tests_follow_a_search_and_show_the_second_before() {
    let mut state = loaded(run());
    state.search(Duration::from_secs(300), BEGUN);
    state.step_done(StepRow { target: "400/s".to_owned(), ..StepRow::default() });
    state.tests(Duration::from_secs(20), "kept 400/s".to_owned(), at(30));
    state.trial("1 of “no limit was found”: the same load again".to_owned(), run());
    second(&mut state, 0, 100, |_| {});
    state.trial(
        "2 of “no limit was found”: 100 connections instead of 50".to_owned(),
        Run { connections: 100, ..run() },
    );
    state.sampled(sampled(), at(31), |_| None);
    let view = state.view(at(31));
    assert_eq!((view.rate.last_rps, view.connections.count), (Some(100.0), 100));
    assert!(view.times.iter().all(|time| time.overall.is_none()), "nothing is known of this one");
    let tests = view.search.expect("tests");
    assert_eq!((tests.name, tests.so_far.as_str(), tests.steps.len()), ("tests", "kept 400/s", 1));
    assert!(tests.step.starts_with("2 of"), "{tests:?}");
    assert_eq!(tests.budget.words, "1 s of 20 s, 19 s left at most");
}

/// A single load has no search before its tests.
#[test]
fn tests_follow_a_load() {
    let mut state = loaded(run());
    state.tests(Duration::from_secs(20), "the run: 100 answered/s".to_owned(), at(30));
    state.trial("1".to_owned(), run());
    assert_eq!(
        state.view(at(31)).search.map(|tests| (tests.name, tests.step)),
        Some(("tests", "1".to_owned()))
    );
}
