//! Certificate files, from bytes to checked certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotrow_config::transport::{ClientCertificates, Tls};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::der::Decode as _;

use crate::file_watch;

/// Largest file. A chain has a few certificates of at most some KiB each.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Certificates, key and accepted client certificates, read at one time.
#[derive(Debug)]
pub struct Certificates {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) client_roots: Option<Arc<RootCertStore>>,
    client_ca: Option<Vec<u8>>,
    expires: Duration,
    expires_text: String,
}

/// Reason for which certificate files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(
        "cannot read {}: {source}; it must exist and be readable for this user", .path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} {rule}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong and what it must be.
        rule: String,
    },
    /// The key belongs to another certificate.
    #[error(
        "the key in {} does not belong to the first certificate in {}; the file of certificates \
         must begin with the server's own", .key.display(), .certificate.display()
    )]
    Mismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
}

impl TlsError {
    fn malformed(path: &Path, rule: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), rule: rule.into() }
    }

    pub(super) fn client_ca(path: &Path, detail: &str) -> Self {
        let rule = format!("has no certificate that can verify clients: {detail}");
        Self::malformed(path, rule)
    }

    pub(super) fn rejected(settings: &Tls, error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InconsistentKeys(_) => Self::Mismatch {
                certificate: settings.certificate.clone(),
                key: settings.key.clone(),
            },
            _ => Self::malformed(&settings.key, format!("cannot be used: {error}")),
        }
    }
}

impl Certificates {
    /// Reads and checks the files, except for the match of certificate and key.
    pub(super) fn read(settings: &Tls) -> Result<Self, TlsError> {
        let path = &settings.certificate;
        let chain = certificates(path, &read(path)?)?;
        let own = chain.first().ok_or_else(|| TlsError::malformed(path, NO_CERTIFICATE))?;
        let parsed = x509_cert::Certificate::from_der(own).map_err(|error| {
            TlsError::malformed(path, format!("has a malformed certificate: {error}"))
        })?;
        let not_after = parsed.tbs_certificate().validity().not_after;
        let key = PrivateKeyDer::from_pem_slice(&read(&settings.key)?).map_err(|error| {
            let rule =
                format!("must have a private key in PEM form (PKCS #8, PKCS #1, SEC 1): {error}");
            TlsError::malformed(&settings.key, rule)
        })?;
        let (client_roots, client_ca) = match &settings.clients {
            ClientCertificates::Ignored => (None, None),
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
                let bytes = read(path)?;
                (Some(Arc::new(roots(path, &bytes)?)), Some(bytes))
            }
        };
        Ok(Self {
            chain,
            key,
            client_roots,
            client_ca,
            expires: not_after.to_unix_duration(),
            expires_text: not_after.to_string(),
        })
    }

    /// Returns the end of the validity of the server's certificate.
    pub fn expires_unix_s(&self) -> u64 {
        self.expires.as_secs()
    }

    /// Returns the same as text.
    pub fn expires(&self) -> &str {
        &self.expires_text
    }

    /// Returns the whole days from `unix_s` until then, negative after it.
    pub fn days_left(&self, unix_s: u64) -> i64 {
        const DAY_S: i64 = 86_400;
        let at = |s: u64| i64::try_from(s).unwrap_or(i64::MAX);
        (at(self.expires.as_secs()) - at(unix_s)).div_euclid(DAY_S)
    }

    /// Returns whether both accept the same client certificates.
    pub(super) fn has_same_clients(&self, other: &Self) -> bool {
        self.client_ca == other.client_ca
    }
}

/// Checks files as [`super::TlsEndpoint::load`] does. Returns what they contain.
///
/// # Errors
/// A file is missing or malformed, or certificate and key differ.
pub fn check(settings: &Tls) -> Result<Certificates, TlsError> {
    let certificates = Certificates::read(settings)?;
    super::server_config(settings, false, &certificates, None)?;
    Ok(certificates)
}

/// Returns the subject of a verified certificate as text (RFC 4514).
pub fn subject(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate().subject().to_string().into())
}

const NO_CERTIFICATE: &str = "must have a certificate in PEM form, and has none";

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::malformed(path, format!("is not in PEM form: {error}")))
}

fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        store.add(certificate).map_err(|error| TlsError::client_ca(path, &error.to_string()))?;
    }
    if store.is_empty() {
        return Err(TlsError::malformed(path, NO_CERTIFICATE));
    }
    Ok(store)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    match file_watch::read(path, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(TlsError::malformed(path, "is larger than 1 MiB; is it the right file?")),
        Err(source) => Err(TlsError::Unreadable { path: path.to_owned(), source }),
    }
}
