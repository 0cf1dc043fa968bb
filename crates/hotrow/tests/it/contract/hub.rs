//! Contract through the change hub, over any engine that has one: two relays whose place in the log
//! outlives them, NATS behind proxies, and instances that follow the stream. NATS is killed,
//! partitioned, delayed and emptied; relays are killed, paused, doubled and replaced; all beside
//! the disturbances of the database.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::contract::disturbances::{Disturbance, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{Networked, disturbs_its_server};
use crate::contract::run::{Plan, Trial};
use crate::contract::sql::{SqlSession, of_tables};
use hotrow_testkit::harness::{Config, SOON, Server, await_some, await_until};
use hotrow_testkit::nats::Nats;
use hotrow_testkit::proxy::{BOTH, CLASSES, Class, Direction, Proxy};

/// Messages by which a stream must outgrow its former length.
const MORE_MESSAGES: u64 = 3;
/// More messages than a relay writes until it is stopped.
const UNDER_WAY_MAX: u64 = 20;
/// Delay of messages that are late.
const LATE: Duration = Duration::from_millis(150);

/// An engine with a change hub.
pub(crate) trait BehindHub: Networked<Session: SqlSession> {
    /// Name of its runs in saved results.
    const HUB_NAME: &str;

    /// Adapts the configuration of the relays, so that their place outlives them.
    fn relay_config(config: Config) -> Config;

    /// Returns the disturbances of the relays' place and stream.
    fn of_place() -> Vec<Disturbance<Hubbed<Self>>>;

    /// Returns the disturbances of the short form. Those of NATS do not depend on the database.
    fn of_short_form() -> Vec<Disturbance<Hubbed<Self>>>;
}

/// A database, NATS, and the relays between them.
pub(crate) struct Hubbed<E> {
    pub(crate) primary: E,
    /// Connections of the instances with NATS.
    of_instances: Proxy,
    /// Connections of the relays with NATS.
    of_relays: Proxy,
    nats: Nats,
    relays: Vec<Server>,
    relay_config: Config,
}

fn address(proxy: &Proxy) -> String {
    format!("\"nats://127.0.0.1:{}\"", proxy.port())
}

fn with_failpoints(config: Config, failpoints: &str) -> Config {
    if failpoints.is_empty() { config } else { config.failpoint(failpoints.to_owned()) }
}

impl<E> Hubbed<E> {
    fn start_relay(&mut self) {
        let relay = Server::start_relay(&self.relay_config);
        self.relays.push(relay);
    }

    /// Returns the index of the relay that leads.
    #[track_caller]
    fn leader(&self) -> usize {
        await_some("a relay that leads", SOON, || {
            self.relays.iter().position(|relay| relay.status()["role"] == "leader")
        })
    }

    /// Replaces the relays by two that run with these failpoints, if any, and with this lease. The
    /// first leads.
    pub(crate) fn with_relays(&mut self, failpoints: &str, lease: &str) {
        self.stop_relays();
        let config = self.relay_config.clone().set("hub.lease", &format!("{lease:?}"));
        self.relay_config = with_failpoints(config, failpoints);
        self.start_ready_relay();
        self.start_relay();
    }

    /// Like [`Self::with_relays`]; only the first has the failpoint, and its connections with NATS
    /// are those of the proxy that is returned.
    pub(crate) fn with_leader_apart(&mut self, failpoint: &str, lease: &str) -> Proxy {
        self.stop_relays();
        let network = Proxy::plain(self.nats.port(), Class::Replication);
        self.relay_config = self.relay_config.clone().set("hub.lease", &format!("{lease:?}"));
        let config = self.relay_config.clone().set("source.feed", &address(&network));
        let leader = Server::start_relay(&with_failpoints(config, failpoint));
        leader.await_ready();
        self.relays.push(leader);
        self.start_relay();
        network
    }

    fn stop_relays(&mut self) {
        for relay in self.relays.drain(..) {
            relay.signal(Signal::TERM);
            assert_eq!(relay.ended(SOON).code(), 0);
        }
    }

    /// Kills all relays.
    pub(crate) fn kill_relays(&mut self) {
        self.relays.drain(..).for_each(|relay| relay.signal(Signal::KILL));
    }

    /// Kills the relay that leads, and waits until another one publishes.
    #[track_caller]
    pub(crate) fn kill_leader(&mut self) {
        let leader = self.leader();
        self.relays.remove(leader).signal(Signal::KILL);
        let other = self.leader();
        self.relays[other].await_ready();
    }

    /// Starts a relay, and waits until it publishes.
    #[track_caller]
    pub(crate) fn start_ready_relay(&mut self) {
        self.start_relay();
        let newest = self.relays.last().expect("just started");
        await_until("the relay to lead", SOON, || newest.status()["role"] == "leader");
        newest.await_ready();
    }

