//! The contract over MariaDB (a private server), or MySQL where HOTROW_TEST_MYSQL_URL names one. Writers reach it through the
//! driver, with transactions.
//!
//! Reading order: this (the engine), [`session`] (a writer's connection), [`visibility`] (changes delivered before they are
//! visible), [`weather`] (what can go wrong) and [`mixed`] (everything at once).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::engine::Engine;
use crate::harness::Config;
use crate::rows::payload;
use crate::run::{Plan, Trial};

mod mixed;
mod session;
mod visibility;
mod weather;

#[path = "../../common_mysql/server.rs"]
pub(crate) mod server;

use server::Server;
use session::MysqlSession;

/// The engine.
pub(crate) struct Mysql;

/// A run over MariaDB or MySQL.
pub(crate) type MysqlRun = Trial<Mysql>;

const CREATE: &str = "CREATE TABLE items(id INT PRIMARY KEY, version BIGINT NOT NULL, payload TEXT NOT NULL)";
/// So that what was committed outlives the server's process.
const DURABLE: [(&str, &str); 1] = [("innodb-flush-log-at-trx-commit", "2")];
/// Rows per statement.
const ROWS_MAX: usize = 1_000;

/// A server with the table and its first rows.
pub(crate) fn fill(server: Server, plan: &Plan) -> Server {
    let keys: Vec<u32> = (0..plan.keys).filter(|key| Plan::has_first_row(*key)).collect();
    let mut sql = format!("{CREATE};\n");
    for keys in keys.chunks(ROWS_MAX) {
        let rows: Vec<String> = keys.iter().map(|k| format!("({k}, 0, '{}')", payload(*k, 0, plan.sizes))).collect();
        // Writing to a string cannot fail.
        _ = writeln!(sql, "INSERT INTO items VALUES {};", rows.join(","));
    }
    server.batch(&sql);
    server
}

impl Engine for Mysql {
    type Database = Server;
    type Session = MysqlSession;

    /// The log's end is read after the row's snapshot was taken, so it may lie past commits that the answer does not show.
    const TOKENS_ARE_EXACT: bool = false;

    fn create(plan: &Plan) -> Server {
        fill(Server::start(&DURABLE), plan)
    }

    fn config(server: &Server, _: &Plan) -> Config {
        Config::over(&server.url())
            .set("collections.items.allow_min_position", "true")
            .set("source.connect_timeout", "\"2s\"")
    }

    fn session(server: &Server, _: &Plan) -> MysqlSession {
        MysqlSession::new(server.url())
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
    /// All answers with a position name one log.
    pub(crate) fn assert_one_log(&self) {
        let logs: std::collections::BTreeSet<u64> =
            self.observations.iter().filter_map(|o| o.token).map(|token| token.log).collect();
        assert_eq!(logs.len(), 1, "positions of several logs: {logs:x?}");
    }
}
