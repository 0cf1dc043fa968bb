//! TLS to PostgreSQL, by the parameters of `source.url`: those of libpq.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use hotrow_transport::tls::{ClientIdentity, Tls, TlsError, TlsOptions, Trust};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Config, Error, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;
use tokio_rustls::rustls::pki_types::ServerName;

use super::DatabaseError;
use super::parameters::{parameters, refused};

/// Name of the protocol, which PostgreSQL 17 expects.
const ALPN: &[u8] = b"postgresql";

/// Starts TLS on connections. Files are read for each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct PostgresTls(TlsOptions);

/// TLS with one host.
pub(super) struct HostTls(TlsConnector, ServerName<'static>);

/// An encrypted connection.
pub(super) struct TlsSocket(Encrypted<Socket>);

/// Returns the driver's settings. Its own parser knows none of the files, and fewer modes.
pub(super) fn options(url: &str) -> Result<(Config, PostgresTls), DatabaseError> {
    let (mut known, query) = url
        .split_once('?')
        .map_or((url.to_owned(), ""), |(address, query)| (format!("{address}?"), query));
    let (mut mode, mut root, mut certificate, mut key) = (None, None, None, None);
    for pair in query.split('&') {
        let Some((name, value)) = parameters(pair).pop() else { continue };
        match name.as_str() {
            "sslmode" => mode = Some(value),
            "sslrootcert" => root = Some(value),
            "sslcert" => certificate = Some(PathBuf::from(value)),
            "sslkey" => key = Some(PathBuf::from(value)),
            "sslsni"
            | "gssencmode"
            | "client_encoding"
            | "fallback_application_name"
            | "keepalives_count" => {}
            _ => known = known + pair + "&",
        }
    }
    // The error names the wrong part and no password.
    let mut config: Config = (known.trim_end_matches(['&', '?']).parse())
        .map_err(|error: Error| DatabaseError::Permanent(error.to_string()))?;
    let default = match root.as_deref() {
        Some("system") => "verify-full",
        _ => "prefer",
    };
    let mode = mode.as_deref().unwrap_or(default);
    let own = |name| std::env::home_dir().map(|home| home.join(".postgresql").join(name));
    let root = root.map(PathBuf::from).or_else(|| own("root.crt").filter(|path| path.is_file()));
    config.ssl_mode(match mode {
        "disable" => SslMode::Disable,
        "allow" | "prefer" => SslMode::Prefer,
        "require" | "verify-ca" | "verify-full" => SslMode::Require,
        _ => return Err(refused("sslmode", mode)),
    });
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        // A socket cannot be tapped.
        config.ssl_mode(SslMode::Disable);
    }
    let trust = match (mode, root) {
        ("verify-full", Some(root)) if root.as_os_str() == "system" => Trust::System,
        ("verify-full", Some(root)) => Trust::Authority(root),
        ("require" | "verify-ca", Some(root)) => Trust::AuthorityOfAnyName(root),
        ("verify-ca" | "verify-full", None) => return Err(refused("sslmode", mode)),
        _ => Trust::Anyone,
    };
    let certificate = certificate.or_else(|| own("postgresql.crt").filter(|path| path.is_file()));
    let key = key.or_else(|| own("postgresql.key"));
    let identity =
        certificate.zip(key).map(|(certificate, key)| ClientIdentity { certificate, key });
    Ok((config, PostgresTls(TlsOptions { trust, identity, ..TlsOptions::default() })))
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = TlsSocket;
    type TlsConnect = HostTls;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostTls, TlsError> {
        // The driver asks for a socket too, which has no name and no TLS.
        let host = if host.is_empty() { "localhost" } else { host };
        let (config, name) = Tls::new(host, &self.0)?.parts();
        let mut config = (*config).clone();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(HostTls(TlsConnector::from(std::sync::Arc::new(config)), name))
    }
}

impl TlsConnect<Socket> for HostTls {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, socket).await.map(TlsSocket) })
    }
}

impl TlsStream for TlsSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
