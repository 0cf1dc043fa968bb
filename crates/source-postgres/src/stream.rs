//! Byte stream to a server: a socket, with TLS if requested. Readers and the feed share it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::{Encryption, Host, Keepalive, Target};
use super::tls::{self, TlsSetupError};

/// Request for TLS. Source: PostgreSQL documentation, "Message Formats", SSLRequest.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A failed connection to a host. The texts are for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Network error.
    #[error("cannot connect to {host}: {detail}")]
    Network {
        /// Host as configured.
        host: String,
        /// Error of the operating system.
        detail: String,
    },
    /// The time limit passed.
    #[error("{host} did not answer in time while {step}")]
    Timeout {
        /// Host as configured.
        host: String,
        /// The step that was waited for.
        step: &'static str,
    },
    /// `sslmode` requires TLS; the server does not offer it.
    #[error(
        "{host} does not offer TLS, which `sslmode` requires; set `ssl = on` with a certificate \
         there, or use `sslmode=disable` on a network that you trust"
    )]
    TlsNotOffered {
        /// Host as configured.
        host: String,
    },
    /// The handshake failed, or the server's certificate is not accepted.
    #[error("TLS with {host} failed: {detail}")]
    Tls {
        /// Host as configured.
        host: String,
        /// Cause.
        detail: String,
    },
    /// Our own certificate files cannot be used.
    #[error(transparent)]
    Setup(#[from] TlsSetupError),
    /// The server refused the session.
    #[error("{host} refused the session: {detail} (SQLSTATE {code})")]
    Refused {
        /// Host as configured.
        host: String,
        /// SQLSTATE: five characters.
        code: String,
        /// The server's message, with a remedy if one is known.
        detail: String,
    },
    /// The session cannot be used, or the server is not PostgreSQL.
    #[error("{host}: {detail}")]
    Unusable {
        /// Host as configured.
        host: String,
        /// The rule and the remedy.
        detail: String,
    },
}

impl hotrow_source::preflight::OpenFailure for ConnectError {
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Network { .. } | Self::Timeout { .. })
    }
}

impl ConnectError {
    /// Returns whether the server refused the credential: class 28 of its codes.
    pub(crate) fn is_login(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code.starts_with("28"))
    }
}

impl ConnectError {
    /// Returns whether the other encryption mode may work: the handshake failed, or the server's
    /// access list (`pg_hba.conf`) refused this one.
    pub(crate) fn may_be_encryption(&self) -> bool {
        match self {
            Self::Tls { .. } | Self::TlsNotOffered { .. } => true,
            // Class 28: invalid authorization specification.
            Self::Refused { code, .. } => code.starts_with("28"),
            _ => false,
        }
    }
}

/// A connection to a server before PostgreSQL's session begins.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to `host`. [`Target::attempts`] returns the order in which to try `encryption`.
///
/// # Errors
/// See [`ConnectError`]; always one of them after `deadline`.
pub(crate) async fn open(
    target: &Target,
    host: &Host,
    encryption: Encryption,
    deadline: Instant,
) -> Result<Stream, ConnectError> {
    match host {
        Host::Unix { folder, port } => {
            let connected = within(
                host,
                "connecting",
                deadline,
                UnixStream::connect(Host::socket(folder, *port)),
            )
            .await?;
            Ok(Stream::Unix(connected.map_err(|e| network(host, &e))?))
        }
        Host::Tcp { name, .. } => {
            let tcp = open_tcp(target, host, deadline).await?;
            if encryption == Encryption::Plain {
                return Ok(Stream::Tcp(tcp));
            }
            let config = tls::config(&target.encryption, name)?;
            let mut tcp = tcp;
            if !target.encryption.direct {
                match within(host, "requesting TLS", deadline, request_tls(&mut tcp)).await? {
                    Ok(b'S') => {}
                    Ok(b'N') if encryption == Encryption::IfOffered => return Ok(Stream::Tcp(tcp)),
                    Ok(b'N') => return Err(ConnectError::TlsNotOffered { host: host.to_string() }),
                    Ok(_) => {
                        return Err(tls_error(
                            host,
                            "the server's answer to the request for TLS is not PostgreSQL's",
                        ));
                    }
                    Err(e) => return Err(network(host, &e)),
                }
            }
            let handshake = TlsConnector::from(config).connect(tls::server_name(name), tcp);
            let connected = within(host, "setting up TLS", deadline, handshake).await?;
            Ok(Stream::Tls(Box::new(connected.map_err(|e| tls_error(host, &tls::explain(&e)))?)))
        }
    }
}

