//! A small client of the Redis protocol: one connection of RESP3 that tracks what it reads, one
//! command at a time. It shares no code with the service.
//!
//! Reading order: [`RedisTarget`], [`RedisConnection`], [`reply`] (the bytes of replies).

pub mod reply;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hotrow_transport::stream::BlockingStream;
use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::Tls;

use self::reply::{Parsed, Reply};
use crate::http::RequestError;

/// Time limit of a connect to one address, TLS included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes read from a socket at once.
const PIECE_BYTES: usize = 16 << 10;
/// Most bytes of a reply.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// An instance's address of the Redis protocol.
#[derive(Clone)]
pub struct RedisTarget {
    /// The URL as given.
    pub url: String,
    addresses: Vec<Address>,
    tls: Option<Tls>,
    /// What `AUTH` sends; a secret.
    credential: Option<String>,
}

impl std::fmt::Debug for RedisTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTarget").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How a connection tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingMode {
    /// The server remembers what the connection has read.
    Default,
    /// `BCAST`: the connection gets the key of every change.
    Broadcast,
}

impl RedisTarget {
    /// Resolves the host of a URL whose scheme was `redis` or `rediss`; `tls` is for the latter.
    ///
    /// # Errors
    /// An unknown host.
    pub fn new(
        text: &str,
        url: &Url,
        tls: Option<Tls>,
        credential: Option<String>,
    ) -> Result<Self, String> {
        let addresses = url.addresses().map_err(|error| error.to_string())?;
        Ok(Self { url: text.to_owned(), addresses, tls, credential })
    }

    /// Creates the target of an address without TLS and without a credential.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let addresses = vec![Address::Tcp(address)];
        Self { url: format!("redis://{address}"), addresses, tls: None, credential: None }
    }

    /// Connects, and tracks the keys of this collection.
    ///
    /// # Errors
    /// The reason there is no such connection, in words.
    pub(crate) fn open(
        &self,
        mode: TrackingMode,
        collection: &str,
        timeout: Duration,
    ) -> Result<RedisConnection, String> {
        let limit = timeout.min(CONNECT_TIME_MAX);
        let mut failure = "there is no address".to_owned();
        for address in &self.addresses {
            let opened = BlockingStream::connect(address, self.tls.as_ref(), limit)
                .and_then(|mut stream| stream.handshake(limit).map(|()| stream));
            match opened {
                Ok(stream) => {
                    let mut connection = RedisConnection { stream, held: Vec::new(), timeout };
                    connection.greet(self.credential.as_deref(), mode, collection)?;
                    return Ok(connection);
                }
                Err(error) => {
                    failure = hotrow_transport::explain::socket(&error, address);
                }
            }
        }
        Err(format!("no connection: {failure}"))
    }
}

/// A connection that tracks.
#[derive(Debug)]
pub(crate) struct RedisConnection {
    stream: BlockingStream,
    /// Received and not used.
    held: Vec<u8>,
    timeout: Duration,
}

impl RedisConnection {
    /// Chooses RESP3, authenticates and begins to track.
    fn greet(
        &mut self,
        credential: Option<&str>,
        mode: TrackingMode,
        collection: &str,
    ) -> Result<(), String> {
        let hello: &[&str] = match credential {
            Some(credential) => &["HELLO", "3", "AUTH", "default", credential],
            None => &["HELLO", "3"],
        };
        let prefix = format!("{collection}:");
        let tracking: &[&str] = match mode {
            TrackingMode::Default => &["CLIENT", "TRACKING", "ON"],
            TrackingMode::Broadcast => &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", &prefix],
        };
        for (name, command) in [("HELLO 3", hello), ("CLIENT TRACKING ON", tracking)] {
            match self.ask(command, &mut |_| {}) {
                Ok(Reply::Error(text)) => {
                    let hint = if text.starts_with("NOAUTH") || text.starts_with("WRONGPASS") {
                        "; give a credential that may read the collection with --token-file or \
                         --header @FILE"
                    } else {
                        ""
                    };
                    return Err(format!("{name} was refused: {text}{hint}"));
                }
                Ok(_) => {}
                Err(lost) => return Err(format!("{name} got no reply ({})", lost.name())),
            }
        }
        Ok(())
    }

    /// Sends a command and waits for its reply. `on_push` receives what is pushed before it.
    pub(crate) fn ask(
        &mut self,
        arguments: &[&str],
        on_push: &mut dyn FnMut(Vec<Reply>),
    ) -> Result<Reply, RequestError> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
        }
        self.stream.set_timeout(self.timeout).map_err(|error| lost(&error))?;
        self.stream
            .write_all(&bytes)
            .and_then(|()| self.stream.flush())
            .map_err(|error| lost(&error))?;
        let end = Instant::now() + self.timeout;
        loop {
            match self.next()? {
                Some(Reply::Push(push)) => on_push(push),
                Some(reply) => return Ok(reply),
                None if Instant::now() > end => return Err(RequestError::TimedOut),
                None => self.receive()?,
            }
        }
    }

    /// Takes what was pushed until now, without waiting for more.
    pub(crate) fn take_pushes(
        &mut self,
        on_push: &mut dyn FnMut(Vec<Reply>),
    ) -> Result<(), RequestError> {
        self.stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let received = loop {
            match self.receive() {
                Ok(()) => {}
                // Nothing more has arrived.
                Err(RequestError::TimedOut) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.stream.set_nonblocking(false).map_err(|error| lost(&error))?;
        received?;
        while let Some(reply) = self.next()? {
            // No command waits for a reply.
            let Reply::Push(push) = reply else { return Err(RequestError::Malformed) };
            on_push(push);
        }
        Ok(())
    }

    /// Returns the next reply or push that has arrived in full.
    fn next(&mut self) -> Result<Option<Reply>, RequestError> {
        match reply::parse(&self.held) {
            Parsed::Complete { reply, used } => {
                self.held.drain(..used);
                Ok(Some(reply))
            }
            Parsed::Incomplete if self.held.len() > REPLY_BYTES_MAX => Err(RequestError::Malformed),
            Parsed::Incomplete => Ok(None),
            Parsed::Malformed => Err(RequestError::Malformed),
        }
    }

    fn receive(&mut self) -> Result<(), RequestError> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(RequestError::Closed),
                Ok(count) => {
                    self.held.extend_from_slice(piece.get(..count).unwrap_or_default());
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
    }
}

fn lost(error: &std::io::Error) -> RequestError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => RequestError::TimedOut,
        _ => RequestError::Closed,
    }
}
