//! One span as the process records it, with its size in memory.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::context::{SpanContext, SpanId};

/// Role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A part of a request within the process.
    Internal,
    /// A request to this process.
    Server,
    /// A request of this process to another.
    Client,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text, of the program or made for the span.
    Text(Cow<'static, str>),
    /// A text that many spans share.
    Shared(Arc<str>),
    /// A number.
    Integer(i64),
    /// A condition.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Shared(text) => f.write_str(text),
            Self::Integer(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<&Arc<str>> for Value {
    fn from(text: &Arc<str>) -> Self {
        Self::Shared(Arc::clone(text))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// A named property of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, where there is one from the semantic conventions.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

impl Attribute {
    /// Creates an attribute.
    pub fn new(name: &'static str, value: impl Into<Value>) -> Self {
        Self { name, value: value.into() }
    }
}

/// A finished span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Itself.
    pub context: SpanContext,
    /// Its parent in the same trace; `None`: it is the first.
    pub parent: Option<SpanId>,
    /// Whether the parent is in another process.
    pub has_remote_parent: bool,
    /// Name, of which there are few.
    pub name: Value,
    /// Role.
    pub kind: SpanKind,
    /// Begin, in Unix time.
    pub start_unix_ns: u64,
    /// End, in Unix time.
    pub end_unix_ns: u64,
    /// Properties.
    pub attributes: Vec<Attribute>,
    /// Spans of other traces that it belongs to as well.
    pub links: Vec<SpanContext>,
    /// Links that were left out.
    pub links_dropped: u32,
    /// Whether it failed.
    pub is_error: bool,
}

impl Span {
    /// Returns the bytes that it takes in memory. Shared texts count in full, because they are on
    /// the wire.
    pub fn bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|attribute| text_bytes(&attribute.value));
        size_of::<Self>()
            + text_bytes(&self.name)
            + self.attributes.capacity() * size_of::<Attribute>()
            + attributes.sum::<usize>()
            + self.links.capacity() * size_of::<SpanContext>()
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Text(Cow::Borrowed(_)) | Value::Integer(_) | Value::Flag(_) => 0,
        Value::Text(Cow::Owned(text)) => text.capacity(),
        Value::Shared(text) => text.len(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::context::RandomIds;

    use super::*;

    /// Returns a span with a text of some bytes.
    pub(crate) fn span(text_bytes: usize) -> Span {
        Span {
            context: RandomIds::default().root(),
            parent: None,
            has_remote_parent: false,
            name: "GET /products/{id}".into(),
            kind: SpanKind::Server,
            start_unix_ns: 1_000,
            end_unix_ns: 2_000,
            attributes: vec![Attribute::new("url.path", "x".repeat(text_bytes))],
            links: Vec::new(),
            links_dropped: 0,
            is_error: false,
        }
    }

    #[test]
    fn texts_count() {
        let bytes = span(0).bytes();
        assert_eq!(span(1_000).bytes(), bytes + 1_000);
        let shared: Arc<str> = "products".into();
        let mut linked = span(0);
        linked.attributes.push(Attribute::new("db.collection.name", &shared));
        linked.links.push(linked.context);
        assert!(linked.bytes() >= bytes + shared.len() + size_of::<SpanContext>());
    }
}
