//! Over SQLite. There is no server to kill and no connection to cut: what others do to the file stands for it.
//!
//! Two of the four fixes are shown here. There is no Race B, so nothing to fence. And what the feed knows it reads from the file
//! itself, microseconds after it has noted the time: between the two nothing can be late, so that which of them counts does not
//! show from outside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::checker::{ALL_RULES, Checker, NAME, assert_all_rules, assert_self_checked, granting};
use crate::faults::{Fault, endure};
use crate::harness::{Config, Database, Server, await_until};
use crate::stage::{Stage, World, pass};
use crate::traps::{Trap, assert_harmless};

/// A database with the checker's table, and its configuration.
fn stage(config: impl FnOnce(Config) -> Config) -> (Database, Config) {
    let database = Database::new();
    let config = config(granting(Config::new(database.path())));
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    (database, config)
}

#[test]
fn a_sound_service_passes_and_every_rule_was_asked() {
    let (_database, config) = stage(|config| config);
    let server = Server::start(&config);
    // On a machine that is busy with other things, few reads may come near a change; then once more.
    let check = || {
        let ended = Checker::against(&config, &[&server], &["-d", "4s", "--rate", "300"]).ended(Duration::from_secs(4));
        ended.assert_kept(300, 100)
    };
    let is_near = |report: &serde_json::Value| report["reads"]["near_share"].as_f64() >= Some(0.2);
    let report =
        (0..3).map(|_| check()).find(is_near).expect("a fifth of the reads near a change, in one of three runs");
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    for form in ["get", "conditional", "head", "batch_get", "batch_post"] {
        assert!(report["reads"]["forms"][form].as_u64() > Some(0), "{form}: {report:#}");
    }
    assert_eq!(report["feed_losses"][0], 0);
    // A machine that stands still for a second may shed, and that is all.
    let refused: u64 =
        report["refused"].as_object().expect("counts").values().filter_map(serde_json::Value::as_u64).sum();
    assert!(refused * 100 <= report["reads"]["all"].as_u64().expect("a number"), "{report:#}");
}

#[test]
fn keys_may_be_texts_and_grants_may_be_missing() {
    let (_database, config) = stage(|config| {
        let key = format!("collections.{NAME}");
        config
            .set(&format!("{key}.key_type"), "\"text\"")
            .set(&format!("{key}.allow_no_cache"), "false")
            .set(&format!("{key}.allow_min_position"), "false")
    });
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &["-d", "2s", "--keys", "60"]).ended(Duration::from_secs(2));
    let report = ended.assert_kept(100, 20);
    assert_eq!(
        (&report["targets"][0]["no_cache"], &report["targets"][0]["min_position"]),
        (&false.into(), &false.into())
    );
    assert_eq!((&report["reads"]["sessions"], &report["reads"]["no_cache"]), (&0.into(), &0.into()));
}

/// The service answers as its own bound allows. Held to a tighter one, it must be found out: it is stopped for longer than that
/// bound, so that its feed must have been behind when it wakes.
#[test]
fn a_service_that_allows_itself_more_than_is_promised_is_found_out() {
    let (_database, config) =
        stage(|config| config.set("cache.max_staleness", "\"60s\"").set("cache.when_stale", "\"stale\""));
    let server = Server::start(&config);
    let promised = config.set("cache.max_staleness", "\"10ms\"");
    let mut checker = Checker::against(&promised, &[&server], &["-d", "60s", "--rate", "400", "--keys", "30"]);
    // Each time it wakes, requests are waiting that were sent while it slept, and its feed has slept too.
    while checker.runs() {
        server.stop();
        std::thread::sleep(Duration::from_millis(120));
        server.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (rule, story) = checker.ended(Duration::from_secs(60)).assert_broken();
    assert_eq!(rule, "fresh", "{story}");
}

/// A writer that disables triggers is on the list of what no feed shows. The service's own check finds it.
#[test]
fn the_service_itself_finds_an_entry_that_no_change_reached() {
    let (database, config) = stage(|config| config.set("cache.max_staleness", "\"2s\""));
    let server = Server::start(&config);
    let path = format!("/{NAME}/1");
    let before = server.get(&path).text();
    let writer = database.another();
    let setting = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
    writer.set_db_config(setting, false).expect("a setting");
    writer.execute(&format!("UPDATE {NAME} SET version = version + 1 WHERE id = 1"), []).expect("an update");
    let mut client = server.client();
    assert_eq!(client.get(&path).text(), before, "nobody told the service");
    await_until("the check to find it", Duration::from_secs(60), || {
        client.get(&path);
        server.metrics().sum("hotrow_inconsistent_answers_total", &[]) >= 1.0
    });
    // It is dropped, so the next read sees the row as it is, and nothing more is found.
    assert_ne!(client.get(&path).text(), before);
    let log = server.log();
    assert!(log.contains("an answer was inconsistent") && !log.contains("hotrow-verify:"), "{log}");
}

/// How long a file may be in the way of one who wants to write. Generous, for disks differ.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where nothing is written for so long, somebody holds the file, or the checker has ended.
const NOBODY_WRITES_AFTER: Duration = Duration::from_secs(2);

/// A file, and others who have it open.
struct Sqlite {
    database: Database,
    /// A program in the middle of a transaction.
    program: Option<Child>,
}

impl Stage for Sqlite {
    /// Reading a row takes some milliseconds, for one column is worked out for each read: so changes come while rows are
    /// read. Who writes does not notice.
    fn start() -> Self {
        let database = Database::new();
        let slow = "length(replace(hex(zeroblob(100000 + id % 2)), '00', 'abc'))";
        database.execute(&format!(
            "CREATE TABLE {NAME}(id INTEGER PRIMARY KEY, version INTEGER NOT NULL, payload TEXT NOT NULL,
             slow INTEGER GENERATED ALWAYS AS ({slow}) VIRTUAL)"
        ));
        Self { database, program: None }
    }

    fn config(&self) -> Config {
        granting(Config::new(self.database.path()))
    }

    fn database(&self) -> String {
        format!("sqlite:{}", self.database.path().display())
    }
}

