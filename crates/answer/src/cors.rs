//! Requests that browsers send from pages of other origins (CORS, by the Fetch standard).
//!
//! Only a page of an allowed origin may read an answer; every other client is served as without
//! this. The fields of an answer depend on the request's `Origin` alone and are written once, at
//! the start. Without a list of origins all of this is one branch.

use hotrow_config::cors::{Cors as Config, Origins};
use hotrow_http1::fields::Fields;
use hotrow_http1::head::Head;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE,
};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::http_error::HttpError;
use crate::route::METHODS;

const ORIGIN: &str = "origin";
/// Marks an `OPTIONS` request as a preflight.
const REQUEST_METHOD: &str = "access-control-request-method";
/// Fields that a page may send.
const SENT_FIELDS: &str = "Authorization, X-API-Key, Content-Type, Cache-Control, If-Match, \
    If-None-Match, Hotrow-Min-Position, Hotrow-Deadline-Ms, Hotrow-Priority";
/// Fields that a page may read, beside those that it always may.
const READ_FIELDS: &str = "Age, ETag, Hotrow-Cache, Hotrow-Position, RateLimit, RateLimit-Policy, \
    Retry-After, WWW-Authenticate";

/// Allowed origins, with the fields of their answers.
#[derive(Debug)]
pub struct Cors {
    origins: Box<[AllowedOrigin]>,
    /// Fields of every other answer.
    others: Box<[u8]>,
    max_age: HeaderValue,
    allows_any: bool,
}

/// One allowed origin.
#[derive(Debug)]
struct AllowedOrigin {
    origin: Box<str>,
    /// Fields of an answer to a page of this origin.
    fields: Box<[u8]>,
}

/// Origin of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrigin {
    /// None, or one that is not allowed by name.
    #[default]
    Other,
    /// An allowed one, by its place in the list.
    Listed(u16),
}

impl Cors {
    /// Creates the header fields of the configured origins.
    pub fn new(config: &Config) -> Self {
        let fields = |origin: &str| {
            let credentials = if config.allow_credentials {
                "access-control-allow-credentials: true\r\n"
            } else {
                ""
            };
            let fields = format!(
                "access-control-allow-origin: {origin}\r\n{credentials}\
                 access-control-expose-headers: {READ_FIELDS}\r\n"
            );
            fields.into_bytes()
        };
        const VARY: &[u8] = b"vary: origin\r\n";
        let (origins, others) = match &config.origins {
            // Equal for all: caches need not distinguish.
            Origins::Any => (Box::default(), fields("*").into()),
            Origins::Listed(origins) => {
                let listed = origins.iter().map(|origin| AllowedOrigin {
                    origin: origin.as_str().into(),
                    fields: [&fields(origin.as_str()), VARY].concat().into(),
                });
                (listed.collect(), VARY.into())
            }
        };
        Self {
            origins,
            others,
            max_age: config.max_age.as_secs().into(),
            allows_any: config.origins == Origins::Any,
        }
    }

    /// Returns the origin of a request.
    pub fn origin_of(&self, fields: Fields<'_>) -> RequestOrigin {
        if self.origins.is_empty() {
            return RequestOrigin::Other;
        }
        let mut values = fields.get_all(ORIGIN);
        let (Some(value), None) = (values.next(), values.next()) else {
            return RequestOrigin::Other;
        };
        let found = self.origins.iter().position(|allowed| allowed.origin.as_bytes() == value);
        // The configuration bounds their number.
        found.map_or(RequestOrigin::Other, |index| RequestOrigin::Listed(index as u16))
    }

    /// Writes the fields of an answer to a request from `origin`.
    pub fn write(&self, origin: RequestOrigin, out: &mut Vec<u8>) {
        let fields = match origin {
            RequestOrigin::Other => &self.others,
            RequestOrigin::Listed(index) => {
                self.origins.get(usize::from(index)).map_or(&self.others, |allowed| &allowed.fields)
            }
        };
        out.extend_from_slice(fields);
    }

    /// Answers a preflight request: it has no credential, asks for nothing, and its answer is the
    /// same for every path. `None`: the request is none.
    pub fn preflight(&self, head: &Head<'_>) -> Option<Response<Body>> {
        let fields = head.fields();
        let is_preflight = head.method() == b"OPTIONS"
            && fields.get(REQUEST_METHOD).is_some()
            && fields.get(ORIGIN).is_some();
        if !is_preflight {
            return None;
        }
        if !self.allows_any && self.origin_of(fields) == RequestOrigin::Other {
            let why = "pages of this origin may not read answers (cors.allowed_origins)";
            return Some(HttpError::Forbidden(why.to_owned()).response());
        }
        let mut answer = Response::new(Body::Empty);
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT_FIELDS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotrow_http1::fields::FieldsBuf;

    use super::*;

    fn cors(origins: &[&str], allow_credentials: bool) -> Cors {
        let origins = match origins {
            ["*"] => Origins::Any,
            list => Origins::Listed(list.iter().map(|origin| origin.parse().unwrap()).collect()),
        };
        Cors::new(&Config { origins, allow_credentials, max_age: Duration::from_secs(600) })
    }

    fn fields_for(cors: &Cors, origins: &[&str]) -> String {
        let fields: FieldsBuf = origins.iter().map(|origin| ("Origin", *origin)).collect();
        let mut out = Vec::new();
        cors.write(cors.origin_of(fields.as_fields()), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_an_exact_origin_is_allowed() {
        let cors = cors(&["https://shop.example", "http://localhost:3000"], true);
        for origin in ["https://shop.example", "http://localhost:3000"] {
            let fields = fields_for(&cors, &[origin]);
            let allow = format!("access-control-allow-origin: {origin}\r\n");
            assert!(fields.starts_with(&allow), "{fields}");
            assert!(fields.contains("access-control-allow-credentials: true\r\n"), "{fields}");
            assert!(fields.contains("access-control-expose-headers: Age, ETag, "), "{fields}");
            assert!(fields.ends_with("vary: origin\r\n"), "{fields}");
        }
        for other in [
            &[][..],
            &[""],
            &["null"],
            &["*"],
            &["https://shop.example.evil.test"],
            &["https://evil.test/https://shop.example"],
            &["http://shop.example"],
            &["https://shop.example:8443"],
            &["https://SHOP.example"],
            &["https://shop.example", "https://shop.example"],
        ] {
            assert_eq!(fields_for(&cors, other), "vary: origin\r\n", "{other:?}");
        }
    }

    #[test]
    fn any_origin_gets_the_same_answer() {
        let cors = cors(&["*"], false);
        let fields = fields_for(&cors, &[]);
        assert!(fields.starts_with("access-control-allow-origin: *\r\n"), "{fields}");
        assert!(!fields.contains("vary") && !fields.contains("credentials"), "{fields}");
        assert_eq!(fields, fields_for(&cors, &["https://shop.example"]));
    }
}
