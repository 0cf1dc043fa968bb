//! Messages of OTLP in JSON (`ExportTraceServiceRequest`): a request from spans, and what an answer
//! rejects.
//!
//! Of the mapping of Protocol Buffers to JSON the specification changes two things: ids are
//! hexadecimal, and enumerations are numbers. 64-bit integers are strings.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::context::{SpanContext, SpanId, TraceId};
use crate::recorder::MESSAGE_BYTES_MAX;
use crate::span::{Attribute, Span, SpanKind, Value};

/// Semantic conventions that names of attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Trace flag of a span that is recorded, and the bits that say where its parent is.
const FLAGS_SAMPLED: u32 = 0x01;
const FLAGS_KNOWN_PARENT: u32 = 0x100;
const FLAGS_REMOTE_PARENT: u32 = 0x200;
/// `Status.StatusCode`: an error.
const STATUS_ERROR: u32 = 2;

/// Answer to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Spans that the collector did not take.
    pub spans: u64,
    /// Its reason, or a warning.
    pub message: String,
}

/// Encodes a message: spans of the process that `resource` describes. Nothing but the message is
/// allocated.
pub fn request(resource: &[Attribute], program_version: &str, spans: &[Span]) -> Vec<u8> {
    let resource = Resource { attributes: List(resource) };
    let scope = Scope { name: "hotrow", version: program_version };
    let scope_spans = [ScopeSpans { scope, spans: List(spans), schema_url: SCHEMA_URL }];
    let resource_spans = [ResourceSpans { resource, scope_spans, schema_url: SCHEMA_URL }];
    let mut message = Vec::with_capacity(MESSAGE_BYTES_MAX);
    // A vector takes all bytes, and no value of a message lacks a form in JSON.
    _ = serde_json::to_writer(&mut message, &Request { resource_spans });
    message
}

/// Decodes the body of a successful answer. One that is no such message rejects nothing: the status
/// counts.
pub fn rejected(answer: &[u8]) -> Rejected {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let spans = match &partial["rejectedSpans"] {
        Json::String(number) => number.parse().ok(),
        number => number.as_u64(),
    };
    let message = partial["errorMessage"].as_str().unwrap_or_default().to_owned();
    Rejected { spans: spans.unwrap_or_default(), message }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
    schema_url: &'static str,
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: List<'a, Attribute>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: List<'a, Span>,
    schema_url: &'static str,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'static str,
    version: &'a str,
}

/// Values that are written in another form than their own.
struct List<'a, T>(&'a [T]);

impl Serialize for List<'_, Span> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(WireSpan::from))
    }
}

impl Serialize for List<'_, Attribute> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(WireAttribute::from))
    }
}

impl Serialize for List<'_, SpanContext> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let link = |context: &SpanContext| WireLink {
            trace_id: Text(context.trace_id),
            span_id: Text(context.span_id),
            flags: FLAGS_SAMPLED | FLAGS_KNOWN_PARENT,
        };
        serializer.collect_seq(self.0.iter().map(link))
    }
}

/// A value that is a string in JSON.
struct Text<T>(T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireSpan<'a> {
    trace_id: Text<TraceId>,
    span_id: Text<SpanId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<Text<SpanId>>,
    flags: u32,
    name: Text<&'a Value>,
    kind: u32,
    start_time_unix_nano: Text<u64>,
    end_time_unix_nano: Text<u64>,
    attributes: List<'a, Attribute>,
    links: List<'a, SpanContext>,
    dropped_links_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct Status {
    code: u32,
}

impl<'a> From<&'a Span> for WireSpan<'a> {
    fn from(span: &'a Span) -> Self {
        let remote = if span.has_remote_parent { FLAGS_REMOTE_PARENT } else { 0 };
        Self {
            trace_id: Text(span.context.trace_id),
            span_id: Text(span.context.span_id),
            parent_span_id: span.parent.map(Text),
            flags: FLAGS_SAMPLED | FLAGS_KNOWN_PARENT | remote,
            name: Text(&span.name),
            kind: match span.kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
            },
            start_time_unix_nano: Text(span.start_unix_ns),
            end_time_unix_nano: Text(span.end_unix_ns),
            attributes: List(&span.attributes),
            links: List(&span.links),
            dropped_links_count: span.links_dropped,
            status: span.is_error.then_some(Status { code: STATUS_ERROR }),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireLink {
    trace_id: Text<TraceId>,
    span_id: Text<SpanId>,
    flags: u32,
}

#[derive(Serialize)]
struct WireAttribute<'a> {
    key: &'static str,
    value: WireValue<'a>,
}

impl<'a> From<&'a Attribute> for WireAttribute<'a> {
    fn from(attribute: &'a Attribute) -> Self {
        let value = match &attribute.value {
            Value::Text(text) => WireValue::Text(text),
            Value::Shared(text) => WireValue::Text(text),
            Value::Integer(number) => WireValue::Integer(Text(*number)),
            Value::Flag(flag) => WireValue::Flag(*flag),
        };
        Self { key: attribute.name, value }
    }
}

