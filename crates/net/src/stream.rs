//! Byte stream of a connection, whatever carries it.

use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::direct::Direct;

/// Bytes of answers from which the kernel takes no more before it has sent some. Bytes on their way
/// are not among them: a fast client far away has as many as its window allows.
const UNSENT_BYTES: u32 = 64 << 10;

/// Bounds what the kernel holds for clients that do not read. Connections inherit it from their
/// listener when the kernel completes them, so it is set before it listens; one that was listening
/// already is of a process before this one, or of the service manager.
pub(crate) fn bound_unsent(listener: &impl AsFd) {
    // Where it cannot be set, the kernel holds up to `tcp_wmem`.
    let _ = SockRef::from(listener).set_tcp_notsent_lowat(UNSENT_BYTES);
}

/// Byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {
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
