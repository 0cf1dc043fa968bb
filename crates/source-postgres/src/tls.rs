//! TLS to the server, as configured by `sslmode`.
//!
//! Source: PostgreSQL documentation, "SSL Support" of libpq. Two documented differences: the TLS
//! library refuses certificates of X.509 version 1, and revocation lists are not supported.

mod certificate;
mod verify;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use self::verify::{Names, Trust, Verifier};
use super::target::{EncryptionSettings, Root, SslMode};

/// Largest file of certificates that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Protocol name expected by a server if TLS begins without a request (PostgreSQL 17).
const ALPN: &[u8] = b"postgresql";

/// Error of our own TLS configuration, before the server's identity is checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSetupError {
    /// A file that the mode needs.
    #[error("`{setting}`: cannot use {path}: {detail}")]
    File {
        /// The parameter of the connection string.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause and remedy.
        detail: String,
    },
    /// There is no trusted authority.
    #[error("{detail}")]
    NoRoots {
        /// The rule and the remedy.
        detail: String,
    },
    /// The TLS library refused the configuration.
    #[error("TLS cannot be set up: {detail}")]
    Library {
        /// The library's message.
        detail: String,
    },
}

/// Reads the files and returns a configuration for one host. Done for each connection: connections
/// are few, and a renewed certificate applies from the next one on.
///
/// # Errors
/// See [`TlsSetupError`].
pub(crate) fn config(
    settings: &EncryptionSettings,
    host: &str,
) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let names =
        if settings.mode == SslMode::VerifyFull { Names::Host(host.into()) } else { Names::Any };
    let verifier = Verifier::new(trust(settings)?, names, &provider);
    let library = |e: rustls::Error| TlsSetupError::Library { detail: e.to_string() };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(library)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity(settings)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(library)?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = settings.name_indication;
    if settings.direct {
        config.alpn_protocols = vec![ALPN.to_vec()];
    }
    Ok(Arc::new(config))
}

/// Returns the name for the handshake. A host name that is not valid in DNS gets a placeholder:
/// [`verify`] decides whether it is the right server, not the handshake.
pub(crate) fn server_name(host: &str) -> ServerName<'static> {
    let fallback = || ServerName::IpAddress(IpAddr::from([0, 0, 0, 0]).into());
    ServerName::try_from(host.trim_end_matches('.').to_owned()).unwrap_or_else(|_| fallback())
}

/// Returns the channel binding data of SCRAM for this TLS session: the hash of the server's
/// certificate. Source: RFC 5929, section 4.1.
pub(crate) fn server_end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = certificate::signature_hash(certificate)?;
    Some(ring::digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// Returns the cause of a failed handshake, with the remedy if it is known.
pub(crate) fn explain(e: &std::io::Error) -> String {
    let Some(rustls) = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return e.to_string();
    };
    match rustls {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.to_string() {
                text if text.contains("UnsupportedCertVersion") => {
                    "the server's certificate is of X.509 version 1, which is not supported; \
                 sign it again with extensions \
                 (`openssl x509 -req … -extfile`, with a line `subjectAltName=DNS:<host>`)"
                        .into()
                }
                text => text,
            }
        }
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "no authority in `sslrootcert` has signed the server's certificate".into(),
        other => other.to_string(),
    }
}

/// Returns the trusted authorities. As in libpq, `require` checks the authority too if a file names
/// one.
fn trust(settings: &EncryptionSettings) -> Result<Trust, TlsSetupError> {
    let checks = settings.mode >= SslMode::VerifyCa;
    match &settings.root {
        Root::System => system_roots(),
        Root::File(path) if checks || (settings.mode == SslMode::Require && path.exists()) => {
            file_roots(path)
        }
        Root::File(_) => Ok(Trust::AnyServer),
        Root::Default => match own_file("root.crt").filter(|path| path.exists()) {
            Some(path) if settings.mode >= SslMode::Require => file_roots(&path),
            None if checks => Err(TlsSetupError::NoRoots {
                detail: "`sslmode` requires a check of the server's certificate, \
                     and there is no certificate to check \
                         it against; add `sslrootcert=FILE` (or `sslrootcert=system` with \
                         `sslmode=verify-full`)"
                    .into(),
            }),
            _ => Ok(Trust::AnyServer),
        },
    }
}

fn system_roots() -> Result<Trust, TlsSetupError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let detail = "`sslrootcert=system`: the system has no trusted certificates; \
                      install its package of them (often \
                      `ca-certificates`) or name a file";
        return Err(TlsSetupError::NoRoots { detail: detail.into() });
    }
    Ok(Trust::Roots { store: Arc::new(store), pinned: Vec::new() })
}

fn file_roots(path: &Path) -> Result<Trust, TlsSetupError> {
    let certificates = certificates("sslrootcert", path)?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.iter().cloned());
    // As in libpq, a certificate in the file is also trusted as a server's own, regardless of its
    // extensions.
    Ok(Trust::Roots { store: Arc::new(store), pinned: certificates })
}

/// Returns the client's certificate and key. libpq's own files are used if both exist.
fn identity(
    settings: &EncryptionSettings,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, TlsSetupError> {
    let named = settings.certificate.clone().zip(settings.key.clone());
    let own = || {
        own_file("postgresql.crt")
            .zip(own_file("postgresql.key"))
            .filter(|(c, k)| c.exists() && k.exists())
    };
    let Some((certificate, key)) = named.or_else(own) else { return Ok(None) };
    let chain = certificates("sslcert", &certificate)?;
    check_key_mode(&key)?;
    let pem = read("sslkey", &key)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsSetupError::File {
        setting: "sslkey",
        path: key,
        detail: "there is no private key in it that can be read; it must be PEM without a password"
            .into(),
    })?;
    Ok(Some((chain, key)))
}

/// Checks that only the owner can read a key; libpq requires the same.
fn check_key_mode(path: &Path) -> Result<(), TlsSetupError> {
    use std::os::unix::fs::MetadataExt as _;
    let error =
        |detail: String| TlsSetupError::File { setting: "sslkey", path: path.into(), detail };
    let meta = fs::metadata(path).map_err(|e| error(e.to_string()))?;
    let forbidden = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & forbidden != 0 {
        let detail =
            format!("mode {:03o} lets others read it; run `chmod 600` on it", meta.mode() & 0o777);
        return Err(error(detail));
    }
    Ok(())
}

fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let pem = read(setting, path)?;
    let error =
        |detail: &str| TlsSetupError::File { setting, path: path.into(), detail: detail.into() };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(error(
            "there is no certificate in it; it must be PEM, \
             with lines `-----BEGIN CERTIFICATE-----`",
        )),
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsSetupError> {
    use std::io::Read as _;
    let error = |detail: String| TlsSetupError::File { setting, path: path.into(), detail };
    let file = fs::File::open(path).map_err(|e| error(e.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| error(e.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(error(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn own_file(name: &str) -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| Path::new(&home).join(".postgresql").join(name))
}