    /// Stops the first relay (SIGSTOP) with messages of its chain under way, and waits until the
    /// second publishes.
    #[track_caller]
    pub(crate) fn pause_leader(&self, network: &Proxy) {
        network.hold(&CLASSES, &[Direction::ToServer]);
        self.await_messages(0, MORE_MESSAGES);
        self.relays[0].stop();
        await_until("the take-over", SOON, || self.relays[1].status()["role"] == "leader");
        self.relays[1].await_ready();
        // More than are under way: each of those expects another sequence, and one that the stream
        // ends with by chance would be stored.
        self.await_messages(1, UNDER_WAY_MAX);
    }

    /// Continues the first relay, whose messages then arrive, and waits until it stands by.
    #[track_caller]
    pub(crate) fn wake_first(&self, network: &Proxy) {
        network.clear_faults();
        self.relays[0].signal(Signal::CONT);
        await_until("it to stand by", SOON, || self.relays[0].status()["role"] == "standby");
    }

    /// Waits until a relay has written this many more messages.
    #[track_caller]
    pub(crate) fn await_messages(&self, relay: usize, more: u64) {
        let written = || self.relays[relay].status()["messages"].as_u64().expect("a number");
        let goal = written() + more;
        await_until("more messages", SOON, || written() >= goal);
    }

    /// Returns the logs of the relays.
    pub(crate) fn relay_logs(&self) -> String {
        self.relays.iter().map(Server::log).collect::<Vec<_>>().join("\n")
    }

    /// Lets no message of a relay reach NATS.
    pub(crate) fn mute_relays(&self) {
        self.of_relays.hold(&CLASSES, &[Direction::ToServer]);
    }

    /// Kills the relay that leads, and lets messages reach NATS again.
    pub(crate) fn kill_muted_leader(&mut self) {
        let leader = self.leader();
        self.relays.remove(leader).signal(Signal::KILL);
        self.drop_muted();
    }

    /// Drops the messages that did not reach NATS, and lets others reach it.
    pub(crate) fn drop_muted(&self) {
        self.of_relays.cut(&CLASSES);
        self.of_relays.clear_faults();
    }

    /// Restarts NATS. Returns what it had stored at its end.
    pub(crate) fn restart_nats(&mut self) -> TempDir {
        self.nats.kill();
        let saved = self.nats.save();
        self.nats.restart();
        saved
    }

    /// Restarts NATS as it was before, with the instances apart from it: the stream has lost its
    /// end. Returns the last sequence that it had.
    pub(crate) fn begin_rewind(&mut self, saved: &TempDir) -> u64 {
        let end = self.stream_end();
        self.of_instances.hold(&CLASSES, &BOTH);
        self.nats.kill();
        self.nats.restore(saved);
        self.nats.restart();
        end
    }

    /// Lets the instances see NATS again once the stream is longer than it was.
    #[track_caller]
    pub(crate) fn end_rewind(&self, end: u64) {
        await_until("the stream to be longer than before", SOON, || {
            self.stream_end() > end + MORE_MESSAGES
        });
        self.of_instances.cut(&CLASSES);
        self.of_instances.clear_faults();
    }

    fn stream_end(&self) -> u64 {
        let answer = self.nats.request("$JS.API.STREAM.INFO.hotrow", "");
        let info: Value = serde_json::from_str(&answer).expect("JSON of JetStream");
        info["state"]["last_seq"].as_u64().expect("the last sequence")
    }

    /// Asks JetStream for something that it must do.
    #[track_caller]
    fn insist(&self, subject: &str) {
        let answer = self.nats.request(subject, "");
        assert!(answer.contains("\"success\":true"), "{answer}");
    }
}

impl<E: BehindHub> Engine for Hubbed<E> {
    type Database = Self;
    type Session = E::Session;

    const TOKENS_ARE_EXACT: bool = E::TOKENS_ARE_EXACT;
    const RESTARTS_END_TOKENS: bool = E::RESTARTS_END_TOKENS;

    fn create(plan: &Plan) -> Self {
        let primary = <E as Engine>::create(plan);
        let nats = Nats::start("");
        let proxy = || Proxy::plain(nats.port(), Class::Replication);
        let (of_instances, of_relays) = (proxy(), proxy());
        let relay_config = E::relay_config(<E as Engine>::config(&primary, plan))
            .collection("items")
            .set("source.feed", &address(&of_relays))
            .set("hub.lease", "\"700ms\"")
            .set("cache.max_staleness", &format!("\"{}ms\"", plan.max_staleness.as_millis()));
        let relays = Vec::new();
        let mut hub = Self { primary, of_instances, of_relays, nats, relays, relay_config };
        hub.start_relay();
        hub.start_relay();
        hub
    }

    fn config(database: &Self, plan: &Plan) -> Config {
        let config = <E as Engine>::config(&database.primary, plan);
        config.set("source.feed", &address(&database.of_instances))
    }

    fn session(database: &Self, plan: &Plan) -> E::Session {
        <E as Engine>::session(&database.primary, plan)
    }

    fn rows(database: &Self) -> BTreeMap<u32, u64> {
        <E as Engine>::rows(&database.primary)
    }
}

