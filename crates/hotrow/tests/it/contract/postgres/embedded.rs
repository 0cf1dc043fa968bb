//! Contract over records that contain rows: the writers change the table of the children, and a
//! record is one of their owners, who exist as long as they do. A new version of a row is a change
//! of the child alone.

use super::session::PostgresSession;
use super::wraps_postgres;
use crate::backend::postgres::Postgres;
use crate::contract::disturbances::{Disturbance, of_connections, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{
    Networked, is_its_backend, sees_as_its_engine, writes_as_its_engine,
};
use crate::contract::rows::PART;
use crate::contract::run::Plan;
#[cfg(feature = "failpoints")]
use crate::contract::safeguards::disabled;
use crate::contract::sql::of_tables;
use crate::contract::{mixed, safeguards, visibility};
use hotrow_testkit::harness::Config;
use hotrow_testkit::postgres::ROLE;

tests! {
    Embedded:
    #[ignore = "long: the short form runs over the table"]
    mixed::histories_equal_the_database_after_crashes,
    #[ignore = "long: the short form runs over the table"]
    mixed::contract_holds_under_every_disturbance,
    #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
    mixed::contract_holds_in_a_long_run,
    safeguards::a_row_read_before_its_change_is_not_cached_however_late_it_arrives,
    visibility::a_row_read_before_its_change_is_visible_is_not_cached,
    #[cfg(feature = "failpoints")]
    disabled::without_leases_and_the_fence_the_old_row_stays,
    #[cfg(feature = "failpoints")]
    disabled::without_the_fence_a_row_read_before_its_change_was_visible_stays,
}

/// A server whose `items` are embedded in `owners`.
pub(super) struct Embedded(Postgres);

impl Engine for Embedded {
    writes_as_its_engine!(Postgres, PostgresSession);

    fn create(plan: &Plan) -> Self {
        let database = <Postgres as Engine>::create(plan);
        database.server.batch(&format!(
            "CREATE TABLE owners(id integer PRIMARY KEY); \
             INSERT INTO owners SELECT id FROM items; \
             CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF TG_OP = 'TRUNCATE' THEN DELETE FROM owners; RETURN NULL; END IF; \
               IF TG_OP <> 'INSERT' THEN DELETE FROM owners WHERE id = OLD.id; END IF; \
               IF TG_OP <> 'DELETE' THEN INSERT INTO owners VALUES (NEW.id); END IF; \
               RETURN NULL; END $$; \
             CREATE TRIGGER follow AFTER INSERT OR DELETE ON items \
               FOR EACH ROW EXECUTE FUNCTION follow(); \
             CREATE TRIGGER moved AFTER UPDATE ON items FOR EACH ROW \
               WHEN (OLD.id <> NEW.id) EXECUTE FUNCTION follow(); \
             CREATE TRIGGER emptied AFTER TRUNCATE ON items EXECUTE FUNCTION follow(); \
             GRANT SELECT ON owners TO {ROLE}; ALTER PUBLICATION hotrow ADD TABLE owners"
        ));
        Self(database)
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        <Postgres as Engine>::config(&database.0, plan)
            .set("collections.items.table", "\"owners\"")
            .set(&format!("collections.items.embed.{PART}.table"), "\"items\"")
            .set(&format!("collections.items.embed.{PART}.on"), "\"id\"")
            .set(&format!("collections.items.embed.{PART}.columns"), "[\"version\", \"payload\"]")
    }
}

wraps_postgres!(Embedded, "postgres-embedded");
