//! Spans of one request: the server span, and its parts where it waited.

use std::sync::Arc;

use hotrow_cache::ReadMode;
use hotrow_measure::clock::Nanos;
use hotrow_otel::context::{SpanContext, SpanId};
use hotrow_otel::span::{Attribute, Span, SpanKind, Value};
use parking_lot::Mutex;

use super::{Tracer, WallClock};
use crate::access_log::RequestLine;
use crate::outcome::CacheOutcome;
use crate::request::Notes;
use crate::request::Protocol;

/// Most queries that a request has spans of.
const QUERIES_MAX: usize = 4;
/// Most bytes of a path in a span.
const PATH_BYTES_MAX: usize = 1_024;
/// Methods that have a name in the semantic conventions; others are `_OTHER`.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"];

/// How a request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadKind {
    /// From memory, or from the database where memory has nothing usable.
    Normal,
    /// From the database in any case: `no-cache`, or a record that memory must not answer.
    Revalidate,
    /// From memory or the database, once it reflects a position.
    MinPosition,
}

impl From<ReadMode> for ReadKind {
    fn from(mode: ReadMode) -> Self {
        match mode {
            ReadMode::Normal | ReadMode::NoAdmit => Self::Normal,
            ReadMode::Revalidate => Self::Revalidate,
            ReadMode::Strict(_) => Self::MinPosition,
        }
    }
}

impl ReadKind {
    fn label(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Revalidate => "revalidate",
            Self::MinPosition => "min_position",
        }
    }
}

/// A query that a request has waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedQuery {
    /// Its span.
    pub(super) span: SpanContext,
    /// The request of whose server span it is a child.
    pub(super) owner: SpanId,
    pub(super) sent_at: Nanos,
    pub(super) ended_at: Nanos,
    /// Its keys.
    pub(super) keys: usize,
    /// Class of its failure, if it failed.
    pub(super) error: Option<&'static str>,
}

/// A wait for the feed to pass a position.
#[derive(Clone, Copy, Debug)]
struct PositionWait {
    ended_at: Nanos,
    has_passed: bool,
}

#[derive(Debug, Default)]
struct Progress {
    queries: Vec<AwaitedQuery>,
    position: Option<PositionWait>,
}

/// A traced request that waits. Queries of other threads report to it.
#[derive(Debug)]
pub struct RequestTrace {
    pub(super) span: SpanContext,
    parent: Option<SpanId>,
    kind: ReadKind,
    waits_since: Nanos,
    progress: Mutex<Progress>,
}

impl RequestTrace {
    /// Most memory of one.
    pub(super) const BYTES_MAX: usize =
        size_of::<Self>() + 2 * size_of::<usize>() + QUERIES_MAX * size_of::<AwaitedQuery>();

    pub(super) fn new(
        span: SpanContext,
        parent: Option<SpanId>,
        kind: ReadKind,
        waits_since: Nanos,
    ) -> Self {
        Self { span, parent, kind, waits_since, progress: Mutex::default() }
    }

    /// Returns the time since which it waits.
    pub(super) fn waits_since(&self) -> Nanos {
        self.waits_since
    }

    /// Notes a query, before its result is handed out.
    pub(super) fn note_query(&self, query: AwaitedQuery) {
        let mut progress = self.progress.lock();
        if progress.queries.len() < QUERIES_MAX {
            progress.queries.push(query);
        }
    }

    /// Notes the end of the wait for the feed.
    pub fn note_position(&self, has_passed: bool) {
        let ended_at = Nanos::now();
        self.progress.lock().position = Some(PositionWait { ended_at, has_passed });
    }
}

/// A request with its answer.
pub struct AnsweredRequest<'a> {
    /// Its request line.
    pub line: RequestLine<'a>,
    /// Version of HTTP.
    pub protocol: Protocol,
    /// Whether it came over the Unix socket.
    pub is_over_unix: bool,
    /// What its handling has learned.
    pub notes: Notes,
    /// Status of the answer.
    pub status: u16,
    /// Role of the cache in it.
    pub outcome: CacheOutcome,
    /// Arrival of its head.
    pub since: Nanos,
    /// Time of the answer.
    pub now: Nanos,
}

impl Tracer {
    /// Records the spans of a request that has waited.
    #[cold]
    pub(crate) fn record_waited(&self, trace: &RequestTrace, request: &AnsweredRequest<'_>) {
        let clock = WallClock::read();
        let mut span = self.server_span(&clock, (trace.span, trace.parent), request);
        span.attributes.push(Attribute::new("hotrow.read", trace.kind.label()));
        let parts = self.parts(&clock, trace, request.now);
        parts.into_iter().for_each(|part| self.record(part));
        self.record(span);
    }

