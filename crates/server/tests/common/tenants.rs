//! A service whose records belong to tenants, over rows that the test changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_access::grant::{Role, Roles, Scope};
use hotrow_access::key::{NewKey, StoredKey};
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig, InvalidationMode, WhenStale};
use hotrow_cache::{Cache, ContentCoding};
use hotrow_config::access::{Access, Granted};
use hotrow_config::{Compression, Config, Tenancy};
use hotrow_measure::clock::Nanos;
use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_source::{BoxFuture, ReadFailure, ReadSet, Row, RowBudget, Source, SourceError};
use hotrow_types::columns::Columns;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::tenant::{Tenant, Tenants};
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::http2::Http2Connection;
use super::service::{Running, cache_config, config};
use super::{Answer, Client, wait_until};

/// The collection with tenants.
pub(crate) const ACCOUNTS: CollectionId = CollectionId(0);

/// Rows by id, each with its tenant as JSON before it. Every read is at a later point of the log.
pub(crate) struct Rows {
    schemas: Vec<KeySchema>,
    pub(crate) rows: Mutex<HashMap<i64, Row>>,
    reads: AtomicU64,
    /// Reads wait while it is shut.
    pub(crate) gate: watch::Sender<bool>,
}

/// Row whose data fails the whole statement.
pub(crate) const FAILS_ALL: &str = "fails its statement";

impl Source for Rows {
    fn read_within(
        &self,
        _: CollectionId,
        keys: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        let at = 10 + self.reads.fetch_add(1, Ordering::SeqCst);
        let row = |key: &Key| match key.parts().next() {
            Some(KeyPart::Integer(id)) => {
                self.rows.lock().get(&id).cloned().unwrap_or(Row::Missing)
            }
            _ => Row::Missing,
        };
        // The snapshot is that of the beginning.
        let rows: Vec<Row> = keys.iter().map(row).collect();
        let position = Position { incarnation: 1, at };
        if rows.contains(&Row::Unreadable(FAILS_ALL.to_owned())) {
            return Box::pin(std::future::ready(Err(SourceError::data(FAILS_ALL))));
        }
        Box::pin(async move {
            self.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
            Ok(ReadSet { version: Version::Log(position), position: Some(position), rows })
        })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn fields(&self, id: CollectionId) -> Option<Arc<[FieldSchema]>> {
        let field = |name: &str| FieldSchema::new(name, JsonForm::Any, false);
        (id == ACCOUNTS).then(|| ["id", "price", "na\"me", "more"].map(field).into())
    }

    fn queries_total(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn watch(&self) -> &'static str {
        "test"
    }
}

/// A service with tenants, and the API keys of its clients by name.
pub(crate) struct TenantService {
    pub(crate) server: Running,
    pub(crate) source: Arc<Rows>,
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    keys: HashMap<&'static str, String>,
}

/// Settings of a test.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) tenancy: Tenancy,
    pub(crate) when_stale: WhenStale,
    pub(crate) answer_bytes: Option<u64>,
    /// Columns that the client `narrow` of `acme` may read; none: it reads no column.
    pub(crate) columns: &'static [&'static str],
    /// Entries keep the ends of their members.
    pub(crate) keeps_members: bool,
    /// Records are compressed.
    pub(crate) is_compressed: bool,
}

impl Default for Options {
    fn default() -> Self {
        let tenancy = Tenancy { hides_existence: false };
        Self {
            tenancy,
            when_stale: WhenStale::Bypass,
            answer_bytes: None,
            columns: &[],
            keeps_members: true,
            is_compressed: false,
        }
    }
}

