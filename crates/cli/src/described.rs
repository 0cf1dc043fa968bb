//! What `hotrow describe` writes of a configuration, for the programs that measure the service that
//! it configures. It holds the secrets of the file: it goes through a pipe and is never stored.

use serde::{Deserialize, Serialize};

/// A resolved configuration.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// The databases.
    pub sources: Vec<DescribedSource>,
    /// `cache.max_staleness`, in milliseconds.
    pub max_staleness_ms: u64,
    /// `limits.max_batch`.
    pub batch_ids_max: usize,
    /// The token of the admin API, if it needs one.
    pub admin_token: Option<String>,
    /// `listen.redis.allow_stale`.
    pub redis_allow_stale: bool,
}

/// A database and its collections.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedSource {
    /// Its URL, with the password: `sqlite:`, `postgres:`, `mysql:` or `mongodb:`.
    pub url: String,
    /// Its collections, without the collections behind aliases.
    pub collections: Vec<DescribedCollection>,
}

/// A collection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedCollection {
    /// Its name in URLs.
    pub name: String,
    /// The table or view.
    pub table: String,
    /// Columns of the key.
    pub key: Vec<String>,
    /// Types of the key's columns as they are configured; empty: integers.
    pub key_types: Vec<String>,
    /// Names of its aliases, each with its columns.
    pub aliases: Vec<(String, Vec<String>)>,
    /// Its embedded members.
    pub embed: Vec<DescribedEmbed>,
}

/// An embedded member of a collection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedEmbed {
    /// Name of the member.
    pub name: String,
    /// Table of the children.
    pub table: String,
    /// The children's column with the parent's key.
    pub on: String,
    /// Columns that order the children; true: descending.
    pub order_by: Vec<(String, bool)>,
    /// Most children of a record.
    pub limit: u32,
}
