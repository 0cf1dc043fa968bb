//! SQLite. It has no server to kill and no connection to cut; operations of other programs on the
//! file replace these faults.
//!
//! Two of the four safeguards are tested. SQLite has no race B, so the fence has no effect. The
//! feed reads the file microseconds after it has recorded the time, so the probe's time has no
//! visible effect.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::verify::checker::{
    ALL_RULES, Checker, MODEST, NAME, assert_all_rules, assert_self_checked, with_all_capabilities,
    with_another_collection, with_near_caches,
};
use crate::verify::faults::{Fault, run_faults};
use crate::verify::stage::{Deployment, Stage, wait_for};
use crate::verify::traps::{Trap, assert_harmless};
use hotrow_testkit::harness::{Config, Database, Server, await_until};

/// Creates a database with the checker's table, and its configuration.
fn stage(config: impl FnOnce(Config) -> Config) -> (Database, Config) {
    let database = Database::new();
    let config = config(with_all_capabilities(Config::new(database.path())));
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    (database, config)
}

#[test]
fn a_sound_service_passes_and_every_rule_applies() {
    let (_database, config) = stage(with_another_collection);
    let server = Server::start(&config);
    // On a busy machine few reads may be near a change; then the run is repeated.
    let check = || {
        let ended = Checker::against(
            &config,
            &[&server],
            &[&["-d", "4s", "--rate", "300"][..], &MODEST].concat(),
        )
        .ended(Duration::from_secs(4));
        ended.assert_passed(300, 100)
    };
    let is_near = |report: &serde_json::Value| report["reads"]["near_share"].as_f64() >= Some(0.2);
    let report = (0..3)
        .map(|_| check())
        .find(is_near)
        .expect("a fifth of the reads near a change, in one of three runs");
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    for form in [
        "get",
        "conditional",
        "head",
        "batch_get",
        "batch_post",
        "snapshot_get",
        "snapshot_post",
        "snapshot_across",
        "snapshot_other",
    ] {
        assert!(report["reads"]["forms"][form].as_u64() > Some(0), "{form}: {report:#}");
    }
    assert_eq!(report["feed_losses"][0], 0);
    // A machine that stalls for a second may shed load, which is allowed.
    let refused: u64 = report["refused"]
        .as_object()
        .expect("counts")
        .values()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    assert!(refused * 100 <= report["reads"]["total"].as_u64().expect("a number"), "{report:#}");
}

#[test]
fn text_keys_and_missing_capabilities_are_supported() {
    let (_database, config) = stage(|config| {
        let key = format!("collections.{NAME}");
        config
            .set(&format!("{key}.key_type"), "\"text\"")
            .set(&format!("{key}.allow_no_cache"), "false")
            .set(&format!("{key}.allow_min_position"), "false")
    });
    let server = Server::start(&config);
    let ended = Checker::against(&config, &[&server], &["-d", "2s", "--keys", "60"])
        .ended(Duration::from_secs(2));
    let report = ended.assert_passed(100, 20);
    assert_eq!(
        (&report["targets"][0]["no_cache"], &report["targets"][0]["min_position"]),
        (&false.into(), &false.into())
    );
    assert_eq!(
        (&report["reads"]["sessions"], &report["reads"]["no_cache"]),
        (&0.into(), &0.into())
    );
}

