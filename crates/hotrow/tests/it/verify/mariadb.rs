//! MariaDB, with two proxies between it and the service, for reads and for the feed; the checker
//! writes to the server directly.

use std::time::Duration;

use crate::verify::checker::{
    ALL_RULES, assert_all_rules, assert_self_checked, with_all_capabilities,
};
use crate::verify::faults::{Fault, assert_writers_were_interrupted, run_faults};
use crate::verify::maria::{SERVICE_PASSWORD, SERVICE_USER, Server, Stop};
use crate::verify::proxy::{BOTH, CLASSES, Class, Proxy, Way};
use crate::verify::stage::{Deployment, Stage, pass_while, wait_for};
use crate::verify::traps::{Trap, assert_harmless};
use hotrow_testkit::harness::{Config, SOON, await_until};

const SETTINGS: [(&str, &str); 4] = [
    // Commits must survive the kill; otherwise the database and its responses go back in time.
    ("innodb-flush-log-at-trx-commit", "2"),
    // When enabled, a logged commit waits for a replica that does not exist.
    ("rpl-semi-sync-master-wait-point", "AFTER_SYNC"),
    ("rpl-semi-sync-master-timeout", "3600000"),
    ("rpl-semi-sync-master-wait-no-slave", "ON"),
];
/// Streams sent by the server.
const STREAMS: &str = "SELECT id FROM information_schema.PROCESSLIST WHERE command = 'Binlog Dump'";

/// A server with its proxies. All connections of a proxy are of one class.
struct Maria {
    // First field, so that it is cut before the server stops.
    reads: Proxy,
    feed: Proxy,
    server: Server,
}

impl Stage for Maria {
    fn start() -> Self {
        let server = Server::start(&SETTINGS);
        let proxy = || Proxy::plain(server.port(), Class::Readers);
        Self { reads: proxy(), feed: proxy(), server }
    }

    fn config(&self) -> Config {
        let url = |proxy: &Proxy| self.server.url_at(SERVICE_USER, SERVICE_PASSWORD, proxy.port());
        with_all_capabilities(Config::over(&url(&self.reads)))
            .set("source.feed_url", &format!("\"{}\"", url(&self.feed)))
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.server.superuser_url()
    }
}

type Fixture = Deployment<Maria>;

fn restore_normal(deployment: &mut Fixture) {
    deployment.stage.reads.calm();
    deployment.stage.feed.calm();
}

const FAULTS: [Fault<Maria>; 10] = [
    Fault {
        name: "database killed",
        is_a_loss: true,
        // Writers are interrupted during their commits.
        begin: |deployment| deployment.stage.server.stop(Stop::Kill),
        end: |deployment| deployment.stage.server.restart(),
    },
    Fault {
        name: "connections cut",
        is_a_loss: true,
        begin: |deployment| {
            deployment.stage.reads.cut(&CLASSES);
            deployment.stage.feed.cut(&CLASSES);
        },
        end: restore_normal,
    },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |deployment| {
            deployment.stage.reads.delay(&CLASSES, &BOTH, Duration::from_millis(50))
        },
        end: restore_normal,
    },
    Fault {
        name: "reads held",
        is_a_loss: false,
        begin: |deployment| deployment.stage.reads.hold(&CLASSES, &BOTH),
        end: restore_normal,
    },
    Fault {
        name: "feed delayed",
        is_a_loss: false,
        begin: |deployment| {
            deployment.stage.feed.delay(&CLASSES, &[Way::ToService], Duration::from_millis(1500))
        },
        end: restore_normal,
    },
    Fault {
        name: "feed held",
        is_a_loss: false,
        begin: |deployment| deployment.stage.feed.hold(&CLASSES, &[Way::ToService]),
        end: restore_normal,
    },
    Fault { name: "feed refused", is_a_loss: true, begin: refuse_feed, end: restore_normal },
    Fault {
        name: "stream killed",
        is_a_loss: true,
        begin: |deployment| kill_streams(deployment),
        end: restore_normal,
    },
    Fault {
        name: "binlog purged",
        is_a_loss: true,
        begin: |deployment| {
            refuse_feed(deployment);
            purge_binlog(deployment);
        },
        end: |deployment| {
            // Changes during the fault are purged too.
            purge_binlog(deployment);
            restore_normal(deployment);
        },
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |deployment| deployment.stage.server.pause(),
        end: |deployment| deployment.stage.server.resume(),
    },
];

