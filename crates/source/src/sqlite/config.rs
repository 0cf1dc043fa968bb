//! What the SQLite engine is told at start.

use std::path::PathBuf;
use std::time::Duration;

/// How changes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A change log filled by triggers: single records are invalidated. Adds a table and triggers to the database.
    Triggers,
    /// Nothing is added to the database; any change anywhere in the file makes every entry stale.
    None,
}

impl Watch {
    /// The value as the configuration names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Triggers => "triggers",
            Self::None => "none",
        }
    }
}

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database file; it must exist.
    pub path: PathBuf,
    /// See there.
    pub watch: Watch,
    /// Reader threads, each with a connection of its own.
    pub reads_in_flight: usize,
    /// How long one query may take, waiting for locks included.
    pub read_timeout: Duration,
    /// In the order of their `CollectionId`s.
    pub collections: Vec<CollectionSpec>,
}

/// One collection as the configuration names it.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// Name in URLs and messages.
    pub name: String,
    /// Table in the database.
    pub table: String,
    /// Key columns, one to four.
    pub key: Vec<String>,
    /// Type per key column where the declared type does not tell (`uuid`, `bytes`); empty: from the declaration.
    pub key_types: Vec<KeyTypeName>,
    /// Columns to serve, in this order; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Columns not to serve.
    pub exclude: Vec<String>,
}

/// A key type as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTypeName {
    /// 64-bit integer.
    Integer,
    /// Text.
    Text,
    /// UUID in a 16-byte BLOB.
    Uuid,
    /// Any BLOB, in hexadecimal.
    Bytes,
}
