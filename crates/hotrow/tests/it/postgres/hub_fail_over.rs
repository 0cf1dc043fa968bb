//! The change hub with a slot that standbys have: a relay goes on at the new primary.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::postgres::server::Server as Database;
use crate::postgres::shop::Shop;
use crate::shop::hub::{behind, relay, server_with};
use crate::shop::{
    await_body, await_started, cached, losses, path, price_sql, row, starts, with_options,
};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::nats::Nats;
use hotrow_testkit::postgres::ROLE;
use hotrow_testkit::proxy::{CLASSES, Class, Direction, Proxy};

/// First version whose standbys have slots of the primary.
const MAJOR_MIN: u32 = 17;
/// Name of this test, to run it again over another version.
const NAME: &str = "postgres::hub_fail_over::a_relay_goes_on_at_the_slot_of_the_new_primary";
/// Set in the process that runs the test again.
const IS_AGAIN: &str = "HOTROW_TEST_IS_AGAIN";

/// Runs this test in another process, over PostgreSQL 17, which a script installs.
fn run_over_17() {
    assert!(std::env::var_os(IS_AGAIN).is_none(), "PostgreSQL {MAJOR_MIN} is not in PATH");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgresql-17");
    let found = Command::new(script).stderr(Stdio::inherit()).output().expect("the script");
    assert!(found.status.success(), "PostgreSQL {MAJOR_MIN} cannot be installed");
    let bin = String::from_utf8(found.stdout).expect("a path in UTF-8");
    let others = std::env::var("PATH").unwrap_or_default();
    let status = Command::new(std::env::current_exe().expect("the test's own file"))
        .args(["--ignored", "--exact", "--nocapture", NAME])
        .env("PATH", format!("{}:{others}", bin.trim_end()))
        .env(IS_AGAIN, "yes")
        .status();
    assert!(status.expect("this program").success(), "the test failed over PostgreSQL 17");
}

/// A primary, a standby that has its slots, and NATS.
struct Cluster {
    /// What the standby receives. First field, so that it is dropped before the servers.
    link: Proxy,
    primary: Shop,
    standby: Database,
    nats: Nats,
}

impl Cluster {
    fn start() -> Self {
        let mut primary = Shop::with_products();
        let backup = primary.server.back_up();
        primary.server.batch("SELECT pg_create_physical_replication_slot('standby')");
        let link = Proxy::plain(primary.server.port(), Class::Replication);
        let source = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", link.port());
        let standby = Database::standby_from(
            &backup,
            &[
                ("primary_conninfo", &*source),
                ("primary_slot_name", "standby"),
                ("hot_standby_feedback", "on"),
                ("sync_replication_slots", "on"),
            ],
        );
        // No change is delivered before the standby has it.
        primary.server.set(&[("synchronized_standby_slots", "standby")]);
        Self { link, primary, standby, nats: Nats::start("") }
    }

    fn config(&self) -> Config {
        let (first, second) = (self.primary.server.port(), self.standby.port());
        let url = format!(
            "postgres://{ROLE}@127.0.0.1:{first},127.0.0.1:{second}/postgres\
             ?target_session_attrs=read-write"
        );
        behind(with_options(Config::over(&url), &["products"]), &self.nats)
            .set("source.connect_timeout", "\"1s\"")
            .set("hub.slot", "\"relays\"")
            .set("hub.slot_failover", "true")
    }

    /// Waits until the standby would keep the relays' slot as a primary.
    #[track_caller]
    fn await_slot_at_standby(&self) {
        const SQL: &str = "SELECT slot_name, synced, temporary FROM pg_replication_slots";
        await_until("the slot at the standby", SOON, || {
            // The slot may be synchronized from a point that the log names.
            self.primary.server.batch("SELECT pg_log_standby_snapshot()");
            self.standby.query(SQL) == "relays|t|f"
        });
    }
}

#[ignore = "long: installs PostgreSQL 17"]
#[test]
fn a_relay_goes_on_at_the_slot_of_the_new_primary() {
    let version = Database::start(&[]).query("SHOW server_version_num");
    if version.parse::<u32>().expect("a number") / 10_000 < MAJOR_MIN {
        return run_over_17();
    }
    let mut cluster = Cluster::start();
    let config = cluster.config();
    let relay = relay(&config);
    cluster.await_slot_at_standby();
    let server = server_with(&config, &[1, 2, 3]);
    let mut client = server.client();
    cluster.primary.server.batch(&price_sql(1, 7));
    await_body(&mut client, &path(1), &row(1, 7));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    let started = starts(&server);

    // A commit that is visible at the old primary only.
    cluster.link.hold(&CLASSES, &[Direction::ToService]);
    cluster.primary.server.batch(&price_sql(3, 333));
    await_body(&mut client, &path(3), &row(3, 333));
    cluster.primary.server.kill9();
    cluster.link.cut(&CLASSES);
    cluster.standby.promote();
    cluster.standby.batch(&price_sql(2, 8));

    await_started(&server, started);
    for (id, price) in [(1, 7), (2, 8), (3, 300)] {
        await_body(&mut client, &path(id), &row(id, price));
        assert_eq!(cached(&mut client, &path(id)).text(), row(id, price));
    }
    cluster.standby.batch(&price_sql(1, 9));
    await_body(&mut client, &path(1), &row(1, 9));
    relay.await_log("does not continue the one before it");
    assert_one_loss(&server, started);
    let status = relay.status();
    assert_eq!(status["chains_continued"], 0, "another timeline: {status}");
    let created = relay.log().matches("the replication slot is created").count();
    assert_eq!(created, 1, "the new primary had the slot:\n{}", relay.log());
    assert_eq!(
        cluster.standby.query("SELECT slot_name, failover, active FROM pg_replication_slots"),
        "relays|t|t"
    );
}

/// Asserts that the feed of a server started again once.
#[track_caller]
fn assert_one_loss(server: &Server, started: f64) {
    let log = server.log();
    assert_eq!(starts(server), started + 1.0, "{log}");
    assert!(losses(server, None) >= 1.0, "{log}");
}
