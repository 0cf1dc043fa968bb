//! Contract over records that contain rows: the writers change the table of the children, and a
//! record is one of their owners, who exist as long as they do. A new version of a row is a change
//! of the child alone.

use super::OverMaria;
use super::session::MysqlSession;
use crate::backend::maria::Maria;
use crate::contract::disturbances::{Disturbance, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{
    Networked, is_its_backend, sees_as_its_engine, writes_as_its_engine,
};
use crate::contract::rows::PART;
use crate::contract::run::Plan;
#[cfg(feature = "failpoints")]
use crate::contract::safeguards::disabled;
use crate::contract::sql::of_tables;
use crate::contract::{mixed, visibility};
use hotrow_testkit::harness::Config;

tests! {
    Embedded:
    #[ignore = "long: the short form runs over the table"]
    mixed::histories_equal_the_database_after_crashes,
    #[ignore = "long: the short form runs over the table"]
    mixed::contract_holds_under_every_disturbance,
    #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
    mixed::contract_holds_in_a_long_run,
    visibility::a_row_read_before_its_change_is_visible_is_not_cached,
    #[cfg(feature = "failpoints")]
    disabled::without_the_fence_a_row_read_before_its_change_was_visible_stays,
}

/// A server whose `items` are embedded in `owners`.
struct Embedded(Maria);

impl OverMaria for Embedded {
    fn maria(&mut self) -> &mut Maria {
        &mut self.0
    }
}

impl Engine for Embedded {
    writes_as_its_engine!(Maria, MysqlSession);

    fn create(plan: &Plan) -> Self {
        let database = <Maria as Engine>::create(plan);
        database.server.batch(
            "CREATE TABLE owners(id INT PRIMARY KEY); INSERT INTO owners SELECT id FROM items; \
             CREATE TRIGGER born AFTER INSERT ON items FOR EACH ROW \
               INSERT IGNORE INTO owners VALUES (NEW.id); \
             CREATE TRIGGER gone AFTER DELETE ON items FOR EACH ROW \
               DELETE FROM owners WHERE id = OLD.id; \
             CREATE TRIGGER moved AFTER UPDATE ON items FOR EACH ROW \
               UPDATE owners SET id = NEW.id WHERE id = OLD.id AND OLD.id <> NEW.id",
        );
        Self(database)
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        <Maria as Engine>::config(&database.0, plan)
            .set("collections.items.table", "\"owners\"")
            .set("collections.items.columns", "[\"id\"]")
            .set(&format!("collections.items.embed.{PART}.table"), "\"items\"")
            .set(&format!("collections.items.embed.{PART}.on"), "\"id\"")
            .set(&format!("collections.items.embed.{PART}.columns"), "[\"version\", \"payload\"]")
    }
}

impl Networked for Embedded {
    const NAME: &str = "mariadb-embedded";
    const HIDES_ONE_SESSION: bool = <Maria as Networked>::HIDES_ONE_SESSION;

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_processes();
        // TRUNCATE fires no trigger here, so that the owners would stay.
        all.extend(of_tables().into_iter().filter(|one| one.name != "table emptied"));
        all.extend(super::of_server());
        all
    }

    sees_as_its_engine!(MysqlSession);
}

is_its_backend!(Embedded, Maria);
