//! Contract over a private PostgreSQL server. Writers connect to the server directly.
//!
//! Reading order: this (the engine and its tests), [`session`] (a writer's connection),
//! [`disturbances`] (those of this engine), [`feed`] (further tests of this engine), [`standbys`],
//! [`views`], [`embedded`], `hub`, `hub_rules`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::backend::Backend;
use crate::backend::postgres::{Postgres, SETTINGS};
use crate::contract::disturbances::Disturbance;
use crate::contract::engine::Engine;
use crate::contract::networked::{Networked, contract_tests};
use crate::contract::rows::payload;
use crate::contract::run::{Plan, Trial};
use crate::contract::sql::parse_rows;
use hotrow_testkit::harness::Config;
use hotrow_testkit::postgres::Server;
use hotrow_verify::observation::Position;
use session::PostgresSession;

mod disturbances;
mod embedded;
mod feed;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_rules;
mod session;
mod standbys;
mod views;

/// Makes an engine of a wrapper around [`Postgres`] whose rows are served in another way.
macro_rules! wraps_postgres {
    ($wrapper:ident, $name:literal) => {
        impl Networked for $wrapper {
            const NAME: &str = $name;
            const HIDES_ONE_SESSION: bool = <Postgres as Networked>::HIDES_ONE_SESSION;

            fn disturbances() -> Vec<Disturbance<Self>> {
                let mut all = of_connections();
                all.extend(of_processes());
                all.extend(of_tables());
                all
            }

            sees_as_its_engine!(PostgresSession);
        }

        is_its_backend!($wrapper, Postgres);
    };
}
pub(crate) use wraps_postgres;

contract_tests!(Postgres);

const CREATE: &str =
    "CREATE TABLE items(id integer PRIMARY KEY, version bigint NOT NULL, payload text NOT NULL)";
/// Commits that wait for the standby.
const WAITERS: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

impl Engine for Postgres {
    type Database = Self;
    type Session = PostgresSession;

    /// The log's end is read after the snapshot, so it may lie past commits that the answer does
    /// not show.
    const TOKENS_ARE_EXACT: bool = false;
    const RESTARTS_END_TOKENS: bool = true;

    fn create(plan: &Plan) -> Self {
        let server = Server::start(&SETTINGS);
        let mut sql = format!("{CREATE};\nINSERT INTO items VALUES ");
        for (i, key) in (0..plan.keys).filter(|key| Plan::has_first_row(*key)).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            _ = write!(sql, "{comma}({key}, 0, '{}')", payload(key, 0, plan.sizes));
        }
        server.batch(&sql);
        server.make_reader_role(&["items"]);
        server.assert_role_is_ordinary();
        Self::with_writer(server)
    }

    fn config(database: &Self, _: &Plan) -> Config {
        Backend::config(database).set("collections.items.allow_min_position", "true")
    }

    fn session(database: &Self, _: &Plan) -> PostgresSession {
        PostgresSession::new(database.server.url())
    }

    fn rows(database: &Self) -> BTreeMap<u32, u64> {
        parse_rows(&database.server.query("SELECT id, version FROM items"), '|')
    }
}

impl Networked for Postgres {
    const NAME: &str = "postgres";
    const HAS_PUSHES: bool = true;
    const HIDES_ONE_SESSION: bool = true;

    fn disturbances() -> Vec<Disturbance<Self>> {
        disturbances::all()
    }

    fn after_crash(run: &mut Trial<Self>, round: u64) {
        run.change_table_after_crash(round);
    }

    fn incarnation(&self) -> Option<u64> {
        Some(self.token().log)
    }

    fn log_end(&self) -> u64 {
        self.token().at
    }

    fn hidden_session(&self) -> (PostgresSession, impl FnMut() -> bool) {
        self.hide_commits();
        let session = PostgresSession::new(self.writer_url());
        (session, || !self.server.query(WAITERS).is_empty())
    }
}

impl Postgres {
    /// Returns the log's end.
    pub(crate) fn token(&self) -> Position {
        Position::parse(&self.position()).expect("a position")
    }
}
