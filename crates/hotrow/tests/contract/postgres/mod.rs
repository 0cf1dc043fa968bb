//! The contract over PostgreSQL: a private server, and a proxy between it and the service that disturbs the feed and the
//! readers apart from each other. Writers reach the server directly.
//!
//! Reading order: this (the engine), [`session`] (a writer's connection), [`scene`] (one key under a microscope), [`fixes`]
//! (each fix of the contract, in place and taken out), [`visibility`] (changes delivered before they are visible),
//! [`weather`] (what can go wrong) and [`mixed`] (everything at once).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::harness::Config;
use crate::rows::payload;
use crate::run::{Plan, Trial};

mod fixes;
mod mixed;
mod scene;
mod session;
mod visibility;
mod weather;

#[path = "../../common_pg/proxy.rs"]
pub(crate) mod proxy;
#[path = "../../common_pg/server.rs"]
pub(crate) mod server;

use proxy::Proxy;
use server::Server;
use session::PostgresSession;

/// The engine.
pub(crate) struct Postgres;

/// A run over PostgreSQL.
pub(crate) type PostgresRun = Trial<Postgres>;

/// A server and the way to it.
pub(crate) struct Database {
    /// Cut before the server goes.
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
}

const CREATE: &str = "CREATE TABLE items(id integer PRIMARY KEY, version bigint NOT NULL, payload text NOT NULL)";

/// The incarnation that positions begin with: system identifier XOR timeline.
const INCARNATION: &str = "SELECT to_hex(system_identifier
    # ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint) FROM pg_control_system()";

impl Database {
    /// A server with more settings, and the table with its first rows.
    pub(crate) fn with(settings: &[(&str, &str)], plan: &Plan) -> Self {
        let server = Server::start(settings);
        let mut sql = format!("{CREATE};\nINSERT INTO items VALUES ");
        for (i, key) in (0..plan.keys).filter(|key| Plan::has_first_row(*key)).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            _ = write!(sql, "{comma}({key}, 0, '{}')", payload(key, 0, plan.sizes));
        }
        server.batch(&sql);
        Self { proxy: Proxy::start(server.port()), server }
    }

    /// What a position of this server begins with.
    pub(crate) fn incarnation(&self) -> u64 {
        u64::from_str_radix(&self.server.query(INCARNATION), 16).expect("a hexadecimal number")
    }

    /// The log's end now.
    pub(crate) fn log_end(&self) -> u64 {
        self.server.query("SELECT pg_current_wal_insert_lsn() - '0/0'").parse().expect("a number")
    }
}

impl Engine for Postgres {
    type Database = Database;
    type Session = PostgresSession;

    /// The log's end is read after the snapshot was taken, so it may lie past commits that the answer does not show.
    const TOKENS_ARE_EXACT: bool = false;

    fn create(plan: &Plan) -> Database {
        Database::with(&[], plan)
    }

    fn config(database: &Database, _: &Plan) -> Config {
        Config::over(&database.proxy.url()).set("collections.items.allow_min_position", "true")
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
    /// A run whose readers know from the start which log the positions of commits belong to.
    pub(crate) fn over_postgres(database: Database, plan: Plan) -> Self {
        let run = Self::over(database, plan);
        run.board.log.store(run.database.incarnation(), Ordering::Relaxed);
        run
    }

    /// All answers with a position name this server's log.
    pub(crate) fn assert_one_log(&self) {
        let log = self.board.log.load(Ordering::Relaxed);
        let other = self.observations.iter().filter_map(|o| o.token).find(|token| token.log != log);
        assert_eq!(other, None, "a position of another log than {log:016x}");
    }
}
