//! Settings of collections, and of the database servers that serve them, the same for all engines.

use std::collections::HashSet;
use std::time::Duration;

use crate::finding::Finding;

/// Settings of one collection.
#[derive(Clone, Debug)]
pub struct CollectionConfig {
    /// Name in URLs and messages.
    pub name: String,
    /// Table in the database.
    pub table: String,
    /// Key columns, one to four.
    pub key: Vec<String>,
    /// Type per key column, for declared types that do not determine it (`uuid`, `bytes`). Empty:
    /// from the declaration.
    pub key_types: Vec<KeyTypeName>,
    /// Columns to serve, in this order; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Columns not to serve.
    pub exclude: Vec<String>,
    /// Column that names the tenant of a row. It is read whether it is served or not, and stands
    /// before the record ([`crate::Row::Found`]).
    pub tenant: Option<String>,
    /// `true`: an alias of another collection (`hotrow_cache::alias`). Its records are keys of that
    /// one, and the feed delivers only the values that a row has after a change.
    pub is_alias: bool,
    /// Child rows inside each record.
    pub embed: Vec<EmbedConfig>,
}

/// Rows of another table, the *child*, that each record contains as an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedConfig {
    /// Member of the record that is the array.
    pub name: String,
    /// Table of the children.
    pub table: String,
    /// Column of the children that refers to the collection's key.
    pub on: String,
    /// Order of the children. Engines append the child's primary key, so that it is total.
    pub order_by: Vec<OrderBy>,
    /// Most children of one record.
    pub limit: u32,
    /// Columns to serve, in this order; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
}

/// A column of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// Name of the column.
    pub column: String,
    /// Whether greater values come first.
    pub is_descending: bool,
}

impl EmbedConfig {
    /// Returns the settings of a collection by which the table of the children is looked up and
    /// checked. Its name is the path of the setting, its key the column that refers to the parent.
    #[must_use]
    pub fn as_collection(&self, parent: &str) -> CollectionConfig {
        CollectionConfig {
            name: format!("{parent}.embed.{}", self.name),
            table: self.table.clone(),
            key: vec![self.on.clone()],
            key_types: Vec::new(),
            columns: self.columns.clone(),
            exclude: Vec::new(),
            tenant: None,
            is_alias: false,
            embed: Vec::new(),
        }
    }

    /// Returns the columns by which the children are ordered, with whether greater values come
    /// first: those of the configuration, and behind them those of the child's primary key that
    /// these lack. So the order is total.
    pub fn total_order<'a>(
        &'a self,
        primary_key: impl IntoIterator<Item = &'a str>,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Vec<(&'a str, bool)> {
        let mut order: Vec<(&str, bool)> =
            self.order_by.iter().map(|by| (by.column.as_str(), by.is_descending)).collect();
        for column in primary_key {
            if !order.iter().any(|(name, _)| is_same(name, column)) {
                order.push((column, false));
            }
        }
        order
    }
}

impl CollectionConfig {
    /// Returns the columns to serve: those of `columns`, or else `all`, without those of `exclude`,
    /// each once. The tenant's column is the first, whether it is served as well or not. `find`
    /// finds a column by its name, and `no_column` makes the finding of a setting and a name
    /// without a column.
    pub fn chosen_columns<'a, C>(
        &self,
        all: impl Iterator<Item = &'a C>,
        find: impl Fn(&str) -> Option<&'a C>,
        no_column: impl Fn(&str, &str) -> Finding,
    ) -> (Vec<&'a C>, Vec<Finding>) {
        let mut findings = Vec::new();
        let mut named = |setting: &str, names: &[String]| -> Vec<&'a C> {
            let known = names.iter().filter_map(|name| {
                let found = find(name);
                if found.is_none() {
                    findings.push(no_column(setting, name));
                }
                found
            });
            known.collect()
        };
        let mut chosen = match &self.columns {
            None => all.collect(),
            Some(names) => named("columns", names),
        };
        let mut seen: HashSet<*const C> =
            named("exclude", &self.exclude).into_iter().map(std::ptr::from_ref).collect();
        chosen.retain(|column| seen.insert(*column));
        let tenant = named("tenant", self.tenant.as_slice());
        if chosen.is_empty() && findings.is_empty() {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: `columns` and `exclude` leave no column of `{}` to serve",
                    self.name, self.table
                ),
                "name columns that the table has",
            ));
        }
        chosen.splice(0..0, tenant);
        (chosen, findings)
    }
}

/// Extent of change detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Changes of records, from the database's change feed.
    Changes,
    /// The same as [`Self::Nothing`] by the engine. Changes of records come from the change hub.
    Hub,
    /// No changes of records: only the schemas of the tables, and the identity of the database.
    Nothing,
}

impl Follow {
    /// Returns whether a finding keeps a table from being served.
    pub fn is_kept_by(self, finding: &Finding) -> bool {
        !finding.is_of_feed || self != Self::Nothing
    }
}

/// Key type by its name in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTypeName {
    /// 64-bit integer.
    Integer,
    /// Text.
    Text,
    /// UUID; in SQLite a 16-byte BLOB, in MongoDB binary data of subtype 4.
    Uuid,
    /// MongoDB's ObjectId.
    ObjectId,
    /// Any BLOB or bytea, in hexadecimal; in MongoDB binary data of subtype 0.
    Bytes,
}

impl KeyTypeName {
    /// Returns its name in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Text => "text",
            Self::Uuid => "uuid",
            Self::ObjectId => "objectid",
            Self::Bytes => "bytes",
        }
    }
}

/// Settings of every engine over a database server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connection string of the readers, and of the feed unless `feed_url` is set.
    pub url: String,
    /// Connection string of the feed, for instance if `url` leads to a pooler, which cannot carry a
    /// replication session. `None`: `url`.
    pub feed_url: Option<String>,
    /// Connection strings of standbys that answer reads; only PostgreSQL.
    pub read_urls: Vec<String>,
    /// Extent of change detection.
    pub follow: Follow,
    /// Maximum number of concurrent queries, and of connections for reading.
    pub reads_in_flight: usize,
    /// Time limit of one read, waiting for a connection included.
    pub read_timeout: Duration,
    /// Time limit of a new connection to one host, from name resolution to the end of
    /// authentication.
    pub connect_timeout: Duration,
    /// Bound on staleness. The log's end is probed four times per bound.
    pub max_staleness: Duration,
    /// Bound on the age of the tables' confirmed shapes, which the feed does not report. On MongoDB
    /// the interval of checks for another deployment.
    pub schema_poll: Duration,
    /// Collections to serve, in the order of their `CollectionId`s.
    pub collections: Vec<CollectionConfig>,
}

/// Time limits of a session with a server.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Time limit of a query on the server.
    pub statement_timeout: Duration,
    /// Time limit for a connection to one host if the connection string has none.
    pub connect_timeout: Duration,
}

impl ServerConfig {
    /// Returns the collections of these names.
    #[must_use]
    pub fn collections_named(&self, names: &[String]) -> Vec<CollectionConfig> {
        self.collections.iter().filter(|spec| names.contains(&spec.name)).cloned().collect()
    }

    /// Returns the settings of sessions whose queries have this time limit.
    pub fn session(&self, statement_timeout: Duration) -> SessionSettings {
        SessionSettings { statement_timeout, connect_timeout: self.connect_timeout }
    }
}
