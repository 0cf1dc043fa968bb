//! The same requests for HTTP/2: made from their HTTP/1.1 form, so that there is one description.

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri, Version};

use super::{RequestGenerator, Template};
use crate::http2::Http2Request;

/// Between the pieces of a path; no request has it in its head.
const GAP: u8 = 0;
/// Headers that belong to a connection of HTTP/1.1: RFC 9113 section 8.2.2.
const CONNECTION_HEADERS: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];

/// A request with placeholders, for HTTP/2.
#[derive(Clone, Debug)]
pub(super) struct Http2Template {
    method: Method,
    scheme: Scheme,
    authority: Authority,
    /// The path between the placeholders.
    pieces: Vec<Vec<u8>>,
    /// The whole path, if it has no placeholder.
    path: Option<PathAndQuery>,
    headers: HeaderMap,
    body: Option<Bytes>,
}

/// A request for HTTP/2, and what its repetition depends on.
#[derive(Debug)]
pub(crate) struct PreparedHttp2 {
    pub(crate) request: Http2Request,
    /// True if it may be sent again.
    pub(crate) idempotent: bool,
}

impl Http2Template {
    /// Translates a request; `None` if HTTP/2 cannot express it, such as a `Host` that is none.
    fn of(template: &Template, scheme: &Scheme) -> Option<Self> {
        let bytes = template.pieces.join(&GAP);
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let (head, rest) = (std::str::from_utf8(&bytes[..head_end]).ok()?, &bytes[head_end + 4..]);
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.splitn(3, ' ');
        let (method, path) = (words.next()?, words.next()?);
        let (mut headers, mut authority) = (HeaderMap::new(), None);
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = value.trim();
            if name == HOST {
                authority = Some(value.parse().ok()?);
            } else if !CONNECTION_HEADERS.contains(&name.as_str()) {
                headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
            }
        }
        let pieces: Vec<Vec<u8>> =
            path.as_bytes().split(|byte| *byte == GAP).map(<[u8]>::to_vec).collect();
        let whole = match pieces.as_slice() {
            [only] => Some(PathAndQuery::try_from(only.as_slice()).ok()?),
            _ => None,
        };
        let has_body = headers.contains_key(http::header::CONTENT_LENGTH);
        Some(Self {
            method: Method::from_bytes(method.as_bytes()).ok()?,
            scheme: scheme.clone(),
            authority: authority?,
            pieces,
            path: whole,
            headers,
            body: has_body.then(|| Bytes::copy_from_slice(rest)),
        })
    }

    fn fill(&self, path: PathAndQuery) -> Http2Request {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        let mut head = http::Request::new(());
        *head.method_mut() = self.method.clone();
        // All three parts are there, which is what it requires.
        *head.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        *head.version_mut() = Version::HTTP_2;
        *head.headers_mut() = self.headers.clone();
        Http2Request { head, body: self.body.clone() }
    }
}

impl RequestGenerator {
    /// Prepares the requests for HTTP/2; returns false if one of them cannot be expressed in it.
    pub(crate) fn prepare_http2(&mut self, secure: bool) -> bool {
        let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
        let translated = self.templates.iter().map(|template| Http2Template::of(template, &scheme));
        match translated.collect::<Option<Vec<_>>>() {
            Some(http2) => {
                self.http2 = http2;
                true
            }
            None => false,
        }
    }

    /// Returns the next request; `None` if an id makes no valid path.
    pub(crate) fn next_http2(&mut self) -> Option<PreparedHttp2> {
        let index = self.choose();
        let (template, idempotent) =
            (self.http2.get(index)?, self.templates.get(index)?.idempotent);
        let path = match (&template.path, &mut self.drawer, template.pieces.as_slice()) {
            (Some(path), _, _) => path.clone(),
            (None, Some(drawer), [first, rest @ ..]) => {
                self.filled.clear();
                self.filled.extend_from_slice(first);
                for piece in rest {
                    drawer.fill(&mut self.filled);
                    self.filled.extend_from_slice(piece);
                }
                PathAndQuery::try_from(self.filled.as_slice()).ok()?
            }
            (None, _, _) => return None,
        };
        Some(PreparedHttp2 { request: template.fill(path), idempotent })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RequestMix, RequestSpec};
    use super::*;
    use crate::ids::{Distribution, Ids};

    fn generator(spec: &RequestSpec<'_>, ids: Option<(Ids, Distribution)>) -> RequestGenerator {
        let mut generator =
            RequestMix::new(std::slice::from_ref(spec), ids).unwrap().share(1, 0, 1);
        assert!(generator.prepare_http2(true));
        generator
    }

    #[test]
    fn a_request_keeps_all_but_what_belongs_to_http_1() {
        let headers =
            [("Accept".to_owned(), "a/b".to_owned()), ("X".to_owned(), "1: 2".to_owned())];
        let spec = RequestSpec {
            method: "POST",
            path: "/a/{id}?b={id}",
            host: "h.example:8443",
            headers: &headers,
            body: Some(b"\0body\r\n\r\n"),
            weight: 1,
            keepalive: false,
        };
        let ids = Some((Ids::range(7, 7).unwrap(), Distribution::Uniform));
        let prepared = generator(&spec, ids).next_http2().unwrap();
        let Http2Request { head, body } = prepared.request;
        assert_eq!(head.uri().to_string(), "https://h.example:8443/a/7?b=7");
        assert_eq!((head.method(), prepared.idempotent), (&Method::POST, false));
        assert_eq!(body.as_deref(), Some(&b"\0body\r\n\r\n"[..]));
        let mut names: Vec<&str> = head.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "content-length", "user-agent", "x"]);
        assert_eq!(head.headers()["x"], "1: 2");
    }

    #[test]
    fn a_request_without_placeholder_is_prepared_whole() {
        let spec = RequestSpec {
            method: "GET",
            path: "/a",
            host: "h",
            headers: &[],
            body: None,
            weight: 1,
            keepalive: true,
        };
        let mut generator = generator(&spec, None);
        for _ in 0..2 {
            let prepared = generator.next_http2().unwrap();
            assert_eq!(prepared.request.head.uri().to_string(), "https://h/a");
            assert!(prepared.request.body.is_none() && prepared.idempotent);
        }
    }
}
