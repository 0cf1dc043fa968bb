//! Over MariaDB, which is killed and comes back.

use std::time::{Duration, Instant};

use crate::checker::{ALL_RULES, Checker, assert_all_rules, assert_self_checked, granting};
use crate::harness::{Config, Server};
use crate::maria;

#[test]
fn a_sound_service_passes_while_its_server_is_killed() {
    // Commits must outlive the kill: else the database goes back, and answers with it.
    let mut maria = maria::Server::start(&[("innodb-flush-log-at-trx-commit", "2")]);
    let config = granting(Config::over(&maria.url()));
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    let server = Server::start(&config);
    let mut checker = Checker::against(&config, &[&server], &["-d", "8s", "--rate", "150", "--keys", "300"]);
    // Of writing, which begins a little later, there is some before and some after.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert!(checker.runs(), "it ended too early");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Writers are cut off in the middle of their transactions.
    maria.stop(maria::Stop::Kill);
    maria.restart();
    let report = checker.ended(Duration::from_secs(8)).assert_kept(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    let count = |path: &str| report.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(0);
    assert!(count("/writes/failed") + count("/writes/unknown") > 0, "the server was killed: {report:#}");
}
