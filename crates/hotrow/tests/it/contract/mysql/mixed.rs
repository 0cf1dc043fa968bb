//! Mixed load over MariaDB, with every disturbance.

use std::time::Duration;

use super::server::Stop;
use super::weather::{DISTURBANCES, Disturbance};
use super::{Mysql, MysqlRun};
use crate::contract::board::Instance;
use crate::contract::engine::Engine as _;
use crate::contract::mixed::{self, Disturbances, Goal, RECOVERY};
use crate::contract::rows::{Random, Sizes};
use crate::contract::run::{Plan, Trial};

/// Test of the writers: their histories equal the database after every fault.
#[test]
fn histories_equal_the_database_after_crashes() {
    let plan =
        Plan { keys: 300, sizes: Sizes { from: 10, to: 90 }, reserved: 5, ..Plan::default() };
    let mut run: MysqlRun = Trial::over(Mysql::create(&plan), plan);
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        run.database.stop(Stop::Kill);
        run.restart();
        run.change_reserved();
        match round {
            2 => run.truncate(),
            3 => run.change_all(),
            _ => {}
        }
    }
    run.await_counts(0, 300 * 5, RECOVERY);
    run.stop_writers();
    let rows = Mysql::rows(&run.database);
    for (key, history) in run.histories.iter().enumerate() {
        let last = history.last().present.then(|| history.next_version() - 1);
        assert_eq!(rows.get(&(key as u32)).copied(), last, "key {key}");
    }
}

#[test]
fn contract_holds_over_mariadb_under_every_disturbance() {
    run(&Goal {
        name: "mariadb-short",
        reads: 100_000,
        changes: 10_000,
        rounds: 1,
        within: Duration::from_secs(300),
    });
}

#[test]
#[ignore = "long: 1 million reads and 100 thousand changes, every disturbance ten times"]
fn contract_holds_over_mariadb_in_a_long_run() {
    run(&Goal {
        name: "mariadb-long",
        reads: 1_000_000,
        changes: 100_000,
        rounds: 10,
        within: Duration::from_secs(3600),
    });
}

fn run(goal: &Goal) {
    // More keys than the feed lists for one transaction.
    let plan =
        Plan { keys: 13_000, sizes: Sizes { from: 100, to: 700 }, reserved: 20, ..Plan::default() };
    let run: MysqlRun = Trial::over(Mysql::create(&plan), plan);
    mixed::run(run, Disturber, goal);
}

/// Disturbances of this engine.
struct Disturber;

impl Disturbances<Mysql> for Disturber {
    type Disturbance = Disturbance;

    const ALL: &'static [Disturbance] = &DISTURBANCES;

    fn ends_the_feed(disturbance: Disturbance) -> bool {
        disturbance.ends_the_feed()
    }

    fn apply(
        &mut self,
        run: &mut MysqlRun,
        disturbance: Disturbance,
        victim: Instance,
        random: &mut Random,
    ) {
        disturbance.apply(run, victim, random);
    }

    fn assert_one_log(run: &MysqlRun) {
        run.assert_one_log();
    }
}
