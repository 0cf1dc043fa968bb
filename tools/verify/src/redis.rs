//! A client of the Redis protocol: one connection of RESP3 that tracks what it reads, one command
//! at a time. Commands and replies are those of the crate `redis`, without any code of the service;
//! docs/adr/0030 says why the connection is not.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A reply.
pub use ::redis::Value;
use ::redis::{Parser, PushKind, RedisError};
use hotrow_transport::stream::BlockingStream;
use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::Tls;

use crate::http::RequestError;

/// Time limit of a connect to one address, TLS included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes of a reply.
const REPLY_BYTES_MAX: u64 = 64 << 20;

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
                    let mut connection = RedisConnection { stream, parser: Parser::new(), timeout };
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
pub(crate) struct RedisConnection {
    stream: BlockingStream,
    /// Has what was received and not used.
    parser: Parser,
    timeout: Duration,
}

impl std::fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConnection").field("stream", &self.stream).finish_non_exhaustive()
    }
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
                Ok(Value::ServerError(error)) => {
                    let hint = match error.code() {
                        "NOAUTH" | "WRONGPASS" => {
                            "; give a credential that may read the collection with --token-file or \
                             --header @FILE"
                        }
                        _ => "",
                    };
                    return Err(format!("{name} was refused: {}{hint}", error_text(&error)));
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
        on_push: &mut dyn FnMut(Push),
    ) -> Result<Value, RequestError> {
        let mut command = ::redis::Cmd::new();
        arguments.iter().for_each(|argument| {
            command.arg(*argument);
        });
        self.stream
            .set_timeout(self.timeout)
            .and_then(|()| self.stream.write_all(&command.get_packed_command()))
            .and_then(|()| self.stream.flush())
            .map_err(|error| lost(&error))?;
        let end = Instant::now() + self.timeout;
        loop {
            match self.next()? {
                Received::Push(push) => on_push(push),
                Received::Reply(reply) => return Ok(reply),
            }
            if Instant::now() > end {
                return Err(RequestError::TimedOut);
            }
        }
    }

    /// Takes what was pushed until now, without waiting for more.
    pub(crate) fn take_pushes(
        &mut self,
        on_push: &mut dyn FnMut(Push),
    ) -> Result<(), RequestError> {
        self.stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let taken = loop {
            match self.next() {
                Ok(Received::Push(push)) => on_push(push),
                // No command waits for a reply.
                Ok(Received::Reply(_)) => break Err(RequestError::Malformed),
                // Nothing more has arrived.
                Err(RequestError::TimedOut) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.stream.set_nonblocking(false).map_err(|error| lost(&error))?;
        taken
    }

    /// Returns the next reply or push. After a time-out the parser keeps the part that has arrived.
    fn next(&mut self) -> Result<Received, RequestError> {
        let stream = (&mut self.stream).take(REPLY_BYTES_MAX);
        Ok(match self.parser.parse_value(stream).map_err(|error| kind(&error))? {
            Value::Push { kind, data } => Received::Push(Push { kind, data }),
            reply => Received::Reply(reply),
        })
    }
}

/// A message that answers no command.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) kind: PushKind,
    pub(crate) data: Vec<Value>,
}

enum Received {
    Reply(Value),
    Push(Push),
}

/// Returns the line of an error reply.
pub(crate) fn error_text(error: &::redis::ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

fn kind(error: &RedisError) -> RequestError {
    if error.is_timeout() {
        RequestError::TimedOut
    } else if error.is_io_error() {
        RequestError::Closed
    } else {
        RequestError::Malformed
    }
}

fn lost(error: &std::io::Error) -> RequestError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => RequestError::TimedOut,
        _ => RequestError::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Delivers a byte with each second read; the others find nothing.
    struct Slow<'a> {
        bytes: &'a [u8],
        is_ready: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                Read::read(&mut self.bytes, &mut into[..1])
            } else {
                Err(ErrorKind::WouldBlock.into())
            }
        }
    }

    #[test]
    fn what_arrives_in_parts_is_parsed_in_its_order() {
        let bytes = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\na:7\r\n*3\r\n$2\r\n{}\r\n_\r\n\
                      $-1\r\n-NOAUTH no\r\n:5\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n+OK\r\n";
        let (mut parser, mut seen) = (Parser::new(), Vec::new());
        let mut slow = Slow { bytes, is_ready: false };
        let end = loop {
            match parser.parse_value(&mut slow) {
                Ok(value) => seen.push(value),
                Err(error) if kind(&error) == RequestError::TimedOut => {}
                Err(error) => break kind(&error),
            }
        };
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let push = |data| Value::Push { kind: PushKind::Invalidate, data };
        assert_eq!(seen[0], push(vec![Value::Array(vec![bulk("a:7")])]));
        assert_eq!(seen[1], Value::Array(vec![bulk("{}"), Value::Nil, Value::Nil]));
        let Value::ServerError(error) = &seen[2] else { panic!("{:?}", seen[2]) };
        assert_eq!(error_text(error), "NOAUTH no");
        assert_eq!(seen[3..], [Value::Int(5), push(vec![Value::Nil]), Value::Okay]);
        assert_eq!(end, RequestError::Closed);
    }

    #[test]
    fn other_bytes_are_malformed() {
        for bytes in ["x\r\n", "$x\r\n", "$1\r\nabc\r\n", ":\r\n"] {
            let parsed = Parser::new().parse_value(bytes.as_bytes());
            assert_eq!(
                parsed.map_err(|error| kind(&error)),
                Err(RequestError::Malformed),
                "{bytes:?}"
            );
        }
    }
}
