//! Race A, a change during a fill: with the safeguard disabled the checker finds a violation; with
//! it in place the same load causes none. Only in builds with the feature `failpoints`.

use std::time::{Duration, Instant};

use crate::contract::board::Board;
use crate::contract::reader::ReadProfile;
use crate::contract::rows::Sizes;
use crate::contract::run::{Plan, Run};
use crate::contract::writer::WriteProfile;
use hotrow_testkit::harness::await_until;
use hotrow_verify::rules::{Rule, Violation};

/// Staleness bound of these runs: short, so that a round soon shows a stale entry.
const BOUND: Duration = Duration::from_millis(250);
/// Longest time to find a violation without the safeguard.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Number of rounds with the safeguard in place.
const CLEAN_ROUNDS: usize = 3;

/// A load in which changes often fall into a fill: few hot keys, many readers of the same keys,
/// rows that are slow to read, one query at a time, writes in bursts.
fn plan() -> Plan {
    Plan {
        keys: 12,
        sizes: Sizes { from: 100_000, to: 200_000 },
        writers: 2,
        write_profile: WriteProfile {
            pause_us: 20_000,
            burst: 8,
            deletes: 10,
            moves: 0,
            rollbacks: 0,
            several: 20,
        },
        max_staleness: BOUND,
        ..Plan::default()
    }
}

/// Writes for half a second, then only reads for longer than the bound, so that a stale row is
/// seen.
fn round(environment: &[(&str, &str)]) -> (Run, Vec<Violation>) {
    let mut run = Run::new(plan());
    let config = run.config().set("source.reads_in_flight", "1").set("cache.capacity", "\"64MiB\"");
    run.serve(&config, environment);
    run.start_readers(8, ReadProfile { recent: 90, anywhere: 5, ..ReadProfile::plain() });
    run.start_writers();
    pass(&run.board, Duration::from_millis(500));
    run.stop_writers();
    pass(&run.board, BOUND * 2);
    run.await_more_reads(500);
    run.stop_readers();
    let violations = run.check(&run.terms()).violations;
    (run, violations)
}

fn pass(board: &Board, time: Duration) {
    let due = board.now() + time.as_nanos() as u64;
    await_until("time to pass", time * 10, || board.now() >= due);
}

#[test]
fn race_a_is_found_when_its_safeguard_is_disabled() {
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < FOUND_WITHIN {
        rounds += 1;
        let (run, violations) = round(&[("HOTROW_FAILPOINTS", "lease")]);
        // A stale entry violates the staleness bound; the failpoint must not break other rules.
        if let Some(violation) = violations.iter().find(|v| v.rule == Rule::Fresh) {
            println!("found after {:?}, in round {rounds}", began.elapsed());
            println!("{}", run.explain(violation));
            return;
        }
    }
    panic!("not found in {rounds} rounds: the checker or the load is too weak");
}

#[test]
fn race_a_is_closed_when_its_safeguard_is_in_place() {
    let mut dead_leases = 0.0;
    for _ in 0..CLEAN_ROUNDS {
        let (run, violations) = round(&[]);
        let explanations = violations.iter().take(2).map(|violation| run.explain(violation));
        assert!(violations.is_empty(), "{}", explanations.collect::<Vec<_>>().join("\n"));
        dead_leases += run.servers[0].metrics().sum("hotrow_fills_discarded_total", &[]);
    }
    println!("changes that fell into a fill: {dead_leases}");
    assert!(dead_leases > 0.0, "no change fell into a fill, so nothing was shown");
}
