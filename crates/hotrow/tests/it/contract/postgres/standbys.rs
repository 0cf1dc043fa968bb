//! Contract over a primary with standbys that answer reads: disturbances of the standbys beside
//! those of the primary.

use std::collections::BTreeMap;

use crate::backend::Backend;
use crate::backend::postgres::Postgres;
use crate::contract::disturbances::{Disturbance, of_connections, of_processes};
use crate::contract::engine::Engine;
use crate::contract::mixed;
use crate::contract::networked::{Networked, disturbs_its_server};
use crate::contract::postgres::session::PostgresSession;
use crate::contract::run::{Plan, Trial};
use crate::contract::sql::of_tables;
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_testkit::postgres::{ROLE, Server, Stop};
use serde_json::{Value, json};

/// Queries that standbys answer in a short run, at least.
const STANDBY_READS_MIN: f64 = 300.0;

/// A primary with its proxy, and its standbys.
pub(crate) struct Replicated {
    primary: Postgres,
    standbys: Vec<Server>,
}

#[test]
fn contract_holds_while_standbys_answer_reads() {
    mixed::contract_holds_under_every_disturbance::<Replicated>();
}

#[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
#[test]
fn contract_holds_in_a_long_run_while_standbys_answer_reads() {
    mixed::contract_holds_in_a_long_run::<Replicated>();
}

impl Engine for Replicated {
    type Database = Self;
    type Session = PostgresSession;

    const TOKENS_ARE_EXACT: bool = Postgres::TOKENS_ARE_EXACT;
    const RESTARTS_END_TOKENS: bool = Postgres::RESTARTS_END_TOKENS;

    fn create(plan: &Plan) -> Self {
        let primary = <Postgres as Engine>::create(plan);
        primary.server.batch("GRANT pg_read_all_stats TO hotrow");
        // A query in the way of the replay is cancelled soon.
        let settings = [("max_standby_streaming_delay", "20ms")];
        let standbys = vec![primary.server.standby(&settings), primary.server.standby(&settings)];
        Self { primary, standbys }
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        let urls: Vec<String> = database
            .standbys
            .iter()
            .map(|standby| format!("{:?}", standby.url_for(ROLE, "postgres")))
            .collect();
        let config = <Postgres as Engine>::config(&database.primary, plan);
        config.set("source.read_urls", &format!("[{}]", urls.join(", ")))
    }

    fn session(database: &Self, plan: &Plan) -> PostgresSession {
        <Postgres as Engine>::session(&database.primary, plan)
    }

    fn rows(database: &Self) -> BTreeMap<u32, u64> {
        <Postgres as Engine>::rows(&database.primary)
    }
}

impl Networked for Replicated {
    const NAME: &str = "postgres-standbys";
    const HIDES_ONE_SESSION: bool = Postgres::HIDES_ONE_SESSION;

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_connections();
        all.extend(of_processes());
        all.extend(of_tables());
        all.extend(of_standbys());
        all
    }

    fn own_disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_processes();
        all.extend(of_standbys());
        all
    }

    fn after_mixed_run(run: &Trial<Self>, summary: &mut Value) {
        let sum = |name: &str, labels: &[(&str, &str)]| {
            run.servers.iter().map(|server| server.metrics().sum(name, labels)).sum::<f64>()
        };
        let reads = sum("hotrow_standby_reads_total", &[]);
        let refusals = |reason: &str| sum("hotrow_standby_refusals_total", &[("reason", reason)]);
        let reasons = ["behind", "feed_behind", "not_streaming", "unreachable", "timeout"];
        let refused: BTreeMap<&str, f64> =
            reasons.into_iter().map(|reason| (reason, refusals(reason))).collect();
        summary["standbys"] = json!({ "reads": reads, "refused": refused });
        assert!(reads >= STANDBY_READS_MIN, "standbys answered {reads} queries: {summary:#}");
        assert!(refused["behind"] > 0.0, "{refused:?}");
    }

    fn incarnation(&self) -> Option<u64> {
        self.primary.incarnation()
    }

    fn log_end(&self) -> u64 {
        self.primary.log_end()
    }

    fn hidden_session(&self) -> (PostgresSession, impl FnMut() -> bool) {
        self.primary.hidden_session()
    }
}

/// Runs statements until none of them is cancelled because it was in the way of the replay.
#[track_caller]
fn insist(standby: &Server, sql: &str) {
    await_until(sql, SOON, || standby.try_query(sql).is_ok());
}

fn of_standbys() -> Vec<Disturbance<Replicated>> {
    vec![
        Disturbance {
            name: "replay paused",
            ends_the_feed: false,
            begin: |run, _, random| {
                let n = random.below(run.database.standbys.len() as u64) as usize;
                insist(&run.database.standbys[n], "SELECT pg_wal_replay_pause()");
            },
            end: |run, _| {
                for standby in &run.database.standbys {
                    insist(standby, "SELECT pg_wal_replay_resume()");
                }
            },
        },
        Disturbance {
            name: "replay late",
            ends_the_feed: false,
            begin: |run, _, _| {
                let sql = "ALTER SYSTEM SET recovery_min_apply_delay = '150ms'; \
                    SELECT pg_reload_conf()";
                insist(&run.database.standbys[0], sql);
            },
            end: |run, _| {
                let sql = "ALTER SYSTEM RESET recovery_min_apply_delay; SELECT pg_reload_conf()";
                insist(&run.database.standbys[0], sql);
            },
        },
        Disturbance {
            name: "standby killed",
            ends_the_feed: false,
            begin: |run, _, _| run.database.standbys[1].kill9(),
            end: |run, _| run.database.standbys[1].restart(),
        },
        Disturbance {
            name: "standby restarted",
            ends_the_feed: false,
            begin: |run, _, _| run.database.standbys[0].stop(Stop::Immediate),
            end: |run, _| run.database.standbys[0].restart(),
        },
        Disturbance {
            name: "standby stopped in mid-flight",
            ends_the_feed: false,
            begin: |run, _, _| run.database.standbys[0].pause(),
            end: |run, _| run.database.standbys[0].resume(),
        },
        // The commits of all writers wait for a standby that replays them before they are visible.
        Disturbance {
            name: "standby synchronous",
            ends_the_feed: false,
            begin: |run, _, _| {
                let server = &run.database.primary.server;
                server.set(&[
                    ("synchronous_commit", "on"),
                    ("synchronous_standby_names", "ANY 1 (*)"),
                ]);
            },
            end: |run, _| {
                let server = &run.database.primary.server;
                server.set(&[("synchronous_standby_names", ""), ("synchronous_commit", "local")]);
            },
        },
    ]
}

impl Backend for Replicated {
    const FEED_RESUMES: bool = Postgres::FEED_RESUMES;

    disturbs_its_server!(primary);

    fn start() -> Self {
        Self { primary: Postgres::start(), standbys: Vec::new() }
    }

    fn config(&self) -> Config {
        Backend::config(&self.primary)
    }

    fn clear_faults(&self) {
        self.primary.clear_faults();
    }

    fn restart(&mut self) {
        self.primary.restart();
        await_until("the standbys to stream", SOON, || {
            let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' \
                AND application_name = 'walreceiver'";
            self.primary.server.try_query(streaming).is_ok_and(|count| count == "2")
        });
    }
}
