//! Contract over a view: the writers change the table, and the service reads the view, whose table
//! its role may not read.

use super::session::PostgresSession;
use super::wraps_postgres;
use crate::backend::postgres::Postgres;
use crate::contract::disturbances::{Disturbance, of_connections, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{
    Networked, is_its_backend, sees_as_its_engine, writes_as_its_engine,
};
use crate::contract::run::Plan;
use crate::contract::sql::of_tables;
use crate::contract::{mixed, safeguards, visibility};
use hotrow_testkit::harness::Config;
use hotrow_testkit::postgres::ROLE;

tests! {
    Views:
    #[ignore = "long: the short form runs over the table"]
    mixed::contract_holds_under_every_disturbance,
    #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
    mixed::contract_holds_in_a_long_run,
    safeguards::a_row_read_before_its_change_is_not_cached_however_late_it_arrives,
    visibility::a_row_read_before_its_change_is_visible_is_not_cached,
}

/// A server whose `items` are served through a view.
pub(super) struct Views(Postgres);

impl Engine for Views {
    writes_as_its_engine!(Postgres, PostgresSession);

    fn create(plan: &Plan) -> Self {
        let database = <Postgres as Engine>::create(plan);
        database.server.batch(&format!(
            "CREATE VIEW shown AS SELECT payload, version, id FROM items \
             WHERE version >= 0 AND length(payload) < 100000000;
             GRANT SELECT ON shown TO {ROLE}; REVOKE SELECT ON items FROM {ROLE}"
        ));
        Self(database)
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        <Postgres as Engine>::config(&database.0, plan)
            .set("collections.items.table", "\"shown\"")
            .set("collections.items.columns", "[\"id\", \"version\", \"payload\"]")
    }
}

wraps_postgres!(Views, "postgres-views");
