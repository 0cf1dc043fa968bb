//! Mixed load over MongoDB, with every disturbance.

use std::time::Duration;

use super::weather::{DISTURBANCES, Disturbance};
use super::{Mongo, MongoRun};
use crate::contract::board::Instance;
use crate::contract::engine::Engine as _;
use crate::contract::mixed::{self, Disturbances, Goal, RECOVERY};
use crate::contract::rows::{Random, Sizes};
use crate::contract::run::{Plan, Trial};
use crate::contract::writer::WriteProfile;

/// Test of the writers: their histories equal the database after every fault.
#[test]
fn histories_equal_the_database_after_elections() {
    let plan =
        Plan { keys: 300, sizes: Sizes { from: 10, to: 90 }, reserved: 5, ..Plan::default() };
    let mut run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        let standin = run.database.standin_mut();
        let primary = (round as usize + 1) % 2;
        standin.stop(primary);
        standin.elect(1 - primary);
        standin.restart(primary);
        run.change_reserved();
    }
    run.await_counts(0, 300 * 5, RECOVERY);
    run.stop_writers();
    let rows = Mongo::rows(&run.database);
    for (key, history) in run.histories.iter().enumerate() {
        let last = history.last().present.then(|| history.next_version() - 1);
        assert_eq!(rows.get(&(key as u32)).copied(), last, "key {key}");
    }
}

#[test]
fn contract_holds_over_mongodb_under_every_disturbance() {
    run(&Goal {
        name: "mongodb-short",
        reads: 60_000,
        changes: 10_000,
        rounds: 1,
        within: Duration::from_secs(300),
    });
}

#[test]
#[ignore = "long: 1 million reads and 100 thousand changes, every disturbance ten times"]
fn contract_holds_over_mongodb_in_a_long_run() {
    run(&Goal {
        name: "mongodb-long",
        reads: 1_000_000,
        changes: 100_000,
        rounds: 10,
        within: Duration::from_secs(3600),
    });
}

fn run(goal: &Goal) {
    // The stand-in commits faster than a server; pauses keep readers from starving.
    let write_profile = WriteProfile { pause_us: 12_000, ..WriteProfile::default() };
    let plan = Plan {
        keys: 5_000,
        sizes: Sizes { from: 100, to: 700 },
        reserved: 20,
        write_profile,
        ..Plan::default()
    };
    let run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    mixed::run(run, Disturber::default(), goal);
}

/// Disturbances of this engine.
#[derive(Default)]
struct Disturber {
    /// Index of the primary member.
    primary: usize,
}

impl Disturbances<Mongo> for Disturber {
    type Disturbance = Disturbance;

    const ALL: &'static [Disturbance] = &DISTURBANCES;

    fn ends_the_feed(disturbance: Disturbance) -> bool {
        disturbance.ends_the_feed()
    }

    fn apply(
        &mut self,
        run: &mut MongoRun,
        disturbance: Disturbance,
        victim: Instance,
        random: &mut Random,
    ) {
        disturbance.apply(run, victim, &mut self.primary, random);
    }

    fn assert_one_log(run: &MongoRun) {
        run.assert_one_log();
    }
}
