//! Non-blocking sockets, with or without TLS.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ClientConnection;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::target::Address;
use crate::tls::Tls;

/// One side of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(OwnedFd),
    Secure(Box<Secure>),
}

#[derive(Debug)]
pub(crate) struct Secure {
    socket: OwnedFd,
    tls: ClientConnection,
}

/// What reading came to.
#[derive(Debug)]
pub(crate) enum Input {
    /// This many bytes. `drained` when there was no more at that moment.
    Bytes { n: usize, drained: bool },
    /// None now.
    Blocked,
    /// None ever.
    End,
}

/// Why a stream cannot be used any more.
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

/// Begins to connect. The connection is there when the socket can be written. Nothing that is sent on it waits for the
/// acknowledgement of what went before: neither a further request nor the rest of a large one.
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
        Some(tls) => Stream::Secure(Box::new(Secure { socket, tls: tls.connect()? })),
    })
}

impl Stream {
    pub(crate) fn socket(&self) -> &OwnedFd {
        match self {
            Self::Plain(socket) => socket,
            Self::Secure(secure) => &secure.socket,
        }
    }

    /// How connecting went, once the socket can be written.
    pub(crate) fn connected(&self) -> Result<(), StreamError> {
        Ok(rustix::net::sockopt::socket_error(self.socket())??)
    }

    /// Goes on with the TLS handshake; true when it is over, as it is at once without TLS.
    pub(crate) fn shake_hands(&mut self) -> Result<bool, StreamError> {
        let Self::Secure(secure) = self else { return Ok(true) };
        let Secure { socket, tls } = &mut **secure;
        while tls.is_handshaking() {
            push(tls, socket)?;
            match pull(tls, socket)? {
                Pulled::Some => {}
                Pulled::Blocked => break,
                Pulled::End => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
        push(tls, socket)?;
        Ok(!tls.is_handshaking())
    }

    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<Input, StreamError> {
        match self {
            Self::Plain(socket) => {
                let room = into.len();
                match rustix::net::recv(&*socket, into, RecvFlags::empty()) {
                    Ok((0, _)) => Ok(Input::End),
                    // A stream socket that gives less than was asked for is empty: epoll(7).
                    Ok((n, _)) => Ok(Input::Bytes { n, drained: n < room }),
                    Err(Errno::AGAIN) => Ok(Input::Blocked),
                    Err(Errno::INTR) => Ok(Input::Bytes { n: 0, drained: false }),
                    Err(e) => Err(e.into()),
                }
            }
            Self::Secure(secure) => secure.read(into),
        }
    }

    /// Writes what the socket takes now; the number of bytes that need not be given again.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        match self {
            Self::Plain(socket) => match rustix::net::send(&*socket, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => Ok(n),
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                Err(e) => Err(e.into()),
            },
            Self::Secure(secure) => {
                // The library keeps what the socket does not take, up to its own limit.
                let n = secure.tls.writer().write(bytes)?;
                push(&mut secure.tls, &secure.socket)?;
                Ok(n)
            }
        }
    }

    /// Sends what TLS still holds back.
    pub(crate) fn flush(&mut self) -> Result<(), StreamError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secure(secure) => push(&mut secure.tls, &secure.socket),
        }
    }
}

impl Secure {
    fn read(&mut self, into: &mut [u8]) -> Result<Input, StreamError> {
        loop {
            match self.tls.reader().read(into) {
                Ok(0) => return Ok(Input::End),
                Ok(n) => return Ok(Input::Bytes { n, drained: false }),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Input::End),
                Err(e) => return Err(e.into()),
            }
            match pull(&mut self.tls, &self.socket)? {
                Pulled::Some => {}
                Pulled::Blocked => {
                    // Key updates and the like are answered at once.
                    push(&mut self.tls, &self.socket)?;
                    return Ok(Input::Blocked);
                }
                Pulled::End => return Ok(Input::End),
            }
        }
    }
}

enum Pulled {
    Some,
    Blocked,
    End,
}

fn pull(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<Pulled, StreamError> {
    let pulled = match tls.read_tls(&mut Raw(socket)) {
        Ok(0) => Pulled::End,
        Ok(_) => Pulled::Some,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Pulled::Blocked,
        Err(e) => return Err(e.into()),
    };
    if let Err(e) = tls.process_new_packets() {
        // The server should hear why, as far as the socket takes it; the error is told anyway.
        let _ = push(tls, socket);
        return Err(e.into());
    }
    Ok(pulled)
}

fn push(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<(), StreamError> {
    while tls.wants_write() {
        match tls.write_tls(&mut Raw(socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A socket as the library wants it.
struct Raw<'a>(&'a OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0.as_fd(), into, RecvFlags::empty())?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
