//! Contract over MongoDB: a stand-in with two members in this process, which can disturb the stream
//! and the reads separately. Writers use the official driver, with transactions.
//!
//! Reading order: this (the engine), [`session`] (a writer's connection), [`scene`] (tests of a
//! single key), [`safeguards`] (each safeguard of the contract, enabled and disabled),
//! [`visibility`] (changes delivered before they are visible), [`weather`] (disturbances) and
//! [`mixed`] (all of them under a mixed load).

use std::collections::BTreeMap;

use ::mongodb::bson::{Document, doc};

use crate::contract::engine::Engine;
use crate::contract::rows::{Sizes, payload};
use crate::contract::run::{Plan, Trial};
use hotrow_testkit::harness::Config;

mod mixed;
mod safeguards;
mod scene;
mod session;
mod visibility;
mod weather;

pub(crate) use hotrow_testkit::place;
pub(crate) use hotrow_testkit::standin;

use place::{Place, collection_of};
use session::MongoSession;
use standin::Kind;

/// The MongoDB engine.
pub(crate) struct Mongo;

/// A run over MongoDB.
pub(crate) type MongoRun = Trial<Mongo>;

/// Name of the served collection.
const ITEMS: &str = "items";
/// Members of the replica set.
const MEMBERS: usize = 2;

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
    type Database = Place;
    type Session = MongoSession;

    /// An answer may reflect more than the time that it was asked for.
    const TOKENS_ARE_EXACT: bool = false;

    fn create(plan: &Plan) -> Place {
        let place = Place::on_kind(Kind::ReplicaSet, MEMBERS);
        let keys = (0..plan.keys).filter(|key| Plan::has_first_row(*key));
        place.insert(ITEMS, keys.map(|key| document(key, 0, plan.sizes)));
        place
    }

    fn config(place: &Place, _: &Plan) -> Config {
        Config::over(place.url())
            .set("collections.items.allow_min_position", "true")
            .set("collections.items.key", "\"_id\"")
            .set("collections.items.exclude", "[\"_id\"]")
            .set("source.connect_timeout", "\"2s\"")
    }

    fn session(place: &Place, _: &Plan) -> MongoSession {
        MongoSession::new(place.url(), place.name())
    }

    fn rows(place: &Place) -> BTreeMap<u32, u64> {
        place.ask(async |database| {
            let mut cursor = collection_of(database, ITEMS)
                .find(doc! {})
                .projection(doc! { "version": 1 })
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

impl MongoRun {
    /// Asserts that all positions name one log: elections do not begin another.
    pub(crate) fn assert_one_log(&self) {
        let logs: std::collections::BTreeSet<u64> =
            self.observations.iter().filter_map(|o| o.token).map(|token| token.log).collect();
        assert_eq!(logs.len(), 1, "positions of several logs: {logs:x?}");
    }
}
