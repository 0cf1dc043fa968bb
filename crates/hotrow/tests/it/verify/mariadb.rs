//! MariaDB, with two proxies between it and the service, for reads and for the feed; the checker
//! writes to the server directly.

use std::time::Duration;

use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::verify::checker::{
    ALL_RULES, MODEST, assert_all_rules, assert_followers, assert_near_caches, assert_self_checked,
    with_all_capabilities, with_near_caches,
};
use crate::verify::faults::{Fault, assert_writers_were_interrupted};
use crate::verify::network::{NetworkStage, network_tests, restore_normal};
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::{Config, SOON, await_until};

network_tests!(
    #[ignore = "long: shown on PostgreSQL and SQLite in short runs"]
    Maria
);

impl Stage for Maria {
    fn start() -> Self {
        Backend::start()
    }

    fn config(&self) -> Config {
        with_near_caches(with_all_capabilities(Backend::config(self)))
    }

    fn database(&self) -> String {
        self.server.superuser_url()
    }
}

impl NetworkStage for Maria {
    fn own_faults() -> Vec<Fault<Self>> {
        vec![
            Fault {
                name: "stream killed",
                is_a_loss: true,
                begin: |deployment| deployment.stage.kill_streams(),
                end: restore_normal,
            },
            Fault {
                name: "binlog purged",
                is_a_loss: true,
                begin: |deployment| {
                    deployment.stage.refuse_feed();
                    purge_binlog(&deployment.stage);
                },
                end: |deployment| {
                    // Changes during the fault are purged too.
                    purge_binlog(&deployment.stage);
                    deployment.stage.clear_faults();
                },
            },
        ]
    }
}

/// Purges the whole log except a new, empty file.
fn purge_binlog(database: &Maria) {
    let file = database.begin_log_file();
    // A file that is being sent is not purged, and the server notices a closed stream late.
    await_until("older files to go", SOON, || {
        database.kill_streams();
        database.server.batch(&format!("PURGE BINARY LOGS TO '{file}'"));
        database.server.query("SHOW BINARY LOGS").starts_with(&file)
    });
}

#[test]
fn a_sound_service_passes_while_its_server_is_killed() {
    let mut deployment = Deployment::<Maria>::alone(&[]);
    let mut checker = deployment
        .check_at_work(&[&["-d", "8s", "--rate", "150", "--keys", "300"][..], &MODEST].concat());
    // Some writes happen before and some after.
    pass_while(&mut checker, Duration::from_secs(2));
    assert!(checker.runs(), "it ended too early");
    // Writers are interrupted during their transactions.
    deployment.stage.kill();
    deployment.stage.restart();
    let report = checker.ended(Duration::from_secs(8)).assert_passed(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
    assert_near_caches(&report);
    assert_followers(&report);
    assert_writers_were_interrupted(&report);
}

#[test]
fn positions_of_a_log_that_began_anew_are_not_compared() {
    let deployment = Deployment::<Maria>::alone(&[]);
    let mut checker = deployment
        .check_at_work(&[&["-d", "6s", "--rate", "150", "--keys", "300"][..], &MODEST].concat());
    pass_while(&mut checker, Duration::from_secs(2));
    assert!(checker.runs(), "it ended too early");
    deployment.stage.server.batch("RESET MASTER");
    let report = checker.ended(Duration::from_secs(6)).assert_passed(100, 30);
    assert_eq!(report["log_went_back"], true, "{report:#}");
    assert!(report["checked"]["own_write"].as_u64() > Some(0), "before: {report:#}");
}
