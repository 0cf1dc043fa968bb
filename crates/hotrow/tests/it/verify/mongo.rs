//! The stand-in for MongoDB (docs/mongodb.md states its limits). Its switches replace a proxy: they
//! delay, hold and cut each command. The checker writes to the same members, so it is disturbed
//! too.

use std::time::Duration;

use crate::verify::checker::{
    ALL_RULES, assert_all_rules, assert_self_checked, with_all_capabilities,
};
use crate::verify::faults::{Fault, assert_writers_were_interrupted, run_faults};
use crate::verify::stage::{Deployment, Stage, pass_while, wait_for};
use crate::verify::standin::{Failure, Kind, Standin, Trouble};
use crate::verify::traps::{Trap, assert_harmless};
use hotrow_testkit::harness::Config;

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
        with_all_capabilities(Config::over(&self.database()))
            .set("collections.verified.key", "\"_id\"")
            .set("source.connect_timeout", "\"2s\"")
    }

    fn database(&self) -> String {
        self.standin.url("shop")
    }
}

type Fixture = Deployment<Mongo>;

fn standin(deployment: &Fixture) -> &Standin {
    &deployment.stage.standin
}

fn restore_normal(deployment: &mut Fixture) {
    COMMANDS.into_iter().for_each(|command| standin(deployment).calm(command));
}

const FAULTS: [Fault<Mongo>; 11] = [
    Fault {
        name: "primary killed",
        is_a_loss: false,
        begin: |deployment| {
            let other = deployment.stage.other();
            deployment.stage.standin.stop(deployment.stage.primary);
            standin(deployment).elect(other);
        },
        end: |deployment| {
            deployment.stage.standin.restart(deployment.stage.primary);
            deployment.stage.primary = deployment.stage.other();
        },
    },
    Fault {
        name: "another primary",
        is_a_loss: false,
        begin: |deployment| {
            deployment.stage.primary = deployment.stage.other();
            standin(deployment).elect(deployment.stage.primary);
        },
        end: restore_normal,
    },
    Fault {
        name: "connections cut",
        is_a_loss: false,
        begin: |deployment| standin(deployment).cut(None),
        end: restore_normal,
    },
    Fault {
        name: "connections refused",
        is_a_loss: false,
        begin: |deployment| {
            standin(deployment).refuse_connections(true);
            standin(deployment).cut(None);
        },
        end: |deployment| standin(deployment).refuse_connections(false),
    },
    Fault {
        name: "reads delayed",
        is_a_loss: false,
        begin: |deployment| {
            standin(deployment).trouble("find", Trouble::Delay(Duration::from_millis(50)))
        },
        end: restore_normal,
    },
    Fault {
        name: "reads held",
        is_a_loss: false,
        begin: |deployment| standin(deployment).trouble("find", Trouble::Hold),
        end: restore_normal,
    },
    Fault {
        name: "stream delayed",
        is_a_loss: false,
        begin: |deployment| {
            standin(deployment).trouble("getMore", Trouble::Delay(Duration::from_millis(1500)))
        },
        end: restore_normal,
    },
    Fault {
        name: "stream held",
        is_a_loss: false,
        begin: |deployment| standin(deployment).trouble("getMore", Trouble::Hold),
        end: restore_normal,
    },
    Fault {
        name: "resume token lost",
        is_a_loss: true,
        begin: take_stream,
        end: |deployment| {
            standin(deployment).prune_oplog();
            restore_normal(deployment);
        },
    },
    Fault {
        name: "visibility held",
        is_a_loss: false,
        begin: |deployment| standin(deployment).hold_visibility(),
        end: |deployment| standin(deployment).release_visibility(),
    },
    Fault {
        name: "database stopped",
        is_a_loss: false,
        begin: |deployment| standin(deployment).trouble("*", Trouble::Hold),
        end: restore_normal,
    },
];

/// Ends streams and refuses new ones, like a server in shutdown.
fn take_stream(deployment: &mut Fixture) {
    let failure =
        Failure::new(91, "ShutdownInProgress", "not now").labelled("ResumableChangeStreamError");
    standin(deployment).trouble("watch", Trouble::Fail(failure.clone()));
    standin(deployment).trouble("getMore", Trouble::Fail(failure));
}

const TRAPS: [Trap<Mongo>; 4] = [
    Trap { safeguards: "lease,fence", trigger: late_answers },
    Trap { safeguards: "fence", trigger: hidden_commits },
    Trap { safeguards: "epoch", trigger: changes_without_a_stream },
    Trap { safeguards: "probe", trigger: late_stream },
];

/// Race A: documents are read, then changed, and only then arrive.
fn late_answers(deployment: &mut Fixture) {
    standin(deployment).trouble("find", Trouble::Delay(Duration::from_millis(5)));
    wait_for(Duration::from_millis(500));
    restore_normal(deployment);
}

/// Race B: changes are in the stream, and majority reads do not see them yet.
fn hidden_commits(deployment: &mut Fixture) {
    standin(deployment).hold_visibility();
    wait_for(Duration::from_millis(50));
    standin(deployment).release_visibility();
    wait_for(Duration::from_millis(50));
}

/// Loss: the oplog discards the changes, so no stream delivers them. Shorter than the bound, so
/// entries are still fresh.
fn changes_without_a_stream(deployment: &mut Fixture) {
    take_stream(deployment);
    wait_for(Duration::from_millis(100));
    standin(deployment).prune_oplog();
    restore_normal(deployment);
    deployment.one.await_ready();
    wait_for(Duration::from_millis(200));
}

/// Staleness: the stream is steadily later than the bound.
fn late_stream(deployment: &mut Fixture) {
    standin(deployment).trouble("getMore", Trouble::Delay(Duration::from_millis(1500)));
    wait_for(Duration::from_millis(4000));
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
fn a_sound_service_passes_while_its_deployment_is_disturbed() {
    let mut deployment = Deployment::<Mongo>::alone(&[]);
    let mut checker = deployment.check(&["-d", "6s", "--rate", "150", "--keys", "300"]);
    for _ in 0..2 {
        pass_while(&mut checker, Duration::from_millis(1200));
        // Writers lose their connections too, some during a write.
        standin(&deployment).cut(None);
        pass_while(&mut checker, Duration::from_millis(1200));
        deployment.stage.standin.stop(0);
        deployment.stage.standin.restart(0);
    }
    let report = checker.ended(Duration::from_secs(6)).assert_passed(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&deployment.one);
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_under_every_fault() {
    assert_writers_were_interrupted(&run_faults(&FAULTS));
}