/// The service applies its own bound. Checked against a tighter one, it must fail: it is stopped
/// for longer than that bound, so its feed is behind when it resumes.
#[test]
fn a_service_with_a_looser_bound_violates_the_contract() {
    let (_database, config) = stage(|config| {
        config.set("cache.max_staleness", "\"60s\"").set("cache.when_stale", "\"stale\"")
    });
    let server = Server::start(&config);
    let promised = config.set("cache.max_staleness", "\"10ms\"");
    let mut checker =
        Checker::against(&promised, &[&server], &["-d", "60s", "--rate", "400", "--keys", "30"]);
    // After each stop, requests sent in the meantime wait, and the feed is behind.
    while checker.runs() {
        server.stop();
        std::thread::sleep(Duration::from_millis(120));
        server.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (rule, counterexample) = checker.ended(Duration::from_secs(60)).assert_violated();
    assert_eq!(rule, "fresh", "{counterexample}");
}

/// Writers that disable triggers are a documented gap of the feed. The service's own check finds
/// the stale entry.
#[test]
fn the_services_own_check_finds_an_entry_missed_by_the_feed() {
    let (database, config) = stage(|config| config.set("cache.max_staleness", "\"2s\""));
    let server = Server::start(&config);
    let path = format!("/{NAME}/1");
    let before = server.get(&path).text();
    let writer = database.another();
    let setting = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
    writer.set_db_config(setting, false).expect("a setting");
    writer
        .execute(&format!("UPDATE {NAME} SET version = version + 1 WHERE id = 1"), [])
        .expect("an update");
    let mut client = server.client();
    assert_eq!(client.get(&path).text(), before, "the feed does not report the change");
    await_until("the check to find it", Duration::from_secs(60), || {
        client.get(&path);
        server.metrics().sum("hotrow_inconsistent_answers_total", &[]) >= 1.0
    });
    // The stale entry is dropped, so the next read is correct.
    assert_ne!(client.get(&path).text(), before);
    // Another thread writes the log.
    let line = "an answer was inconsistent";
    await_until("the line in the log", Duration::from_secs(60), || server.log().contains(line));
    let log = server.log();
    assert!(!log.contains("hotrow-verify:"), "{log}");
}

/// Time limit for a lock on the file; generous, because disks differ.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Time without writes after which another program holds the file, or the checker has ended.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// A file, and other programs that have it open.
struct Sqlite {
    database: Database,
    /// A program with an open transaction.
    program: Option<Child>,
}

impl Stage for Sqlite {
    /// One column is computed on each read, so reading a row takes some milliseconds and changes
    /// happen during reads. Writers are not affected.
    fn start() -> Self {
        let database = Database::new();
        let slow = "length(replace(hex(zeroblob(100000 + id % 2)), '00', 'abc'))";
        database.execute(&format!(
            "CREATE TABLE {NAME}(id INTEGER PRIMARY KEY, version INTEGER NOT NULL,
             payload TEXT NOT NULL, slow INTEGER GENERATED ALWAYS AS ({slow}) VIRTUAL)"
        ));
        Self { database, program: None }
    }

    fn config(&self) -> Config {
        with_near_caches(with_all_capabilities(Config::new(self.database.path())))
    }

    fn database(&self) -> String {
        format!("sqlite:{}", self.database.path().display())
    }
}

type Fixture = Deployment<Sqlite>;

fn execute(deployment: &Fixture, sql: &str) {
    deployment.stage.database.execute(sql);
}

const FAULTS: [Fault<Sqlite>; 5] = [
    Fault {
        name: "program killed in its transaction",
        is_a_loss: false,
        begin: |deployment| {
            deployment.stage.program = Some(begin_transaction(&deployment.stage.database))
        },
        end: |deployment| {
            let mut program = deployment.stage.program.take().expect("just started");
            program.kill().expect("it waits for input");
            program.wait().expect("it was killed");
        },
    },
    Fault {
        name: "file locked",
        is_a_loss: false,
        begin: |deployment| await_until("the file to be free", WAIT_MAX, || lock(deployment)),
        end: |deployment| execute(deployment, "ROLLBACK"),
    },
    Fault {
        name: "snapshot held",
        is_a_loss: false,
        begin: |deployment| execute(deployment, &format!("BEGIN; SELECT count(*) FROM {NAME}")),
        end: |deployment| execute(deployment, "COMMIT"),
    },
    Fault {
        name: "WAL written back",
        is_a_loss: false,
        // Writes back as much as reads permit.
        begin: |deployment| execute(deployment, "PRAGMA wal_checkpoint(TRUNCATE)"),
        end: |deployment| execute(deployment, "PRAGMA wal_checkpoint(TRUNCATE)"),
    },
    Fault {
        name: "log lost",
        is_a_loss: true,
        begin: |deployment| deployment.one.stop(),
        end: lose_the_log,
    },
];

/// Tries once to lock the file for writing: SQLite's own wait polls too rarely to find a gap
/// between busy writers.
fn lock(deployment: &Fixture) -> bool {
    deployment
        .stage
        .database
        .connection
        .execute_batch("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE")
        .is_ok()
}