impl Stream {
    /// Returns the channel binding data of SCRAM for this TLS session (`tls-server-end-point`).
    pub(crate) fn server_end_point(&self) -> Option<Vec<u8>> {
        match self {
            Self::Tls(stream) => {
                tls::server_end_point(stream.get_ref().1.peer_certificates()?.first()?)
            }
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }
}

/// Tries the addresses of a name one after the other, each with an equal share of the remaining
/// time.
async fn open_tcp(
    target: &Target,
    host: &Host,
    deadline: Instant,
) -> Result<TcpStream, ConnectError> {
    let addresses = addresses(host, deadline).await?;
    let mut last = network(host, &io::Error::other("the name has no address"));
    for (i, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        // Fits: at most `ADDRESSES_MAX`.
        let share = Instant::now() + left / (addresses.len() - i) as u32;
        match within(host, "connecting", share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                tune(&stream, &target.keepalive).map_err(|e| network(host, &e))?;
                return Ok(stream);
            }
            Ok(Err(e)) => last = network(host, &e),
            Err(timeout) => last = timeout,
        }
    }
    Err(last)
}

async fn addresses(host: &Host, deadline: Instant) -> Result<Vec<SocketAddr>, ConnectError> {
    match host {
        Host::Tcp { address: Some(address), port, .. } => {
            Ok(vec![SocketAddr::new(*address, *port)])
        }
        Host::Tcp { name, port, .. } => {
            let found = within(
                host,
                "resolving its name",
                deadline,
                tokio::net::lookup_host((name.as_str(), *port)),
            );
            let found = found.await?.map_err(|e| network(host, &e))?;
            Ok(found.take(ADDRESSES_MAX).collect())
        }
        Host::Unix { .. } => Ok(Vec::new()),
    }
}

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

fn tune(stream: &TcpStream, keepalive: &Keepalive) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if keepalive.enabled {
        let settings =
            TcpKeepalive::new().with_time(keepalive.idle).with_interval(keepalive.interval);
        socket.set_tcp_keepalive(&settings.with_retries(keepalive.count))?;
    }
    socket.set_tcp_user_timeout(keepalive.user_timeout)
}

/// Sends the request for TLS and reads the one byte of the answer. Unencrypted bytes after it would
/// be an attack; they stay in the socket, where they make the handshake fail.
async fn request_tls(tcp: &mut TcpStream) -> io::Result<u8> {
    tcp.write_all(&SSL_REQUEST).await?;
    tcp.read_u8().await
}

/// Waits for `work`, at most until the deadline.
pub(crate) async fn within<F: Future>(
    host: &Host,
    step: &'static str,
    deadline: Instant,
    work: F,
) -> Result<F::Output, ConnectError> {
    timeout_at(deadline, work)
        .await
        .map_err(|_| ConnectError::Timeout { host: host.to_string(), step })
}

fn network(host: &Host, e: &io::Error) -> ConnectError {
    ConnectError::Network { host: host.to_string(), detail: e.to_string() }
}

fn tls_error(host: &Host, detail: &str) -> ConnectError {
    ConnectError::Tls { host: host.to_string(), detail: detail.into() }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_write(cx, buf),
            Self::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
