//! Race A, a change during a fill: with the fix taken out, the checker finds a violation; with the fix in place, the same
//! load shows none. Only in builds with the feature `sabotage`.

use std::time::{Duration, Instant};

use crate::board::Board;
use crate::explain::explain;
use crate::harness::await_until;
use crate::reader::Taste;
use crate::rows::Sizes;
use crate::rules::{Rule, Violation, check};
use crate::run::{Plan, Run};
use crate::writer::Habit;

/// The contract's bound in these runs: short, so that a round shows soon what stayed behind.
const BOUND: Duration = Duration::from_millis(250);
/// How long a missing fix may stay unfound.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Rounds of the same load with the fix in place.
const CLEAN_ROUNDS: usize = 3;

/// Few hot keys, many readers after the same ones, rows that take a while to read, one query at a time, writers in bursts:
/// a change falls into a fill again and again.
fn plan() -> Plan {
    Plan {
        keys: 12,
        sizes: Sizes { from: 100_000, to: 200_000 },
        writers: 2,
        habit: Habit { pause_us: 20_000, burst: 8, deletes: 10, moves: 0, rollbacks: 0, several: 20 },
        max_staleness: BOUND,
        ..Plan::default()
    }
}

/// Writes for half a second, then nothing for longer than the bound while readers go on: an old row that stayed is seen.
fn round(environment: &[(&str, &str)]) -> (Run, Vec<Violation>) {
    let mut run = Run::new(plan());
    let config = run.config().set("source.reads_in_flight", "1").set("cache.capacity", "\"64MiB\"");
    run.serve(&config, environment);
    run.start_readers(8, Taste { recent: 90, anywhere: 5, ..Taste::plain() });
    run.start_writers();
    pass(&run.board, Duration::from_millis(500));
    run.stop_writers();
    pass(&run.board, BOUND * 2);
    run.await_more_reads(500);
    run.stop_readers();
    let violations = check(&run.histories, &run.observations, &run.purges, &run.terms()).violations;
    (run, violations)
}

fn pass(board: &Board, time: Duration) {
    let due = board.now() + time.as_nanos() as u64;
    await_until("time to pass", time * 10, || board.now() >= due);
}

#[test]
fn race_a_is_found_when_its_fix_is_taken_out() {
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < FOUND_WITHIN {
        rounds += 1;
        let (run, violations) = round(&[("HOTROW_SABOTAGE", "lease")]);
        // What stays behind shows as a broken bound; the other rules must not be what the switch breaks.
        if let Some(violation) = violations.iter().find(|v| v.rule == Rule::Fresh) {
            println!("found after {:?}, in round {rounds}", began.elapsed());
            println!("{}", explain(violation, &run.histories, &run.observations, &run.purges));
            return;
        }
    }
    panic!("not found in {rounds} rounds: the checker or the load is too weak");
}

#[test]
fn race_a_is_closed_when_its_fix_is_in_place() {
    let mut dead_leases = 0.0;
    for _ in 0..CLEAN_ROUNDS {
        let (run, violations) = round(&[]);
        let stories = violations.iter().take(2).map(|v| explain(v, &run.histories, &run.observations, &run.purges));
        assert!(violations.is_empty(), "{}", stories.collect::<Vec<_>>().join("\n"));
        dead_leases += run.servers[0].metrics().sum("hotrow_dead_leases_total", &[]);
    }
    println!("changes that fell into a fill: {dead_leases}");
    assert!(dead_leases > 0.0, "no change fell into a fill, so nothing was shown");
}
