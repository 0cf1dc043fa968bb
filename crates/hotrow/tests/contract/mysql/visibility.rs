//! Race B: MariaDB sends a change when it is in the log, which is before other sessions see it. By force: with semi-synchronous
//! replication and no replica, a commit that is in the log waits, invisible, for as long as the test wants.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::session::MysqlSession;
use super::{Mysql, MysqlRun};
use crate::board::Instance;
use crate::engine::{Commit, Engine as _, Row, Session as _, Step};
use crate::explain::explain;
use crate::harness::{SOON, await_until};
use crate::observation::Seen;
use crate::reader::{Reader, Taste};
use crate::rows::{Sizes, payload};
use crate::rules::{Rule, check};
use crate::run::{Plan, Trial};
use crate::writer::{Habit, note, state};

/// Short, so that a scene shows soon what stayed behind.
const BOUND: Duration = Duration::from_millis(400);
/// Past the bound by so much, an answer must know.
const BEYOND: Duration = Duration::from_millis(100);
/// The key that is looked at.
const KEY: u32 = 1;

/// From now on commits wait when they are in the log.
const HOLD: [(&str, &str); 4] = [
    ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
    ("rpl_semi_sync_master_timeout", "3600000"),
    ("rpl_semi_sync_master_wait_no_slave", "ON"),
    ("rpl_semi_sync_master_enabled", "ON"),
];
/// They go on.
const RELEASE: [(&str, &str); 1] = [("rpl_semi_sync_master_enabled", "OFF")];

/// One key under a microscope: nothing else is written or read, so that a fault shows with the first answer.
struct Scene {
    run: MysqlRun,
    instance: Instance,
    reader: Reader,
}

/// A commit that is in the log and that nobody sees.
struct Hidden {
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Scene {
    /// Every key is read once, so that it is in the cache and the readers' connection is there.
    fn start(environment: &[(&str, &str)]) -> Self {
        let keys = 6;
        let habit = Habit { deletes: 0, ..Habit::default() };
        let (sizes, max_staleness) = (Sizes { from: 50, to: 90 }, BOUND);
        let plan = Plan { keys, own: keys, writers: 0, sizes, habit, max_staleness, ..Plan::default() };
        let mut run: MysqlRun = Trial::over(Mysql::create(&plan), plan);
        let instance = run.serve(&run.config(), environment);
        run.start_writers();
        let mut reader = run.reader(Taste::plain());
        for key in run.own_keys() {
            let first = if Plan::has_first_row(key) { Seen::Version(0) } else { Seen::Absent };
            assert_eq!(reader.get(instance, key).seen, first);
        }
        Self { run, instance, reader }
    }

    /// Changes that the feed has delivered.
    fn delivered(&self) -> f64 {
        self.run.server(self.instance).metrics().sum("hotrow_invalidations_total", &[])
    }

    /// Commits a change of the key, and waits until it is in the log.
    fn hide(&self) -> Hidden {
        let run = &self.run;
        let version =
            run.kept.iter().find_map(|kept| Some(kept.lock().ok()?.get(&KEY)?.next_version())).expect("a key");
        let row = Row { key: KEY, version, payload: payload(KEY, version, run.plan.sizes) };
        let mut session = MysqlSession::new(run.database.url());
        run.database.set(&HOLD);
        let before = session.log_end();
        let board = Arc::clone(&run.board);
        let commit = std::thread::spawn(move || session.commit(&[Step::Update { row, way: 3 }], &board));
        let mut looks = MysqlSession::new(run.database.url());
        await_until("the commit to be in the log", SOON, || looks.log_end() > before);
        Hidden { version, commit }
    }

    /// Lets it become visible; the commit returns.
    fn show(&self, hidden: Hidden) {
        let run = &self.run;
        run.database.set(&RELEASE);
        let commit = hidden.commit.join().expect("no panic").expect("it was committed");
        let mut kept = run.kept.iter().map(|kept| kept.lock().expect("no panics here"));
        let mut kept = kept.find(|kept| kept.contains_key(&KEY)).expect("a key");
        let history = kept.get_mut(&KEY).expect("just found");
        assert_eq!(history.next_version(), hidden.version, "nobody else writes the key");
        history.push(state(&commit, true, u8::MAX));
        note(&run.board, &commit, 1);
    }

    /// Lets the bound pass, reads the key some times, and judges everything: the first broken rule, and the story of it.
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

/// A change is delivered, and read before it is visible, again and again: none of what is read may stay.
fn fence(environment: &[(&str, &str)]) -> Option<(Rule, String)> {
    let mut scene = Scene::start(environment);
    let before = scene.delivered();
    let hidden = scene.hide();
    await_until("the change to be delivered", SOON, || scene.delivered() > before);
    // Probes pass meanwhile; they must not make the fence forget what is still hidden.
    let due = scene.run.board.now() + (BOUND * 3).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        let seen = scene.reader.get(scene.instance, KEY).seen.clone();
        assert_eq!(seen, Seen::Version(0), "nobody can see the change yet");
        scene.run.board.now() > due
    });
    scene.show(hidden);
    scene.end()
}

#[test]
fn a_row_read_before_its_change_is_visible_is_not_kept() {
    if let Some((rule, story)) = fence(&[]) {
        panic!("{rule:?} broken although the fix is in place\n{story}");
    }
}

/// On a machine so busy that probes take longer than the bound, the service reads the database instead and nothing shows;
/// then it is tried again.
#[cfg(feature = "sabotage")]
#[test]
fn race_b_over_mariadb_is_found_when_the_fence_is_taken_out() {
    for _ in 0..5 {
        if let Some((rule, story)) = fence(&[("HOTROW_SABOTAGE", "fence")]) {
            assert_eq!(rule, Rule::Fresh, "{story}");
            println!("found:\n{story}");
            return;
        }
    }
    panic!("nothing found in five tries, so either the switch or the scene is too weak");
}
