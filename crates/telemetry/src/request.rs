//! A request as operators see it: in lines of the log and in spans.

use hotrow_access::caller::Caller;
use hotrow_http1::head::Version;
use hotrow_types::key::CollectionId;

/// Version of HTTP that a client speaks. A request of HTTP/2 has a head of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Returns its name, as in a request line.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

impl From<Version> for Protocol {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::Http10,
            Version::Http11 => Self::Http11,
        }
    }
}

/// What the handling of a request has learned about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notes {
    /// Its sender.
    pub caller: Caller,
    /// The collection that it names; `None`: the path names none.
    pub collection: Option<CollectionId>,
}
