//! PostgreSQL, with a proxy between it and the service; the checker writes to the server directly.

use std::time::Duration;

use crate::backend::Backend;
use crate::backend::postgres::Postgres;
use crate::verify::checker::{
    ALL_RULES, MODEST, assert_all_rules, assert_followers, assert_near_caches, assert_self_checked,
    with_all_capabilities, with_near_caches,
};
use crate::verify::faults::Fault;
use crate::verify::network::{NetworkStage, network_tests, restore_normal};
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::Config;
use hotrow_testkit::proxy::{Class, FEED};

network_tests!(Postgres);

impl Stage for Postgres {
    fn start() -> Self {
        Backend::start()
    }

    fn config(&self) -> Config {
        with_near_caches(with_all_capabilities(Backend::config(self)))
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.writer_url()
    }
}

impl NetworkStage for Postgres {
    fn own_faults() -> Vec<Fault<Self>> {
        vec![Fault {
            name: "slot lost",
            is_a_loss: true,
            // The slot lives as long as its session.
            begin: |deployment| {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication";
                deployment.stage.server.batch(sql);
            },
            end: restore_normal,
        }]
    }
}

#[test]
fn a_sound_service_passes_while_its_connections_are_cut() {
    let deployment = Deployment::<Postgres>::alone(&[]);
    let mut checker =
        deployment.check_at_work(&[&["-d", "6s", "--rate", "200"][..], &MODEST].concat());
    while checker.runs() {
        deployment.stage.proxy.cut(&FEED);
        pass_while(&mut checker, Duration::from_millis(700));
        deployment.stage.proxy.cut(&[Class::Readers]);
        pass_while(&mut checker, Duration::from_millis(700));
        // The final comparison waits until the feed has recovered.
        if deployment.losses() >= 3.0 {
            break;
        }
    }
    let report = checker.ended(Duration::from_secs(6)).assert_passed(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
    assert_near_caches(&report);
    assert_followers(&report);
    assert!(report["feed_losses"][0].as_u64() > Some(0), "cut connections are losses: {report:#}");
}
