//! Instances that read from standbys: standbys end and fall behind beside the primary.

use std::time::Duration;

use crate::backend::postgres::Postgres;
use crate::verify::checker::{ALL_RULES, MODEST, assert_all_rules};
use crate::verify::clock::Clock;
use crate::verify::faults::{Fault, HasPrimary, of_primary, run_faults};
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_testkit::postgres::{Server, Stop};
use serde_json::Value;

/// A primary and two standbys that answer reads.
struct Replicated {
    standbys: Vec<Server>,
    primary: Postgres,
}

impl Stage for Replicated {
    fn start() -> Self {
        let primary = <Postgres as Stage>::start();
        let settings = [("max_standby_streaming_delay", "20ms")];
        let standbys = vec![primary.server.standby(&settings), primary.server.standby(&settings)];
        Self { standbys, primary }
    }

    fn config(&self) -> Config {
        let url = |standby: &Server| format!("{:?}", standby.url());
        let urls: Vec<String> = self.standbys.iter().map(url).collect();
        let config = Stage::config(&self.primary);
        config.set("source.read_urls", &format!("[{}]", urls.join(", ")))
    }

    fn database(&self) -> String {
        self.primary.database()
    }
}

impl HasPrimary for Replicated {
    type Primary = Postgres;

    fn primary(&mut self) -> &mut Postgres {
        &mut self.primary
    }
}

/// Runs statements until none of them is cancelled because it was in the way of the replay.
#[track_caller]
fn insist(standby: &Server, sql: &str) {
    await_until(sql, SOON, || standby.try_query(sql).is_ok());
}

fn faults() -> Vec<Fault<Replicated>> {
    let own: Vec<Fault<Replicated>> = vec![
        Fault {
            name: "replay paused",
            is_a_loss: false,
            begin: |deployment| {
                insist(&deployment.stage.standbys[0], "SELECT pg_wal_replay_pause()");
            },
            end: |deployment| {
                insist(&deployment.stage.standbys[0], "SELECT pg_wal_replay_resume()");
            },
        },
        Fault {
            name: "standby killed",
            is_a_loss: false,
            begin: |deployment| deployment.stage.standbys[1].kill9(),
            end: |deployment| deployment.stage.standbys[1].restart(),
        },
        Fault {
            name: "standby restarted",
            is_a_loss: false,
            begin: |deployment| deployment.stage.standbys[0].stop(Stop::Immediate),
            end: |deployment| deployment.stage.standbys[0].restart(),
        },
        Fault {
            name: "standby stopped",
            is_a_loss: false,
            begin: |deployment| deployment.stage.standbys[0].pause(),
            end: |deployment| deployment.stage.standbys[0].resume(),
        },
    ];
    own.into_iter().chain(of_primary()).collect()
}

/// Asserts that standbys answered queries of each instance.
#[track_caller]
fn assert_covered(report: &Value) {
    let counts = report["standby_reads"].as_array().expect("a list");
    assert!(counts.iter().all(|n| n.as_u64() > Some(20)) && counts.len() == 2, "{report:#}");
}

#[test]
fn passes_while_standbys_end_and_fall_behind() {
    let mut deployment = Deployment::<Replicated>::of_two_by(Clock::real());
    let mut checker =
        deployment.check_at_work(&[&["-d", "6s", "--rate", "200"][..], &MODEST].concat());
    let shortly = Duration::from_millis(600);
    insist(&deployment.stage.standbys[0], "SELECT pg_wal_replay_pause()");
    pass_while(&mut checker, shortly);
    deployment.stage.standbys[1].stop(Stop::Immediate);
    pass_while(&mut checker, shortly);
    insist(&deployment.stage.standbys[0], "SELECT pg_wal_replay_resume()");
    deployment.stage.standbys[1].restart();
    let report = checker.ended(Duration::from_secs(6)).assert_passed(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_covered(&report);
}

#[ignore = "long: a minute of faults of every kind"]
#[test]
fn passes_under_every_fault_of_standbys() {
    assert_covered(&run_faults(&faults()));
}
