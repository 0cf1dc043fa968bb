//! Configuration of access: credentials and what their holders may read.

use std::path::PathBuf;
use std::sync::Arc;

use hotrow_access::grant::{Role, Roles};
use hotrow_access::jwks::KeySet;
use hotrow_access::key::StoredKey;
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_access::verify::TokenPolicy;
use hotrow_admission::rate::value::Rate;

/// Credentials and grants.
#[derive(Clone, Debug)]
pub struct Access {
    /// Roles, in the order of their numbers.
    pub roles: Vec<Role>,
    /// Roles of requests without a credential; none: they get 401.
    pub anonymous: Roles,
    /// API keys, each with an id of its own.
    pub keys: Vec<StoredKey>,
    /// Tokens; `None`: they are refused.
    pub tokens: Option<Tokens>,
    /// Refused credentials per client, after which it has to wait.
    pub failures: Rate,
}

impl Access {
    /// Returns access for nobody.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            roles: Vec::new(),
            anonymous: Roles::default(),
            keys: Vec::new(),
            tokens: None,
            failures: Rate::ONE_PER_SECOND,
        }
    }
}

/// Tokens that are accepted.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Requirements on their claims.
    pub policy: TokenPolicy,
    /// Keys that verify them.
    pub keys: TokenKeys,
}

/// Source of the keys that verify tokens.
#[derive(Clone, Debug)]
pub enum TokenKeys {
    /// A shared secret, fixed.
    Secret(Arc<KeySet>),
    /// A JWKS in a file, which is read again when it changes.
    File {
        /// Its path.
        path: PathBuf,
        /// Times of the reads.
        refresh: RefreshConfig,
    },
}
