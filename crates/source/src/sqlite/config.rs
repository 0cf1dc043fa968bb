//! What the SQLite engine is told at start.

use std::path::PathBuf;
use std::time::Duration;

pub use crate::spec::{CollectionSpec, KeyTypeName};

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
