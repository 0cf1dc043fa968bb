//! Configuration of the SQLite engine.

use std::path::PathBuf;
use std::time::Duration;

pub use hotrow_source::spec::{CollectionConfig, KeyTypeName};

/// Method of change detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Change log filled by triggers: single records are invalidated. Adds two tables and triggers
    /// to the database.
    Triggers,
    /// No additions to the database: any change anywhere in the file makes every entry stale.
    None,
}

impl Watch {
    /// Returns the value's name in the configuration.
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
    /// Database file; it must exist.
    pub path: PathBuf,
    /// Method of change detection.
    pub watch: Watch,
    /// Number of reader threads, each with a connection of its own.
    pub reads_in_flight: usize,
    /// Time limit of one query, including waits for locks.
    pub read_timeout: Duration,
    /// Collections in the order of their `CollectionId`s.
    pub collections: Vec<CollectionConfig>,
}
