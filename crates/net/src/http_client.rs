//! Client of HTTP/1.1 for what the program itself requests: keys of tokens, the export of traces,
//! and purges. The caller bounds the time; head and body of an answer are bounded here. Redirects
//! are not followed: the configuration names the address that is trusted.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hotrow_config::http_url::HttpUrl;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::file_watch;

/// Name and version of the program, for `User-Agent`.
pub const PROGRAM: &str = concat!("hotrow/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a file of roots: those of a system have about 250 KiB.
const ROOTS_BYTES_MAX: usize = 4 << 20;

/// Reason for which a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection, or no TLS.
    #[error("cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    /// The host cannot be in a certificate.
    #[error("its host is no name that a certificate can have: {0}")]
    Host(#[from] InvalidDnsNameError),
    /// The file of roots cannot be used.
    #[error("the file of root certificates {} {rule}", .path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        rule: String,
    },
    /// The system has no roots.
    #[error(
        "this system has no root certificates; install them, or name a file of them in the \
         configuration"
    )]
    NoRoots,
    /// The connection or the message failed.
    #[error("the answer is no HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The body is too large.
    #[error("answers more than {0} bytes")]
    TooLarge(usize),
}

/// Body of a request, as a whole.
#[derive(Debug, Default)]
pub struct Whole(pub Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// A connection, with TLS or without.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// An open connection. It ends when dropped.
pub struct Connection {
    sender: SendRequest<Whole>,
    _driver: JoinSet<Result<(), hyper::Error>>,
}

impl Connection {
    /// Connects. `roots`: file of the roots to which the server's certificate must lead, read anew;
    /// `None`: the system's.
    pub async fn open(url: &HttpUrl, roots: Option<&Path>) -> Result<Self, ClientError> {
        let transport = connect(url, roots).await?;
        let (sender, connection) =
            Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(transport)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Self { sender, _driver: driver })
    }

    /// Waits until another request can be sent. `false`: the connection has ended.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and returns the head of its answer.
    pub async fn send(
        &mut self,
        request: Request<Whole>,
    ) -> Result<Response<Incoming>, ClientError> {
        Ok(self.sender.send_request(request).await?)
    }
}

/// Returns the body of an answer, at most `bytes_max` of it.
pub async fn body(answer: Response<Incoming>, bytes_max: usize) -> Result<Vec<u8>, ClientError> {
    let mut incoming = answer.into_body();
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
        let data: Bytes = frame?.into_data().unwrap_or_default();
        if text.len() + data.len() > bytes_max {
            return Err(ClientError::TooLarge(bytes_max));
        }
        text.extend_from_slice(&data);
    }
    Ok(text)
}

async fn connect(url: &HttpUrl, roots: Option<&Path>) -> Result<Box<dyn Transport>, ClientError> {
    // Before the connection: a missing file is the more useful error.
    let tls = if url.is_tls { Some(TlsConnector::from(client_config(roots)?)) } else { None };
    let host = &*url.host;
    let stream = TcpStream::connect((host, url.port)).await.map_err(ClientError::Connect)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned())?;
    let stream = tls.connect(name, stream).await.map_err(ClientError::Connect)?;
    Ok(Box::new(stream))
}

fn client_config(roots: Option<&Path>) -> Result<Arc<ClientConfig>, ClientError> {
    let roots = match roots {
        Some(path) => roots_of_file(path)?,
        None => {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(ClientError::NoRoots);
            }
            store
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // The provider has suites of both versions, so this cannot fail.
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Connect(io::Error::other(error)))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, ClientError> {
    let refuse = |rule: String| ClientError::Roots { path: path.to_owned(), rule };
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
