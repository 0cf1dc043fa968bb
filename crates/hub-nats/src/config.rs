//! Settings of the connection to NATS, and of the stream.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "failpoints")]
pub use hotrow_hub::rules::Rule;
pub use hotrow_hub::rules::Rules;
use hotrow_hub::tag::Tag;
use hotrow_source::spec::CollectionConfig;
use hotrow_types::key::KeySchema;

/// Settings of the hub, equal for relays and servers.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Addresses of the NATS servers, `nats://` or `tls://`.
    pub servers: Vec<String>,
    /// Name of the stream, and first part of the subjects.
    pub stream: String,
    /// Credential.
    pub credential: Credential,
    /// Root certificates in PEM form; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate and key of the client.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Stream that a relay creates.
    pub limits: StreamLimits,
    /// Slot that keeps the relays' place in the database; `None`: every take-over is a loss.
    pub slot: Option<Slot>,
    /// The relay's database has no slots: a take-over finds its place in the log by what the stream
    /// says. Set by the relay.
    pub resumes_from_stream: bool,
    /// Time without a renewal after which another relay takes the lease.
    pub lease: Duration,
    /// Rules in force: all of them, but for tests.
    pub rules: Rules,
}

/// Replication slot of the relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Standbys of the database synchronize it.
    pub has_failover: bool,
}

/// Credential for NATS.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// None, or the one in the address.
    None,
    /// User and password.
    User(String, String),
    /// Token.
    Token(String),
    /// File of a JWT and its key, as `nsc` writes it.
    File(PathBuf),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::User(..) => "user and password",
            Self::Token(_) => "token",
            Self::File(_) => "file",
        })
    }
}

/// Limits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Stored in memory instead of on disk.
    pub in_memory: bool,
    /// Servers that store it.
    pub replicas: usize,
    /// Age at which messages are removed.
    pub max_age: Duration,
    /// Bytes beyond which the oldest messages are removed.
    pub max_bytes: u64,
}

impl HubConfig {
    /// Returns whether the place of a relay outlives it.
    pub(crate) fn keeps_place(&self) -> bool {
        self.slot.is_some() || self.resumes_from_stream
    }

    /// Returns the subject of the messages.
    pub(crate) fn changes(&self) -> String {
        format!("{}.changes", self.stream)
    }

    /// Returns the subject of the nonces.
    pub(crate) fn nonces(&self) -> String {
        format!("{}.nonces", self.stream)
    }

    /// Returns the key-value store of the lease.
    pub(crate) fn lease_store(&self) -> String {
        format!("{}-lease", self.stream)
    }
}

/// Returns whether a text is the address of a server.
pub fn is_address(text: &str) -> bool {
    text.parse::<async_nats::ServerAddr>().is_ok_and(|server| !server.host().is_empty())
}

/// Returns the tags of collections, in their order.
pub fn tags(collections: &[CollectionConfig], schemas: &[KeySchema]) -> Vec<Tag> {
    let of = |(config, schema): (&CollectionConfig, &KeySchema)| {
        let tag = if config.is_alias { Tag::of_alias } else { Tag::of };
        let own = tag(&config.table, &config.key, schema.types());
        let mut children: Vec<(&str, &str)> =
            config.embed.iter().map(|embed| (embed.table.as_str(), embed.on.as_str())).collect();
        // Instances may name the members differently.
        children.sort_unstable();
        children.iter().fold(own, |tag, (table, on)| tag.embedding(table, on))
    };
    collections.iter().zip(schemas).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_a_server() {
        for good in ["nats://a", "nats://u:p@10.0.0.1:4222", "tls://nats.example:4443"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["nats://", "nats://a b", "nats://a:x"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn a_credential_is_not_printed() {
        let secret = || "s3cret".to_owned();
        for credential in [
            Credential::User(secret(), secret()),
            Credential::Token(secret()),
            Credential::File("s3cret".into()),
        ] {
            assert!(!format!("{credential:?}").contains("s3cret"));
        }
    }
}
