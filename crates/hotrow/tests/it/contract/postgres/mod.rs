//! Contract over a private PostgreSQL server. A proxy between server and service can disturb the
//! feed and the reads separately. Writers connect to the server directly.
//!
//! Reading order: this (the engine), [`session`] (a writer's connection), [`scene`] (tests of a
//! single key), [`safeguards`] (each safeguard of the contract, enabled and disabled),
//! [`visibility`] (changes delivered before they are visible), [`weather`] (disturbances) and
//! [`mixed`] (all of them under a mixed load).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::contract::engine::Engine;
use crate::contract::rows::payload;
use crate::contract::run::{Plan, Trial};
use hotrow_testkit::harness::Config;

mod mixed;
mod safeguards;
mod scene;
mod session;
mod visibility;
mod weather;

pub(crate) use hotrow_testkit::postgres as server;
pub(crate) use hotrow_testkit::proxy;

use proxy::Proxy;
use server::{ROLE, Server};
use session::PostgresSession;

/// The PostgreSQL engine.
pub(crate) struct Postgres;

/// A run over PostgreSQL.
pub(crate) type PostgresRun = Trial<Postgres>;

/// A server and the proxy before it.
pub(crate) struct Database {
    /// First field, so that it is dropped before the server.
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
    /// Incarnations in the positions of this server, one per start.
    incarnations: Mutex<BTreeSet<u64>>,
}

const CREATE: &str =
    "CREATE TABLE items(id integer PRIMARY KEY, version bigint NOT NULL, payload text NOT NULL)";

/// Query for the incarnation in positions: system identifier XOR timeline XOR start time of the
/// server.
const INCARNATION: &str = "SELECT to_hex(system_identifier
    # ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
    # (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint) FROM pg_control_system()";

impl Database {
    /// Starts a server with additional settings and creates the table with its first rows.
    pub(crate) fn with(settings: &[(&str, &str)], plan: &Plan) -> Self {
        let server = Server::start(settings);
        let mut sql = format!("{CREATE};\nINSERT INTO items VALUES ");
        for (i, key) in (0..plan.keys).filter(|key| Plan::has_first_row(*key)).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            _ = write!(sql, "{comma}({key}, 0, '{}')", payload(key, 0, plan.sizes));
        }
        server.batch(&sql);
        server.make_reader_role(&["items"]);
        server.assert_role_is_ordinary();
        Self { proxy: Proxy::start(server.port()), server, incarnations: Mutex::default() }
    }

    /// Returns the server's current incarnation, with which its positions begin.
    pub(crate) fn incarnation(&self) -> u64 {
        let incarnation =
            u64::from_str_radix(&self.server.query(INCARNATION), 16).expect("a hexadecimal number");
        self.incarnations.lock().expect("no panics here").insert(incarnation);
        incarnation
    }

    /// Returns the log's current end.
    pub(crate) fn log_end(&self) -> u64 {
        self.server.query("SELECT pg_current_wal_insert_lsn() - '0/0'").parse().expect("a number")
    }
}

impl Engine for Postgres {
    type Database = Database;
    type Session = PostgresSession;

    /// The log's end is read after the snapshot, so it may lie past commits that the answer does
    /// not show.
    const TOKENS_ARE_EXACT: bool = false;
    const RESTARTS_END_TOKENS: bool = true;

    fn create(plan: &Plan) -> Database {
        Database::with(&[], plan)
    }

    fn config(database: &Database, _: &Plan) -> Config {
        Config::over(&database.proxy.url_for(ROLE))
            .set("collections.items.allow_min_position", "true")
    }

    fn session(database: &Database, _: &Plan) -> PostgresSession {
        PostgresSession::new(database.server.url())
    }

    fn rows(database: &Database) -> BTreeMap<u32, u64> {
        let rows = database.server.query("SELECT id, version FROM items");
        let row = |line: &str| {
            let (key, version) = line.split_once('|')?;
            Some((key.parse().ok()?, version.parse().ok()?))
        };
        rows.lines().map(|line| row(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
    }
}

impl PostgresRun {
    /// Creates a run whose readers know the log of commit positions from the start.
    pub(crate) fn over_postgres(database: Database, plan: Plan) -> Self {
        let run = Self::over(database, plan);
        run.board.log.store(run.database.incarnation(), Ordering::Relaxed);
        run
    }

    /// Restarts the server; from then on readers send positions of the new start.
    pub(crate) fn restart(&mut self) {
        self.database.server.restart();
        self.board.log.store(self.database.incarnation(), Ordering::Relaxed);
    }

    /// Asserts that all positions name one of this server's starts.
    pub(crate) fn assert_one_log(&self) {
        let known = self.database.incarnations.lock().expect("no panics here");
        let other = self
            .observations
            .iter()
            .filter_map(|o| o.token)
            .find(|token| !known.contains(&token.log));
        assert_eq!(other, None, "a position of another log than {known:x?}");
    }
}