type Over = World<Sqlite>;

fn execute(world: &Over, sql: &str) {
    world.stage.database.execute(sql);
}

const FAULTS: [Fault<Sqlite>; 5] = [
    Fault {
        name: "program killed in its transaction",
        is_a_loss: false,
        begin: |world| world.stage.program = Some(begin_transaction(&world.stage.database)),
        end: |world| {
            let mut program = world.stage.program.take().expect("just started");
            program.kill().expect("it waits for more");
            program.wait().expect("it was killed");
        },
    },
    Fault {
        name: "file locked",
        is_a_loss: false,
        begin: |world| await_until("the file to be free", PATIENCE, || lock(world)),
        end: |world| execute(world, "ROLLBACK"),
    },
    Fault {
        name: "snapshot held",
        is_a_loss: false,
        begin: |world| execute(world, &format!("BEGIN; SELECT count(*) FROM {NAME}")),
        end: |world| execute(world, "COMMIT"),
    },
    Fault {
        name: "WAL written back",
        is_a_loss: false,
        // As far as it goes while others read.
        begin: |world| execute(world, "PRAGMA wal_checkpoint(TRUNCATE)"),
        end: |world| execute(world, "PRAGMA wal_checkpoint(TRUNCATE)"),
    },
    Fault { name: "log lost", is_a_loss: true, begin: |world| world.one.stop(), end: lose_the_log },
];

/// Tries to lock the file for writing, at once: SQLite's own way to wait looks too seldom to come between busy writers.
fn lock(world: &Over) -> bool {
    world.stage.database.connection.execute_batch("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE").is_ok()
}

/// A program that has written and not committed.
fn begin_transaction(database: &Database) -> Child {
    let mut shell = Command::new("sqlite3");
    shell.arg(database.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn().expect("sqlite3");
    let sql =
        format!(".timeout 30000\nBEGIN IMMEDIATE;\nUPDATE {NAME} SET version = version + 1;\nSELECT changes();\n");
    shell.stdin.as_mut().expect("piped").write_all(sql.as_bytes()).expect("it reads");
    let mut changed = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut changed).expect("UTF-8");
    assert!(changed.trim().parse::<u32>().is_ok_and(|rows| rows > 0), "it has written: {changed:?}");
    shell
}

/// The first instance is stopped and has not read what another prunes from the log; then it goes on.
fn lose_the_log(world: &mut Over) {
    let (begun, log_end) = (Instant::now(), world.stage.database.log_end());
    // Until something was written that it cannot have read; if nobody writes any more, nothing is lost.
    while world.stage.database.log_end() < log_end + 3 && begun.elapsed() < NOBODY_WRITES_AFTER {
        pass(Duration::from_millis(1));
    }
    while !is_locked_soon(world) {
        assert!(begun.elapsed() < PATIENCE, "the file is never free");
        // It may have been stopped while it wrote itself.
        world.one.signal(Signal::CONT);
        pass(Duration::from_millis(1));
        world.one.stop();
    }
    // The last row stays, for it tells the log's end.
    let old = world.stage.database.log_end().saturating_sub(1);
    execute(
        world,
        &format!("UPDATE _hotrow_meta SET pruned_to = {old}; DELETE FROM _hotrow_log WHERE seq <= {old}; COMMIT"),
    );
    world.one.signal(Signal::CONT);
}

fn is_locked_soon(world: &Over) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < NOBODY_WRITES_AFTER {
        if lock(world) {
            return true;
        }
        pass(Duration::from_millis(1));
    }
    false
}

const TRAPS: [Trap<Sqlite>; 2] =
    [Trap { fixes: "lease", spring: changes_during_reads }, Trap { fixes: "epoch", spring: changes_without_a_log }];

/// Race A: rows are read, which takes its time, and changed meanwhile. That is so all the time here.
fn changes_during_reads(_: &mut Over) {
    pass(Duration::from_millis(200));
}

/// Loss: the log tells nothing of what changed meanwhile. Over before the bound, so that entries are still good.
fn changes_without_a_log(world: &mut Over) {
    world.one.stop();
    pass(Duration::from_millis(150));
    lose_the_log(world);
    world.one.await_ready();
    pass(Duration::from_millis(300));
}

#[test]
fn what_the_fixes_are_for_does_no_harm() {
    assert_harmless(&TRAPS);
}

#[cfg(feature = "sabotage")]
mod taken_out {
    use super::TRAPS;
    use crate::traps::assert_found;

    #[test]
    fn leases_are_missed() {
        assert_found(&TRAPS, "lease");
    }

    #[test]
    fn the_epoch_is_missed() {
        assert_found(&TRAPS, "epoch");
    }
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_whatever_breaks_around_it() {
    endure(&FAULTS);
}
