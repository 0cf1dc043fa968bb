//! Texts and exit statuses of a search's end.

use hotrow_load::objective::{self, parse};
use hotrow_trial::capacity::closed::ClimbEnd;
use hotrow_trial::capacity::search::{Bound, Noise, SearchEnd, SearchOutcome};

use super::*;
use crate::machine::MeasuredOn;
use hotrow_testkit::doc_sync::assert_keys_documented;

fn bound(rate_rps: f64, firm: bool) -> Bound {
    Bound { rate_rps, firm, generator: false }
}

fn report(end: SearchEnd, kept: Option<Bound>, refuted: Option<Bound>) -> Report {
    let open = OpenResult {
        slo: "p99<10ms".to_owned(),
        objectives: parse("p99<10ms").unwrap(),
        errors_assumed: false,
        arrivals: "poisson",
        found: SearchOutcome { kept, refuted, end, noise: Noise::default() },
        rate_max_rps: 1_000.0,
        requests_wanted: 10_000,
        requests_confirmed: None,
    };
    Report {
        url: "http://a/".to_owned(),
        connections: 50,
        threads: 1,
        keepalive: true,
        watched: String::new(),
        local: true,
        took_s: 1.0,
        measured_on: MeasuredOn::default(),
        result: SearchResult::Open(open),
        gone: None,
        steps: Vec::new(),
        at_limit: None,
        next: Vec::new(),
        diagnosis: DiagnosisResult::default(),
        at_least: None,
    }
}

fn status(report: &Report) -> i32 {
    exit(report) as i32
}

#[test]
fn the_highest_rate_is_called_kept_only_if_it_was() {
    let answer = |rate| report(SearchEnd::AboveRateMax, Some(bound(rate, true)), None).answer();
    assert!(
        answer(1_000.0).contains("which is the highest rate that --rate-max allows"),
        "{}",
        answer(1_000.0)
    );
    let below = answer(950.0);
    assert!(below.contains("whether 1,000 are kept") && below.ends_with("is not sure."), "{below}");
}

#[test]
fn a_demanded_rate_without_confirmation_is_missed() {
    for kept in [None, Some(bound(900.0, false))] {
        let unconfirmed = report(SearchEnd::TimeUp, kept, Some(bound(1_000.0, false)));
        assert_eq!(status(&unconfirmed), 1);
        assert_eq!(status(&Report { at_least: Some(500.0), ..unconfirmed }), 3);
    }
    let confirmed = report(SearchEnd::Found, Some(bound(900.0, true)), Some(bound(940.0, true)));
    assert_eq!(status(&confirmed), 0);
    assert_eq!(status(&Report { at_least: Some(500.0), ..confirmed }), 0);
    let harmed = Report { at_least: Some(500.0), ..report(SearchEnd::Harmed, None, None) };
    assert_eq!(status(&harmed), 1, "harm comes first");
}

#[test]
fn the_cause_of_the_end_is_stated_once() {
    let kept = Some(bound(900.0, false));
    let gone = Report { gone: Some("refused".to_owned()), ..report(SearchEnd::Harmed, kept, None) };
    let until = "Until then: 900 requests/s were kept in a short step, not confirmed on a plateau \
        with p99<10ms.";
    assert_eq!(gone.answer(), format!("The target accepts no more connections (refused). {until}"));
    assert!(
        report(SearchEnd::Harmed, kept, None)
            .answer()
            .starts_with("Ended to do no more harm: a step lost")
    );
}

fn closed(end: ClimbEnd, levels: Vec<closed::Level>) -> ClosedResult {
    let knee = closed::knee(&levels);
    ClosedResult { end, levels, knee, fit: None, seed: 1 }
}

#[test]
fn a_search_without_a_result_states_the_cause() {
    let said = |end| {
        Report {
            result: SearchResult::Closed(closed(end, Vec::new())),
            ..report(SearchEnd::Found, None, None)
        }
        .answer()
    };
    for (end, words) in [
        (ClimbEnd::Harmed, "no more harm"),
        (ClimbEnd::Interrupted, "Interrupted"),
        (ClimbEnd::TimeUp, "--time"),
        (ClimbEnd::GeneratorLimited, "generator"),
    ] {
        assert!(
            said(end).contains(words) && said(end).contains("no throughput was measured"),
            "{}",
            said(end)
        );
    }
}

#[test]
fn contradictory_rounds_are_reported() {
    let level =
        |connections, rates: &[f64]| closed::Level { connections, rates_rps: rates.to_vec() };
    let noise =
        |second: &[f64]| closed(ClimbEnd::Knee, vec![level(1, &[90.0]), level(2, second)]).noise();
    let reported = noise(&[100.0, 180.0, 120.0]).expect("contradictory rounds");
    assert!(
        reported.contains("2 connections brought 100 requests/s in one round and 180 in another"),
        "{reported}"
    );
    assert_eq!(noise(&[100.0, 110.0]), None);
    assert_eq!(noise(&[100.0]), None);
}

#[test]
fn only_a_plateau_is_called_one() {
    let answer = |firm| {
        report(SearchEnd::Found, Some(bound(900.0, firm)), Some(bound(940.0, true))).answer()
    };
    assert!(answer(true).contains("the lower was kept on a plateau"), "{}", answer(true));
    assert!(
        answer(false).contains("in a short step, not confirmed on a plateau"),
        "{}",
        answer(false)
    );
}

#[test]
fn interrupted_tests_are_an_interruption() {
    let mut whole = report(SearchEnd::Found, Some(bound(900.0, true)), Some(bound(940.0, true)));
    whole.diagnosis.interrupted = true;
    assert_eq!(status(&whole), 130);
    assert!(whole.answer().contains("The search was complete; the tests"), "{}", whole.answer());
    assert!(json::line(&whole).contains("\"end\":\"found\""), "the result is unchanged");
}

/// Both modes together contain every possible key.
#[test]
fn each_key_is_described() {
    let judged =
        objective::evaluate(&parse("p99<10ms").unwrap(), &crate::load::json::tests::outcome());
    let step = StepResult {
        judged,
        noise: None,
        findings: crate::diagnosis::example().findings,
        ..StepResult::new(&crate::load::json::tests::outcome(), None)
    };
    let mut whole = Report {
        steps: vec![step],
        at_limit: Some(0),
        diagnosis: crate::diagnosis::example(),
        ..report(SearchEnd::Found, Some(bound(900.0, true)), Some(bound(940.0, true)))
    };
    whole.next = advice(&whole, true);
    let rates = [(1, 100.0), (2, 190.0), (4, 350.0), (8, 600.0), (16, 900.0)];
    let levels = rates.map(|(connections, rate)| closed::Level {
        connections,
        rates_rps: vec![rate, rate * 1.01],
    });
    let mut climb = closed(ClimbEnd::Knee, levels.to_vec());
    climb.fit = usl::fit(&closed::points(&climb.levels), 1);
    assert!(climb.fit.is_some(), "its keys too");
    let climbed =
        Report { result: SearchResult::Closed(climb), ..report(SearchEnd::Found, None, None) };
    let mut document: serde_json::Value = serde_json::from_str(&json::line(&whole)).unwrap();
    let climbed: serde_json::Value = serde_json::from_str(&json::line(&climbed)).unwrap();
    document["closed"] = climbed["closed"].clone();
    assert_keys_documented(
        include_str!("../../../../docs/reference/results.md"),
        "hotrow.capacity/1",
        &document,
        &[],
    );
}
