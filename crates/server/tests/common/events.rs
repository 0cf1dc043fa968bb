//! A client of server-sent events over HTTP/1.1, and a feed in the test's hand.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode};
use hotrow_measure::clock::Nanos;
use hotrow_server::config::Config;
use hotrow_server::config::follow::Follow;
use hotrow_source::{Change, LossCause, Sink};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{ChangeId, Position, Snapshot, Version};
use serde_json::Value;

use super::service::{OneRow, Running, cache_config, config};
use super::{Client, DEADLINE};

pub(crate) const INCARNATION: u64 = 0xab;

/// An event as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SentEvent {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl SentEvent {
    /// Returns the position within the log.
    pub(crate) fn at(&self) -> Option<u64> {
        let position = Position::parse(self.data["position"].as_str()?).unwrap();
        assert_eq!(position.incarnation, INCARNATION);
        Some(position.at)
    }

    /// Returns its key and its position.
    pub(crate) fn change(&self) -> (&str, u64) {
        assert_eq!(self.name, "change", "{self:?}");
        assert_eq!(self.data["kind"], "change");
        (self.data["key"].as_str().unwrap(), self.at().unwrap())
    }
}

/// A follower.
pub(crate) struct EventStream {
    input: BufReader<std::net::TcpStream>,
    pub(crate) head: String,
    chunk: usize,
    is_chunked: bool,
    /// Comment lines so far.
    pub(crate) comments: usize,
    /// The body has ended.
    pub(crate) has_ended: bool,
}

impl EventStream {
    /// Follows, which must be answered with 200.
    pub(crate) fn open(address: SocketAddr, target: &str, fields: &str) -> Self {
        let mut stream = Self::request(
            address,
            &format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
        );
        assert!(stream.head.starts_with("HTTP/1.1 200"), "{}", stream.head);
        assert!(stream.head.contains("content-type: text/event-stream\r\n"), "{}", stream.head);
        assert!(stream.head.contains("cache-control: no-store\r\n"), "{}", stream.head);
        stream.is_chunked = stream.head.contains("transfer-encoding: chunked\r\n");
        stream
    }

    /// Sends a request, and reads the head of its answer.
    pub(crate) fn request(address: SocketAddr, request: &str) -> Self {
        let mut client = Client::connect(address);
        client.send(request);
        let mut input = BufReader::new(client.0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(input.read_line(&mut head).unwrap() > 0, "closed within the head: {head}");
        }
        Self { input, head, chunk: 0, is_chunked: false, comments: 0, has_ended: false }
    }

    pub(crate) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        if self.is_chunked && self.chunk == 0 {
            let mut size = String::new();
            self.input.read_line(&mut size).unwrap();
            self.chunk = usize::from_str_radix(size.trim_end(), 16).unwrap();
            if self.chunk == 0 {
                self.input.read_line(&mut size).unwrap();
                self.has_ended = true;
                return None;
            }
        }
        if self.input.read(&mut byte).unwrap() == 0 {
            assert!(!self.is_chunked, "closed without an end");
            self.has_ended = true;
            return None;
        }
        if self.is_chunked {
            self.chunk -= 1;
            if self.chunk == 0 {
                let mut end = [0; 2];
                self.input.read_exact(&mut end).unwrap();
                assert_eq!(end, *b"\r\n");
            }
        }
        Some(byte[0])
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return Some(String::from_utf8(line).unwrap()),
                byte => line.push(byte),
            }
        }
    }

    /// Returns the next event; `None` at the end of the body.
    pub(crate) fn next(&mut self) -> Option<SentEvent> {
        self.next_unless(usize::MAX)
    }

    /// Returns the next event; `None` too when a comment follows `comments` of them.
    fn next_unless(&mut self, comments: usize) -> Option<SentEvent> {
        let (mut name, mut id, mut data) = (None, None, None);
        loop {
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("event: ") {
                name = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            } else if line.starts_with(':') {
                self.comments += 1;
                if self.comments > comments {
                    return None;
                }
            } else if line.is_empty() {
                if let Some(name) = name.take() {
                    return Some(SentEvent { name, id, data: data.unwrap_or(Value::Null) });
                }
            } else {
                assert!(line.starts_with("retry: "), "{line}");
            }
        }
    }

    /// Returns the next event, or `None` after a comment.
    pub(crate) fn next_or_comment(&mut self) -> Option<SentEvent> {
        let before = self.comments;
        let event = self.next_unless(before);
        event.filter(|_| self.comments == before)
    }

    /// Returns the next event that is no heartbeat.
    pub(crate) fn next_news(&mut self) -> SentEvent {
        loop {
            let event = self.next().unwrap();
            if event.name != "heartbeat" {
                return event;
            }
        }
    }

    /// Reads up to a heartbeat at this point of the log, which no other event must precede.
    pub(crate) fn heartbeat_at(&mut self, at: u64) -> SentEvent {
        loop {
            let event = self.next().unwrap();
            assert_eq!(event.name, "heartbeat", "{event:?}");
            if event.at() == Some(at) {
                return event;
            }
        }
    }
}

