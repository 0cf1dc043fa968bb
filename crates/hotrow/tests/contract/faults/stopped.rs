//! The process is stopped and goes on later: with its first answers it must know that it knows nothing.

use std::time::Duration;

use rustix::process::Signal;

use super::{is_refused, plan, under_load};
use crate::ask::Ask;
use crate::observation::{Outcome, Seen, Wish};
use crate::reader::Taste;
use crate::run::MAX_STALENESS;

/// Connections that send requests while the process is stopped.
const PROBES: usize = 20;
/// Times that a stop is repeated before it must have shown something.
const ROUNDS_MAX: usize = 30;
/// Beyond the bound by so much, for what was committed first must be overdue when the requests are sent.
const BEYOND: Duration = Duration::from_millis(300);

#[test]
fn a_stopped_process_knows_on_waking_that_it_knows_nothing() {
    let probed = stop_under_load("bypass");
    assert!(probed.iter().all(|(seen, _)| *seen == Probe::New), "{probed:?}");
}

#[test]
fn a_stopped_process_marks_what_is_stale() {
    let ok = |(seen, outcome): &(Probe, Outcome)| *seen == Probe::New || *outcome == Outcome::Stale;
    until_shown("stale", ok, Probe::Old);
}

#[test]
fn a_stopped_process_refuses_what_it_does_not_know() {
    until_shown("refuse", |(seen, _)| *seen != Probe::Old, Probe::Refused);
}

/// Every answer must be `ok`, every time. Which thread runs first on waking is the system's choice: if the feed does, it
/// catches up before any request is looked at and nothing is `shown`; then it is tried again.
fn until_shown(policy: &str, ok: impl Fn(&(Probe, Outcome)) -> bool, shown: Probe) {
    for _ in 0..ROUNDS_MAX {
        let probed = stop_under_load(policy);
        assert!(probed.iter().all(&ok), "{probed:?}");
        if probed.iter().any(|(seen, _)| *seen == shown) {
            return;
        }
    }
    panic!("the feed was first {ROUNDS_MAX} times, so nothing was shown");
}

/// What a request got that was sent while the process was stopped, long after its key had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Old,
    New,
    Refused,
}

fn stop_under_load(policy: &str) -> Vec<(Probe, Outcome)> {
    let configure = |config: crate::harness::Config| {
        config.set("cache.when_stale", &format!("\"{policy}\"")).set("cache.capacity", "\"16MiB\"")
    };
    let (mut run, instance) = under_load(plan(), Taste::default(), configure);
    let mut probes: Vec<_> = (0..PROBES).map(|_| run.reader(Taste::plain())).collect();
    let keys: Vec<u32> = run.own_keys().collect();
    // All own keys are in the cache, and each connection has been accepted.
    probes.iter_mut().for_each(|probe| keys.iter().for_each(|key| _ = probe.get(instance, *key)));
    run.server(instance).stop();
    run.change_own();
    run.pass(MAX_STALENESS + BEYOND);
    let asks: Vec<Ask> = keys.iter().map(|key| Ask::One { key: *key, wish: Wish::Any, known: None }).collect();
    let sent: Vec<_> = probes.iter_mut().map(|probe| probe.send(instance, &asks)).collect();
    run.pass(MAX_STALENESS);
    run.server(instance).signal(Signal::CONT);
    for (probe, sent_ns) in probes.iter_mut().zip(&sent) {
        probe.receive(instance, &asks, *sent_ns);
    }
    run.await_more_reads(2000);
    run.await_readyz(instance, 200);
    run.observations.extend(probes.into_iter().flat_map(crate::reader::Reader::into_seen));
    let run = run.finish(None, true);
    let probed = run.observations.iter().filter(|o| sent.contains(&o.sent_ns) && run.own_keys().contains(&o.key));
    let probed: Vec<_> = probed
        .map(|o| {
            let history = &run.histories[o.key as usize];
            let due = history.returned_before(o.sent_ns);
            let new = match o.seen {
                Seen::Version(version) => version == due,
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
