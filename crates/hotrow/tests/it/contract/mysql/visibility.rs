//! Race B: MariaDB sends a change once it is in the log, before other sessions see it. Forced: with
//! semi-synchronous replication and no replica, a commit in the log stays invisible for as long as
//! the test needs.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::session::MysqlSession;
use super::{Mysql, MysqlRun};
use crate::contract::board::Instance;
use crate::contract::engine::{Commit, Engine as _, Row, Session as _, Step};
use crate::contract::explain::explain;
use crate::contract::observation::Seen;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::{Sizes, payload};
use crate::contract::rules::{Rule, check};
use crate::contract::run::{Plan, Trial};
use crate::contract::writer::{WriteProfile, note, state};
use hotrow_testkit::harness::{SOON, await_until};

/// Staleness bound: short, so that a scenario soon shows a stale entry.
const BOUND: Duration = Duration::from_millis(400);
/// Margin past the bound at which an answer must reflect a change.
const BEYOND: Duration = Duration::from_millis(100);
/// The key under test.
const KEY: u32 = 1;

/// Settings under which commits wait once they are in the log.
const HOLD: [(&str, &str); 4] = [
    ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
    ("rpl_semi_sync_master_timeout", "3600000"),
    ("rpl_semi_sync_master_wait_no_slave", "ON"),
    ("rpl_semi_sync_master_enabled", "ON"),
];
/// Setting that ends the wait.
const RELEASE: [(&str, &str); 1] = [("rpl_semi_sync_master_enabled", "OFF")];

/// Test of a single key: no other reads or writes, so that the first wrong answer shows a fault.
struct Scenario {
    run: MysqlRun,
    instance: Instance,
    reader: Reader,
}

/// A commit in the log that is not visible yet.
struct Hidden {
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Scenario {
    /// Starts the service and reads every key once, so that it is cached and the reader is
    /// connected.
    fn start(environment: &[(&str, &str)]) -> Self {
        let keys = 6;
        let write_profile = WriteProfile { deletes: 0, ..WriteProfile::default() };
        let plan = Plan {
            keys,
            reserved: keys,
            writers: 0,
            sizes: Sizes { from: 50, to: 90 },
            write_profile,
            max_staleness: BOUND,
            ..Plan::default()
        };
        let mut run: MysqlRun = Trial::over(Mysql::create(&plan), plan);
        let instance = run.serve(&run.config(), environment);
        run.start_writers();
        let mut reader = run.reader(ReadProfile::plain());
        for key in run.reserved_keys() {
            let first = if Plan::has_first_row(key) { Seen::Version(0) } else { Seen::Absent };
            assert_eq!(reader.get(instance, key).seen, first);
        }
        Self { run, instance, reader }
    }

    /// Returns the number of changes that the feed has delivered.
    fn delivered(&self) -> f64 {
        self.run.server(self.instance).metrics().sum("hotrow_invalidations_total", &[])
    }

    /// Commits a change of the key and waits until it is in the log.
    fn hide(&self) -> Hidden {
        let run = &self.run;
        let version = run
            .writer_histories
            .iter()
            .find_map(|histories| Some(histories.lock().ok()?.get(&KEY)?.next_version()))
            .expect("a key");
        let row = Row { key: KEY, version, payload: payload(KEY, version, run.plan.sizes) };
        let mut session = MysqlSession::new(run.database.superuser_url());
        run.database.set(&HOLD);
        let before = session.log_end();
        let board = Arc::clone(&run.board);
        let commit =
            std::thread::spawn(move || session.commit(&[Step::Update { row, way: 3 }], &board));
        let mut observer = MysqlSession::new(run.database.superuser_url());
        await_until("the commit to be in the log", SOON, || observer.log_end() > before);
        Hidden { version, commit }
    }

    /// Makes the commit visible and records it.
    fn show(&self, hidden: Hidden) {
        let run = &self.run;
        run.database.set(&RELEASE);
        let commit = hidden.commit.join().expect("no panic").expect("it was committed");
        let mut all =
            run.writer_histories.iter().map(|histories| histories.lock().expect("no panics here"));
        let mut histories = all.find(|histories| histories.contains_key(&KEY)).expect("a key");
        let history = histories.get_mut(&KEY).expect("just found");
        assert_eq!(history.next_version(), hidden.version, "no other writer changes the key");
        history.push(state(&commit, true, u8::MAX));
        note(&run.board, &commit, 1);
    }

    /// Lets the bound pass, reads the key a few times, and judges all observations. Returns the
    /// first broken rule and its explanation.
    fn end(mut self) -> Option<(Rule, String)> {
        self.run.pass(BOUND + BEYOND);
        for _ in 0..5 {
            self.reader.get(self.instance, KEY);
        }
        self.run.stop_writers();
        self.run.observations.extend(self.reader.into_seen());
        let run = &self.run;
        let report = check(&run.histories, &run.observations, &run.purges, &run.terms());
        let first = report.violations.first()?;
        Some((first.rule, explain(first, &run.histories, &run.observations, &run.purges)))
    }
}

/// A change is delivered, and its key is read repeatedly while it is invisible: no old row may
/// stay.
fn fence(environment: &[(&str, &str)]) -> Option<(Rule, String)> {
    let mut scenario = Scenario::start(environment);
    let before = scenario.delivered();
    let hidden = scenario.hide();
    await_until("the change to be delivered", SOON, || scenario.delivered() > before);
    // Probes run in the meantime; they must not end the fence while the commit is hidden.
    let due = scenario.run.board.now() + (BOUND * 3).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        let seen = scenario.reader.get(scenario.instance, KEY).seen.clone();
        assert_eq!(seen, Seen::Version(0), "the change is not visible yet");
        scenario.run.board.now() > due
    });
    scenario.show(hidden);
    scenario.end()
}

#[test]
fn a_row_read_before_its_change_is_visible_is_not_cached() {
    if let Some((rule, explanation)) = fence(&[]) {
        panic!("{rule:?} broken although the safeguard is in place\n{explanation}");
    }
}

/// On a machine so busy that probes take longer than the bound, the service reads the database
/// instead; then the scenario is repeated.
#[cfg(feature = "failpoints")]
#[test]
fn race_b_over_mariadb_is_found_when_the_fence_is_disabled() {
    for _ in 0..5 {
        if let Some((rule, explanation)) = fence(&[("HOTROW_FAILPOINTS", "fence")]) {
            assert_eq!(rule, Rule::Fresh, "{explanation}");
            println!("found:\n{explanation}");
            return;
        }
    }
    panic!("nothing found in five tries, so either the failpoint or the scenario is too weak");
}