/// An answer with its head in lower case, without the date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl TenantService {
    pub(crate) fn start(rows: &[(i64, &str)], options: Options) -> Self {
        Self::start_with(rows, options, |_| {})
    }

    /// Starts a service with changed access.
    pub(crate) fn start_with(
        rows: &[(i64, &str)],
        options: Options,
        change: impl FnOnce(&mut Access),
    ) -> Self {
        Self::start_configured(rows, options, |config| change(config.access.as_mut().unwrap()))
    }

    /// Starts a service with a changed configuration.
    pub(crate) fn start_configured(
        rows: &[(i64, &str)],
        options: Options,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let found = rows.iter().map(|(id, row)| (*id, Row::Found(row.as_bytes().to_vec())));
        let source = Arc::new(Rows {
            schemas: [0, 1]
                .map(|id| KeySchema::new(CollectionId(id), vec![KeyType::Integer]))
                .into(),
            rows: Mutex::new(found.collect()),
            reads: AtomicU64::new(0),
            gate: watch::Sender::new(true),
        });
        let day = Duration::from_hours(24);
        let policy = |has_tenants| CollectionPolicy {
            ttl: day,
            negative_ttl: day,
            has_tenants,
            has_views: has_tenants && options.keeps_members,
        };
        let cache_config = CacheConfig {
            invalidation_mode: InvalidationMode::Feed,
            max_staleness: Duration::from_hours(1),
            when_stale: options.when_stale,
            reads_in_flight: 4,
            ..cache_config()
        };
        let cache = Cache::new(cache_config, vec![policy(true), policy(false)]);
        cache.advance(SourceId::FIRST, Nanos::now(), Some(Position { incarnation: 1, at: 1 }));
        let mut config = config();
        config.collections[0].name = "accounts".to_owned();
        config.collections[0].tenancy = Some(options.tenancy);
        config.limits.bytes.answer = options.answer_bytes;
        config.describes_on_data = true;
        // Must not add to an answer of a collection with tenants.
        config.observability.has_server_timing = true;
        if options.is_compressed {
            let codings = vec![ContentCoding::Gzip];
            config.collections[0].compression = Some(Compression { codings, bytes_min: 1 });
        }
        let (access, keys) = access(options.columns);
        config.access = Some(access);
        config.transport.http2 = true;
        change(&mut config);
        let server = Running::start_over(&config, Arc::clone(&cache), source.clone());
        Self { server, source, cache, keys }
    }

    /// Returns the header field with which a client sends its key; `none`: no field.
    pub(crate) fn credential(&self, client: &str) -> String {
        match client {
            "none" => String::new(),
            "wrong" => format!("X-API-Key: {}\r\n", "x".repeat(64)),
            _ => format!("X-API-Key: {}\r\n", self.keys[client]),
        }
    }

    /// Sends a request of a client, and returns its answer.
    pub(crate) fn ask(&self, client: &str, method: &str, target: &str, fields: &str) -> Raw {
        self.send(client, method, target, fields).received()
    }

    /// Like [`TenantService::ask`], on an open connection of HTTP/2.
    pub(crate) fn ask_http2(
        &self,
        connection: &mut Http2Connection,
        client: &str,
        (method, target, fields): (&str, &str, &str),
    ) -> Raw {
        let (target, body) = target_and_body(method, target);
        let fields = format!("{}{fields}", self.credential(client));
        let Answer { status, head, body } = connection.ask(method, target, &fields, &body);
        Raw { status, head: without_date(&head), body }
    }

    pub(crate) fn send(&self, client: &str, method: &str, target: &str, fields: &str) -> Sent {
        let (target, body) = target_and_body(method, target);
        let credential = self.credential(client);
        let length = body.len();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{credential}\
             {fields}Connection: close\r\n\r\n{body}"
        );
        let mut client = Client::connect(self.server.address);
        client.send(request);
        Sent(client)
    }

    pub(crate) fn queries(&self) -> u64 {
        self.source.queries_total()
    }

    pub(crate) fn key(&self, id: i64) -> Key {
        self.source.schemas[0].key(&[KeyPart::Integer(id)]).unwrap()
    }

    /// Replaces a row, as a transaction at this point of the log, which the feed then delivers.
    pub(crate) fn change(&self, id: i64, row: &str, at: u64) {
        self.source.rows.lock().insert(id, Row::Found(row.as_bytes().to_vec()));
        self.cache.invalidate(&self.key(id), ChangeId::Log(Position { incarnation: 1, at }));
        self.pass(at);
    }

    /// Lets the feed pass a point of the log.
    pub(crate) fn pass(&self, at: u64) {
        self.cache.advance(SourceId::FIRST, Nanos::now(), Some(Position { incarnation: 1, at }));
    }

    /// Waits until as many requests have joined the reads of others.
    pub(crate) fn await_coalesced(&self, count: u64) {
        wait_until(|| self.cache.stats(ACCOUNTS).coalesced_total == count);
    }
}

/// Returns target and body of a request; ids after `#` are the body of a batch.
fn target_and_body<'a>(method: &str, target: &'a str) -> (&'a str, String) {
    match (method, target.split_once('#')) {
        ("POST", Some((target, ids))) => (target, format!("{{\"ids\":[{ids}]}}")),
        _ => (target, String::new()),
    }
}

fn without_date(head: &str) -> String {
    head.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

/// A request whose answer has not been read.
pub(crate) struct Sent(Client);

impl Sent {
    pub(crate) fn received(mut self) -> Raw {
        use std::io::Read;
        let mut text = String::new();
        self.0.0.read_to_string(&mut text).unwrap();
        Raw::parse(&text)
    }
}

impl Raw {
    /// Parses an answer with its status line.
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: without_date(&head), body: body.to_owned() }
    }

    /// Returns the value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Returns access for clients of several tenants, and their keys by name.
fn access(columns: &[&str]) -> (Access, HashMap<&'static str, String>) {
    let whole = Role {
        name: "reader".to_owned(),
        claim_values: vec!["reader".to_owned()],
        collections: Scope::All,
        columns: Vec::new(),
        no_cache: true,
        min_position: true,
        strict: true,
        rate_classes: Default::default(),
    };
    let narrow =
        Role { columns: vec![(ACCOUNTS, Columns::new(columns.iter().copied()))], ..whole.clone() };
    let clients: [(&'static str, &[&str]); 7] = [
        ("acme", &["acme"]),
        ("other", &["other"]),
        ("both", &["x", "acme", "other"]),
        ("seven", &["7"]),
        ("tenantless", &[]),
        ("narrow", &["acme"]),
        ("two roles", &["acme"]),
    ];
    let mut keys = HashMap::new();
    let mut stored = Vec::new();
    for (number, (client, tenants)) in (1..).zip(clients) {
        let key = NewKey::new([number; 8], &[number; 32]);
        let roles = match client {
            "narrow" => Roles::single(1),
            "two roles" => Roles::single(0).union(Roles::single(1)),
            _ => Roles::single(0),
        };
        let tenants = tenants.iter().map(|tenant| Tenant::new(tenant).unwrap()).collect();
        stored.push(StoredKey {
            id: key.id,
            hash: key.hash,
            roles,
            tenants: Tenants::new(tenants).unwrap(),
        });
        keys.insert(client, key.reveal().to_owned());
    }
    let granted = Granted { roles: vec![whole, narrow], keys: stored, ..Granted::default() };
    let access =
        Access { granted, grants_file: None, tokens: None, failures: "1000/s".parse().unwrap() };
    (access, keys)
}
