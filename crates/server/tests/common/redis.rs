//! A client of the Redis protocol, which shares no code with the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use hotrow_config::Config;
use hotrow_config::transport::{Redis, Transport};

use super::DEADLINE;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Text(String),
    Null,
    /// An array, or a set.
    Array(Vec<Reply>),
    /// Keys and values in turn.
    Map(Vec<Reply>),
    /// A message that answers no command.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    /// Returns the text of an error; empty for another reply.
    pub(crate) fn error(&self) -> &str {
        if let Self::Error(text) = self { text } else { "" }
    }

    /// Returns the first word of an error; empty for another reply.
    pub(crate) fn word(&self) -> &str {
        self.error().split(' ').next().unwrap_or_default()
    }
}

/// A connection.
pub(crate) struct RedisClient<T = TcpStream> {
    pub(crate) stream: T,
    held: Vec<u8>,
}

impl RedisClient {
    #[track_caller]
    pub(crate) fn connect(address: Option<SocketAddr>) -> Self {
        let stream = TcpStream::connect(address.unwrap()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<T: Read + Write> RedisClient<T> {
    pub(crate) fn over(stream: T) -> Self {
        Self { stream, held: Vec::new() }
    }

    /// Sends these bytes.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends a command, whose arguments have no spaces, and returns the reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str) -> Reply {
        self.send(array(command)).reply()
    }

    /// Returns the next reply.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(count()),
            "_" => Reply::Null,
            "$" if rest == "-1" => Reply::Null,
            "$" => Reply::Text(self.text(count() as usize)),
            "=" => Reply::Text(self.text(count() as usize)[4..].to_owned()),
            ">" => Reply::Push((0..count()).map(|_| self.reply()).collect()),
            "*" | "~" => Reply::Array((0..count()).map(|_| self.reply()).collect()),
            "%" => Reply::Map((0..2 * count()).map(|_| self.reply()).collect()),
            _ => panic!("{line:?}"),
        }
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.held.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.held.drain(..end + 2).collect();
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            self.receive();
        }
    }

    fn text(&mut self, length: usize) -> String {
        while self.held.len() < length + 2 {
            self.receive();
        }
        let text: Vec<u8> = self.held.drain(..length + 2).collect();
        assert!(text.ends_with(b"\r\n"));
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    #[track_caller]
    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the server closed; received {:?}", self.held.escape_ascii());
        self.held.extend_from_slice(&bytes[..count]);
    }

    /// Returns everything up to the end of the connection.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.held);
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // What was sent in vain is unread at the server.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        String::from_utf8(rest).unwrap()
    }
}

/// Returns a command as clients send it.
pub(crate) fn array(command: &str) -> Vec<u8> {
    let arguments: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
    }
    bytes
}

/// Returns the configuration with an address for the Redis protocol.
pub(crate) fn with_redis(config: Config) -> Config {
    let address = "127.0.0.1:0".parse().unwrap();
    let redis = Redis { address, allow_stale: false, tracking_bytes: Redis::TRACKING_BYTES };
    Config { transport: Transport { redis: Some(redis), ..config.transport }, ..config }
}
