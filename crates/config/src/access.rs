//! Configuration of access: credentials and what their holders may read.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use hotrow_access::certificate::CertificateHolder;
use hotrow_access::grant::{Role, Roles};
use hotrow_access::identity::Identity;
use hotrow_access::jwks::KeySet;
use hotrow_access::key::StoredKey;
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_access::verify::TokenPolicy;
use hotrow_admission::rate::value::Rate;

use super::http_url::{HttpUrl, HttpUrlError};

/// Credentials and grants.
#[derive(Clone, Debug)]
pub struct Access {
    /// Roles, and the credentials that have them.
    pub granted: Granted,
    /// File of `granted`, which is read again when it changes.
    pub grants_file: Option<GrantsFile>,
    /// Tokens; `None`: they are refused.
    pub tokens: Option<Tokens>,
    /// Refused credentials per client, after which it has to wait.
    pub failures: Rate,
}

/// Roles, and the credentials other than tokens that have them.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    /// Roles, in the order of their numbers.
    pub roles: Vec<Role>,
    /// Roles of requests without a credential; none: they get 401.
    pub anonymous: Roles,
    /// API keys, each with an id of its own.
    pub keys: Vec<StoredKey>,
    /// Client certificates, each with a subject of its own.
    pub certificates: Vec<CertificateHolder>,
    /// Names of all of them, for the access log.
    pub names: Names,
}

/// Names of roles, keys and certificates in the configuration.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names of the roles, in the order of their numbers.
    pub roles: Vec<String>,
    /// Names of the holders of keys and certificates.
    pub holders: HashMap<Identity, HolderName>,
}

/// Name of the holder of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderName {
    /// `NAME` of `[access.keys.NAME]`.
    Key(String),
    /// `NAME` of `[access.certificates.NAME]`.
    Certificate(String),
}

impl Names {
    /// Returns the names of roles.
    pub fn roles_of(&self, roles: Roles) -> impl Iterator<Item = &str> {
        let has = move |number| roles.intersects(Roles::single(number));
        let named = self.roles.iter().enumerate();
        named.filter(move |(number, _)| has(*number)).map(|(_, name)| name.as_str())
    }

    /// Returns the name of a holder; a token's has none.
    pub fn holder(&self, identity: &Identity) -> Option<&HolderName> {
        self.holders.get(identity)
    }
}

/// Parser of a file of grants. Its error names the problems of the text.
pub type ParseGrants = dyn Fn(&[u8]) -> Result<Granted, String> + Send + Sync;

/// File of roles, keys and certificates.
#[derive(Clone)]
pub struct GrantsFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text when it was read last.
    pub text: Vec<u8>,
    /// Parses a text.
    pub parse: Arc<ParseGrants>,
}

impl fmt::Debug for GrantsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Access {
    /// Returns access for no client.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            granted: Granted::default(),
            grants_file: None,
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
    /// A JWKS at a URL, which is fetched again at an interval.
    Url {
        /// Its address.
        url: JwksUrl,
        /// File of the roots to which the server's certificate must lead; `None`: the system's.
        ca: Option<PathBuf>,
        /// Times of the fetches.
        refresh: RefreshConfig,
    },
}

/// Address of a JWKS: `https`, or `http` to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksUrl(pub HttpUrl);

/// Text that is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksUrlError {
    /// No URL with a host.
    #[error("must be a URL such as \"https://id.example/jwks.json\"")]
    Malformed,
    /// Over a network without TLS.
    #[error(
        "must begin with https://: who can change the answer can sign tokens; http:// is for \
         localhost, 127.0.0.1 and [::1] only"
    )]
    Cleartext,
    /// With a user or a password.
    #[error("must have no user and no password")]
    Credentials,
}

impl FromStr for JwksUrl {
    type Err = JwksUrlError;

    fn from_str(text: &str) -> Result<Self, JwksUrlError> {
        let url: HttpUrl = text.parse().map_err(|error| match error {
            HttpUrlError::Malformed => JwksUrlError::Malformed,
            HttpUrlError::Credentials => JwksUrlError::Credentials,
        })?;
        if url.is_tls || url.is_local() { Ok(Self(url)) } else { Err(JwksUrlError::Cleartext) }
    }
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        let parse = |text: &str| text.parse::<JwksUrl>();
        assert!(parse("https://id.example/a/jwks.json?x=1").is_ok());
        assert_eq!(parse("http://[::1]:8000").unwrap().to_string(), "http://[::1]:8000/");
        for (text, error) in [
            ("", JwksUrlError::Malformed),
            ("http://id.example/", JwksUrlError::Cleartext),
            ("http://127.0.0.1.id.example/", JwksUrlError::Cleartext),
            ("https://a:b@id.example/", JwksUrlError::Credentials),
            ("http://localhost@id.example/", JwksUrlError::Credentials),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
