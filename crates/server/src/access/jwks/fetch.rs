//! Fetch of a JWKS by HTTP/1.1: one request, whose time and answer are bounded. Redirects are not
//! followed: the configuration names the address that is trusted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hotrow_access::jwks::JWKS_BYTES_MAX;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::access::JwksUrl;
use crate::file_watch;

/// Longest time for a fetch, from the resolution of the name to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a file of roots: those of a system have about 250 KiB.
const ROOTS_BYTES_MAX: usize = 4 << 20;

/// Reason for which a fetch has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// It took too long.
    #[error("no complete answer within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    /// No connection, or no TLS.
    #[error("cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    /// The host cannot be in a certificate.
    #[error("its host is no name that a certificate can have: {0}")]
    Host(#[from] InvalidDnsNameError),
    /// The file of roots cannot be used.
    #[error("jwks_ca {} {rule}", .path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        rule: String,
    },
    /// The system has no roots.
    #[error("this system has no root certificates; install them, or set jwks_ca")]
    NoRoots,
    /// The connection or the message failed.
    #[error("the answer is no HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The request cannot be made of the URL.
    #[error("the URL cannot be requested: {0}")]
    Request(#[from] http::Error),
    /// Another status than 200.
    #[error("answers {0}, not 200; redirects are not followed: name the last URL")]
    Status(StatusCode),
    /// The body is too large.
    #[error("answers more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
}

/// A connection, with TLS or without.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Fetches the text at a URL. `ca`: roots to which the server's certificate must lead, read anew;
/// `None`: the system's.
pub(super) async fn fetch(url: &JwksUrl, ca: Option<&Path>) -> Result<Vec<u8>, FetchError> {
    timeout(FETCH_TIMEOUT, within_time(url, ca)).await.unwrap_or(Err(FetchError::TimedOut))
}

async fn within_time(url: &JwksUrl, ca: Option<&Path>) -> Result<Vec<u8>, FetchError> {
    let connection = connect(url, ca).await?;
    let (mut sender, connection) = Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake::<_, String>(TokioIo::new(connection))
        .await?;
    // Ends with this function.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::get(&*url.target)
        .header(HOST, &*url.authority)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, concat!("hotrow/", env!("CARGO_PKG_VERSION")))
        .body(String::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    body(answer).await
}

async fn body(answer: Response<Incoming>) -> Result<Vec<u8>, FetchError> {
    let mut incoming = answer.into_body();
    let mut text = Vec::new();
    loop {
        let next =
            |cx: &mut std::task::Context<'_>| std::pin::Pin::new(&mut incoming).poll_frame(cx);
        let Some(frame) = std::future::poll_fn(next).await else { return Ok(text) };
        let data: Bytes = frame?.into_data().unwrap_or_default();
        if text.len() + data.len() > JWKS_BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        text.extend_from_slice(&data);
    }
}

async fn connect(url: &JwksUrl, ca: Option<&Path>) -> Result<Box<dyn Connection>, FetchError> {
    // Before the connection: a missing file is the more useful error.
    let tls = if url.is_tls { Some(TlsConnector::from(client_config(ca)?)) } else { None };
    let host = &*url.host;
    let stream = TcpStream::connect((host, url.port)).await.map_err(FetchError::Connect)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned())?;
    let stream = tls.connect(name, stream).await.map_err(FetchError::Connect)?;
    Ok(Box::new(stream))
}

fn client_config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, FetchError> {
    let roots = match ca {
        Some(path) => roots_of_file(path)?,
        None => {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(FetchError::NoRoots);
            }
            store
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // The provider has suites of both versions, so this cannot fail.
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchError::Connect(io::Error::other(error)))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, FetchError> {
    let refuse = |rule: String| FetchError::Roots { path: path.to_owned(), rule };
    let pem = file_watch::read(path, ROOTS_BYTES_MAX)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?
        .ok_or_else(|| refuse(format!("is larger than {ROOTS_BYTES_MAX} bytes")))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate =
            certificate.map_err(|error| refuse(format!("is not in PEM form: {error}")))?;
        store
            .add(certificate)
            .map_err(|error| refuse(format!("has an unusable certificate: {error}")))?;
    }
    if store.is_empty() {
        return Err(refuse("has no certificate in PEM form".to_owned()));
    }
    Ok(store)
}
