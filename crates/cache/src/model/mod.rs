//! The cache against a model: random schedules of requests, reads, changes, feed events, gaps,
//! cancellations and time, with every answer checked against the contract. One thread, virtual
//! time; `schedules` explores threads.
//!
//! `world` drives the cache, the readers and the feed, which lags behind the log of `db`; `clients`
//! send requests and wait; `check` knows the requirements on each answer.

mod check;
mod clients;
mod db;
mod world;

use std::cell::RefCell;

use hotrow_admission::concurrency::queue;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config as Runs, TestCaseError, TestRunner};

use crate::Safeguard;
use crate::config::{Config, WhenStale};
use crate::testkit::config;
use check::Counts;
use db::Versions;
use world::{BOUND, Op, Settings, World};

/// Steps of one case.
const STEPS: usize = 500;
/// Cases of a run, unless `PROPTEST_CASES` asks for more: 10^6 steps, a fifth of it without
/// optimisation.
const CASES_MIN: u32 = if cfg!(debug_assertions) { 400 } else { 2000 };

/// Content of a case: a few bits of settings, and steps.
type Case = (u32, Vec<(u8, u16, u16)>);

/// Runs random cases. Returns the counts of all of them and the first violation.
fn explore(without: Option<Safeguard>) -> (Counts, Result<(), String>) {
    let total = RefCell::new(Counts::default());
    let mut runner = TestRunner::new(Runs {
        failure_persistence: None,
        cases: Runs::default().cases.max(CASES_MIN),
        // A violation that is looked for is not of interest in its shortest form.
        max_shrink_iters: without.map_or(Runs::default().max_shrink_iters, |_| 0),
        ..Runs::default()
    });
    let outcome = runner.run(&(any::<u32>(), vec(any::<(u8, u16, u16)>(), STEPS)), |case: Case| {
        let mut world = World::new(&settings(case.0), without);
        let outcome = run(&mut world, &case.1);
        total.borrow_mut().add(&world.counts());
        outcome.map_err(TestCaseError::fail)
    });
    (total.into_inner(), outcome.map_err(|error| error.to_string()))
}

fn run(world: &mut World, steps: &[(u8, u16, u16)]) -> Result<(), String> {
    for &(op, a, b) in steps {
        world.step(Op::of(op), a, b)?;
    }
    world.settle()
}

fn settings(bits: u32) -> Settings {
    let pick = |shift: u32, of: usize| (bits >> shift) as usize % of;
    let cache = Config {
        enabled: pick(0, 16) != 0,
        capacity_bytes: [2_000, 5_000, 100_000][pick(4, 3)],
        when_stale: [WhenStale::Bypass, WhenStale::Bypass, WhenStale::Stale, WhenStale::Refuse]
            [pick(6, 4)],
        prefetch_on_change: pick(27, 2) == 0,
        isolate_scans: true,
        max_staleness: BOUND,
        ttl_jitter: 0.2,
        error_ttl: [0, 1, 3].map(|n| BOUND * n)[pick(8, 3)],
        stale_while_revalidate: BOUND * pick(10, 3) as u32,
        stale_if_error: BOUND * 2 * pick(12, 3) as u32,
        reads_in_flight: 1 + pick(14, 4),
        query_keys: 1 + pick(16, 6),
        query_bytes: [11, 40, 1000][pick(18, 3)],
        waiting_keys: 4 + pick(20, 20),
        queue: queue::Config {
            adaptive: pick(28, 4) == 0,
            target: BOUND / 20,
            interval: BOUND / 20,
            query_target: BOUND / 10,
        },
        ..config()
    };
    Settings { cache, versions: Versions::ALL[pick(24, 6)] }
}

#[test]
fn no_schedule_breaks_the_contract() {
    let (counts, outcome) = explore(None);
    println!("{counts:?}");
    if let Err(violation) = outcome {
        panic!("{violation}");
    }
    assert!(counts.steps >= 200_000, "{counts:?}");
    // A test that never reaches the interesting states proves nothing.
    for (name, count) in counts.each() {
        assert!(count >= 20, "{name}: {counts:?}");
    }
}

/// With any of the safeguards disabled, the same test has to find a violation.
#[cfg(feature = "failpoints")]
#[test]
fn a_disabled_safeguard_is_detected() {
    for safeguard in [Safeguard::Lease, Safeguard::Fence, Safeguard::Join, Safeguard::Epoch] {
        let (_, outcome) = explore(Some(safeguard));
        let Err(violation) = outcome else {
            panic!("a cache without {safeguard:?} passed the test of the contract")
        };
        let words = ["older", "not fresh", "differs", "from before a gap"];
        assert!(words.iter().any(|word| violation.contains(word)), "{safeguard:?}: {violation}");
    }
}
