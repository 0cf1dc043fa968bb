//! Records with an alias and rows of another table while the database, the network and the service
//! fail: the checker changes all parts, follows the changes and keeps near caches.

use crate::backend::Backend;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::contract::networked::is_its_backend;
use crate::verify::checker::{assert_followers, with_near_caches};
use crate::verify::faults::{Fault, assert_writers_were_interrupted, run_faults_longer};
use crate::verify::network::{NetworkStage, common_faults};
use crate::verify::parts::{CHILDREN, assert_covered, with_alias, with_children};
use crate::verify::stage::Stage;
use hotrow_testkit::harness::Config;

/// PostgreSQL with an alias and children, all of whose columns are in the log.
struct PostgresWithParts(Postgres);

/// MariaDB with them.
struct MariaWithParts(Maria);

is_its_backend!(PostgresWithParts, Postgres);
is_its_backend!(MariaWithParts, Maria);

fn with_parts(config: Config) -> Config {
    with_near_caches(with_children(with_alias(config)))
}

impl Stage for PostgresWithParts {
    fn start() -> Self {
        Self(Backend::start())
    }

    fn config(&self) -> Config {
        with_parts(Backend::config(&self.0)).set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.0.writer_url()
    }

    fn table_created(&mut self) {
        self.0.server.batch("ALTER TABLE verified_parts REPLICA IDENTITY FULL");
    }
}

impl Stage for MariaWithParts {
    fn start() -> Self {
        Self(Backend::start())
    }

    fn config(&self) -> Config {
        with_parts(Backend::config(&self.0))
    }

    fn database(&self) -> String {
        self.0.server.superuser_url()
    }
}

impl NetworkStage for PostgresWithParts {
    fn own_faults() -> Vec<Fault<Self>> {
        Vec::new()
    }
}

impl NetworkStage for MariaWithParts {
    fn own_faults() -> Vec<Fault<Self>> {
        Vec::new()
    }
}

fn a_sound_service_with_parts_passes_under_every_fault<S: NetworkStage>() {
    let report = run_faults_longer(&common_faults::<S>());
    assert_writers_were_interrupted(&report);
    assert_followers(&report);
    assert_covered(&report, "/covered/alias", &["lookups", "values_moved"]);
    assert_covered(&report, "/covered/embed", &CHILDREN);
}

#[test]
#[ignore = "long: three minutes of faults of every kind"]
fn a_sound_service_over_postgresql_passes_under_every_fault() {
    a_sound_service_with_parts_passes_under_every_fault::<PostgresWithParts>();
}

#[test]
#[ignore = "long: three minutes of faults of every kind"]
fn a_sound_service_over_mariadb_passes_under_every_fault() {
    a_sound_service_with_parts_passes_under_every_fault::<MariaWithParts>();
}
