//! Over MariaDB, with two proxies between it and the service, one for reads and one for the feed; the checker writes to the
//! server itself.

use std::time::Duration;

use crate::checker::{ALL_RULES, assert_all_rules, assert_self_checked, granting};
use crate::faults::{Fault, assert_writers_were_hit, endure};
use crate::harness::{Config, SOON, await_until};
use crate::maria::{Server, Stop};
use crate::proxy::{BOTH, CLASSES, Class, Proxy, Way};
use crate::stage::{Stage, World, pass, pass_while};
use crate::traps::{Trap, assert_harmless};

const SETTINGS: [(&str, &str); 4] = [
    // Commits must outlive the kill: else the database goes back, and answers with it.
    ("innodb-flush-log-at-trx-commit", "2"),
    // Where it is switched on, a commit that is in the log waits for a replica that there is not.
    ("rpl-semi-sync-master-wait-point", "AFTER_SYNC"),
    ("rpl-semi-sync-master-timeout", "3600000"),
    ("rpl-semi-sync-master-wait-no-slave", "ON"),
];
/// Streams that the server sends.
const STREAMS: &str = "SELECT id FROM information_schema.PROCESSLIST WHERE command = 'Binlog Dump'";

/// A server and the ways to it. All connections of a proxy are of one class, whichever.
struct Maria {
    // Cut before the server goes.
    reads: Proxy,
    feed: Proxy,
    server: Server,
}

impl Stage for Maria {
    fn start() -> Self {
        let server = Server::start(&SETTINGS);
        let proxy = || Proxy::plain(server.port(), Class::Readers);
        Self { reads: proxy(), feed: proxy(), server }
    }

    fn config(&self) -> Config {
        let url = |proxy: &Proxy| self.server.url_at("root", "", proxy.port());
        granting(Config::over(&url(&self.reads)))
            .set("source.feed_url", &format!("\"{}\"", url(&self.feed)))
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.server.url()
    }
}

type Over = World<Maria>;

fn calm(world: &mut Over) {
    world.stage.reads.calm();
    world.stage.feed.calm();
}

const FAULTS: [Fault<Maria>; 10] = [
    Fault {
        name: "database killed",
        is_a_loss: true,
        // Writers are cut off in the middle of their commits.
        begin: |world| world.stage.server.stop(Stop::Kill),
        end: |world| world.stage.server.restart(),
    },
    Fault {
        name: "connections cut",
        is_a_loss: true,
        begin: |world| {
            world.stage.reads.cut(&CLASSES);
            world.stage.feed.cut(&CLASSES);
        },
        end: calm,
    },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |world| world.stage.reads.delay(&CLASSES, &BOTH, Duration::from_millis(50)),
        end: calm,
    },
    Fault { name: "reads held", is_a_loss: false, begin: |world| world.stage.reads.hold(&CLASSES, &BOTH), end: calm },
    Fault {
        name: "feed delayed",
        is_a_loss: false,
        begin: |world| world.stage.feed.delay(&CLASSES, &[Way::ToService], Duration::from_millis(1500)),
        end: calm,
    },
    Fault {
        name: "feed held",
        is_a_loss: false,
        begin: |world| world.stage.feed.hold(&CLASSES, &[Way::ToService]),
        end: calm,
    },
    Fault { name: "feed refused", is_a_loss: true, begin: refuse_feed, end: calm },
    Fault { name: "stream killed", is_a_loss: true, begin: |world| kill_streams(world), end: calm },
    Fault {
        name: "binlog purged",
        is_a_loss: true,
        begin: |world| {
            refuse_feed(world);
            purge_binlog(world);
        },
        end: |world| {
            // What was written meanwhile goes too.
            purge_binlog(world);
            calm(world);
        },
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |world| world.stage.server.pause(),
        end: |world| world.stage.server.resume(),
    },
];

fn refuse_feed(world: &mut Over) {
    world.stage.feed.refuse(&CLASSES, true);
    world.stage.feed.cut(&CLASSES);
}

fn kill_streams(world: &Over) {
    for id in world.stage.server.query(STREAMS).lines() {
        // It may have ended by itself.
        _ = world.stage.server.try_query(&format!("KILL {id}"));
    }
}

/// Throws away all of the log but a new, empty file.
fn purge_binlog(world: &Over) {
    let server = &world.stage.server;
    server.batch("FLUSH BINARY LOGS");
    let newest = server.query("SHOW MASTER STATUS");
    let file = newest.split('\t').next().expect("a file");
    // A file that is being sent is not thrown away, and the server notices late that nobody listens.
    await_until("older files to go", SOON, || {
        kill_streams(world);
        server.batch(&format!("PURGE BINARY LOGS TO '{file}'"));
        server.query("SHOW BINARY LOGS").starts_with(file)
    });
}

const TRAPS: [Trap<Maria>; 4] = [
    Trap { fixes: "lease,fence", spring: late_answers },
    Trap { fixes: "fence", spring: hidden_commits },
    Trap { fixes: "epoch", spring: changes_without_a_feed },
    Trap { fixes: "probe", spring: late_stream },
];

/// Race A: rows are read, changed, and only then arrive.
fn late_answers(world: &mut Over) {
    world.stage.reads.delay(&CLASSES, &[Way::ToService], Duration::from_millis(5));
    pass(Duration::from_millis(500));
    calm(world);
}

/// Race B: commits are delivered and wait, invisible, for a replica that there is not.
fn hidden_commits(world: &mut Over) {
    world.stage.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = ON");
    pass(Duration::from_millis(50));
    world.stage.server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
}

/// Loss: the feed begins anew at the log's end, and what changed meanwhile it never tells. Over before the bound, so that
/// entries are still good.
fn changes_without_a_feed(world: &mut Over) {
    refuse_feed(world);
    pass(Duration::from_millis(100));
    calm(world);
    world.one.await_ready();
    pass(Duration::from_millis(200));
}

/// Staleness: all that the feed hears is late, steadily, by more than the bound.
fn late_stream(world: &mut Over) {
    world.stage.feed.delay(&CLASSES, &[Way::ToService], Duration::from_millis(1500));
    pass(Duration::from_millis(4000));
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
fn a_sound_service_passes_while_its_server_is_killed() {
    let mut world = World::<Maria>::alone(&[]);
    let mut checker = world.check_at_work(&["-d", "8s", "--rate", "150", "--keys", "300"]);
    // Of writing there is some before and some after.
    pass_while(&mut checker, Duration::from_secs(2));
    assert!(checker.runs(), "it ended too early");
    // Writers are cut off in the middle of their transactions.
    world.stage.server.stop(Stop::Kill);
    world.stage.server.restart();
    let report = checker.ended(Duration::from_secs(8)).assert_kept(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&world.one);
    assert_writers_were_hit(&report);
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_whatever_breaks_around_it() {
    assert_writers_were_hit(&endure(&FAULTS));
}
