//! Entry points of the fuzz targets: the path of a request from its bytes to its meaning. Not in
//! ordinary builds.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hotrow_admission::concurrency::limit::Kind;
use hotrow_admission::concurrency::queue;
use hotrow_answer::route::{ReadTarget, Route};
use hotrow_cache::Cache;
use hotrow_cache::config::{CollectionPolicy, Config as CacheConfig};
use hotrow_config::{Collection, Concurrency, Config, Limits};
use hotrow_http1::body::BodyDecoder;
use hotrow_http1::head::HeadParser;
use hotrow_measure::clock::Nanos;
use hotrow_source::sources::Sources;
use hotrow_source::{BoxFuture, ReadSet, RowBudget, Source, SourceError};
use hotrow_telemetry::lookups::Calendar;
use hotrow_types::key::{Collation, CollectionId, Key, KeyPart, KeySchema, KeyType};
use http::Method;

use crate::batch;
use crate::shared::Shared;

/// Follows every request in the bytes of a connection. The first byte decides how the others are
/// cut into pieces.
///
/// # Panics
/// If pieces are understood differently from the whole, or a key from a URL differs from the one
/// made of its parts.
pub fn request_path(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let shared = shared();
    let whole = follow([stream]);
    let pieces = follow(stream.chunks(usize::from(*cut).max(1)));
    assert_eq!(whole, pieces, "the same bytes in pieces of {cut}");
    for message in &whole {
        let mut words = message.splitn(3, |byte| *byte == b' ').map(std::str::from_utf8);
        if let (Some(Ok(method)), Some(Ok(target))) = (words.next(), words.next()) {
            ask(shared, method, target);
        }
        let body = message
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .map_or(&[][..], |at| &message[at + 4..]);
        for collection in shared.collections.all() {
            let _ =
                batch::parse_body(&collection.schema, &shared.limits, shared.cache.hasher(), body);
        }
    }
}

/// Parses bytes as the header with which a proxy names its client.
pub fn proxy_header(input: &[u8]) {
    let _ = hotrow_net::proxy_header::parse(input);
}

/// Parses bytes as the values of `Accept-Encoding`, one a line, and chooses a coding.
///
/// # Panics
/// If a coding is chosen that no value lists.
pub fn accept_encoding(input: &[u8]) {
    let lines = || input.split(|byte| *byte == b'\n');
    if let Some(coding) = hotrow_representation::compression::chosen(lines()) {
        let label = coding.label().as_bytes();
        let lists = |line: &[u8]| {
            let is_label = |some: &[u8]| some.eq_ignore_ascii_case(label);
            line.contains(&b'*') || line.windows(label.len()).any(is_label)
        };
        assert!(lines().any(lists), "{coding:?} of {}", input.escape_ascii());
    }
}

/// Reads the subject of bytes as a certificate.
///
/// # Panics
/// If it has more than four characters for each byte, which is what escapes take.
pub fn certificate_subject(input: &[u8]) {
    let certificate = rustls::pki_types::CertificateDer::from(input);
    if let Some(subject) = hotrow_net::tls::files::subject(&certificate) {
        assert!(subject.chars().count() <= 4 * input.len(), "{subject}");
    }
}

/// Reads a connection's bytes, in any pieces. Returns the messages in `pieces`. Ends where one is
/// refused.
fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    const LIMITS: hotrow_http1::Limits =
        hotrow_http1::Limits { head_bytes: 1024, fields: 16, target_bytes: 512, body_bytes: 1024 };
    let (mut parser, mut body) = (HeadParser::default(), None::<BodyDecoder>);
    let (mut held, mut open, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let used = match &mut body {
                Some(body) => match body.decode(&held, &LIMITS) {
                    Ok(decoded) => decoded.consumed,
                    Err(_) => return messages,
                },
                None => match parser.parse(&held, &LIMITS) {
                    Ok(Some(bytes)) => {
                        let Ok(head) = parser.head(&held, &LIMITS) else { return messages };
                        assert!(std::str::from_utf8(head.target().as_bytes()).is_ok());
                        body = Some(BodyDecoder::new(head.body));
                        bytes
                    }
                    Ok(None) => break,
                    Err(_) => return messages,
                },
            };
            open.extend(held.drain(..used));
            if body.as_ref().is_some_and(BodyDecoder::is_complete) {
                messages.push(std::mem::take(&mut open));
                (parser, body) = (HeadParser::default(), None);
            }
        }
    }
    messages
}

fn ask(shared: &Shared, method: &str, target: &str) {
    let Ok(method) = Method::from_bytes(method.trim_start().as_bytes()) else { return };
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    match shared.collections.router.route(&method, path, query) {
        Ok(Route::Item(_, id)) => {
            shared.collections.all().iter().for_each(|collection| check_key(&collection.schema, id))
        }
        Ok(Route::BatchGet(ReadTarget { of: id, .. }, query) | Route::Changes(id, query)) => {
            let schema = &shared.collections.get(id).schema;
            drop(hotrow_answer::ids::parse_query(
                schema,
                &shared.limits,
                shared.cache.hasher(),
                query,
            ));
        }
        Ok(_) | Err(_) => {}
    }
}

/// Checks that a key from a URL equals the feed's key of the same parts.
fn check_key(schema: &KeySchema, id: &str) {
    let Ok(key) = schema.parse_url(id) else { return };
    let parts: Vec<KeyPart<'_>> = key.parts().collect();
    assert_eq!(schema.key(&parts).as_ref(), Ok(&key), "{id:?}");
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| new_shared(None))
}

