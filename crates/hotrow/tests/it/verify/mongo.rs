//! The stand-in for MongoDB, or SecantusDB. The checker writes to the same members, so it is
//! disturbed too.

use std::time::Duration;

use crate::backend::Backend;
use crate::backend::mongo::Mongo;
use crate::verify::checker::{
    ALL_RULES, MODEST, assert_all_rules, assert_near_caches, assert_self_checked,
    with_all_capabilities, with_near_caches,
};
use crate::verify::faults::Fault;
use crate::verify::network::{NetworkStage, network_tests, restore_normal};
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::Config;
use hotrow_testkit::mongo::Secantus;

network_tests!(
    #[ignore = "long: shown on PostgreSQL and SQLite in short runs"]
    Mongo
);

impl Stage for Mongo {
    fn start() -> Self {
        Backend::start()
    }

    fn config(&self) -> Config {
        with_near_caches(with_all_capabilities(Backend::config(self)))
            .set("collections.verified.key", "\"_id\"")
    }

    fn database(&self) -> String {
        self.mongo.url().to_owned()
    }
}

impl NetworkStage for Mongo {
    fn own_faults() -> Vec<Fault<Self>> {
        if Secantus::is_chosen() {
            return Vec::new();
        }
        vec![
            Fault {
                name: "another primary",
                is_a_loss: false,
                begin: |deployment| deployment.stage.elect_other(),
                end: restore_normal,
            },
            Fault {
                name: "connections refused",
                is_a_loss: false,
                begin: |deployment| {
                    deployment.stage.standin().refuse_connections(true);
                    deployment.stage.cut();
                },
                end: |deployment| deployment.stage.standin().refuse_connections(false),
            },
            Fault {
                name: "visibility held",
                is_a_loss: false,
                begin: |deployment| deployment.stage.hide_commits(),
                end: |deployment| deployment.stage.show_commits(),
            },
        ]
    }
}

#[test]
fn a_sound_service_passes_while_its_deployment_is_disturbed() {
    let mut deployment = Deployment::<Mongo>::alone(&[]);
    let mut checker =
        deployment.check(&[&["-d", "6s", "--rate", "150", "--keys", "300"][..], &MODEST].concat());
    for _ in 0..2 {
        pass_while(&mut checker, Duration::from_millis(1200));
        // Writers lose their connections too, some during a write.
        deployment.stage.cut();
        pass_while(&mut checker, Duration::from_millis(1200));
        deployment.stage.kill();
        deployment.stage.restart();
    }
    let report = checker.ended(Duration::from_secs(6)).assert_passed(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
    assert_near_caches(&report);
}
