//! Everything at once, in all weathers.

use std::time::Duration;

use super::weather::{WEATHERS, Weather};
use super::{Database, Postgres, PostgresRun};
use crate::board::Instance;
use crate::engine::Engine as _;
use crate::mixed::{self, Aim, RECOVERY, Weathers};
use crate::rows::{Random, Sizes};
use crate::run::{Plan, Trial};

/// The writers checked: what they wrote down is what the database has, whatever happened to it.
#[test]
fn histories_equal_the_database_after_crashes() {
    let plan = Plan { keys: 300, sizes: Sizes { from: 10, to: 90 }, own: 5, ..Plan::default() };
    let mut run: PostgresRun = Trial::over_postgres(Database::with(&[], &plan), plan);
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        run.database.server.kill9();
        run.database.server.restart();
        run.change_own();
        match round {
            2 => run.truncate(),
            3 => run.change_all(),
            _ => {}
        }
    }
    run.await_counts(0, 300 * 5, RECOVERY);
    run.stop_writers();
    let rows = Postgres::rows(&run.database);
    for (key, history) in run.histories.iter().enumerate() {
        let last = history.last().present.then(|| history.next_version() - 1);
        assert_eq!(rows.get(&(key as u32)).copied(), last, "key {key}");
    }
    let newest = run.histories.iter().map(|history| history.last().at).max();
    assert!(newest <= Some(run.database.log_end()), "a commit past the log's end");
}

#[test]
fn contract_holds_over_postgresql_in_all_weathers() {
    run(&Aim { name: "postgres-short", reads: 100_000, changes: 10_000, rounds: 1, within: Duration::from_secs(300) });
}

#[test]
#[ignore = "long: more than a million reads and a hundred thousand changes, every weather ten times"]
fn contract_holds_over_postgresql_in_a_long_run() {
    run(&Aim {
        name: "postgres-long",
        reads: 1_000_000,
        changes: 100_000,
        rounds: 10,
        within: Duration::from_secs(3600),
    });
}

fn run(aim: &Aim) {
    // More keys than a feed lists of one transaction.
    let plan = Plan { keys: 13_000, sizes: Sizes { from: 100, to: 700 }, own: 20, ..Plan::default() };
    let run: PostgresRun = Trial::over_postgres(Database::with(&[], &plan), plan);
    mixed::run(run, Sky, aim);
}

/// The weathers over this engine.
struct Sky;

impl Weathers<Postgres> for Sky {
    type Weather = Weather;

    const ALL: &'static [Weather] = &WEATHERS;

    fn ends_the_feed(weather: Weather) -> bool {
        weather.ends_the_feed()
    }

    fn come(&mut self, run: &mut PostgresRun, weather: Weather, victim: Instance, random: &mut Random) {
        weather.come(run, victim, random);
    }

    fn assert_one_log(run: &PostgresRun) {
        run.assert_one_log();
    }
}
