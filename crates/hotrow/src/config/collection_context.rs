//! What the settings of a collection become, and what the rules for them depend on.

use std::time::Duration;

use hotrow_cache::config::CollectionPolicy;
use hotrow_config::Collection;
use hotrow_source::spec::CollectionConfig;

/// Settings of one collection, for each subsystem.
pub(super) struct CollectionSettings {
    pub(super) server: Collection,
    pub(super) cache: CollectionPolicy,
    pub(super) source: CollectionConfig,
    /// Its changes may be followed.
    pub(super) is_followed: bool,
    /// Its answers have surrogate keys.
    pub(super) has_surrogate_keys: bool,
    /// The file has a lifetime of its entries.
    pub(super) has_ttl: bool,
}

/// Lifetimes of entries where a collection sets none.
pub(super) struct Ttl {
    pub(super) ttl: Duration,
    pub(super) negative_ttl: Duration,
    /// The file has a value for `ttl`.
    pub(super) is_set: bool,
}

/// Properties of the source that the rules for collections depend on.
pub(super) struct SourceTraits<'a> {
    pub(super) name: &'a str,
    /// Setting by which an answer may be older than the contract says, if there is one.
    pub(super) stale_by: Option<&'static str>,
    /// Why its records can contain no rows of other tables.
    pub(super) lacks_embedding: Option<&'static str>,
    pub(super) has_positions: bool,
    /// Changes come from a change hub.
    pub(super) is_behind_hub: bool,
    /// Key column where the file names none; `None`: those of the primary key.
    pub(super) default_key: Option<&'static str>,
}

/// Properties of other sections that the rules for access to collections depend on.
pub(super) struct AccessTraits {
    /// Requests need a credential.
    pub(super) is_configured: bool,
    /// No credential names a tenant.
    pub(super) lacks_tenants: bool,
    /// The cache stores entries.
    pub(super) is_cached: bool,
}