/// Starts a program that has written but not committed.
fn begin_transaction(database: &Database) -> Child {
    let mut shell = Command::new("sqlite3");
    shell.arg(database.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn().expect("sqlite3");
    let sql = format!(
        ".timeout 30000\nBEGIN IMMEDIATE;\nUPDATE {NAME} SET version = version + 1;\n\
         SELECT changes();\n"
    );
    shell.stdin.as_mut().expect("piped").write_all(sql.as_bytes()).expect("it reads");
    let mut changed = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut changed).expect("UTF-8");
    assert!(
        changed.trim().parse::<u32>().is_ok_and(|rows| rows > 0),
        "it has written: {changed:?}"
    );
    shell
}

/// Stops the first instance before it has read rows that the other prunes from the log, then
/// resumes it.
fn lose_the_log(deployment: &mut Fixture) {
    let begun = Instant::now();
    let log_end = deployment.stage.database.log_end();
    // Waits for rows that the instance cannot have read; without writers nothing is lost.
    while deployment.stage.database.log_end() < log_end + 3 && begun.elapsed() < IDLE_AFTER {
        wait_for(Duration::from_millis(1));
    }
    while !is_locked_soon(deployment) {
        assert!(begun.elapsed() < WAIT_MAX, "the file is never free");
        // The instance may have been stopped during its own write.
        deployment.one.signal(Signal::CONT);
        wait_for(Duration::from_millis(1));
        deployment.one.stop();
    }
    // The last row stays, because it marks the log's end.
    let old = deployment.stage.database.log_end().saturating_sub(1);
    execute(
        deployment,
        &format!(
            "UPDATE _hotrow_meta SET pruned_to = {old}; \
             DELETE FROM _hotrow_log WHERE seq <= {old}; COMMIT"
        ),
    );
    deployment.one.signal(Signal::CONT);
}

fn is_locked_soon(deployment: &Fixture) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < IDLE_AFTER {
        if lock(deployment) {
            return true;
        }
        wait_for(Duration::from_millis(1));
    }
    false
}

const TRAPS: [Trap<Sqlite>; 2] = [
    Trap { safeguards: "lease", trigger: changes_during_reads },
    Trap { safeguards: "epoch", trigger: changes_without_a_log },
];
/// What goes wrong for followers that leave and return, which those of the checker do.
#[cfg(feature = "failpoints")]
const FOLLOWER_TRAPS: [Trap<Sqlite>; 3] = [
    Trap { safeguards: "follow-last-id", trigger: changes_during_reads },
    Trap { safeguards: "follow-rest", trigger: changes_during_reads },
    Trap { safeguards: "follow-replay", trigger: changes_during_reads },
];

/// Race A: rows are read slowly and changed during the read, which always happens here.
fn changes_during_reads(_: &mut Fixture) {
    wait_for(Duration::from_millis(200));
}

/// Loss: the log misses the changes in between. Shorter than the bound, so entries are still fresh.
fn changes_without_a_log(deployment: &mut Fixture) {
    deployment.one.stop();
    wait_for(Duration::from_millis(150));
    lose_the_log(deployment);
    deployment.one.await_ready();
    wait_for(Duration::from_millis(300));
}

#[test]
fn traps_are_harmless_with_all_safeguards() {
    assert_harmless(&TRAPS);
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::{FOLLOWER_TRAPS, TRAPS};
    use crate::verify::traps::{assert_found, assert_found_by};

    #[test]
    fn leases_are_missed() {
        assert_found(&TRAPS, "lease");
    }

    #[test]
    fn the_epoch_is_missed() {
        assert_found(&TRAPS, "epoch");
    }

    #[test]
    fn rules_of_followers_are_missed() {
        // The order of the events shows it, or a copy that is looked at between them.
        assert_found_by(&FOLLOWER_TRAPS, "follow-last-id", &["committed", "followed"]);
        assert_found_by(&FOLLOWER_TRAPS, "follow-rest", &["followed"]);
        assert_found_by(&FOLLOWER_TRAPS, "follow-replay", &["followed"]);
    }
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_under_every_fault() {
    run_faults(&FAULTS);
}
