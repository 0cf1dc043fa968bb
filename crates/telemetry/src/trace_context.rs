//! The request header `traceparent` (W3C Trace Context, level 1), by which the lines of a log are
//! found that belong to one trace, and by which spans join the caller's. It is never forwarded.

use hotrow_http1::fields::Fields;
use hotrow_otel::context::TraceParent;

/// Name of the header.
const TRACEPARENT: &str = "traceparent";

/// Returns the caller's span that a request names, unless its header is absent, malformed or
/// repeated.
pub fn parent_of(headers: Fields<'_>) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT);
    let value = values.next()?;
    // Which of several is meant is unknown.
    if values.next().is_some() { None } else { TraceParent::parse(value) }
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_repeated_header_names_no_trace() {
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let parent = |fields: &FieldsBuf| parent_of(fields.as_fields());
        let one = parent(&FieldsBuf::from_iter([("Traceparent", &value)])).unwrap();
        assert_eq!(one.span.trace_id.to_string(), TRACE);
        let two = FieldsBuf::from_iter([("traceparent", &value), ("traceparent", &value)]);
        assert_eq!(parent(&two), None);
        assert_eq!(parent(&FieldsBuf::default()), None);
    }
}