    /// Returns the server span.
    pub(super) fn server_span(
        &self,
        clock: &WallClock,
        (context, parent): (SpanContext, Option<SpanId>),
        request: &AnsweredRequest<'_>,
    ) -> Span {
        let method = std::str::from_utf8(request.line.method).unwrap_or_default();
        let known = METHODS.into_iter().find(|known| *known == method);
        let (route, redacted) = self.route(request);
        let name = match (known, &route) {
            (Some(method), Some(route)) => format!("{method} {route}").into(),
            (Some(method), None) => method.into(),
            (None, _) => "HTTP".into(),
        };
        let path = match (self.config.has_keys, redacted) {
            (true, _) => path_text(request.line.target).into(),
            (false, path) => path,
        };
        let is_tls = self.is_tls && !request.is_over_unix;
        let version = match request.protocol {
            Protocol::Http10 => "1.0",
            Protocol::Http11 => "1.1",
            Protocol::Http2 => "2",
        };
        let mut attributes = Vec::with_capacity(10);
        attributes.extend([
            Attribute::new("http.request.method", known.unwrap_or("_OTHER")),
            Attribute { name: "url.path", value: path },
            Attribute::new("url.scheme", if is_tls { "https" } else { "http" }),
            Attribute::new("network.protocol.version", version),
            Attribute::new("http.response.status_code", usize::from(request.status)),
            Attribute::new("hotrow.cache", request.outcome.label()),
        ]);
        attributes.extend(route.map(|route| Attribute::new("http.route", route)));
        let is_error = request.status >= 500;
        if is_error {
            attributes.push(Attribute::new("error.type", request.status.to_string()));
        }
        Span {
            context,
            parent,
            has_remote_parent: parent.is_some(),
            name,
            kind: SpanKind::Server,
            start_unix_ns: clock.unix_ns(request.since),
            end_unix_ns: clock.unix_ns(request.now),
            attributes,
            links: Vec::new(),
            links_dropped: 0,
            is_error,
        }
    }

    /// Returns the route of a request and its path without ids.
    fn route(&self, request: &AnsweredRequest<'_>) -> (Option<String>, Value) {
        let Some(id) = request.notes.collection else { return (None, "REDACTED".into()) };
        let name = self.collections.name(id);
        let path = request.line.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        // `/products` is a batch, and `/products/7` a record.
        match path.iter().filter(|byte| **byte == b'/').count() {
            0 | 1 => (Some(format!("/{name}")), format!("/{name}").into()),
            _ => (Some(format!("/{name}/{{id}}")), format!("/{name}/REDACTED").into()),
        }
    }

    /// Returns the spans of the parts of a request's wait.
    fn parts(&self, clock: &WallClock, trace: &RequestTrace, now: Nanos) -> Vec<Span> {
        let progress = trace.progress.lock();
        let part = |name: &'static str, from: Nanos, to: Nanos| Span {
            context: SpanContext { trace_id: trace.span.trace_id, span_id: self.ids.span_id() },
            parent: Some(trace.span.span_id),
            has_remote_parent: false,
            name: name.into(),
            kind: SpanKind::Internal,
            start_unix_ns: clock.unix_ns(from),
            end_unix_ns: clock.unix_ns(to.max(from)),
            attributes: Vec::new(),
            links: Vec::new(),
            links_dropped: 0,
            is_error: false,
        };
        let mut parts = Vec::new();
        let mut waits_since = trace.waits_since;
        if let Some(position) = progress.position {
            let mut span = part("wait for position", waits_since, position.ended_at);
            let passed = Attribute::new("hotrow.position.passed", position.has_passed);
            span.attributes.push(passed);
            parts.push(span);
            waits_since = position.ended_at;
        }
        if progress.queries.is_empty() {
            parts.push(part("wait for query", waits_since, now));
        }
        // Queries that are not sent at once follow each other: that for the row of an alias, or
        // for a row whose read was discarded.
        let mut free_since = waits_since;
        for query in &progress.queries {
            // One that joined a query in flight has not waited for it to be sent.
            if query.sent_at > free_since {
                parts.push(part("wait for query", free_since, query.sent_at));
            }
            free_since = free_since.max(query.ended_at);
        }
        // The query's own span is a child of the request that waited for it first.
        for query in progress.queries.iter().filter(|query| query.owner != trace.span.span_id) {
            let mut span =
                part("shared query", query.sent_at.max(waits_since), query.ended_at.min(now));
            span.links.push(query.span);
            span.attributes.push(Attribute::new("hotrow.query.keys", query.keys));
            span.attributes.extend(query.error.map(|error| Attribute::new("error.type", error)));
            span.is_error = query.error.is_some();
            parts.push(span);
        }
        parts
    }
}

/// Returns the path of a target as a text, cut at [`PATH_BYTES_MAX`].
fn path_text(target: &[u8]) -> String {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    String::from_utf8_lossy(&path[..path.len().min(PATH_BYTES_MAX)]).into_owned()
}

/// A place for the trace of a request that may begin to wait later, when its body has arrived.
pub type TraceSlot = std::rc::Rc<std::cell::OnceCell<Arc<RequestTrace>>>;
