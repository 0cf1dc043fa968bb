//! TLS of a listener: one configuration for all workers, replaced as a whole when its files
//! change.
//!
//! Reading order: here, `files` (from files to checked certificates).

pub mod files;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use hotrow_config::transport::{ClientCertificates, Tls, Transport};
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};

use self::files::{Certificates, TlsError};
use crate::file_watch::{self, Stamps, Watched};

/// Most sessions that are kept for clients of TLS 1.2 without tickets.
const SESSIONS_MAX: usize = 1024;
/// Seconds before the end of a certificate's validity at which the log warns: shorter than what
/// issuers of certificates for some days leave.
const EXPIRES_SOON_S: u64 = 24 * 3_600;
/// Protocols that clients may choose (ALPN).
pub const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
const REDIS: &[u8] = b"redis";

/// TLS configuration in force.
#[derive(Debug)]
pub struct TlsEndpoint {
    settings: Tls,
    /// `true`: clients may choose HTTP/2.
    http2: bool,
    current: RwLock<Arc<ServerConfig>>,
    source: Mutex<Source>,
    /// End of the certificate's validity.
    expires_unix_s: AtomicU64,
    reloads_total: AtomicU64,
    refused_total: AtomicU64,
    /// What the log says of the end of the validity: 1: it is near, 2: it has passed.
    warned: AtomicU8,
}

/// TLS of the two addresses, where they have it.
#[derive(Clone, Debug, Default)]
pub struct ListenerTls {
    /// Of the data address.
    pub data: Option<Arc<TlsEndpoint>>,
    /// Of the admin address.
    pub admin: Option<Arc<TlsEndpoint>>,
}

impl ListenerTls {
    /// Returns each by the address's name in metrics.
    pub fn named(&self) -> Vec<(&'static str, &Arc<TlsEndpoint>)> {
        let all = [("data", &self.data), ("admin", &self.admin)];
        all.into_iter().filter_map(|(name, tls)| Some((name, tls.as_ref()?))).collect()
    }
}

/// What the configuration in force was made of.
#[derive(Debug)]
struct Source {
    certificates: Certificates,
    stamps: Stamps,
}

impl TlsEndpoint {
    /// Reads the files of an address that has TLS.
    ///
    /// # Errors
    /// As [`TlsEndpoint::load`].
    pub fn of(transport: &Transport) -> Result<Option<Arc<Self>>, TlsError> {
        let Transport { tls, http2, .. } = transport;
        tls.as_ref().map(|tls| Self::load(tls, *http2)).transpose()
    }

    /// Reads the files. `http2`: clients may choose HTTP/2.
    ///
    /// # Errors
    /// A file is missing or malformed, or certificate and key differ.
    pub fn load(settings: &Tls, http2: bool) -> Result<Arc<Self>, TlsError> {
        let stamps = stamps(settings);
        let certificates = Certificates::read(settings)?;
        let config = server_config(settings, http2, &certificates, None)?;
        let endpoint = Self {
            settings: settings.clone(),
            http2,
            current: RwLock::new(Arc::new(config)),
            expires_unix_s: AtomicU64::new(certificates.expires_unix_s()),
            source: Mutex::new(Source { certificates, stamps }),
            reloads_total: AtomicU64::new(0),
            refused_total: AtomicU64::new(0),
            warned: AtomicU8::new(0),
        };
        endpoint.warn_of_expiry(unix_s());
        Ok(Arc::new(endpoint))
    }

