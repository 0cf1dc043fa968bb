//! Byte stream of a connection, whatever carries it.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::direct::Direct;

/// Byte stream of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// `true`: the end of the stream is announced by bytes of its own, which closing does not send.
    const ANNOUNCES_END: bool = false;
    /// The client could choose a protocol by ALPN.
    const IS_TLS: bool = false;

    /// Closes without sending what the kernel still holds, so that it does not keep the unsent
    /// answer for a client that does not read.
    fn reset(self);
}

impl Stream for Direct<TcpStream> {
    fn reset(self) {
        // If it cannot be set, the kernel discards the data in its own time.
        let _ = SockRef::from(&self.0).set_linger(Some(Duration::ZERO));
    }
}

impl Stream for TlsStream<Direct<TcpStream>> {
    const ANNOUNCES_END: bool = true;
    const IS_TLS: bool = true;

    fn reset(self) {
        self.into_inner().0.reset();
    }
}

impl Stream for Direct<UnixStream> {
    /// What the kernel holds is in the client's own receive queue.
    fn reset(self) {}
}