#[derive(Serialize)]
enum WireValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Integer(Text<i64>),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::context::RandomIds;
    use crate::recorder::{BATCH_BYTES_MAX, BATCH_SPANS_MAX};
    use crate::span::tests::span as example;

    use super::*;

    fn span_context(trace_id: u128, span_id: u64) -> SpanContext {
        SpanContext {
            trace_id: TraceId(trace_id.to_be_bytes()),
            span_id: SpanId(span_id.to_be_bytes()),
        }
    }

    fn decoded(resource: &[Attribute], program_version: &str, span: Span) -> Json {
        serde_json::from_slice(&request(resource, program_version, &[span])).unwrap()
    }

    /// Ids, times and the form of values are those of the example in the specification
    /// (`opentelemetry-proto/examples/trace.json`, in lower case).
    #[test]
    fn a_message_has_every_field_in_the_form_of_the_specification() {
        let mut span = example(3);
        span.context =
            span_context(0x5b8e_fff7_9803_8103_d269_b633_813f_c60c, 0xeee1_9b7e_c3c1_b174);
        span.parent = Some(span_context(1, 0xeee1_9b7e_c3c1_b173).span_id);
        span.has_remote_parent = true;
        span.start_unix_ns = 1_544_712_660_000_000_000;
        span.end_unix_ns = 1_544_712_661_000_000_000;
        span.links = vec![span_context(10, 11)];
        span.links_dropped = 2;
        span.is_error = true;
        span.attributes.push(Attribute::new("http.response.status_code", 503_usize));
        span.attributes.push(Attribute::new("hotrow.flag", true));
        let expected = json!({"resourceSpans": [{
            "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "shop \"1\"\n"}},
            ]},
            "scopeSpans": [{
                "scope": {"name": "hotrow", "version": "1.2.3"},
                "spans": [{
                    "traceId": "5b8efff798038103d269b633813fc60c",
                    "spanId": "eee19b7ec3c1b174",
                    "parentSpanId": "eee19b7ec3c1b173",
                    "flags": 0x301,
                    "name": "GET /products/{id}",
                    "kind": 2,
                    "startTimeUnixNano": "1544712660000000000",
                    "endTimeUnixNano": "1544712661000000000",
                    "attributes": [
                        {"key": "url.path", "value": {"stringValue": "xxx"}},
                        {"key": "http.response.status_code", "value": {"intValue": "503"}},
                        {"key": "hotrow.flag", "value": {"boolValue": true}},
                    ],
                    "links": [{
                        "traceId": "0000000000000000000000000000000a",
                        "spanId": "000000000000000b",
                        "flags": 0x101,
                    }],
                    "droppedLinksCount": 2,
                    "status": {"code": 2},
                }],
                "schemaUrl": SCHEMA_URL,
            }],
            "schemaUrl": SCHEMA_URL,
        }]});
        let resource = [Attribute::new("service.name", "shop \"1\"\n".to_owned())];
        assert_eq!(decoded(&resource, "1.2.3", span), expected);
    }

    #[test]
    fn a_span_without_parent_and_failure_has_neither_field() {
        let message = decoded(&[], "", example(0));
        let wire = &message["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert!(wire.get("parentSpanId").is_none() && wire.get("status").is_none());
        assert_eq!(wire["flags"], 0x101);
    }

    #[test]
    fn a_message_has_a_bound() {
        let other = RandomIds::default().root();
        let largest_of = |text_bytes: usize, links: usize| {
            let mut span = example(text_bytes);
            span.parent = Some(other.span_id);
            span.has_remote_parent = true;
            span.links = vec![other; links];
            let rows = (1..10).map(|_| Attribute::new("db.response.returned_rows", 7_usize));
            span.attributes = span.attributes.drain(..).chain(rows).collect();
            let count = (BATCH_BYTES_MAX / span.bytes()).min(BATCH_SPANS_MAX);
            request(&[], "", &vec![span; count]).len()
        };
        for (text_bytes, links) in [(0, 0), (64, 0), (600, 3), (15 << 10, 0), (0, 63)] {
            let bytes = largest_of(text_bytes, links);
            assert!(bytes <= MESSAGE_BYTES_MAX, "{text_bytes}, {links}: {bytes}");
        }
    }

    #[test]
    fn answers_say_what_they_reject() {
        let expected = Rejected { spans: 3, message: "too old".to_owned() };
        for spans in ["3", "\"3\""] {
            let partial = format!(r#"{{"rejectedSpans": {spans}, "errorMessage": "too old"}}"#);
            let answer = format!(r#"{{"partialSuccess": {partial}, "later": []}}"#);
            assert_eq!(rejected(answer.as_bytes()), expected);
        }
        for nothing in [
            "",
            "{}",
            "<html>",
            "[]",
            "7",
            r#"{"partialSuccess": {}}"#,
            r#"{"partialSuccess": {"rejectedSpans": -1}}"#,
            r#"{"partialSuccess": {"rejectedSpans": "-1", "errorMessage": 3}}"#,
        ] {
            assert_eq!(rejected(nothing.as_bytes()), Rejected::default(), "{nothing}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_answer_causes_a_panic(
            answer in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            let _ = rejected(&answer);
        }
    }
}
