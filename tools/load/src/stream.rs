//! Non-blocking sockets, with or without TLS.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ClientConnection;
use socket2::{Domain, SockAddr, Socket, Type};

use hotrow_transport::target::Address;
use hotrow_transport::tls::Tls;

/// A connection's byte stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(OwnedFd),
    TlsStream(Box<TlsStream>),
}

#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: OwnedFd,
    tls: ClientConnection,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum ReadResult {
    /// This many bytes. `drained` when the socket was then empty.
    Bytes { n: usize, drained: bool },
    /// No bytes now.
    Blocked,
    /// End of stream.
    End,
    /// End of a TLS stream without its `close_notify`: bytes may be missing (RFC 8446 section 6.1).
    Truncated,
}

/// Reasons why a stream cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl From<Errno> for StreamError {
    fn from(errno: Errno) -> Self {
        Self::Socket(errno.into())
    }
}

/// Begins to connect; the connection is open when the socket is writable. `TCP_NODELAY` is set: no
/// send waits for the acknowledgement of earlier bytes.
pub(crate) fn connect(address: &Address, tls: Option<&Tls>) -> Result<Stream, StreamError> {
    let (domain, target) = match address {
        Address::Tcp(to) => (Domain::for_address(*to), SockAddr::from(*to)),
        Address::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
    if matches!(address, Address::Tcp(_)) {
        socket.set_tcp_nodelay(true)?;
    }
    match socket.connect(&target) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e.into()),
    }
    let socket = OwnedFd::from(socket);
    Ok(match tls {
        None => Stream::Plain(socket),
        Some(tls) => Stream::TlsStream(Box::new(TlsStream { socket, tls: tls.connect()? })),
    })
}

impl Stream {
    pub(crate) fn socket(&self) -> &OwnedFd {
        match self {
            Self::Plain(socket) => socket,
            Self::TlsStream(secure) => &secure.socket,
        }
    }

    /// Returns the result of connecting, once the socket is writable.
    pub(crate) fn connected(&self) -> Result<(), StreamError> {
        Ok(rustix::net::sockopt::socket_error(self.socket())??)
    }

    /// Returns the protocol that the TLS server has chosen, if any; `None` without TLS.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::TlsStream(secure) => secure.tls.alpn_protocol(),
        }
    }

    /// Continues the TLS handshake; returns true when complete, which is at once without TLS.
    pub(crate) fn continue_handshake(&mut self) -> Result<bool, StreamError> {
        let Self::TlsStream(secure) = self else { return Ok(true) };
        let TlsStream { socket, tls } = &mut **secure;
        while tls.is_handshaking() {
            push(tls, socket)?;
            match pull(tls, socket)? {
                TlsReadResult::Some => {}
                TlsReadResult::Blocked => break,
                TlsReadResult::End => {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
        }
        push(tls, socket)?;
        Ok(!tls.is_handshaking())
    }

    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<ReadResult, StreamError> {
        match self {
            Self::Plain(socket) => {
                let room = into.len();
                match rustix::net::recv(&*socket, into, RecvFlags::empty()) {
                    Ok((0, _)) => Ok(ReadResult::End),
                    // A stream socket that returns less than the requested size is empty: epoll(7).
                    Ok((n, _)) => Ok(ReadResult::Bytes { n, drained: n < room }),
                    Err(Errno::AGAIN) => Ok(ReadResult::Blocked),
                    Err(Errno::INTR) => Ok(ReadResult::Bytes { n: 0, drained: false }),
                    Err(e) => Err(e.into()),
                }
            }
            Self::TlsStream(secure) => secure.read(into),
        }
    }

    /// Writes as much as the socket accepts; returns the number of bytes that need not be passed
    /// again.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        match self {
            Self::Plain(socket) => match rustix::net::send(&*socket, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => Ok(n),
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                Err(e) => Err(e.into()),
            },
            Self::TlsStream(secure) => {
                // The library buffers what the socket does not accept, up to its own limit.
                let n = secure.tls.writer().write(bytes)?;
                push(&mut secure.tls, &secure.socket)?;
                Ok(n)
            }
        }
    }

    /// Sends the bytes that TLS still buffers.
    pub(crate) fn flush(&mut self) -> Result<(), StreamError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::TlsStream(secure) => push(&mut secure.tls, &secure.socket),
        }
    }
}

impl TlsStream {
    fn read(&mut self, into: &mut [u8]) -> Result<ReadResult, StreamError> {
        loop {
            match self.tls.reader().read(into) {
                Ok(0) => return Ok(ReadResult::End),
                Ok(n) => return Ok(ReadResult::Bytes { n, drained: false }),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(ReadResult::Truncated);
                }
                Err(e) => return Err(e.into()),
            }
            match pull(&mut self.tls, &self.socket)? {
                TlsReadResult::Some => {}
                TlsReadResult::Blocked => {
                    // Key updates and similar messages are answered at once.
                    push(&mut self.tls, &self.socket)?;
                    return Ok(ReadResult::Blocked);
                }
                TlsReadResult::End => return Ok(ReadResult::Truncated),
            }
        }
    }
}

enum TlsReadResult {
    Some,
    Blocked,
    End,
}

fn pull(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<TlsReadResult, StreamError> {
    let pulled = match tls.read_tls(&mut RawSocket(socket)) {
        Ok(0) => TlsReadResult::End,
        Ok(_) => TlsReadResult::Some,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => TlsReadResult::Blocked,
        Err(e) => return Err(e.into()),
    };
    if let Err(e) = tls.process_new_packets() {
        // Sends the alert to the server as far as the socket accepts it; the error is reported
        // anyway.
        let _ = push(tls, socket);
        return Err(e.into());
    }
    Ok(pulled)
}

fn push(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<(), StreamError> {
    while tls.wants_write() {
        match tls.write_tls(&mut RawSocket(socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A socket with the interface that the TLS library expects.
struct RawSocket<'a>(&'a OwnedFd);

impl Read for RawSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0.as_fd(), into, RecvFlags::empty())?.0)
    }
}

impl Write for RawSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
