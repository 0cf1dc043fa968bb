//! Contract over a private MariaDB server. Writers use a driver, with transactions, and connect to
//! the server directly.
//!
//! Reading order: this (the engine and its tests), [`session`] (a writer's connection),
//! [`embedded`], [`views`], `hub`, `hub_rules`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::contract::disturbances::{Disturbance, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::Networked;
use crate::contract::rows::payload;
use crate::contract::run::{Plan, Trial};
#[cfg(feature = "failpoints")]
use crate::contract::safeguards::disabled;
use crate::contract::sql::{of_tables, parse_rows};
use crate::contract::{mixed, visibility};
use hotrow_testkit::harness::Config;
use hotrow_testkit::mysql::{Flavor, Stop};
use session::MysqlSession;

mod embedded;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_rules;
mod session;
mod views;

tests! {
    Maria:
    mixed::histories_equal_the_database_after_crashes,
    mixed::contract_holds_under_every_disturbance,
    #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
    mixed::contract_holds_in_a_long_run,
    visibility::a_row_read_before_its_change_is_visible_is_not_cached,
    #[cfg(feature = "failpoints")]
    disabled::without_the_fence_a_row_read_before_its_change_was_visible_stays,
}

/// Foreign key by which the rows can be deleted without one of them in the log.
const BELOW_PARENTS: &str = ", FOREIGN KEY (id) REFERENCES parents(id) ON DELETE CASCADE";
/// Rows per statement.
const ROWS_MAX: usize = 1_000;

impl Engine for Maria {
    type Database = Self;
    type Session = MysqlSession;

    /// The log's end is read after the row's snapshot, so it may lie past commits that the answer
    /// does not show.
    const TOKENS_ARE_EXACT: bool = false;
    const RESTARTS_END_TOKENS: bool = true;

    fn create(plan: &Plan) -> Self {
        Self::create_items(
            plan,
            "",
            Flavor::of_run().choose("", " PARTITION BY KEY (id) PARTITIONS 3"),
        )
    }

    fn config(database: &Self, _: &Plan) -> Config {
        Backend::config(database)
            .set("collections.items.allow_min_position", "true")
            .set("collections.items.columns", "[\"id\", \"version\", \"payload\"]")
    }

    fn session(database: &Self, _: &Plan) -> MysqlSession {
        MysqlSession::new(database.server.superuser_url())
    }

    fn rows(database: &Self) -> BTreeMap<u32, u64> {
        parse_rows(&database.server.query("SELECT id, version FROM items"), '\t')
    }
}

impl Maria {
    /// Starts a server with the table of a run, which has this key beside its own and this form.
    fn create_items(plan: &Plan, foreign_key: &str, form: &str) -> Self {
        let database = Self::start();
        let keys: Vec<u32> = (0..plan.keys).filter(|key| Plan::has_first_row(*key)).collect();
        let mut sql = format!(
            "CREATE TABLE parents(id INT PRIMARY KEY); INSERT INTO parents {};
             CREATE TABLE items(id INT PRIMARY KEY, version BIGINT NOT NULL, \
             payload TEXT NOT NULL{foreign_key}){form};\n",
            all_parents(plan)
        );
        for keys in keys.chunks(ROWS_MAX) {
            let row = |key: &u32| format!("({key}, 0, '{}')", payload(*key, 0, plan.sizes));
            let rows: Vec<String> = keys.iter().map(row).collect();
            // Writing to a string cannot fail.
            _ = writeln!(sql, "INSERT INTO items VALUES {};", rows.join(","));
        }
        database.server.batch(&sql);
        database
    }
}

/// Returns the query of a parent for each key.
fn all_parents(plan: &Plan) -> String {
    Flavor::of_run().dialect(&format!("SELECT seq FROM seq_0_to_{}", plan.keys - 1))
}

/// Deletes all rows by a foreign key, while the writers are paused.
fn parents_deleted<E: Networked<Session = MysqlSession>>() -> Disturbance<E> {
    Disturbance::calmed("parents deleted", false, |run, _, _| {
        let sql = format!("DELETE FROM parents; INSERT INTO parents {}", all_parents(&run.plan));
        run.at_once(false, |_| sql.clone());
    })
}

impl Networked for Maria {
    const NAME: &str = "mariadb";
    const HAS_PUSHES: bool = true;
    const HIDES_ONE_SESSION: bool = false;

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_processes();
        all.extend(of_tables());
        all.extend(of_server());
        all
    }

    fn after_crash(run: &mut Trial<Self>, round: u64) {
        run.change_table_after_crash(round);
    }

    fn incarnation(&self) -> Option<u64> {
        Some(self.server.incarnation())
    }

    fn log_end(&self) -> u64 {
        self.server.log_end()
    }

    fn hidden_session(&self) -> (MysqlSession, impl FnMut() -> bool) {
        let before = self.server.log_end();
        self.hide_commits();
        let session = MysqlSession::new(self.server.superuser_url());
        (session, move || self.server.log_end() > before)
    }
}

/// An engine whose rows are in a MariaDB server.
trait OverMaria {
    fn maria(&mut self) -> &mut Maria;
}

impl OverMaria for Maria {
    fn maria(&mut self) -> &mut Maria {
        self
    }
}

/// Returns the disturbances that only this server has.
fn of_server<E: Networked + OverMaria>() -> Vec<Disturbance<E>> {
    vec![
        Disturbance::calmed("stream killed", true, |run, _, _| run.database.maria().kill_streams()),
        Disturbance::calmed("sessions killed", false, |run, _, _| {
            run.database.maria().kill_sessions("command = 'Sleep'");
        }),
        Disturbance::calmed("log purged", false, |run, _, _| {
            let file = run.database.maria().begin_log_file();
            // Refused while a stream reads an older file.
            let sql = format!("PURGE BINARY LOGS TO '{file}'");
            _ = run.database.maria().server.try_query(&sql);
        }),
        Disturbance::calmed("columns changed", false, |run, _, _| {
            run.database.maria().server.batch(
                "ALTER TABLE items MODIFY payload MEDIUMTEXT NOT NULL; \
                 ALTER TABLE items MODIFY payload TEXT NOT NULL; \
                 ALTER TABLE items ADD COLUMN extra INT DEFAULT 7 INVISIBLE, ALGORITHM = INSTANT; \
                 DO SLEEP(0.2); ALTER TABLE items DROP COLUMN extra",
            );
        }),
        // Its numbers recur with another meaning, and no position is lower than an earlier one.
        Disturbance::calmed("log begun anew", true, |run, _, _| {
            let server = &run.database.maria().server;
            server.batch(&format!("RESET MASTER TO {}", (server.log_end() >> 40) + 1));
        }),
        Disturbance {
            name: "server restarted",
            ends_the_feed: true,
            begin: |run, _, _| run.database.maria().server.stop(Stop::Fast),
            end: |run, _| run.restart(),
        },
    ]
}
