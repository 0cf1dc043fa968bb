//! A source on a server, with helpers to read from it.

use std::ops::Deref;

use hotrow_supervisor::Supervisor;
use serde_json::Value;

use super::server::Server;
use crate::config::Config;
use crate::{Hooks, OpenError, PostgresSource, open};
pub(super) use hotrow_source::testkit::wait;
use hotrow_source::{Row, testkit};

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    let server = testkit::server(url, collections);
    Config {
        server,
        publication: "hotrow".into(),
        completes_publication: true,
        is_trial: false,
        slot: None,
    }
}

/// Source with a runtime for its reads.
pub(super) struct Reader(testkit::Reader<PostgresSource>);

impl Deref for Reader {
    type Target = testkit::Reader<PostgresSource>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Reader {
    pub(super) fn open(config: Config) -> Self {
        Self::try_open(config, Hooks::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens these tables as the server's superuser.
    pub(super) fn on(server: &Server, collections: &[&str]) -> Self {
        Self::open(config(&server.url(), collections))
    }

    pub(super) fn try_open(config: Config, hooks: Hooks) -> Result<Self, OpenError> {
        Ok(Self(testkit::Reader::new(open(config, hooks, &Supervisor::default())?.source)))
    }

    /// Returns the record as text.
    pub(super) fn text(&self, collection: u16, id: &str) -> String {
        match self.read(collection, &[id]).unwrap().rows.remove(0) {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            other => panic!("{id}: {other:?}"),
        }
    }

    pub(super) fn json(&self, collection: u16, id: &str) -> Value {
        let text = self.text(collection, id);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

/// Returns the faults of a database as text.
pub(crate) fn refusal(config: Config) -> String {
    Reader::try_open(config, Hooks::default()).map(|_| ()).unwrap_err().to_string()
}