/// Returns the context of a new connection.
#[cfg(test)]
pub(crate) fn connection() -> std::rc::Rc<hotrow_answer::context::ConnectionContext> {
    let activity = hotrow_answer::activity::Activity::new(Nanos(1));
    let peer = std::net::IpAddr::from([192, 0, 2, 1]);
    hotrow_answer::context::ConnectionContext::new(peer, std::rc::Rc::new(activity))
}

/// Returns parts with one collection per shape of key; the first has integer keys.
pub(crate) fn new_shared(breaker: Option<hotrow_admission::breaker::Config>) -> Shared {
    new_service(breaker).1
}

/// Returns the parts of such a service, with their configuration.
pub(crate) fn new_service(breaker: Option<hotrow_admission::breaker::Config>) -> (Config, Shared) {
    let types = [
        vec![KeyType::Integer],
        vec![KeyType::Text(Collation::Binary)],
        vec![KeyType::Text(Collation::NoCaseAscii)],
        vec![KeyType::Uuid],
        vec![KeyType::Bytes],
        vec![KeyType::Integer, KeyType::Text(Collation::RightTrim), KeyType::Uuid],
    ];
    let schemas: Vec<KeySchema> = types
        .into_iter()
        .enumerate()
        .map(|(i, types)| KeySchema::new(CollectionId(i as u16), types))
        .collect();
    let named = |i| Collection {
        name: format!("c{i}"),
        source: hotrow_types::source::SourceId::FIRST,
        cache_control: "no-cache".to_owned(),
        allow_no_cache: true,
        allow_min_position: true,
        strict: true,
        allow_fields: true,
        priority: hotrow_admission::shed::Priority::Normal,
        allow_high_priority: false,
        tenancy: None,
        compression: None,
        is_removed: false,
        alias: None,
        surrogates: None,
    };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config {
        data: address,
        admin: address,
        admin_token: None,
        admin_hosts: Vec::new(),
        hot_keys: true,
        ready_when: hotrow_config::ReadyWhen::Fresh,
        ready_sources: hotrow_config::ReadySources::Any,
        sources: vec![hotrow_config::Source {
            name: hotrow_config::Source::DEFAULT_NAME.to_owned(),
            slow_query: Duration::ZERO,
            strict_looks_per_s: 1_000,
        }],
        workers: 1,
        limits: limits(),
        concurrency: Concurrency {
            kind: Kind::Fixed,
            tolerance: 2.0,
            probe_interval: Duration::from_secs(1),
            deadline_header: true,
        },
        breaker,
        shed: None,
        collections: (0..schemas.len()).map(named).collect(),
        follow: hotrow_config::follow::Follow::default(),
        purge: hotrow_config::purge::Purge::default(),
        rate: hotrow_config::rate::RateLimits::default(),
        describes_on_data: false,
        ignores_unknown_parameters: false,
        cors: None,
        access: None,
        transport: hotrow_config::transport::Transport::default(),
        admin_transport: hotrow_config::transport::Transport::default(),
        warm_start: None,
        observability: Default::default(),
        miss_ratio_curve: false,
    };
    let day = Duration::from_hours(24);
    let cache = Cache::new(
        cache_config(),
        vec![
            CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
            schemas.len()
        ],
    );
    let source = Sources::only(Arc::new(EmptySource(schemas)));
    let shared = Shared::new(&config, cache, source, Calendar::new(Nanos(0), 0));
    let shared = shared.unwrap_or_else(|e| unreachable!("the header values are fixed: {e}"));
    (config, shared)
}

fn limits() -> Limits {
    Limits {
        requests_in_flight: 1,
        header_bytes: 1024,
        target_bytes: 512,
        body_bytes: 1024,
        privileged_waiters: 1,
        ..Limits::small()
    }
}

fn cache_config() -> CacheConfig {
    let small = CacheConfig::small(1 << 20);
    let queue = queue::Config { adaptive: true, ..small.queue };
    CacheConfig { prefetch_on_change: true, queue, ..small }
}

/// A database that is never read.
struct EmptySource(Vec<KeySchema>);

impl Source for EmptySource {
    fn read_within(
        &self,
        _: CollectionId,
        _: Vec<Key>,
        _: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        Box::pin(ready(Err(SourceError::Unavailable { detail: String::new() })))
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.0
    }

    fn queries_total(&self) -> u64 {
        0
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn watch(&self) -> &'static str {
        "none"
    }
}

#[cfg(test)]
use hotrow_testkit::mutate;

#[cfg(test)]
mod tests {
    use super::mutate;

    const PIECES: [&[u8]; 12] = [
        b"\r\n",
        b"\n",
        b"\0",
        b"%2C",
        b"%00",
        b"%",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"9223372036854775808",
        b"ffffffffffffffff\r\n",
        b"[[\"",
    ];

    #[test]
    fn the_request_path_survives_mutated_input() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/request_path");
        mutate::run(folder, 200_000, &PIECES, super::request_path);
    }

    #[test]
    fn accept_encoding_survives_mutations() {
        let pieces: [&[u8]; 7] =
            [b"gzip", b";q=0.5", b"*", b";q=0", b",", b"\n", b"q=1.0000000000000001"];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/accept_encoding");
        mutate::run(folder, 200_000, &pieces, super::accept_encoding);
    }

    #[test]
    fn certificate_subjects_survive_mutations() {
        let pieces: [&[u8]; 5] =
            [&[0x30, 0x82], &[0x31, 0x0b], &[0x0c, 0xff], &[0x06, 0x03, 0x55, 0x04, 0x03], &[0x80]];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/certificate_subject");
        mutate::run(folder, 50_000, &pieces, super::certificate_subject);
    }
}