    /// Returns the configuration for a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read())
    }

    /// Returns the same for the Redis protocol. A client that offers HTTP is refused: a page must
    /// not be able to make a browser send commands.
    pub fn config_of_redis(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.current.read());
        config.alpn_protocols = vec![REDIS.to_vec()];
        Arc::new(config)
    }

    /// Returns the end of the certificate's validity.
    pub fn expires_unix_s(&self) -> u64 {
        self.expires_unix_s.load(Ordering::Relaxed)
    }

    /// Returns how often changed files were taken over, and how often they were refused.
    pub fn reloads(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.reloads_total), read(&self.refused_total))
    }

    /// Logs once that the end of the validity is near, and once that it has passed. An expired
    /// certificate is used: without it no client would be served.
    fn warn_of_expiry(&self, now_s: u64) {
        let expires_s = self.expires_unix_s();
        let stage = u8::from(now_s + EXPIRES_SOON_S >= expires_s) + u8::from(now_s > expires_s);
        if stage <= self.warned.fetch_max(stage, Ordering::Relaxed) {
            return;
        }
        let file = self.settings.certificate.display();
        if stage == 2 {
            tracing::error!(%file, "the certificate has expired, so clients refuse it; replace it");
        } else {
            let hours = expires_s.saturating_sub(now_s) / 3_600;
            tracing::warn!(%file, hours, "the certificate expires soon; replace it");
        }
    }

    /// Takes the files over as they are now, or keeps the configuration. Sessions continue unless
    /// the accepted client certificates have changed.
    fn take_over(&self, stamps: Stamps) -> Result<(), TlsError> {
        let mut source = self.source.lock();
        source.stamps = stamps;
        let reloaded = Certificates::read(&self.settings).and_then(|certificates| {
            let before = self.config();
            let same_clients = certificates.has_same_clients(&source.certificates);
            let sessions = same_clients.then_some(&*before);
            let config = server_config(&self.settings, self.http2, &certificates, sessions)?;
            Ok((certificates, config))
        });
        match reloaded {
            Ok((certificates, config)) => {
                self.warned.store(0, Ordering::Relaxed);
                *self.current.write() = Arc::new(config);
                self.expires_unix_s.store(certificates.expires_unix_s(), Ordering::Relaxed);
                self.reloads_total.fetch_add(1, Ordering::Relaxed);
                source.certificates = certificates;
                Ok(())
            }
            Err(error) => {
                self.refused_total.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

impl Watched for TlsEndpoint {
    fn stamps(&self) -> Stamps {
        stamps(&self.settings)
    }

    fn taken(&self) -> Stamps {
        self.source.lock().stamps.clone()
    }

    fn look(&self) {
        self.warn_of_expiry(unix_s());
    }

    fn reload(&self, now: Stamps) {
        match self.take_over(now) {
            Ok(()) => {
                let source = self.source.lock();
                let valid_until = source.certificates.expires();
                tracing::info!(valid_until, "new certificate files are in force");
            }
            Err(error) => tracing::error!(
                %error,
                "changed certificate files are refused; the previous ones stay in force"
            ),
        }
    }
}

/// Starts the thread that takes changed files over until everything must end.
///
/// # Errors
/// The system has no thread left.
pub fn start(
    endpoint: Arc<TlsEndpoint>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    file_watch::start("certificates", endpoint, shutdown, supervisor)
}

fn stamps(settings: &Tls) -> Stamps {
    let client_ca: Option<&Path> = match &settings.clients {
        ClientCertificates::Ignored => None,
        ClientCertificates::Optional(path) | ClientCertificates::Required(path) => Some(path),
    };
    Stamps::of([&*settings.certificate, &*settings.key].into_iter().chain(client_ca))
}

/// Returns the configuration with these certificates. `sessions`: configuration whose sessions can
/// be resumed.
fn server_config(
    settings: &Tls,
    http2: bool,
    certificates: &Certificates,
    sessions: Option<&ServerConfig>,
) -> Result<ServerConfig, TlsError> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let rejected = |error: rustls::Error| TlsError::rejected(settings, &error);
    // TLS 1.2 and 1.3 with the suites that rustls considers safe.
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(rejected)?;
    let builder = match (&certificates.client_roots, &settings.clients) {
        (Some(roots), ClientCertificates::Optional(path) | ClientCertificates::Required(path)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider);
            let verifier = match settings.clients {
                ClientCertificates::Optional(_) => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier =
                verifier.build().map_err(|error| TlsError::client_ca(path, &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(certificates.chain.clone(), certificates.key.clone_key())
        .map_err(rejected)?;
    let protocols: &[&[u8]] = if http2 { &[HTTP2, HTTP1] } else { &[HTTP1] };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    match sessions {
        Some(before) => {
            config.ticketer = Arc::clone(&before.ticketer);
            config.session_storage = Arc::clone(&before.session_storage);
        }
        None => {
            config.ticketer = ring::Ticketer::new().map_err(rejected)?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
    }
    Ok(config)
}

/// Returns the time of the system in seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
