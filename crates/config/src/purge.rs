//! Settings of surrogate keys, and of the purges of caches in front of the service.

use std::path::PathBuf;
use std::time::Duration;

use hotrow_types::key::CollectionId;

use super::http_url::HttpUrl;

/// Which answers caches in front may keep until they are purged, and who is asked to purge them.
#[derive(Clone, Debug, Default)]
pub struct Purge {
    /// Collections whose answers have surrogate keys.
    pub collections: Vec<CollectionId>,
    /// Header field of the keys.
    pub field: KeyField,
    /// From a change to its second purge.
    pub repeat_after: Duration,
    /// Most records that wait for one target.
    pub queue_records: usize,
    /// Most bytes of them.
    pub queue_bytes: usize,
    /// Who is asked to purge.
    pub targets: Vec<Target>,
}

/// Header field that names the keys of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyField {
    /// `Surrogate-Key`: keys with a blank between them.
    #[default]
    SurrogateKey,
    /// `Cache-Tag`: keys with a comma between them.
    CacheTag,
}

impl KeyField {
    /// Returns its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SurrogateKey => "surrogate-key",
            Self::CacheTag => "cache-tag",
        }
    }

    /// Returns what is between two keys.
    #[must_use]
    pub fn separator(self) -> char {
        match self {
            Self::SurrogateKey => ' ',
            Self::CacheTag => ',',
        }
    }
}

/// A cache, or a receiver of webhooks.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name in metrics, in `/status` and in the log.
    pub name: String,
    /// Form of its requests.
    pub kind: TargetKind,
    /// Where they go; of [`TargetKind::Urls`] without the path of the record.
    pub url: HttpUrl,
    /// `Host` of the requests; `None`: that of the URL.
    pub host: Option<String>,
    /// File of the roots to which its certificate must lead; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Longest time of a request, from the connection to the last byte of the answer.
    pub timeout: Duration,
}

/// Form of the requests to a target.
#[derive(Clone, Debug)]
pub enum TargetKind {
    /// `PURGE` with several keys in the field `xkey-purge`: Varnish with its module `xkey`.
    VarnishXkey,
    /// `PURGE` of one URL each.
    Urls {
        /// Path of the request that purges a collection, with `{collection}` for its name.
        purge_all: String,
    },
    /// `POST` of JSON.
    Webhook(Option<Secret>),
}

impl TargetKind {
    /// Returns its name in the configuration.
    pub fn label(&self) -> &'static str {
        match self {
            Self::VarnishXkey => "varnish_xkey",
            Self::Urls { .. } => "purge",
            Self::Webhook(_) => "webhook",
        }
    }
}

/// Secret that signs webhooks.
#[derive(Clone)]
pub enum Secret {
    /// The secret itself.
    Text(String),
    /// A file whose content it is, read for each request.
    File(PathBuf),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Least bytes of a secret.
pub const SECRET_BYTES_MIN: usize = 16;

impl Purge {
    /// Returns the collections whose changes are sent to a target.
    pub fn purged(&self) -> &[CollectionId] {
        if self.targets.is_empty() { &[] } else { &self.collections }
    }

    /// Returns whether a target is asked to purge single URLs. Then only the canonical URL of a
    /// record may be kept.
    pub fn purges_urls(&self) -> bool {
        self.targets.iter().any(|target| matches!(target.kind, TargetKind::Urls { .. }))
    }
}

/// Surrogate keys of the answers of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surrogates {
    /// Header field of the keys.
    pub field: KeyField,
    /// Only answers for the canonical URL of a record have them: a target purges URLs.
    pub needs_canonical_url: bool,
}