impl<E: BehindHub> Networked for Hubbed<E> {
    const NAME: &str = E::HUB_NAME;
    const HIDES_ONE_SESSION: bool = E::HIDES_ONE_SESSION;

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_processes();
        all.extend(of_tables());
        all.extend(of_nats());
        all.extend(of_relays());
        all.extend(E::of_place());
        all.push(Disturbance::calmed("all cut", true, |run, _, _| run.database.cut()));
        all
    }

    fn own_disturbances() -> Vec<Disturbance<Self>> {
        E::of_short_form()
    }

    fn after_mixed_run(run: &Trial<Self>, summary: &mut Value) {
        let sum = |name: &str| {
            run.database.relays.iter().map(|relay| relay.metrics().sum(name, &[])).sum::<f64>()
        };
        summary["relays"] = json!({
            "chains": sum("hotrow_relay_chains_total"),
            "continued": sum("hotrow_relay_chains_continued_total"),
        });
    }

    fn incarnation(&self) -> Option<u64> {
        self.primary.incarnation()
    }

    fn log_end(&self) -> u64 {
        self.primary.log_end()
    }

    fn hidden_session(&self) -> (E::Session, impl FnMut() -> bool) {
        self.primary.hidden_session()
    }
}

pub(crate) fn of_nats<E: BehindHub>() -> Vec<Disturbance<Hubbed<E>>> {
    vec![
        Disturbance {
            name: "nats killed",
            ends_the_feed: false,
            begin: |run, _, _| run.database.nats.kill(),
            end: |run, _| run.database.nats.restart(),
        },
        Disturbance::calmed("nats apart from instances", false, |run, _, _| {
            run.database.of_instances.hold(&CLASSES, &BOTH);
        }),
        Disturbance::calmed("nats apart from relays", false, |run, _, _| {
            run.database.of_relays.hold(&CLASSES, &BOTH);
        }),
        // Acknowledgements do not arrive.
        Disturbance::calmed("nats mute for relays", false, |run, _, _| {
            run.database.of_relays.hold(&CLASSES, &[Direction::ToService]);
        }),
        Disturbance::calmed("nats cut", false, |run, _, _| {
            run.database.of_relays.cut(&CLASSES);
            run.database.of_instances.cut(&CLASSES);
        }),
        Disturbance::calmed("nats late", false, |run, _, _| {
            run.database.of_relays.delay(&CLASSES, &BOTH, LATE);
            run.database.of_instances.delay(&CLASSES, &BOTH, LATE);
        }),
        Disturbance::calmed("stream purged", false, |run, _, _| {
            run.database.insist("$JS.API.STREAM.PURGE.hotrow");
        }),
        Disturbance::calmed("stream deleted", false, |run, _, _| {
            run.database.insist("$JS.API.STREAM.DELETE.hotrow");
        }),
    ]
}

pub(crate) fn of_relays<E: BehindHub>() -> Vec<Disturbance<Hubbed<E>>> {
    vec![
        Disturbance {
            name: "leader killed",
            ends_the_feed: false,
            begin: |run, _, _| {
                let leader = run.database.leader();
                let relay = run.database.relays.remove(leader);
                relay.signal(Signal::KILL);
            },
            end: |run, _| run.database.start_relay(),
        },
        Disturbance {
            name: "leader paused",
            ends_the_feed: false,
            begin: |run, _, _| {
                let leader = run.database.leader();
                // The last one is that which is woken.
                let relay = run.database.relays.remove(leader);
                relay.stop();
                run.database.relays.push(relay);
            },
            end: |run, _| {
                let paused = run.database.relays.last().expect("one was paused");
                paused.signal(Signal::CONT);
            },
        },
        Disturbance {
            name: "leader replaced",
            ends_the_feed: false,
            begin: |run, _, _| {
                run.database.start_relay();
                let leader = run.database.leader();
                let relay = run.database.relays.remove(leader);
                relay.signal(Signal::TERM);
                assert_eq!(relay.ended(SOON).code(), 0);
            },
            end: |_, _| {},
        },
        Disturbance {
            name: "a third relay",
            ends_the_feed: false,
            begin: |run, _, _| run.database.start_relay(),
            end: |run, _| {
                let relay = run.database.relays.remove(0);
                relay.signal(Signal::KILL);
            },
        },
        Disturbance::calmed("stream late", false, |run, _, _| {
            run.database.delay_feed(run.plan.max_staleness / 5);
        }),
    ]
}

impl<E: BehindHub> Backend for Hubbed<E> {
    /// Each end of an instance's session with the database is a loss.
    const FEED_RESUMES: bool = false;
    const LATE_FEED_ANSWERS_RARELY: bool = E::LATE_FEED_ANSWERS_RARELY;

    disturbs_its_server!(primary);

    fn start() -> Self {
        Self::create(&Plan::default())
    }

    fn config(&self) -> Config {
        <Self as Engine>::config(self, &Plan::default())
    }

    fn clear_faults(&self) {
        self.of_instances.clear_faults();
        self.of_relays.clear_faults();
        self.primary.clear_faults();
    }

    fn restart(&mut self) {
        self.primary.restart();
    }
}
