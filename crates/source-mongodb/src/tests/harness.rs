//! Test harness: an engine over a test database.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hotrow_supervisor::Supervisor;
use hotrow_types::key::Key;

use super::mongo::MongoDatabase;

use crate::config::{CollectionConfig, Config, JsonForm, ServerConfig, Tuning};
use crate::{Hooks, Mongo, MongoSource, open};
pub(super) use hotrow_source::testkit::{DEADLINE, wait};
use hotrow_source::testkit::{Event, Reader, Running};
use hotrow_source::{ReadSet, Row, Source as _, SourceError, testkit};

/// Returns the settings of a collection by `_id`.
pub(super) fn spec(name: &str) -> CollectionConfig {
    testkit::spec(&format!("{name}(_id)"))
}

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    let collections: Vec<String> = collections.iter().map(|name| format!("{name}(_id)")).collect();
    let collections: Vec<&str> = collections.iter().map(String::as_str).collect();
    let server = ServerConfig {
        reads_in_flight: 4,
        // Reads fail after it while a deployment has no primary.
        connect_timeout: Duration::from_secs(10),
        ..testkit::brisk_server(url, &collections)
    };
    Config { server, json: JsonForm::Plain }
}

/// Source with a running feed; dropping it stops the feed.
pub(super) struct Engine {
    pub(super) reader: Reader<MongoSource>,
    running: Running<MongoSource>,
}

impl Deref for Engine {
    type Target = Running<MongoSource>;

    fn deref(&self) -> &Self::Target {
        &self.running
    }
}

impl Engine {
    /// Starts an engine on these collections and waits until it is fresh.
    #[track_caller]
    pub(super) fn on(mongo: &MongoDatabase, collections: &[&str]) -> Self {
        let engine = Self::launch(config(mongo.url(), collections), Hooks::default(), |_| {});
        engine.settle();
        engine
    }

    #[track_caller]
    pub(super) fn launch(config: Config, hooks: Hooks, tune: impl FnOnce(&mut Tuning)) -> Self {
        let Mongo { source, mut feed } =
            open(config, hooks, &Supervisor::default()).unwrap_or_else(|e| panic!("{e}"));
        tune(&mut feed.tuning);
        let reader = Reader::new(Arc::clone(&source));
        Self {
            reader,
            running: Running::start(source, move |sink, shutdown| feed.run(sink, shutdown)),
        }
    }

    pub(super) fn key(&self, collection: u16, id: &str) -> Key {
        self.source.schemas()[usize::from(collection)].parse_url(id).unwrap()
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, SourceError> {
        self.reader.read(collection, ids)
    }

    /// Returns the record as text; "-" if there is none.
    #[track_caller]
    pub(super) fn text(&self, collection: u16, id: &str) -> String {
        match self.read(collection, &[id]).unwrap().rows.remove(0) {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            Row::Missing => "-".into(),
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Returns the events delivered for the changes of `write`, without advances.
    #[track_caller]
    pub(super) fn delivered(&self, write: impl FnOnce()) -> Vec<Event> {
        self.delivered_of(write)
    }

    /// Returns the delivered keys; panics on events other than changes.
    #[track_caller]
    pub(super) fn keys(&self, write: impl FnOnce()) -> Vec<Key> {
        self.keys_of(write)
    }
}

/// Returns the error of `open` for this configuration.
#[track_caller]
pub(super) fn refusal(config: Config) -> String {
    open(config, Hooks::default(), &Supervisor::default())
        .map(drop)
        .expect_err("it must be refused")
        .to_string()
}
