//! Everything at once, in all weathers.

use std::time::Duration;

use super::weather::{WEATHERS, Weather};
use super::{Mongo, MongoRun};
use crate::board::Instance;
use crate::engine::Engine as _;
use crate::mixed::{self, Aim, RECOVERY, Weathers};
use crate::rows::{Random, Sizes};
use crate::run::{Plan, Trial};
use crate::writer::Habit;

/// The writers checked: what they wrote down is what the database has, whatever happened to it.
#[test]
fn histories_equal_the_database_after_elections() {
    let plan = Plan { keys: 300, sizes: Sizes { from: 10, to: 90 }, own: 5, ..Plan::default() };
    let mut run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        let standin = run.database.standin_mut();
        let primary = (round as usize + 1) % 2;
        standin.stop(primary);
        standin.elect(1 - primary);
        standin.restart(primary);
        run.change_own();
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
fn contract_holds_over_mongodb_in_all_weathers() {
    run(&Aim { name: "mongodb-short", reads: 60_000, changes: 10_000, rounds: 1, within: Duration::from_secs(300) });
}

#[test]
#[ignore = "long: more than a million reads and a hundred thousand changes, every weather ten times"]
fn contract_holds_over_mongodb_in_a_long_run() {
    run(&Aim {
        name: "mongodb-long",
        reads: 1_000_000,
        changes: 100_000,
        rounds: 10,
        within: Duration::from_secs(3600),
    });
}

fn run(aim: &Aim) {
    // The stand-in commits faster than a server; readers shall not starve of it.
    let habit = Habit { pause_us: 12_000, ..Habit::default() };
    let plan = Plan { keys: 5_000, sizes: Sizes { from: 100, to: 700 }, own: 20, habit, ..Plan::default() };
    let run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    mixed::run(run, Sky::default(), aim);
}

/// The weathers over this engine.
#[derive(Default)]
struct Sky {
    /// Number of the member that is the primary.
    primary: usize,
}

impl Weathers<Mongo> for Sky {
    type Weather = Weather;

    const ALL: &'static [Weather] = &WEATHERS;

    fn ends_the_feed(weather: Weather) -> bool {
        weather.ends_the_feed()
    }

    fn come(&mut self, run: &mut MongoRun, weather: Weather, victim: Instance, random: &mut Random) {
        weather.come(run, victim, &mut self.primary, random);
    }

    fn assert_one_log(run: &MongoRun) {
        run.assert_one_log();
    }
}
