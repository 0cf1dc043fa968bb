//! Records with an alias and rows of another table: the checker changes both, and finds a feed that
//! does not deliver such a change.

use std::time::Duration;

use serde_json::Value;

use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::backend::mongo::Mongo;
use crate::backend::postgres::Postgres;
use crate::verify::checker::{
    ALL_RULES, Checker, MODEST, NAME, assert_all_rules, assert_self_checked, with_all_capabilities,
};
use hotrow_testkit::harness::{Config, Database, Server};

/// Few keys, so that the same ones are written and read repeatedly.
const FEW_KEYS: [&str; 4] = ["--rate", "300", "--keys", "60"];
const RUN: Duration = Duration::from_secs(5);
/// Time limit for finding a mistake.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn with_alias(config: Config) -> Config {
    with_all_capabilities(config)
        .set(&format!("collections.{NAME}.by.handle.columns"), "\"handle\"")
}

pub(crate) fn with_children(config: Config) -> Config {
    let parts = format!("collections.{NAME}.embed.parts");
    config
        .set(&format!("{parts}.table"), "\"verified_parts\"")
        .set(&format!("{parts}.on"), "\"parent\"")
        .set(&format!("{parts}.order_by"), "\"version desc\"")
}

fn create(config: &Config, database: &[&str]) {
    let arguments = [&["--create"], &FEW_KEYS[..], database].concat();
    let created = Checker::start(config, &arguments).ended(RUN);
    assert_eq!(created.status, Some(0), "{created:?}");
}

/// Checks a service without a mistake, and returns the report.
#[track_caller]
fn passed(config: &Config, database: &[&str]) -> Value {
    create(config, database);
    let server = Server::start(config);
    server.await_ready();
    // Twice as long as an idle machine needs for the counts.
    let arguments = [&FEW_KEYS[..], &MODEST, &["-d", "8s"], database].concat();
    let ended = Checker::against(config, &[&server], &arguments).ended(RUN);
    let report = ended.assert_passed(300, 100);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    assert_covered(&report, "/covered/alias", &["lookups", "values_moved"]);
    for form in ["alias", "alias_batch"] {
        assert!(report["reads"]["forms"][form].as_u64() > Some(0), "{form}: {report:#}");
    }
    report
}

#[track_caller]
pub(crate) fn assert_covered(report: &Value, what: &str, counts: &[&str]) {
    let covered = report.pointer(what).expect("a member of covered");
    for count in counts {
        assert!(covered[count].as_u64() > Some(0), "{what} {count}: {report:#}");
    }
}

pub(crate) const CHILDREN: [&str; 2] = ["children_changed", "children_moved"];

#[test]
fn a_sound_service_over_sqlite_passes() {
    let database = Database::new();
    let config = with_children(with_alias(Config::new(database.path())));
    let report = passed(&config, &[]);
    assert_covered(&report, "/covered/embed", &CHILDREN);
    // A second run continues with the rows of the first, and the report in words covers both.
    let server = Server::start(&config);
    let url = format!("http://{}", server.data);
    let arguments = ["--url", &url, "-d", "2s", "--keys", "60", "--read-rate", "1000"];
    let ended = Checker::start(&config, &arguments).ended(RUN);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for line in [" lookups by handle, ", " changes of parts, "] {
        assert!(ended.output.contains(line), "{}", ended.output);
    }
}

#[test]
fn a_sound_service_over_postgresql_passes() {
    for identity in ["DEFAULT", "FULL"] {
        let postgres = Postgres::start();
        let config = with_children(with_alias(postgres.config()));
        let url = postgres.writer_url();
        create(&config, &["--database", &url]);
        let sql = format!("ALTER TABLE verified_parts REPLICA IDENTITY {identity}");
        postgres.server.batch(&sql);
        let report = passed(&config, &["--database", &url]);
        assert_covered(&report, "/covered/embed", &CHILDREN);
    }
}

#[test]
fn a_sound_service_over_mariadb_passes() {
    let maria = Maria::start();
    let config = with_children(with_alias(maria.config()));
    let report = passed(&config, &["--database", &maria.server.superuser_url()]);
    assert_covered(&report, "/covered/embed", &CHILDREN);
}

#[test]
fn a_sound_service_over_mongodb_passes() {
    let mongo = Mongo::start();
    let config = with_alias(mongo.config()).with(&[
        (&format!("collections.{NAME}.key"), "\"_id\""),
        (&format!("collections.{NAME}.key_type"), "\"integer\""),
    ]);
    passed(&config, &[]);
}

/// Runs the checker over a change log whose rows a trigger spoils when `condition` holds.
#[track_caller]
fn found(condition: &str, set: &str) -> (String, String) {
    let database = Database::new();
    let config = with_children(with_alias(Config::new(database.path())));
    create(&config, &[]);
    let server = Server::start(&config);
    server.await_ready();
    database.execute(&format!(
        "CREATE TRIGGER planted AFTER INSERT ON _hotrow_log WHEN {condition} \
         BEGIN UPDATE _hotrow_log SET k1 = {set} WHERE seq = NEW.seq; END"
    ));
    let arguments = [&FEW_KEYS[..], &["-d", "60s"]].concat();
    Checker::against(&config, &[&server], &arguments).ended(FOUND_WITHIN).assert_violated()
}

/// A value that no record had is known to be free, and stays so when a record gets it.
#[test]
fn values_of_changed_rows_that_are_not_delivered_are_missed() {
    let (rule, counterexample) = found(r#"NEW.tbl = '"verified"("handle")'"#, "'nothing'");
    assert!(
        ["fresh", "session", "own_write", "strict", "snapshot"].contains(&rule.as_str()),
        "{rule}"
    );
    assert!(counterexample.contains("key handle k"), "{counterexample}");
}

/// The parent that the last of its children left is not delivered.
#[test]
fn former_parents_that_are_not_delivered_are_missed() {
    let left = r#"NEW.tbl = '"verified_parts"("parent")'
        AND NOT EXISTS (SELECT 1 FROM verified_parts WHERE parent = NEW.k1)"#;
    let (rule, _) = found(left, "0");
    let too_old =
        ["monotonic", "fresh", "age", "session", "own_write", "strict", "snapshot", "purged"];
    assert!(too_old.contains(&rule.as_str()), "{rule}");
}

#[test]
fn collections_that_cannot_be_verified_are_refused_with_the_rule() {
    let database = Database::new();
    let sound = with_children(with_alias(Config::new(database.path())));
    let embed = format!("collections.{NAME}.embed.parts");
    let by = format!("collections.{NAME}.by");
    let cases = [
        (format!("{embed}.limit"), "3", "at least 4 children"),
        (format!("{embed}.order_by"), "\"payload\"", "must order children by id or version"),
        (format!("{by}.handle.columns"), "[\"handle\", \"version\"]", "one alias, of one text"),
        (format!("{by}.other.columns"), "\"payload\"", "one alias, of one text"),
        (format!("collections.{NAME}.embed.more.on"), "\"parent\"", "one embedded member"),
    ];
    for (setting, value, rule) in cases {
        let config = sound.clone().set(&setting, value);
        let ended = Checker::start(&config, &["--create"]).ended(RUN);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.log.contains(rule), "{setting}: {}", ended.log);
    }
}
