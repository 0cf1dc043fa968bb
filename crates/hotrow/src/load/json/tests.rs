//! Each key is described, and each described key is there.

use std::time::Duration;

use clap::Parser;
use hotrow_lab::watch::Watch;
use hotrow_load::objective;
use hotrow_load::record::Record;
use hotrow_measure::clock::Nanos;

use super::*;
use crate::cli::{Cli, Command};
use crate::diagnosis::diagnosed;
use crate::documented::assert_is;

/// A second in which one request was answered.
pub(crate) fn outcome() -> Outcome {
    let mut total = Record::default();
    (total.counts.scheduled, total.counts.sent, total.counts.ok) = (1, 1, 1);
    total.counts.status.insert(200, 1);
    let second = Duration::from_secs(1);
    Outcome {
        end: End::Complete,
        window: second,
        seconds: vec![Second::of(0, Nanos(1), second, &total)],
        total,
        in_flight_at_end: 0,
        target_rate: None,
        places: 1,
        threads: Vec::new(),
        troubles: Vec::new(),
    }
}

#[test]
fn each_key_is_described() {
    let headroom = Headroom { used_share: 0.5, ceiling_rps_per_thread: 1e5, calibrated: "today".to_owned() };
    let outcome = outcome();
    let judged = objective::judge(&objective::parse("p99<10ms").unwrap(), &outcome);
    let parsed = Cli::try_parse_from(["hotrow", "load", "--unix-socket", "/nobody", "http://a/"]).unwrap();
    let Command::Load(args) = parsed.command else { unreachable!("it is load") };
    let (_, config) = crate::load::resolve::resolve(&args).unwrap();
    let (watch, diagnosed) = (Watch::new(&[], true, "nobody".to_owned()), diagnosed::example());
    let report =
        Report::new("http://a/", &config, &outcome, (&judged, Some(headroom), Diagnosis::of(&watch, &diagnosed)));
    let document = serde_json::from_str(&line(&report)).unwrap();
    assert_is(include_str!("../../../../../docs/load.md"), SCHEMA, &document, &["status"]);
}
