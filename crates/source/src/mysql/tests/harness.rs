//! A source on a server, and ways to ask it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_cache::key::CollectionId;
use serde_json::Value;

use super::server::Server;
use crate::mysql::config::Config;
use crate::mysql::{Hooks, MysqlSource, OpenError, open};
use crate::spec::{CollectionSpec, Follow};
use crate::{ReadError, ReadSet, Row, Source as _};

/// A condition that does not come true within this time has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// `table(key, key)`.
pub(super) fn spec(text: &str) -> CollectionSpec {
    let (table, key) = text.strip_suffix(')').unwrap().rsplit_once('(').unwrap();
    CollectionSpec {
        name: table.into(),
        table: table.into(),
        key: key.split(", ").map(Into::into).collect(),
        key_types: Vec::new(),
        columns: None,
        exclude: Vec::new(),
    }
}

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    Config {
        url: url.into(),
        feed_url: None,
        server_id: None,
        reads_in_flight: 2,
        read_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        max_staleness: Duration::from_secs(1),
        schema_poll: Duration::from_secs(1),
        follow: Follow::Changes,
        collections: collections.iter().map(|text| spec(text)).collect(),
    }
}

/// A source, and a runtime to ask it from.
pub(super) struct Reader {
    pub(super) source: Arc<MysqlSource>,
    runtime: tokio::runtime::Runtime,
}

impl Reader {
    pub(super) fn open(config: Config) -> Self {
        Self::try_open(config).unwrap_or_else(|e| panic!("{e}"))
    }

    /// All of these tables, by the server's superuser.
    pub(super) fn on(server: &Server, collections: &[&str]) -> Self {
        Self::open(config(&server.url(), collections))
    }

    pub(super) fn try_open(config: Config) -> Result<Self, OpenError> {
        let source = open(config, Hooks::default())?.source;
        Ok(Self { source, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() })
    }

    pub(super) fn read(&self, collection: u16, ids: &[&str]) -> Result<ReadSet, ReadError> {
        let schema = &self.source.schemas()[usize::from(collection)];
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap_or_else(|e| panic!("{id}: {e}"))).collect();
        self.runtime.block_on(self.source.read(CollectionId(collection), keys))
    }

    /// What became of each id: the record as text, `missing`, or where it may not be kept `alias …`.
    pub(super) fn told(&self, collection: u16, ids: &[&str]) -> Vec<String> {
        self.read(collection, ids).unwrap().rows.iter().map(told).collect()
    }

    pub(super) fn json(&self, collection: u16, id: &str) -> Value {
        let text = self.told(collection, &[id]).remove(0);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

fn told(row: &Row) -> String {
    let text = |json: &Vec<u8>| String::from_utf8(json.clone()).unwrap();
    match row {
        Row::Found(json) => text(json),
        Row::Missing => "missing".into(),
        Row::Passing(None) => "alias".into(),
        Row::Passing(Some(json)) => format!("alias {}", text(json)),
        Row::Unreadable(why) => format!("unreadable {why}"),
    }
}

/// What is wrong with a database, as a text.
pub(super) fn refusal(config: Config) -> String {
    Reader::try_open(config).map(|_| ()).unwrap_err().to_string()
}

/// Waits until `condition` holds.
#[track_caller]
pub(super) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
