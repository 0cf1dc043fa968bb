//! Messages of OTLP (`opentelemetry/proto/collector/trace/v1`): a request from spans, and what an
//! answer rejects.

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{self as wire_span, Link};
use opentelemetry_proto::tonic::trace::v1::{self as wire, ResourceSpans, ScopeSpans, Status};
use prost::Message;

use crate::context::SpanContext;
use crate::span::{Attribute, Span, SpanKind, Value};

/// Semantic conventions that names of attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Trace flag of a span that is recorded, and the bits that say where its parent is.
const FLAGS_SAMPLED: u32 = 0x01;
const FLAGS_KNOWN_PARENT: u32 = 0x100;
const FLAGS_REMOTE_PARENT: u32 = 0x200;

/// Answer to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Spans that the collector did not take.
    pub spans: u64,
    /// Its reason, or a warning.
    pub message: String,
}

/// Encodes a message: spans of the process that `resource` describes.
#[must_use]
pub fn request(resource: &[Attribute], program_version: &str, spans: &[Span]) -> Vec<u8> {
    let scope = InstrumentationScope {
        name: "hotrow".to_owned(),
        version: program_version.to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_spans = ScopeSpans {
        scope: Some(scope),
        spans: spans.iter().map(span).collect(),
        schema_url: SCHEMA_URL.to_owned(),
    };
    let resource = Resource { attributes: attributes(resource), ..Resource::default() };
    let resource_spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![scope_spans],
        schema_url: SCHEMA_URL.to_owned(),
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

/// Decodes the body of a successful answer. One that is no such message rejects nothing: the status
/// counts.
#[must_use]
pub fn rejected(answer: &[u8]) -> Rejected {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    Rejected {
        spans: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        message: partial.error_message,
    }
}

fn span(span: &Span) -> wire::Span {
    let kind = match span.kind {
        SpanKind::Internal => wire_span::SpanKind::Internal,
        SpanKind::Server => wire_span::SpanKind::Server,
        SpanKind::Client => wire_span::SpanKind::Client,
    };
    let remote = if span.has_remote_parent { FLAGS_REMOTE_PARENT } else { 0 };
    let parent = span.parent.map(|parent| parent.0.to_vec());
    let status = span
        .is_error
        .then(|| Status { code: wire::status::StatusCode::Error.into(), ..Status::default() });
    wire::Span {
        trace_id: span.context.trace_id.0.to_vec(),
        span_id: span.context.span_id.0.to_vec(),
        parent_span_id: parent.unwrap_or_default(),
        flags: FLAGS_SAMPLED | FLAGS_KNOWN_PARENT | remote,
        name: text(&span.name),
        kind: kind.into(),
        start_time_unix_nano: span.start_unix_ns,
        end_time_unix_nano: span.end_unix_ns,
        attributes: attributes(&span.attributes),
        links: span.links.iter().map(link).collect(),
        dropped_links_count: span.links_dropped,
        status,
        ..wire::Span::default()
    }
}

fn link(context: &SpanContext) -> Link {
    Link {
        trace_id: context.trace_id.0.to_vec(),
        span_id: context.span_id.0.to_vec(),
        flags: FLAGS_SAMPLED | FLAGS_KNOWN_PARENT,
        ..Link::default()
    }
}

fn attributes(attributes: &[Attribute]) -> Vec<KeyValue> {
    let converted = attributes.iter().map(|Attribute { name, value }| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(any_value(value)) }),
        ..KeyValue::default()
    });
    converted.collect()
}

