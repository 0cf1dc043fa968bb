//! Source on a server, and helpers to read from it.

use std::ops::Deref;

use hotrow_supervisor::Supervisor;
use hotrow_types::key::CollectionId;
use serde_json::Value;

use super::server::Server;
use crate::config::Config;
use crate::embedded_rules::EmbeddedRules;
use crate::resume_rules::ResumeRules;
use crate::{Hooks, MysqlSource, OpenError, open};
pub(super) use hotrow_source::testkit::{spec, wait};
use hotrow_source::{Row, Source as _, testkit};

pub(super) fn config(url: &str, collections: &[&str]) -> Config {
    Config {
        server: testkit::server(url, collections),
        server_id: None,
        resume_rules: ResumeRules::default(),
        embedded_rules: EmbeddedRules::default(),
    }
}

/// Source with a runtime for its reads.
pub(super) struct Reader(testkit::Reader<MysqlSource>);

impl Deref for Reader {
    type Target = testkit::Reader<MysqlSource>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Reader {
    pub(super) fn open(config: Config) -> Self {
        Self::try_open(config).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens these tables with the service's account.
    pub(super) fn on(server: &Server, collections: &[&str]) -> Self {
        Self::open(config(&server.url(), collections))
    }

    pub(super) fn try_open(config: Config) -> Result<Self, OpenError> {
        Ok(Self(testkit::Reader::new(
            open(config, Hooks::default(), &Supervisor::default())?.source,
        )))
    }

    /// Same as [`Self::answers`], for a query limited to `query_bytes` in a budget of `total`
    /// bytes.
    pub(super) fn answers_within(&self, ids: &[&str], query_bytes: u64, total: u64) -> Vec<String> {
        let schema = &self.source.schemas()[0];
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
        let rows = hotrow_source::RowBudget::new(
            &hotrow_admission::byte_budget::ByteBudget::new(total),
            query_bytes,
            || true,
        );
        let read = self.block_on(self.source.read_within(CollectionId(0), keys, rows));
        read.unwrap().rows.iter().map(answer_text).collect()
    }

    /// Returns the answer per id: the record as text, `missing`, or `alias …` if it must not be
    /// cached.
    pub(super) fn answers(&self, collection: u16, ids: &[&str]) -> Vec<String> {
        self.read(collection, ids).unwrap().rows.iter().map(answer_text).collect()
    }

    pub(super) fn json(&self, collection: u16, id: &str) -> Value {
        let text = self.answers(collection, &[id]).remove(0);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

fn answer_text(row: &Row) -> String {
    let text = |json: &Vec<u8>| String::from_utf8(json.clone()).unwrap();
    match row {
        Row::Found(json) => text(json),
        Row::Missing => "missing".into(),
        Row::Uncacheable(None) => "alias".into(),
        Row::Uncacheable(Some(json)) => format!("alias {}", text(json)),
        Row::NotRead => "not read".into(),
        Row::NoRoom => "no room".into(),
        Row::Unreadable(why) => format!("unreadable {why}"),
    }
}

/// Returns the error of opening a database.
pub(crate) fn refusal(config: Config) -> String {
    Reader::try_open(config).map(|_| ()).unwrap_err().to_string()
}
