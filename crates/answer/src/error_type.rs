//! Types of errors: what the `type` of a problem document (RFC 9457) links to.
//!
//! Reference `errors`: # Errors
//!
//! The `type` of an error is a link to its section here, which every instance serves; `detail` has
//! the rule and the value. Settings are in [configuration](reference/configuration.md).

use http::StatusCode;

/// Path of the page that describes every type. Three segments, so that no record can have it.
pub const PAGE_PATH: &str = "/docs/reference/errors.md";
/// That page.
pub const PAGE: &str = include_str!("../../../docs/reference/errors.md");

/// Defines the types with their statuses and titles.
macro_rules! error_types {
    ($($(#[$meaning:meta])+ $name:ident = $status:ident $title:literal),+ $(,)?) => {
        /// Type of an error, with what it means and what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorType {
            $($(#[$meaning])+ $name),+
        }

        impl ErrorType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the usual status.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status),+
                }
            }

            /// Returns the `title` of a problem document.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title),+
                }
            }
        }
    };
}

error_types! {
    // Reference `errors`: a section of each.
    /// Status 413. The records have more bytes than `limits.answer_bytes`. Request fewer ids; one
    /// record that is larger needs a larger limit, or fewer `columns`.
    AnswerTooLarge = PAYLOAD_TOO_LARGE "Answer too large",
    /// Status 400. An id is not a key of the collection, or there are none, more than
    /// `limits.max_batch`, or more than a rate limit ever permits. `GET /products?ids=1,2`, or
    /// `POST /products` with `{"ids":[1,2]}`.
    BadBatch = BAD_REQUEST "Bad batch",
    /// Status 400. The body is not `{"ids":[…]}`, or it ended early.
    BadBody = BAD_REQUEST "Bad body",
    /// Status 400. `?fields=` names a field that the records lack or that this client may not read,
    /// or the collection has no `allow_fields`.
    BadFields = BAD_REQUEST "Bad fields",
    /// Status 400. A header's value is malformed, a position is of another log, or the collection
    /// does not grant it (`allow_min_position`). Drop a position that is refused and read again.
    BadHeader = BAD_REQUEST "Bad header",
    /// Status 400. The id cannot be a key: wrong type, spelling or number of columns. See
    /// [ids](http.md#ids). A `/` or a comma within a text is `%2F` or `%2C`.
    BadId = BAD_REQUEST "Bad id",
    /// Status 400, admin address. The body of `POST /limits/rate/{rule}` is not a rate.
    BadLimit = BAD_REQUEST "Bad limit",
    /// Status 400, admin address. A parameter of `/history` is unknown or malformed.
    BadQuery = BAD_REQUEST "Bad query",
    /// Status 400, and the connection is closed. The bytes are [not
    /// HTTP](reference/http.md#wire-format). Look for a proxy that changes requests, or for TLS or
    /// the Redis protocol on this port.
    BadRequest = BAD_REQUEST "Bad request",
    /// Status 413. The body exceeds `limits.body_bytes`. Send several batches. The connection
    /// closes, but not with HTTP/2; as for longer heads and targets.
    ContentTooLarge = PAYLOAD_TOO_LARGE "Content too large",
    /// Status 403. The credential is valid, and none of its roles has the [grant](access.md); or a
    /// page of another origin sent the request.
    Forbidden = FORBIDDEN "Forbidden",
    /// Status 431. The head exceeds `limits.header_bytes` or `limits.headers`.
    HeaderTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE "Request header fields too large",
    /// Status 405. `Allow` lists the methods. Keys of several columns are requested as a batch by
    /// POST.
    MethodNotAllowed = METHOD_NOT_ALLOWED "Method not allowed",
    /// Status 404. `GET /` lists the collections; names are case-sensitive.
    NoSuchCollection = NOT_FOUND "No such collection",
    /// Status 404. Paths are `/{collection}/{id}`, `/{collection}?ids=…` and
    /// `/{collection}/by/{alias}/…`. Health, metrics and purges are at the admin address.
    NoSuchPath = NOT_FOUND "No such path",
    /// Status 404. The database has no row with this key, or it belongs to another
    /// [tenant](access.md#what-a-404-shows).
    NoSuchRecord = NOT_FOUND "No such record",
    /// Status 404, admin address. `GET /status` lists the rate limits.
    NoSuchRule = NOT_FOUND "No such rule",
    /// Status 503. The database cannot be read, or the feed is behind and `when_stale = "refuse"`.
    /// Try again after `Retry-After`. Operators: [runbook](reference/runbook.md).
    NotAvailable = SERVICE_UNAVAILABLE "Not available",
    /// Status 404. Set `changes = true` in the collection.
    NotFollowed = NOT_FOUND "Changes are not served",
    /// Status 503, admin address: too many reloads wait, or the process ends. 404: it was started
    /// without a file.
    NotReloaded = SERVICE_UNAVAILABLE "Not reloaded",
    /// Status 503. A queue or a budget is full, or [costly requests are
    /// shed](overload.md#shedding). Try again after `Retry-After`, with fewer at once. Operators:
    /// `hotrow doctor`.
    Overloaded = SERVICE_UNAVAILABLE "Overloaded",
    /// Status 412. `If-Match` does not hold; `ETag` has the present tag, if there is a record.
    PreconditionFailed = PRECONDITION_FAILED "Precondition failed",
    /// Status 408. The head or the body came later than `limits.header_timeout` or
    /// `limits.body_timeout`.
    RequestTimeout = REQUEST_TIMEOUT "Request timeout",
    /// Status 504. The database did not answer in `source.read_timeout`, or a position was not
    /// reached in time. The request may be repeated.
    TimedOut = GATEWAY_TIMEOUT "Timed out",
    /// Status 401, admin address. Send `Authorization: Bearer` with `admin.token`.
    TokenNeeded = UNAUTHORIZED "Token needed",
    /// Status 429. A [rate limit](rate-limits.md#responses), connections (this one closes) or
    /// followers of one client, or refused credentials. Wait for `Retry-After`.
    TooManyRequests = TOO_MANY_REQUESTS "Too many requests",
    /// Status 401. The [credential](access.md) is missing, unknown or expired; `detail` says which.
    Unauthorized = UNAUTHORIZED "Unauthorized",
    /// Status 400. The query has a parameter that this path does not know; `detail` lists those it
    /// knows. `listen.unknown_parameters = "ignore"` permits others.
    UnknownParameter = BAD_REQUEST "Unknown parameter",
    /// Status 500. The row cannot be read (damage, an overflow in a view) or has no JSON form. The
    /// log has the cause; [other records](overload.md#one-bad-record) are not affected.
    Unreadable = INTERNAL_SERVER_ERROR "Record not readable",
    /// Status 414. The target exceeds `limits.target_bytes`. Request batches by POST.
    UriTooLong = URI_TOO_LONG "URI too long",
    /// Status 505. Use HTTP/1.1, or HTTP/2 where `listen.http2` allows it.
    VersionNotSupported = HTTP_VERSION_NOT_SUPPORTED "HTTP version not supported",
}

impl ErrorType {
    /// Returns the `type` of a problem document: a link to the section.
    #[must_use]
    pub fn link(self) -> String {
        format!("{PAGE_PATH}#{}", self.title().to_ascii_lowercase().replace(' ', "-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_section_and_every_section_its_type() {
        let sections: Vec<&str> =
            PAGE.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        for kind in ErrorType::ALL {
            assert!(sections.contains(&kind.title()), "{kind:?}");
        }
        assert_eq!(sections.len(), ErrorType::ALL.len());
        assert_eq!(ErrorType::NoSuchPath.link(), "/docs/reference/errors.md#no-such-path");
    }
}
