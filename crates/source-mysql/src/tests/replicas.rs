//! What a replica of MariaDB says of itself: docs/adr/0024 depends on it.

use std::collections::BTreeSet;

use hotrow_testkit::harness::{SOON, await_until};

use super::server::{Flavor, SERVICE_PASSWORD, SERVICE_USER, Server};

/// Reads while the primary writes.
const READS: usize = 3_000;

/// A primary, and a replica whose commits can be held between its log and its readers.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    fn start() -> Self {
        let primary = Server::start_as(Flavor::MariaDb, &[("gtid-strict-mode", "ON")]);
        let replica = Server::start_as(
            Flavor::MariaDb,
            &[
                ("server-id", "2"),
                ("log-slave-updates", "ON"),
                ("gtid-strict-mode", "ON"),
                ("rpl-semi-sync-master-wait-point", "AFTER_SYNC"),
                ("rpl-semi-sync-master-timeout", "3600000"),
                ("rpl-semi-sync-master-wait-no-slave", "ON"),
            ],
        );
        // Both begin their logs anew: what the helper created is on both.
        primary.batch("RESET MASTER");
        replica.batch("RESET MASTER");
        primary.batch("CREATE TABLE t(id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 2)");
        replica.batch(&format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, \
             master_user = '{SERVICE_USER}', master_password = '{SERVICE_PASSWORD}', \
             master_use_gtid = slave_pos; START SLAVE",
            primary.port()
        ));
        let pair = Self { primary, replica };
        pair.await_row("2");
        pair
    }

    fn await_row(&self, value: &str) {
        let row = || self.replica.try_query("SELECT v FROM t WHERE id = 1");
        await_until("the replica to have replayed", SOON, || row().as_deref() == Ok(value));
    }

    /// Lets commits of the replica wait behind its own log.
    fn hold(&self, is_held: bool) {
        let value = if is_held { "ON" } else { "OFF" };
        self.replica.batch(&format!("SET GLOBAL rpl_semi_sync_master_enabled = {value}"));
    }

    fn variable(&self, name: &str) -> String {
        self.replica.query(&format!("SELECT @@{name}"))
    }
}

#[test]
fn the_position_of_a_replica_waits_for_the_engines_commit() {
    let pair = Pair::start();
    let before = pair.variable("gtid_slave_pos");
    pair.hold(true);
    pair.primary.batch("UPDATE t SET v = 3 WHERE id = 1");
    let written = pair.primary.query("SELECT @@gtid_binlog_pos");
    await_until("the commit in the replica's log", SOON, || {
        pair.variable("gtid_binlog_pos") == written
    });
    // The log has it; the position, a wait for it, and the row do not.
    assert_eq!(pair.variable("gtid_slave_pos"), before);
    let waited = format!("SELECT MASTER_GTID_WAIT('{written}', 0.2), v FROM t");
    assert_eq!(pair.replica.query(&waited), "-1\t2");
    pair.hold(false);
    pair.await_row("3");
    await_until("the position", SOON, || pair.variable("gtid_slave_pos") == written);
}

#[test]
fn the_position_of_a_replica_is_not_ahead_of_its_rows() {
    let pair = Pair::start();
    // The value is the sequence of the commit that wrote it.
    let writes: String =
        (3..6_000).map(|n| format!("UPDATE t SET v = {n} WHERE id = 1;\n")).collect();
    let writer = pair.primary.begin(&writes);
    let reads = "SELECT @@gtid_slave_pos; SELECT v FROM t WHERE id = 1;\n".repeat(READS);
    let answers = pair.replica.query(&reads);
    writer.outcome().expect("the writes");
    let lines: Vec<&str> = answers.lines().collect();
    let mut values = BTreeSet::new();
    for read in lines.chunks_exact(2) {
        let sequence: u64 = read[0].rsplit('-').next().expect("a GTID").parse().expect("a number");
        let value: u64 = read[1].parse().expect("a number");
        assert!(value >= sequence, "the position is {}, and the row {value}", read[0]);
        values.insert(value);
    }
    assert_eq!(lines.len(), 2 * READS);
    assert!(values.len() > 10, "the replica replayed while it was read: {}", values.len());
}
