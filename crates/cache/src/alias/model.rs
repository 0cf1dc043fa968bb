//! Lookups by alias against a model: random schedules of lookups, reads, changes that move values
//! between rows, and a feed that lags behind the log or runs ahead of what reads see. Seeded,
//! virtual time, one thread.

mod check;
mod db;
mod world;

use world::{Counts, Fault, World};

use crate::testkit::run_seeds;

/// Steps of one case.
const STEPS: usize = 600;
const CASES: u64 = if cfg!(debug_assertions) { 400 } else { 2_000 };

/// Runs all cases. Returns the counts and the first violation.
fn explore(fault: Option<Fault>) -> (Counts, Result<(), String>) {
    run_seeds(0..CASES, |seed, total: &mut Counts| {
        let mut world = World::new(seed, fault);
        let outcome = world.run(STEPS);
        total.add(&world.counts);
        outcome
    })
}

#[test]
fn no_schedule_breaks_the_contract_of_aliases() {
    let (counts, outcome) = explore(None);
    println!("{counts:?}");
    if let Err(violation) = outcome {
        panic!("{violation}");
    }
    // A test that never reaches the interesting states proves nothing.
    for (name, count) in counts.each() {
        assert!(count >= 50, "{name}: {counts:?}");
    }
}

#[test]
fn each_planted_fault_is_found() {
    for fault in Fault::ALL {
        let (_, outcome) = explore(Some(fault));
        let Err(violation) = outcome else { panic!("{fault:?} passed the test") };
        println!("{fault:?}: {violation}");
    }
}
