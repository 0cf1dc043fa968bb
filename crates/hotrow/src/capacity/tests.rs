//! What a search's end means in words, and as an exit status.

use hotrow_lab::capacity::search::{Bound, End, Found, Noise};
use hotrow_load::objective::parse;

use super::*;

fn bound(rate_rps: f64, firm: bool) -> Bound {
    Bound { rate_rps, firm, generator: false }
}

fn report(end: End, kept: Option<Bound>, refuted: Option<Bound>) -> Report {
    let open = Open {
        slo: "p99<10ms".to_owned(),
        objectives: parse("p99<10ms").unwrap(),
        arrivals: "poisson",
        found: Found { kept, refuted, end, noise: Noise::default() },
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
        result: Sought::Open(open),
        gone: None,
        steps: Vec::new(),
        at_limit: None,
        next: Vec::new(),
        diagnosed: Diagnosed::default(),
        at_least: None,
    }
}

fn status(report: &Report) -> i32 {
    exit(report) as i32
}

#[test]
fn the_highest_rate_is_only_called_kept_when_it_was() {
    let answer = |rate| report(End::AboveRateMax, Some(bound(rate, true)), None).answer();
    assert!(answer(1_000.0).contains("which is the highest rate that --rate-max allows"), "{}", answer(1_000.0));
    let below = answer(950.0);
    assert!(below.contains("whether 1,000 are kept") && below.ends_with("is not sure."), "{below}");
}

#[test]
fn what_was_demanded_and_not_confirmed_is_missed() {
    for kept in [None, Some(bound(900.0, false))] {
        let unconfirmed = report(End::TimeUp, kept, Some(bound(1_000.0, false)));
        assert_eq!(status(&unconfirmed), 1);
        assert_eq!(status(&Report { at_least: Some(500.0), ..unconfirmed }), 3);
    }
    let confirmed = report(End::Found, Some(bound(900.0, true)), Some(bound(940.0, true)));
    assert_eq!(status(&confirmed), 0);
    assert_eq!(status(&Report { at_least: Some(500.0), ..confirmed }), 0);
    let harmed = Report { at_least: Some(500.0), ..report(End::Harmed, None, None) };
    assert_eq!(status(&harmed), 1, "harm comes first");
}

#[test]
fn only_a_plateau_is_called_one() {
    let answer = |firm| report(End::Found, Some(bound(900.0, firm)), Some(bound(940.0, true))).answer();
    assert!(answer(true).contains("the lower was kept on a plateau"), "{}", answer(true));
    assert!(answer(false).contains("in a short step, not confirmed on a plateau"), "{}", answer(false));
}

#[test]
fn tests_that_are_broken_off_are_an_interruption() {
    let mut whole = report(End::Found, Some(bound(900.0, true)), Some(bound(940.0, true)));
    whole.diagnosed.interrupted = true;
    assert_eq!(status(&whole), 130);
    assert!(whole.answer().contains("The search was complete; the tests"), "{}", whole.answer());
    assert!(json::line(&whole).contains("\"end\":\"found\""), "what it came to stays");
}
