//! The documentation describes exactly the keys of the result.

use std::time::Duration;

use clap::Parser;
use hotrow_load::latency_map::LatencyMap;
use hotrow_load::objective;
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;
use hotrow_trial::observe::Observer;

use super::*;
use crate::cli::MeasureCommand;
use crate::cli::tests::Cli;
use crate::diagnosis;
use crate::machine::MeasuredOn;
use hotrow_testkit::doc_sync::assert_keys_documented;

/// A second with one response.
pub(crate) fn outcome() -> Outcome {
    let mut total = LoadStats::default();
    (total.counts.scheduled, total.counts.sent, total.counts.ok) = (1, 1, 1);
    total.counts.status.insert(200, 1);
    let second = Duration::from_secs(1);
    Outcome {
        end: RunEnd::Complete,
        window: second,
        seconds: vec![Second::of(0, Nanos(1), second, &total)],
        total,
        in_flight_at_end: 0,
        target_rate: None,
        max_in_flight: 1,
        threads: Vec::new(),
        failure_messages: Vec::new(),
        latency_map: LatencyMap::default(),
    }
}

#[test]
fn each_key_is_described() {
    let headroom =
        Headroom { used_share: 0.5, ceiling_rps_per_thread: 1e5, calibrated: "today".to_owned() };
    let outcome = outcome();
    let judged = objective::evaluate(&objective::parse("p99<10ms").unwrap(), &outcome);
    let parsed =
        Cli::try_parse_from(["hotrow", "load", "--unix-socket", "/absent", "http://a/"]).unwrap();
    let MeasureCommand::Load(args) = parsed.command else { unreachable!("it is load") };
    let (_, config) = crate::load::resolve::resolve(&args).unwrap();
    let watch = Observer::new(&[], true, "none".to_owned());
    let diagnosed = diagnosis::example();
    let measured_on = MeasuredOn::default();
    let result = LoadResult {
        url: "http://a/",
        config: &config,
        measured_on: &measured_on,
        outcome: &outcome,
        judged: &judged,
        diagnosed: &diagnosed,
        headroom: Some(&headroom),
        repeated: None,
    };
    let diagnosis = diagnosis::json::diagnosis(&watch, &diagnosed);
    let document = serde_json::from_str(&line(&result, &diagnosis)).unwrap();
    assert_keys_documented(
        include_str!("../../../../../docs/reference/results.md"),
        SCHEMA,
        &document,
        &["status", "refused_us"],
    );
}
