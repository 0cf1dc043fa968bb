//! Contract over a private MariaDB server, or over the MySQL server that HOTROW_TEST_MYSQL_URL
//! names. Writers use a driver, with transactions.
//!
//! Reading order: this (the engine), [`session`] (a writer's connection), [`visibility`] (changes
//! delivered before they are visible), [`weather`] (disturbances) and [`mixed`] (all of them under
//! a mixed load).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::contract::engine::Engine;
use crate::contract::rows::payload;
use crate::contract::run::{Plan, Trial};
use hotrow_testkit::harness::Config;

mod mixed;
mod session;
mod visibility;
mod weather;

pub(crate) use hotrow_testkit::mysql as server;

use server::Server;
use session::MysqlSession;

/// The MariaDB and MySQL engine.
pub(crate) struct Mysql;

/// A run over MariaDB or MySQL.
pub(crate) type MysqlRun = Trial<Mysql>;

const CREATE: &str =
    "CREATE TABLE items(id INT PRIMARY KEY, version BIGINT NOT NULL, payload TEXT NOT NULL)";
/// Keeps commits when the server's process is killed.
const DURABLE: [(&str, &str); 1] = [("innodb-flush-log-at-trx-commit", "2")];
/// Rows per statement.
const ROWS_MAX: usize = 1_000;

/// Creates the table with its first rows on a server.
pub(crate) fn fill(server: Server, plan: &Plan) -> Server {
    let keys: Vec<u32> = (0..plan.keys).filter(|key| Plan::has_first_row(*key)).collect();
    let mut sql = format!("{CREATE};\n");
    for keys in keys.chunks(ROWS_MAX) {
        let rows: Vec<String> =
            keys.iter().map(|k| format!("({k}, 0, '{}')", payload(*k, 0, plan.sizes))).collect();
        // Writing to a string cannot fail.
        _ = writeln!(sql, "INSERT INTO items VALUES {};", rows.join(","));
    }
    server.batch(&sql);
    server
}

impl Engine for Mysql {
    type Database = Server;
    type Session = MysqlSession;

    /// The log's end is read after the row's snapshot, so it may lie past commits that the answer
    /// does not show.
    const TOKENS_ARE_EXACT: bool = false;
    const RESTARTS_END_TOKENS: bool = true;

    fn create(plan: &Plan) -> Server {
        fill(Server::start(&DURABLE), plan)
    }

    fn config(server: &Server, _: &Plan) -> Config {
        Config::over(&server.url())
            .set("collections.items.allow_min_position", "true")
            .set("source.connect_timeout", "\"2s\"")
    }

    fn session(server: &Server, _: &Plan) -> MysqlSession {
        MysqlSession::new(server.superuser_url())
    }

    fn rows(server: &Server) -> BTreeMap<u32, u64> {
        let rows = server.query("SELECT id, version FROM items");
        let row = |line: &str| {
            let (key, version) = line.split_once('\t')?;
            Some((key.parse().ok()?, version.parse().ok()?))
        };
        rows.lines().map(|line| row(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
    }
}

impl MysqlRun {
    /// Restarts the server; from then on readers send positions of the new start. Log positions
    /// continue.
    pub(crate) fn restart(&mut self) {
        self.database.restart();
        self.board.log.store(self.database.incarnation(), Ordering::Relaxed);
    }

    /// Asserts that all positions name logs of the server's starts.
    pub(crate) fn assert_one_log(&self) {
        let logs: BTreeSet<u64> =
            self.observations.iter().filter_map(|o| o.token).map(|token| token.log).collect();
        let starts = self.database.log().matches("ready for connections").count();
        assert!(
            (1..=starts).contains(&logs.len()),
            "positions of other logs than those of {starts} starts: {logs:x?}"
        );
    }
}