fn refuse_feed(deployment: &mut Fixture) {
    deployment.stage.feed.refuse(&CLASSES, true);
    deployment.stage.feed.cut(&CLASSES);
}

fn kill_streams(deployment: &Fixture) {
    for id in deployment.stage.server.query(STREAMS).lines() {
        // The stream may have ended already.
        _ = deployment.stage.server.try_query(&format!("KILL {id}"));
    }
}

/// Purges the whole log except a new, empty file.
fn purge_binlog(deployment: &Fixture) {
    let server = &deployment.stage.server;
    server.batch("FLUSH BINARY LOGS");
    let newest = server.query("SHOW MASTER STATUS");
    let file = newest.split('\t').next().expect("a file");
    // A file that is being sent is not purged, and the server notices a closed stream late.
    await_until("older files to go", SOON, || {
        kill_streams(deployment);
        server.batch(&format!("PURGE BINARY LOGS TO '{file}'"));
        server.query("SHOW BINARY LOGS").starts_with(file)
    });
}

const TRAPS: [Trap<Maria>; 4] = [
    Trap { safeguards: "lease,fence", trigger: late_answers },
    Trap { safeguards: "fence", trigger: hidden_commits },
    Trap { safeguards: "epoch", trigger: changes_without_a_feed },
    Trap { safeguards: "probe", trigger: late_stream },
];

/// Race A: rows are read, then changed, and only then arrive.
fn late_answers(deployment: &mut Fixture) {
    deployment.stage.reads.delay(&CLASSES, &[Way::ToService], Duration::from_millis(5));
    wait_for(Duration::from_millis(500));
    restore_normal(deployment);
}

/// Race B: commits are delivered and stay invisible, waiting for a replica that does not exist.
fn hidden_commits(deployment: &mut Fixture) {
    deployment.stage.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = ON");
    wait_for(Duration::from_millis(50));
    deployment.stage.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
}

/// Loss: the feed restarts at the log's end and misses the changes in between. Shorter than the
/// bound, so entries are still fresh.
fn changes_without_a_feed(deployment: &mut Fixture) {
    refuse_feed(deployment);
    wait_for(Duration::from_millis(100));
    restore_normal(deployment);
    deployment.one.await_ready();
    wait_for(Duration::from_millis(200));
}

/// Staleness: the feed is steadily later than the bound.
fn late_stream(deployment: &mut Fixture) {
    deployment.stage.feed.delay(&CLASSES, &[Way::ToService], Duration::from_millis(1500));
    wait_for(Duration::from_millis(4000));
    restore_normal(deployment);
}

#[test]
fn traps_are_harmless_with_all_safeguards() {
    assert_harmless(&TRAPS);
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::TRAPS;
    use crate::verify::traps::assert_found;

    #[test]
    fn leases_and_the_fence_are_missed() {
        assert_found(&TRAPS, "lease,fence");
    }

    #[test]
    fn the_fence_is_missed() {
        assert_found(&TRAPS, "fence");
    }

    #[test]
    fn the_epoch_is_missed() {
        assert_found(&TRAPS, "epoch");
    }

    #[test]
    fn the_time_of_the_probe_is_missed() {
        assert_found(&TRAPS, "probe");
    }
}

#[test]
fn a_sound_service_passes_while_its_server_is_killed() {
    let mut deployment = Deployment::<Maria>::alone(&[]);
    let mut checker = deployment.check_at_work(&["-d", "8s", "--rate", "150", "--keys", "300"]);
    // Some writes happen before and some after.
    pass_while(&mut checker, Duration::from_secs(2));
    assert!(checker.runs(), "it ended too early");
    // Writers are interrupted during their transactions.
    deployment.stage.server.stop(Stop::Kill);
    deployment.stage.server.restart();
    let report = checker.ended(Duration::from_secs(8)).assert_passed(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
    assert_writers_were_interrupted(&report);
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_under_every_fault() {
    assert_writers_were_interrupted(&run_faults(&FAULTS));
}
