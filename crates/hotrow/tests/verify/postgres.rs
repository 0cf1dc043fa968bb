//! Over PostgreSQL, with a proxy between it and the service; the checker writes to the server itself.

use std::time::Duration;

use crate::checker::{ALL_RULES, assert_all_rules, assert_self_checked, granting};
use crate::faults::{Fault, assert_writers_were_hit, endure};
use crate::harness::Config;
use crate::proxy::{BOTH, CLASSES, Class, FEED, Proxy, Way};
use crate::server::Server;
use crate::stage::{Stage, World, pass, pass_while};
use crate::traps::{Trap, assert_harmless};

/// A standby that nobody has is waited for by the checker's commits alone, and by those only where it is named.
const SETTINGS: [(&str, &str); 1] = [("synchronous_commit", "local")];
const WRITER: &str = "writer";

/// A server and the way to it.
struct Postgres {
    // Cut before the server goes.
    proxy: Proxy,
    server: Server,
}

impl Stage for Postgres {
    fn start() -> Self {
        let server = Server::start(&SETTINGS);
        server
            .batch(&format!("CREATE ROLE {WRITER} SUPERUSER LOGIN; ALTER ROLE {WRITER} SET synchronous_commit = 'on'"));
        Self { proxy: Proxy::start(server.port()), server }
    }

    fn config(&self) -> Config {
        granting(Config::over(&self.proxy.url())).set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.server.url_for(WRITER, "postgres")
    }
}

type Over = World<Postgres>;

fn proxy(world: &Over) -> &Proxy {
    &world.stage.proxy
}

fn calm(world: &mut Over) {
    proxy(world).calm();
}

const FAULTS: [Fault<Postgres>; 9] = [
    Fault {
        name: "database killed",
        is_a_loss: true,
        // Writers are cut off in the middle of their commits.
        begin: |world| world.stage.server.kill9(),
        end: |world| world.stage.server.restart(),
    },
    Fault { name: "connections cut", is_a_loss: true, begin: |world| proxy(world).cut(&CLASSES), end: calm },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |world| proxy(world).delay(&[Class::Readers], &BOTH, Duration::from_millis(50)),
        end: calm,
    },
    Fault {
        name: "reads held",
        is_a_loss: false,
        begin: |world| proxy(world).hold(&[Class::Readers], &BOTH),
        end: calm,
    },
    Fault {
        name: "feed delayed",
        is_a_loss: false,
        begin: |world| proxy(world).delay(&[Class::Replication], &[Way::ToService], Duration::from_millis(1500)),
        end: calm,
    },
    Fault {
        name: "feed held",
        is_a_loss: false,
        begin: |world| proxy(world).hold(&[Class::Replication], &[Way::ToService]),
        end: calm,
    },
    Fault { name: "feed refused", is_a_loss: true, begin: refuse_feed, end: calm },
    Fault {
        name: "slot lost",
        is_a_loss: true,
        // It lives as long as its session.
        begin: |world| world.stage.server.batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication"),
        end: calm,
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |world| world.stage.server.pause(),
        end: |world| world.stage.server.resume(),
    },
];

fn refuse_feed(world: &mut Over) {
    proxy(world).refuse(&FEED, true);
    proxy(world).cut(&FEED);
}

const TRAPS: [Trap<Postgres>; 4] = [
    Trap { fixes: "lease,fence", spring: late_answers },
    Trap { fixes: "fence", spring: hidden_commits },
    Trap { fixes: "epoch", spring: changes_without_a_feed },
    Trap { fixes: "probe", spring: late_stream },
];

/// Race A: rows are read, changed, and only then arrive.
fn late_answers(world: &mut Over) {
    proxy(world).delay(&[Class::Readers], &[Way::ToService], Duration::from_millis(5));
    pass(Duration::from_millis(500));
    calm(world);
}

/// Race B: commits are delivered and wait, invisible, for a standby that there is not.
fn hidden_commits(world: &mut Over) {
    world.stage.server.set(&[("synchronous_standby_names", "nobody")]);
    pass(Duration::from_millis(50));
    world.stage.server.set(&[("synchronous_standby_names", "")]);
}

/// Loss: what changes meanwhile no feed will ever tell. Over before the bound, so that entries are still good.
fn changes_without_a_feed(world: &mut Over) {
    refuse_feed(world);
    pass(Duration::from_millis(100));
    calm(world);
    world.one.await_ready();
    pass(Duration::from_millis(200));
}

/// Staleness: the stream is late, steadily, by more than the bound.
fn late_stream(world: &mut Over) {
    proxy(world).delay(&[Class::Replication], &[Way::ToService], Duration::from_millis(1500));
    pass(Duration::from_millis(2500));
    calm(world);
}

#[test]
fn what_the_fixes_are_for_does_no_harm() {
    assert_harmless(&TRAPS);
}

#[cfg(feature = "sabotage")]
mod taken_out {
    use super::TRAPS;
    use crate::traps::assert_found;

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
    let world = World::<Postgres>::alone(&[]);
    let mut checker = world.check_at_work(&["-d", "6s", "--rate", "200"]);
    while checker.runs() {
        proxy(&world).cut(&FEED);
        pass_while(&mut checker, Duration::from_millis(700));
        proxy(&world).cut(&[Class::Readers]);
        pass_while(&mut checker, Duration::from_millis(700));
        // A checker that compares at the end waits until the feed is back.
        if world.losses() >= 3.0 {
            break;
        }
    }
    let report = checker.ended(Duration::from_secs(6)).assert_kept(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&world.one);
    assert!(report["feed_losses"][0].as_u64() > Some(0), "cut connections are losses: {report:#}");
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_whatever_breaks_around_it() {
    assert_writers_were_hit(&endure(&FAULTS));
}
