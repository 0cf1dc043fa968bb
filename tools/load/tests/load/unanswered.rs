//! Requests without the expected answer: they stay in the percentiles, whatever became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::NO_ERRORS;
use crate::scripted::{Server, Step, config, mix, ok, open, outcome, send};
use hotrow_load::objective::{self, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_load::plan::Arrivals;
use hotrow_load::stats::CensoredNs;

fn met(objectives: &str, outcome: &Outcome) -> Vec<ObjectiveStatus> {
    let objectives = objective::parse(objectives).expect("objectives");
    objective::evaluate(&objectives, outcome).into_iter().map(|judged| judged.met).collect()
}

/// Three of five requests wait and are then reset. The answered ones are fast.
#[test]
fn losses_stay_in_the_percentiles() {
    let server = Server::start(|request| match request.number % 5 {
        0 | 1 => vec![Step::Send(ok())],
        _ => vec![Step::Pause(Duration::from_millis(20)), Step::Reset],
    });
    let outcome = outcome(&config(server.address, 50));
    let total = &outcome.total;
    assert_eq!((total.counts.ok, total.counts.errors.reset), (20, 30));
    assert_eq!((total.latency.count(), total.latency.answered.count()), (50, 20));
    let p99 = total.latency.quantile(0.99);
    assert!(matches!(p99, Some(CensoredNs::AtLeast(20_000_000..))), "{p99:?}");
    assert!(matches!(total.latency.quantile(0.4), Some(CensoredNs::Exact(_))));
    assert_eq!(
        met("p99<3600s,p50<10s,errors<61%,errors<=59%", &outcome),
        [
            ObjectiveStatus::Missed,
            ObjectiveStatus::Missed,
            ObjectiveStatus::Met,
            ObjectiveStatus::Missed
        ]
    );
}

/// A bucket that refuses at once: its fast 429 are no fast answers.
#[test]
fn refusals_are_no_short_latencies() {
    let server = Server::start(|request| {
        let refused = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
        vec![if request.number == 0 { Step::Send(ok()) } else { send(refused) }]
    });
    let outcome = outcome(&config(server.address, 250));
    let total = &outcome.total;
    assert_eq!((total.counts.ok, total.counts.errors.unexpected_status), (1, 249));
    assert_eq!(total.refused.keys().copied().collect::<Vec<_>>(), [429]);
    assert_eq!((total.refused[&429].count(), total.latency.answered.count()), (249, 1));
    let bound = total.latency.answered.max();
    let p99 = total.latency.quantile(0.99);
    assert!(matches!(p99, Some(CensoredNs::AtLeast(ns)) if ns >= bound), "{p99:?}");
    assert_eq!(
        met("p99<3600s,service.p99<3600s", &outcome),
        [ObjectiveStatus::Missed, ObjectiveStatus::Missed]
    );
}

/// The target answers, and then closes each connection without an answer, to the end of the run.
#[test]
fn a_target_that_stops_answering_fails_the_run() {
    let server = Server::start(|request| match request.number {
        0..5 => vec![Step::Send(ok())],
        _ => vec![Step::Close],
    });
    let run = |seconds| open(server.address, 20.0, Arrivals::Uniform, Duration::from_secs(seconds));
    let died = outcome(&run(4));
    assert!(
        matches!(died.end, RunEnd::StoppedAnswering { after } if after < Duration::from_secs(4)),
        "{:?}",
        died.end
    );
    assert_eq!(died.total.latency.count(), died.total.counts.scheduled);
}

/// One lost request at the end is a lost request, not a target that stopped.
#[test]
fn a_last_request_that_is_lost_is_no_end_of_the_target() {
    let server = Server::start(|request| match request.number {
        0..9 => vec![Step::Send(ok())],
        _ => vec![Step::Close],
    });
    let run = open(server.address, 5.0, Arrivals::Uniform, Duration::from_secs(2));
    let outcome = outcome(&run);
    assert_eq!((outcome.end, outcome.total.counts.errors.closed), (RunEnd::Complete, 1));
}

/// nginx announces the end of a connection in the 1,000th answer; pipelined requests behind it were
/// not processed.
#[test]
fn requests_behind_an_announced_close_are_sent_again() {
    const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let served = Arc::new(AtomicU64::new(0));
    let count = served.clone();
    let server = Server::start(move |_| {
        if count.fetch_add(1, SeqCst) % 5 == 4 {
            vec![send(LAST), Step::Close]
        } else {
            vec![Step::Send(ok())]
        }
    });
    let mut run = config(server.address, 100);
    run.depth = 8;
    let total = outcome(&run).total;
    let counts = &total.counts;
    assert_eq!((counts.ok, counts.sent, counts.errors), (100, 100, NO_ERRORS), "{counts:?}");
    assert!(counts.resent > 0, "{counts:?}");
    assert_eq!(served.load(SeqCst), 100, "the server read none of them twice");

    run.requests = mix("POST", true);
    let total = outcome(&run).total;
    assert_eq!(total.counts.resent, 0, "POST is not repeatable");
    assert!(total.counts.errors.closed > 0);
}

/// The head comes at once and the body later.
#[test]
fn first_bytes_and_connects_have_their_own_times() {
    let server = Server::start(|_| {
        vec![
            send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
            Step::Pause(Duration::from_millis(30)),
            send("ok"),
        ]
    });
    let total = outcome(&config(server.address, 10)).total;
    assert_eq!((total.first_byte.count(), total.connect.count()), (10, 1));
    let apart_ns = total.service.answered.sum() - total.first_byte.sum();
    // One of ten: a client that cannot run for the pause receives head and body at once.
    assert!(apart_ns >= 25_000_000, "{apart_ns}");
}