/// Returns a configuration whose first collection may be followed.
pub(crate) fn followed() -> Config {
    let follow = Follow {
        collections: vec![CollectionId(0)],
        heartbeat: Duration::from_millis(100),
        window_bytes: 64 << 10,
        ..Follow::default()
    };
    Config { follow, ..config() }
}

/// Starts a service with a feed that is behind after this time without a report.
pub(crate) fn start_followed(config: &Config, max_staleness: Duration) -> Running {
    let day = Duration::from_hours(24);
    let policy =
        CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
    let settings = CacheConfig {
        invalidation_mode: InvalidationMode::Feed,
        max_staleness,
        ..cache_config()
    };
    let schema = |id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]);
    let source = Arc::new(OneRow::new(vec![schema(0), schema(1)]));
    Running::start_over(config, Cache::new(settings, vec![policy; 2]), source)
}

/// Starts the same with a feed that stays current.
pub(crate) fn start(config: &Config) -> Running {
    start_followed(config, DEADLINE * 60)
}

/// What a feed of PostgreSQL would report.
impl Running {
    pub(crate) fn begin(&self, at: u64) {
        self.sink.started(Some(position(at)));
        self.advance(at, None);
    }

    /// Delivers the changes of a transaction, whose commit begins at `commit`.
    pub(crate) fn deliver(&self, xid: u64, commit: u64, ids: &[i64]) {
        let mark = ChangeId::Transaction { xid, commit };
        let changes: Vec<_> = ids.iter().map(|id| Change { key: key(*id), mark }).collect();
        self.sink.changes(&changes);
    }

    /// Reports progress, and the transactions that are not visible.
    pub(crate) fn advance(&self, at: u64, hidden: Option<&[u64]>) {
        let visible = hidden.map(|hidden| {
            let running = hidden.to_vec();
            let xmin = running.first().copied().unwrap_or(1_000_000);
            let snapshot = Arc::new(Snapshot { xmin, xmax: 1_000_000, running });
            Version::Snapshot { incarnation: INCARNATION, snapshot }
        });
        self.sink.advance(Nanos::now(), Some(position(at)), visible.as_ref());
    }

    /// Delivers a transaction that is visible at once. Its position is one behind `commit`.
    pub(crate) fn commit(&self, xid: u64, commit: u64, ids: &[i64]) {
        self.deliver(xid, commit, ids);
        self.advance(commit + 5, Some(&[]));
    }

    pub(crate) fn lose(&self) {
        self.sink.loss(LossCause::Unavailable, "the test");
    }

    /// Returns the value of a metric.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let mut received = Client::connect(self.admin).send(request).rest();
        let text = received.answers.pop().unwrap().body;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
    }
}

pub(crate) fn position(at: u64) -> Position {
    Position { incarnation: INCARNATION, at }
}

fn key(id: i64) -> Key {
    let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}
