//! Stopped and resumed process: its first answers must already take the lost time into account.

use std::time::Duration;

use rustix::process::Signal;

use super::{is_refused, plan, under_load};
use crate::contract::ask::ReadRequest;
use crate::contract::reader::ReadProfile;
use crate::contract::run::MAX_STALENESS;
use hotrow_verify::observation::{Claim, Outcome};

/// Connections that send requests while the process is stopped.
const PROBES: usize = 20;
/// Most repetitions of a stop until the expected answer is seen.
const ROUNDS_MAX: usize = 30;
/// Margin past the bound, so that the first commit is overdue when the requests are sent.
const BEYOND: Duration = Duration::from_millis(300);

#[test]
fn a_resumed_process_reads_the_database_first() {
    let probed = stop_under_load("bypass");
    assert!(probed.iter().all(|(seen, _)| *seen == Probe::New), "{probed:?}");
}

#[test]
fn a_resumed_process_marks_stale_answers() {
    let ok = |(seen, outcome): &(Probe, Outcome)| *seen == Probe::New || *outcome == Outcome::Stale;
    until_shown("stale", ok, Probe::Old);
}

#[test]
fn a_resumed_process_refuses_stale_answers() {
    until_shown("refuse", |(seen, _)| *seen != Probe::Old, Probe::Refused);
}

/// Stops the process until an answer is `shown`; every answer must be `ok`. The system chooses
/// which thread resumes first: if it is the feed, it catches up before any request is processed,
/// and the stop is repeated.
fn until_shown(policy: &str, ok: impl Fn(&(Probe, Outcome)) -> bool, shown: Probe) {
    for _ in 0..ROUNDS_MAX {
        let probed = stop_under_load(policy);
        assert!(probed.iter().all(&ok), "{probed:?}");
        if probed.iter().any(|(seen, _)| *seen == shown) {
            return;
        }
    }
    panic!("the feed resumed first {ROUNDS_MAX} times, so nothing was tested");
}

/// Answer to a request sent while the process was stopped, long after a change of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Old,
    New,
    Refused,
}

fn stop_under_load(policy: &str) -> Vec<(Probe, Outcome)> {
    let configure = |config: hotrow_testkit::harness::Config| {
        config.set("cache.when_stale", &format!("\"{policy}\"")).set("cache.capacity", "\"16MiB\"")
    };
    let (mut run, instance) = under_load(plan(), ReadProfile::default(), configure);
    let mut probes: Vec<_> = (0..PROBES).map(|_| run.reader(ReadProfile::plain())).collect();
    let keys: Vec<u32> = run.reserved_keys().collect();
    // Fills the cache with all reserved keys, and lets each connection be accepted.
    probes.iter_mut().for_each(|probe| keys.iter().for_each(|key| _ = probe.get(instance, *key)));
    run.server(instance).stop();
    run.change_reserved();
    run.pass(MAX_STALENESS + BEYOND);
    let requests: Vec<ReadRequest> = keys.iter().map(|key| ReadRequest::plain(*key)).collect();
    let sent: Vec<_> = probes.iter_mut().map(|probe| probe.send(instance, &requests)).collect();
    run.pass(MAX_STALENESS);
    run.server(instance).signal(Signal::CONT);
    for (probe, sent_ns) in probes.iter_mut().zip(&sent) {
        probe.receive(instance, &requests, *sent_ns);
    }
    run.await_more_reads(2000);
    run.await_readyz(instance, 200);
    run.observations
        .extend(probes.into_iter().flat_map(crate::contract::reader::Reader::into_seen));
    let run = run.finish(None, true);
    let probed = run
        .observations
        .iter()
        .filter(|o| sent.contains(&o.sent_ns) && run.reserved_keys().contains(&o.key));
    let probed: Vec<_> = probed
        .map(|o| {
            let history = &run.histories[o.key as usize];
            let due = history.certain_before(o.sent_ns);
            let new = match o.seen {
                Claim::Version(version) => version == due,
                _ => history.get(due).is_some_and(|state| !state.present),
            };
            (
                if is_refused(o) {
                    Probe::Refused
                } else if new {
                    Probe::New
                } else {
                    Probe::Old
                },
                o.outcome,
            )
        })
        .collect();
    assert!(probed.len() >= PROBES * keys.len(), "{} probes", probed.len());
    probed
}
