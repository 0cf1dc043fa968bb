//! Instances that follow a change hub: relays and NATS end beside the database and its connections.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::shop::hub::{await_leader, behind, relay, role};
use crate::verify::checker::{ALL_RULES, MODEST, assert_all_rules};
use crate::verify::clock::Clock;
use crate::verify::faults::{Fault, HasPrimary, of_primary, run_faults};
use crate::verify::network::NetworkStage;
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::{Config, SOON, Server, await_some};
use hotrow_testkit::nats::Nats;

/// A database whose instances follow a hub.
struct Hubbed<S> {
    // First, so that they end before their database.
    relays: Vec<Server>,
    nats: Nats,
    primary: S,
}

/// A database with a hub.
trait WithHub: NetworkStage {
    /// Lets the place of relays outlive them.
    fn keep_place(config: Config) -> Config;
}

impl WithHub for Postgres {
    fn keep_place(config: Config) -> Config {
        config.set("hub.slot", "\"relays\"")
    }
}

impl WithHub for Maria {
    fn keep_place(config: Config) -> Config {
        config
    }
}

impl<S: WithHub> Stage for Hubbed<S> {
    fn start() -> Self {
        Self { relays: Vec::new(), nats: Nats::start(""), primary: <S as Stage>::start() }
    }

    fn config(&self) -> Config {
        let config = behind(Stage::config(&self.primary), &self.nats);
        // Near caches there are, without broadcasts: changes are not followed behind a hub.
        S::keep_place(config)
            .set("hub.lease", "\"700ms\"")
            .set("collections.verified.changes", "false")
    }

    fn database(&self) -> String {
        self.primary.database()
    }

    fn table_created(&mut self) {
        let config = Stage::config(self);
        self.relays = vec![relay(&config), relay(&config)];
    }
}

impl<S: WithHub> HasPrimary for Hubbed<S> {
    type Primary = S;

    fn primary(&mut self) -> &mut S {
        &mut self.primary
    }
}

impl<S: WithHub> Hubbed<S> {
    /// Takes the relay that leads out of the list.
    #[track_caller]
    fn take_leader(&mut self) -> Server {
        let leader = await_some("a relay that leads", SOON, || {
            self.relays.iter().position(|relay| role(relay) == "leader")
        });
        self.relays.remove(leader)
    }

    fn start_relay(&mut self) {
        let config = Stage::config(self);
        self.relays.push(Server::start_relay(&config));
    }
}

fn faults<S: WithHub>() -> Vec<Fault<Hubbed<S>>> {
    let own: Vec<Fault<Hubbed<S>>> = vec![
        Fault {
            name: "leader killed",
            is_a_loss: false,
            begin: |deployment| deployment.stage.take_leader().signal(Signal::KILL),
            end: |deployment| deployment.stage.start_relay(),
        },
        Fault {
            name: "leader stopped",
            is_a_loss: false,
            begin: |deployment| {
                let leader = deployment.stage.take_leader();
                leader.stop();
                // Last: that which continues.
                deployment.stage.relays.push(leader);
            },
            end: |deployment| {
                let relays = &deployment.stage.relays;
                relays.last().expect("one was stopped").signal(Signal::CONT);
            },
        },
        Fault {
            name: "NATS killed",
            is_a_loss: false,
            begin: |deployment| deployment.stage.nats.kill(),
            end: |deployment| deployment.stage.nats.restart(),
        },
        Fault {
            name: "database stopped",
            is_a_loss: false,
            begin: |deployment| deployment.stage.primary.pause(),
            end: |deployment| deployment.stage.primary.resume(),
        },
    ];
    own.into_iter().chain(of_primary()).collect()
}

fn passes_while_relays_are_replaced<S: WithHub>() {
    let mut deployment = Deployment::<Hubbed<S>>::of_two_by(Clock::real());
    let mut checker =
        deployment.check_at_work(&[&["-d", "6s", "--rate", "200"][..], &MODEST].concat());
    for _ in 0..2 {
        pass_while(&mut checker, Duration::from_millis(500));
        deployment.stage.take_leader().signal(Signal::KILL);
        await_leader(&deployment.stage.relays[0]);
        deployment.stage.start_relay();
    }
    let report = checker.ended(Duration::from_secs(6)).assert_passed(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_eq!(report["feeds"], json!(["hub", "hub"]), "{report:#}");
    assert_eq!(report["feed_losses"], json!([0, 0]), "a take-over loses nothing: {report:#}");
}

fn passes_under_every_fault<S: WithHub>() {
    let report = run_faults(&faults::<S>());
    assert_eq!(report["feeds"], json!(["hub", "hub"]), "{report:#}");
}

checks! {
    postgres_passes_while_relays_are_replaced:
        passes_while_relays_are_replaced::<Postgres>();
    mariadb_passes_while_relays_are_replaced:
        passes_while_relays_are_replaced::<Maria>();
    #[ignore = "long: a minute of faults of every kind"]
    postgres_passes_under_every_fault:
        passes_under_every_fault::<Postgres>();
    #[ignore = "long: a minute of faults of every kind"]
    mariadb_passes_under_every_fault:
        passes_under_every_fault::<Maria>();
}
