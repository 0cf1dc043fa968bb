//! Over the stand-in for MongoDB (see docs/mongodb.md for what it cannot show). Its switches stand for a proxy: they delay,
//! hold and cut each command by itself. The checker writes to the same members, so that it is disturbed too.

use std::time::Duration;

use crate::checker::{ALL_RULES, assert_all_rules, assert_self_checked, granting};
use crate::faults::{Fault, assert_writers_were_hit, endure};
use crate::harness::Config;
use crate::stage::{Stage, World, pass, pass_while};
use crate::standin::{Failure, Kind, Standin, Trouble};
use crate::traps::{Trap, assert_harmless};

/// Members of the set.
const MEMBERS: usize = 2;
/// Commands that are disturbed.
const COMMANDS: [&str; 4] = ["getMore", "watch", "find", "*"];

/// A replica set.
struct Mongo {
    standin: Standin,
    primary: usize,
}

impl Mongo {
    fn other(&self) -> usize {
        (self.primary + 1) % MEMBERS
    }
}

impl Stage for Mongo {
    fn start() -> Self {
        Self { standin: Standin::of(Kind::ReplicaSet, MEMBERS), primary: 0 }
    }

    fn config(&self) -> Config {
        granting(Config::over(&self.database()))
            .set("collections.verified.key", "\"_id\"")
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.standin.url("shop")
    }
}

type Over = World<Mongo>;

fn standin(world: &Over) -> &Standin {
    &world.stage.standin
}

fn calm(world: &mut Over) {
    COMMANDS.into_iter().for_each(|command| standin(world).calm(command));
}

const FAULTS: [Fault<Mongo>; 11] = [
    Fault {
        name: "primary killed",
        is_a_loss: false,
        begin: |world| {
            let other = world.stage.other();
            world.stage.standin.stop(world.stage.primary);
            standin(world).elect(other);
        },
        end: |world| {
            world.stage.standin.restart(world.stage.primary);
            world.stage.primary = world.stage.other();
        },
    },
    Fault {
        name: "another primary",
        is_a_loss: false,
        begin: |world| {
            world.stage.primary = world.stage.other();
            standin(world).elect(world.stage.primary);
        },
        end: calm,
    },
    Fault { name: "connections cut", is_a_loss: false, begin: |world| standin(world).cut(None), end: calm },
    Fault {
        name: "connections refused",
        is_a_loss: false,
        begin: |world| {
            standin(world).refuse_connections(true);
            standin(world).cut(None);
        },
        end: |world| standin(world).refuse_connections(false),
    },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |world| standin(world).trouble("find", Trouble::Delay(Duration::from_millis(50))),
        end: calm,
    },
    Fault {
        name: "reads held",
        is_a_loss: false,
        begin: |world| standin(world).trouble("find", Trouble::Hold),
        end: calm,
    },
    Fault {
        name: "stream delayed",
        is_a_loss: false,
        begin: |world| standin(world).trouble("getMore", Trouble::Delay(Duration::from_millis(1500))),
        end: calm,
    },
    Fault {
        name: "stream held",
        is_a_loss: false,
        begin: |world| standin(world).trouble("getMore", Trouble::Hold),
        end: calm,
    },
    Fault {
        name: "resume token lost",
        is_a_loss: true,
        begin: take_stream,
        end: |world| {
            standin(world).prune_oplog();
            calm(world);
        },
    },
    Fault {
        name: "visibility held",
        is_a_loss: false,
        begin: |world| standin(world).hold_visibility(),
        end: |world| standin(world).release_visibility(),
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |world| standin(world).trouble("*", Trouble::Hold),
        end: calm,
    },
];

/// Streams end, and new ones are refused as by a server that shuts down.
fn take_stream(world: &mut Over) {
    let failure = Failure::new(91, "ShutdownInProgress", "not now").labelled("ResumableChangeStreamError");
    standin(world).trouble("watch", Trouble::Fail(failure.clone()));
    standin(world).trouble("getMore", Trouble::Fail(failure));
}

const TRAPS: [Trap<Mongo>; 4] = [
    Trap { fixes: "lease,fence", spring: late_answers },
    Trap { fixes: "fence", spring: hidden_commits },
    Trap { fixes: "epoch", spring: changes_without_a_stream },
    Trap { fixes: "probe", spring: late_stream },
];

/// Race A: documents are read, changed, and only then arrive.
fn late_answers(world: &mut Over) {
    standin(world).trouble("find", Trouble::Delay(Duration::from_millis(5)));
    pass(Duration::from_millis(500));
    calm(world);
}

/// Race B: changes are in the stream, and majority reads do not see them yet.
fn hidden_commits(world: &mut Over) {
    standin(world).hold_visibility();
    pass(Duration::from_millis(50));
    standin(world).release_visibility();
    pass(Duration::from_millis(50));
}

/// Loss: what changes meanwhile no stream will ever tell, for the oplog forgets it. Over before the bound, so that entries
/// are still good.
fn changes_without_a_stream(world: &mut Over) {
    take_stream(world);
    pass(Duration::from_millis(100));
    standin(world).prune_oplog();
    calm(world);
    world.one.await_ready();
    pass(Duration::from_millis(200));
}

/// Staleness: the stream is late, steadily, by more than the bound.
fn late_stream(world: &mut Over) {
    standin(world).trouble("getMore", Trouble::Delay(Duration::from_millis(1500)));
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
fn a_sound_service_passes_while_its_deployment_is_disturbed() {
    let mut world = World::<Mongo>::alone(&[]);
    let mut checker = world.check(&["-d", "6s", "--rate", "150", "--keys", "300"]);
    for _ in 0..2 {
        pass_while(&mut checker, Duration::from_millis(1200));
        // Writers too lose their connections, some in the middle of a write.
        standin(&world).cut(None);
        pass_while(&mut checker, Duration::from_millis(1200));
        world.stage.standin.stop(0);
        world.stage.standin.restart(0);
    }
    let report = checker.ended(Duration::from_secs(6)).assert_kept(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&world.one);
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_whatever_breaks_around_it() {
    assert_writers_were_hit(&endure(&FAULTS));
}
