//! PostgreSQL, with a proxy between it and the service; the checker writes to the server directly.

use std::time::Duration;

use crate::verify::checker::{
    ALL_RULES, assert_all_rules, assert_self_checked, with_all_capabilities,
};
use crate::verify::faults::{Fault, assert_writers_were_interrupted, run_faults};
use crate::verify::proxy::{BOTH, CLASSES, Class, FEED, Proxy, Way};
use crate::verify::server::{ROLE, Server};
use crate::verify::stage::{Deployment, Stage, pass_while, wait_for};
use crate::verify::traps::{Trap, assert_harmless};
use hotrow_testkit::harness::Config;

/// The named standby does not exist; only the checker's commits wait for it.
const SETTINGS: [(&str, &str); 1] = [("synchronous_commit", "local")];
const WRITER: &str = "writer";

/// A server with its proxy.
struct Postgres {
    // First field, so that it is cut before the server stops.
    proxy: Proxy,
    server: Server,
}

impl Stage for Postgres {
    fn start() -> Self {
        let server = Server::start(&SETTINGS);
        server.make_owner_role();
        server.assert_role_is_ordinary();
        server.batch(&format!(
            "CREATE ROLE {WRITER} SUPERUSER LOGIN; \
             ALTER ROLE {WRITER} SET synchronous_commit = 'on'"
        ));
        Self { proxy: Proxy::start(server.port()), server }
    }

    fn config(&self) -> Config {
        with_all_capabilities(Config::over(&self.proxy.url_for(ROLE)))
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.server.url_for(WRITER, "postgres")
    }
}

type Fixture = Deployment<Postgres>;

fn proxy(deployment: &Fixture) -> &Proxy {
    &deployment.stage.proxy
}

fn restore_normal(deployment: &mut Fixture) {
    proxy(deployment).calm();
}

const FAULTS: [Fault<Postgres>; 9] = [
    Fault {
        name: "database killed",
        is_a_loss: true,
        // Writers are interrupted during their commits.
        begin: |deployment| deployment.stage.server.kill9(),
        end: |deployment| deployment.stage.server.restart(),
    },
    Fault {
        name: "connections cut",
        is_a_loss: true,
        begin: |deployment| proxy(deployment).cut(&CLASSES),
        end: restore_normal,
    },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |deployment| {
            proxy(deployment).delay(&[Class::Readers], &BOTH, Duration::from_millis(50))
        },
        end: restore_normal,
    },
    Fault {
        name: "reads held",
        is_a_loss: false,
        begin: |deployment| proxy(deployment).hold(&[Class::Readers], &BOTH),
        end: restore_normal,
    },
    Fault {
        name: "feed delayed",
        is_a_loss: false,
        begin: |deployment| {
            proxy(deployment).delay(
                &[Class::Replication],
                &[Way::ToService],
                Duration::from_millis(1500),
            )
        },
        end: restore_normal,
    },
    Fault {
        name: "feed held",
        is_a_loss: false,
        begin: |deployment| proxy(deployment).hold(&[Class::Replication], &[Way::ToService]),
        end: restore_normal,
    },
    Fault { name: "feed refused", is_a_loss: true, begin: refuse_feed, end: restore_normal },
    Fault {
        name: "slot lost",
        is_a_loss: true,
        // The slot lives as long as its session.
        begin: |deployment| {
            deployment
                .stage
                .server
                .batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        },
        end: restore_normal,
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |deployment| deployment.stage.server.pause(),
        end: |deployment| deployment.stage.server.resume(),
    },
];

fn refuse_feed(deployment: &mut Fixture) {
    proxy(deployment).refuse(&FEED, true);
    proxy(deployment).cut(&FEED);
}

const TRAPS: [Trap<Postgres>; 4] = [
    Trap { safeguards: "lease,fence", trigger: late_answers },
    Trap { safeguards: "fence", trigger: hidden_commits },
    Trap { safeguards: "epoch", trigger: changes_without_a_feed },
    Trap { safeguards: "probe", trigger: late_stream },
];

/// Race A: rows are read, then changed, and only then arrive.
fn late_answers(deployment: &mut Fixture) {
    proxy(deployment).delay(&[Class::Readers], &[Way::ToService], Duration::from_millis(5));
    wait_for(Duration::from_millis(500));
    restore_normal(deployment);
}

/// Race B: commits are delivered and stay invisible, waiting for a standby that does not exist.
fn hidden_commits(deployment: &mut Fixture) {
    deployment.stage.server.set(&[("synchronous_standby_names", "no_such_standby")]);
    wait_for(Duration::from_millis(50));
    deployment.stage.server.set(&[("synchronous_standby_names", "")]);
}

/// Loss: no feed delivers the changes in between. Shorter than the bound, so entries are still
/// fresh.
fn changes_without_a_feed(deployment: &mut Fixture) {
    refuse_feed(deployment);
    wait_for(Duration::from_millis(100));
    restore_normal(deployment);
    deployment.one.await_ready();
    wait_for(Duration::from_millis(200));
}

/// Staleness: the stream is steadily later than the bound.
fn late_stream(deployment: &mut Fixture) {
    proxy(deployment).delay(&[Class::Replication], &[Way::ToService], Duration::from_millis(1500));
    wait_for(Duration::from_millis(2500));
    restore_normal(deployment);
}

#[test]
fn traps_are_harmless_with_all_safeguards() {
    assert_harmless(&TRAPS);
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::TRAPS;
    use crate::verify::traps::assert_found;

    #[test]
    fn leases_and_the_fence_are_missed() {
        assert_found(&TRAPS, "lease,fence");
    }

    #[test]
    fn the_fence_is_missed() {
        assert_found(&TRAPS, "fence");
    }

    #[test]
    fn the_epoch_is_missed() {
        assert_found(&TRAPS, "epoch");
    }

    #[test]
    fn the_time_of_the_probe_is_missed() {
        assert_found(&TRAPS, "probe");
    }
}

#[test]
fn a_sound_service_passes_while_its_connections_are_cut() {
    let deployment = Deployment::<Postgres>::alone(&[]);
    let mut checker = deployment.check_at_work(&["-d", "6s", "--rate", "200"]);
    while checker.runs() {
        proxy(&deployment).cut(&FEED);
        pass_while(&mut checker, Duration::from_millis(700));
        proxy(&deployment).cut(&[Class::Readers]);
        pass_while(&mut checker, Duration::from_millis(700));
        // The final comparison waits until the feed has recovered.
        if deployment.losses() >= 3.0 {
            break;
        }
    }
    let report = checker.ended(Duration::from_secs(6)).assert_passed(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
    assert!(report["feed_losses"][0].as_u64() > Some(0), "cut connections are losses: {report:#}");
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_under_every_fault() {
    assert_writers_were_interrupted(&run_faults(&FAULTS));
}
