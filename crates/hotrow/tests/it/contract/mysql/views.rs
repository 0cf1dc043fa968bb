//! Contract over a view: the writers change the table, and the service reads the view.

use super::session::MysqlSession;
use super::{BELOW_PARENTS, parents_deleted};
use crate::backend::maria::Maria;
use crate::contract::disturbances::{Disturbance, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{
    Networked, is_its_backend, sees_as_its_engine, writes_as_its_engine,
};
use crate::contract::run::Plan;
use crate::contract::sql::of_tables;
use crate::contract::{mixed, visibility};
use hotrow_testkit::harness::Config;
use hotrow_testkit::mysql::SERVICE_USER;

tests! {
    Views:
    #[ignore = "long: the short form runs over the table"]
    mixed::contract_holds_under_every_disturbance,
    #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
    mixed::contract_holds_in_a_long_run,
    visibility::a_row_read_before_its_change_is_visible_is_not_cached,
}

const VIEW: &str = "CREATE OR REPLACE VIEW shown AS SELECT payload, version, id FROM items \
    WHERE version >= 0 AND payload <> ''";

/// A server whose `items` are served through a view.
pub(super) struct Views(Maria);

impl Engine for Views {
    writes_as_its_engine!(Maria, MysqlSession);

    fn create(plan: &Plan) -> Self {
        let database = Maria::create_items(plan, BELOW_PARENTS, "");
        database.server.batch(&format!("{VIEW}; GRANT SHOW VIEW ON shown TO {SERVICE_USER}@'%'"));
        Self(database)
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        <Maria as Engine>::config(&database.0, plan).set("collections.items.table", "\"shown\"")
    }
}

impl Networked for Views {
    const NAME: &str = "mariadb-views";
    const HIDES_ONE_SESSION: bool = <Maria as Networked>::HIDES_ONE_SESSION;

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_processes();
        all.extend(of_tables());
        let own: Vec<Disturbance<Self>> = vec![
            parents_deleted(),
            Disturbance::calmed("stream killed", true, |run, _, _| run.database.0.kill_streams()),
            Disturbance::calmed("columns changed", false, |run, _, _| {
                run.database.0.server.batch(
                    "ALTER TABLE items MODIFY payload MEDIUMTEXT NOT NULL; \
                     ALTER TABLE items MODIFY payload TEXT NOT NULL",
                );
            }),
            Disturbance::calmed("view replaced", false, |run, _, _| {
                let other = VIEW.replace("version >= 0", "version * 2 >= 0");
                run.database.0.server.batch(&format!("{other}; {VIEW}"));
            }),
        ];
        all.extend(own);
        all
    }

    sees_as_its_engine!(MysqlSession);
}

is_its_backend!(Views, Maria);
