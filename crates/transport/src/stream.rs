//! A blocking connection: TCP or a Unix socket, with or without TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use crate::target::Address;
use crate::tls::Tls;

/// A blocking connection.
#[derive(Debug)]
pub enum BlockingStream {
    /// Without TLS.
    Plain(PlainStream),
    /// With TLS.
    Secure(Box<StreamOwned<ClientConnection, PlainStream>>),
}

/// A blocking socket.
#[derive(Debug)]
pub enum PlainStream {
    /// TCP, without Nagle's algorithm.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl BlockingStream {
    /// Connects within `timeout`. The TLS handshake follows with the first bytes written, or with
    /// [`BlockingStream::handshake`].
    ///
    /// # Errors
    /// Fails when the connection is not accepted in time.
    pub fn connect(
        address: &Address,
        tls: Option<&Tls>,
        timeout: Duration,
    ) -> Result<Self, io::Error> {
        let plain = PlainStream::connect(address, timeout)?;
        Ok(match tls {
            None => Self::Plain(plain),
            Some(tls) => {
                let session = tls.connect().map_err(io::Error::other)?;
                Self::Secure(Box::new(StreamOwned::new(session, plain)))
            }
        })
    }

    /// Completes the TLS handshake, each read and write within `timeout`.
    ///
    /// # Errors
    /// Fails when the server's certificate is not accepted, or the server rejects the client.
    pub fn handshake(&mut self, timeout: Duration) -> Result<(), io::Error> {
        self.set_timeout(timeout)?;
        if let Self::Secure(secure) = self {
            while secure.conn.is_handshaking() {
                secure.conn.complete_io(&mut secure.sock)?;
            }
        }
        Ok(())
    }

    /// Bounds each following read and write.
    ///
    /// # Errors
    /// Fails when `timeout` is zero.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), io::Error> {
        match self.plain() {
            PlainStream::Tcp(stream) => stream
                .set_read_timeout(Some(timeout))
                .and_then(|()| stream.set_write_timeout(Some(timeout))),
            PlainStream::Unix(stream) => stream
                .set_read_timeout(Some(timeout))
                .and_then(|()| stream.set_write_timeout(Some(timeout))),
        }
    }

    /// Makes each following read return what has arrived, or fail with `WouldBlock`; or makes it
    /// wait again.
    ///
    /// # Errors
    /// Fails when the socket cannot be changed.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> Result<(), io::Error> {
        match self.plain() {
            PlainStream::Tcp(stream) => stream.set_nonblocking(is_nonblocking),
            PlainStream::Unix(stream) => stream.set_nonblocking(is_nonblocking),
        }
    }

    /// Closes the connection without waiting for the server.
    pub fn close(&self) {
        // The connection is given up in either case.
        let _ = match self.plain() {
            PlainStream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            PlainStream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn plain(&self) -> &PlainStream {
        match self {
            Self::Plain(plain) => plain,
            Self::Secure(secure) => &secure.sock,
        }
    }
}

impl PlainStream {
    fn connect(address: &Address, timeout: Duration) -> Result<Self, io::Error> {
        Ok(match address {
            Address::Tcp(to) => {
                let stream = TcpStream::connect_timeout(to, timeout)?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        })
    }
}

impl Read for BlockingStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.read(into),
            Self::Secure(secure) => secure.read(into),
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.write(bytes),
            Self::Secure(secure) => secure.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.flush(),
            Self::Secure(secure) => secure.flush(),
        }
    }
}

impl Read for PlainStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for PlainStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}