fn any_value(value: &Value) -> any_value::Value {
    match value {
        Value::Text(_) | Value::Shared(_) => any_value::Value::StringValue(text(value)),
        Value::Integer(number) => any_value::Value::IntValue(*number),
        Value::Flag(flag) => any_value::Value::BoolValue(*flag),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone().into_owned(),
        Value::Shared(text) => (**text).to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use crate::context::RandomIds;
    use crate::recorder::{BATCH_BYTES_MAX, BATCH_SPANS_MAX};
    use crate::span::tests::span as example;

    use super::*;

    #[test]
    fn a_message_has_what_the_span_has() {
        let ids = RandomIds::default();
        let (parent, other) = (ids.span_id(), ids.root());
        let mut span = example(3);
        span.parent = Some(parent);
        span.has_remote_parent = true;
        span.links = vec![other];
        span.links_dropped = 2;
        span.is_error = true;
        span.attributes.push(Attribute::new("http.response.status_code", 503_usize));
        span.attributes.push(Attribute::new("hotrow.flag", true));
        let resource = [Attribute::new("service.name", "shop")];
        let message = request(&resource, "1.2.3", &[span.clone()]);
        let decoded = ExportTraceServiceRequest::decode(&message[..]).unwrap();
        let of_resource = &decoded.resource_spans[0];
        let attributes = &of_resource.resource.as_ref().unwrap().attributes;
        assert_eq!(attributes[0].key, "service.name");
        let of_scope = &of_resource.scope_spans[0];
        let scope = of_scope.scope.as_ref().unwrap();
        assert_eq!((&*scope.name, &*scope.version), ("hotrow", "1.2.3"));
        let wire = &of_scope.spans[0];
        assert_eq!(wire.trace_id, span.context.trace_id.0);
        assert_eq!(wire.span_id, span.context.span_id.0);
        assert_eq!(wire.parent_span_id, parent.0);
        assert_eq!((wire.flags, wire.kind), (0x301, wire_span::SpanKind::Server as i32));
        assert_eq!((wire.start_time_unix_nano, wire.end_time_unix_nano), (1_000, 2_000));
        assert_eq!((&*wire.name, wire.attributes.len()), ("GET /products/{id}", 3));
        let values: Vec<_> =
            wire.attributes.iter().map(|a| a.value.clone().unwrap().value.unwrap()).collect();
        let expected = [
            any_value::Value::StringValue("xxx".to_owned()),
            any_value::Value::IntValue(503),
            any_value::Value::BoolValue(true),
        ];
        assert_eq!(values, expected);
        assert_eq!(wire.links[0].span_id, other.span_id.0);
        assert_eq!(wire.dropped_links_count, 2);
        assert_eq!(wire.status.as_ref().unwrap().code, wire::status::StatusCode::Error as i32);
    }

    #[test]
    fn a_span_without_parent_and_failure_has_neither_field() {
        let message = request(&[], "", &[example(0)]);
        let decoded = ExportTraceServiceRequest::decode(&message[..]).unwrap();
        let wire = &decoded.resource_spans[0].scope_spans[0].spans[0];
        assert!(wire.parent_span_id.is_empty() && wire.status.is_none());
        assert_eq!(wire.flags, 0x101);
    }

    #[test]
    fn a_message_is_no_larger_than_its_spans_in_memory() {
        let spans: Vec<Span> = (0..BATCH_SPANS_MAX).map(|_| example(64)).collect();
        let memory: usize = spans.iter().map(Span::bytes).sum();
        assert!(request(&[], "", &spans).len() <= memory.min(BATCH_BYTES_MAX));
    }

    #[test]
    fn answers_say_what_they_reject() {
        let partial =
            ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
        let expected = Rejected { spans: 3, message: "too old".to_owned() };
        assert_eq!(rejected(&answer.encode_to_vec()), expected);
        for nothing in [&b""[..], b"{}", b"<html>", &[0xff; 64]] {
            assert_eq!(rejected(nothing).spans, 0, "{nothing:?}");
        }
        let negative = ExportTracePartialSuccess { rejected_spans: -1, ..Default::default() };
        let answer = ExportTraceServiceResponse { partial_success: Some(negative) };
        assert_eq!(rejected(&answer.encode_to_vec()).spans, 0);
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
