//! Contract over MongoDB: a stand-in with two members in this process, or SecantusDB. Writers use
//! the official driver, with transactions.
//!
//! Reading order: this (the engine and its tests), [`session`] (a writer's connection).

use std::collections::BTreeMap;

use ::mongodb::bson::{Document, doc};
use ::mongodb::options::ReadConcern;

use crate::backend::Backend;
use crate::backend::mongo::Mongo;
use crate::contract::disturbances::{Disturbance, of_connections, of_processes};
use crate::contract::engine::Engine;
use crate::contract::networked::{Networked, contract_tests};
use crate::contract::rows::{Sizes, payload};
use crate::contract::run::Plan;
use crate::contract::writer::WriteProfile;
use hotrow_testkit::harness::Config;
use hotrow_testkit::mongo::{Secantus, collection_of};
use hotrow_testkit::standin::Fault;
use session::{MongoSession, has_transactions};

mod session;

contract_tests!(Mongo);

/// Name of the served collection.
const ITEMS: &str = "items";

/// A document; the field `id` repeats `_id`, like a column of the other engines.
fn document(key: u32, version: u64, sizes: Sizes) -> Document {
    doc! {
        "_id": key as i32,
        "id": key as i32,
        "version": version as i64,
        "payload": payload(key, version, sizes),
    }
}

impl Engine for Mongo {
    type Database = Self;
    type Session = MongoSession;

    /// An answer may reflect more than the time that it was asked for.
    const TOKENS_ARE_EXACT: bool = false;

    fn create(plan: &Plan) -> Self {
        let database = Self::start();
        let keys = (0..plan.keys).filter(|key| Plan::has_first_row(*key));
        database.mongo.insert(ITEMS, keys.map(|key| document(key, 0, plan.sizes)));
        database
    }

    fn config(database: &Self, _: &Plan) -> Config {
        Backend::config(database)
            .set("collections.items.allow_min_position", "true")
            .set("collections.items.key", "\"_id\"")
            .set("collections.items.exclude", "[\"_id\"]")
    }

    fn session(database: &Self, _: &Plan) -> MongoSession {
        MongoSession::new(database.mongo.url(), database.mongo.name())
    }

    fn rows(database: &Self) -> BTreeMap<u32, u64> {
        database.mongo.ask(async |database| {
            let mut cursor = collection_of(database, ITEMS)
                .find(doc! {})
                .projection(doc! { "version": 1 })
                .read_concern(ReadConcern::majority())
                .await?;
            let mut rows = BTreeMap::new();
            while cursor.advance().await? {
                let row = cursor.deserialize_current()?;
                let key = row.get_i32("_id").expect("a key");
                let version = row.get_i64("version").expect("a version");
                rows.insert(key.cast_unsigned(), version.cast_unsigned());
            }
            Ok(rows)
        })
    }
}

impl Networked for Mongo {
    const NAME: &str = "mongodb";
    const HAS_PUSHES: bool = true;
    const HIDES_ONE_SESSION: bool = false;
    const READS_WAIT_FOR_CHANGES: bool = true;

    fn mixed_plan() -> Plan {
        // The stand-in commits faster than a server; pauses keep readers from starving.
        let mut write_profile = WriteProfile { pause_us: 12_000, ..WriteProfile::default() };
        if !has_transactions() {
            (write_profile.moves, write_profile.several) = (0, 0);
        }
        let sizes = Sizes { from: 100, to: 700 };
        Plan { keys: 5_000, sizes, reserved: 20, write_profile, ..Plan::default() }
    }

    fn disturbances() -> Vec<Disturbance<Self>> {
        let mut all = of_connections();
        all.extend(of_processes());
        if !Secantus::is_chosen() {
            all.extend(of_standin());
        }
        all
    }

    /// Those of connections are in the short form over PostgreSQL, and one by one in
    /// `crate::mongodb`.
    fn own_disturbances() -> Vec<Disturbance<Self>> {
        if Secantus::is_chosen() {
            return Self::disturbances();
        }
        let mut all = of_processes();
        all.extend(of_standin());
        all
    }

    /// Only readers cause reads.
    fn scenario_config(config: Config) -> Config {
        config.set("cache.prefetch_on_change", "false")
    }

    fn log_end(&self) -> u64 {
        Self::log_end(self)
    }

    fn hidden_session(&self) -> (MongoSession, impl FnMut() -> bool) {
        let session = MongoSession::new(self.mongo.url(), self.mongo.name());
        let standin = self.standin();
        standin.hold_visibility();
        let updates = standin.commands("update");
        let before = standin.now();
        (session, move || standin.commands("update") > updates && standin.now() > before)
    }
}

/// Returns the disturbances that only the stand-in has.
fn of_standin() -> Vec<Disturbance<Mongo>> {
    vec![
        Disturbance::calmed("stream cut", false, |run, _, _| {
            run.database.standin().inject_times("getMore", Fault::Cut, Some(2));
        }),
        Disturbance::calmed("readers cut", false, |run, _, _| {
            run.database.standin().inject_times("find", Fault::Cut, Some(20));
        }),
        // The feed's queries for the time get no answer.
        Disturbance::calmed("probes held", false, |run, _, _| {
            run.database.standin().inject("hello", Fault::Hold);
        }),
        Disturbance::calmed("primary changed", false, |run, _, _| run.database.elect_other()),
        Disturbance {
            name: "history lost",
            ends_the_feed: true,
            begin: |run, _, _| run.database.refuse_feed(),
            end: |run, _| {
                run.database.prune_log();
                run.database.clear_faults();
            },
        },
        Disturbance {
            name: "visibility held",
            ends_the_feed: false,
            begin: |run, _, _| run.database.hide_commits(),
            end: |run, _| run.database.show_commits(),
        },
    ]
}
