//! Where the keys of tokens come from: a file or a URL.

use std::io;
use std::path::PathBuf;

use hotrow_access::jwks::{JWKS_BYTES_MAX, JwksError};
use hotrow_config::access::{JwksUrl, TokenKeys};
use hotrow_net::file_watch;

use super::jwks::fetch::{FetchError, fetch};

/// Where the keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// An address.
    Url {
        /// The address.
        url: JwksUrl,
        /// File of the authorities that certify it; `None`: those of the system.
        ca: Option<PathBuf>,
    },
}

/// Reason for which a source has no keys to use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySourceError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The URL has no answer to use.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The text is no JWKS.
    #[error(transparent)]
    Jwks(#[from] JwksError),
    /// No key of it can be used.
    #[error("has no key that can be used: RSA from 2,048 bits, EC on P-256, or Ed25519")]
    NoKeys,
}

impl KeySource {
    /// Returns the source; `None`: the keys are fixed.
    pub fn of(keys: &TokenKeys) -> Option<Self> {
        match keys {
            TokenKeys::Secret(_) => None,
            TokenKeys::File { path, .. } => Some(Self::File(path.clone())),
            TokenKeys::Url { url, ca, .. } => Some(Self::Url { url: url.clone(), ca: ca.clone() }),
        }
    }

    pub(crate) async fn read(&self) -> Result<Vec<u8>, KeySourceError> {
        match self {
            Self::File(path) => Ok(file_watch::read(path, JWKS_BYTES_MAX)?
                .ok_or(KeySourceError::Jwks(JwksError::TooLarge))?),
            Self::Url { url, ca } => Ok(fetch(url, ca.as_deref()).await?),
        }
    }
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url { url, .. } => url.fmt(f),
        }
    }
}
