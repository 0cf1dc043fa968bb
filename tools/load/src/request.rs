//! Requests, prepared as bytes before the run.

pub mod error;
mod http2;

use hotrow_transport::fetch::Request;
use std::sync::Arc;

use crate::ids::{Distribution, IdSampler, Ids};
use crate::random::Random;

use self::error::HEAD_BYTES_MAX;
pub use self::error::{RequestError, URLS_MAX, WEIGHT_MAX};

/// Methods whose requests may be repeated: RFC 9110 section 9.2.2.
const IDEMPOTENT_METHODS: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
/// The placeholder for ids in a path.
const ID_PLACEHOLDER: &str = "{id}";
/// First random stream of the choice between URLs; one per thread.
const CHOICE_STREAM: u64 = 1 << 32;

/// The weighted requests of a run, for all threads.
#[derive(Clone, Debug)]
pub struct RequestMix {
    templates: Vec<Template>,
    ids: Option<(Ids, Distribution)>,
}

/// The user's description of one kind of request.
#[derive(Clone, Debug)]
pub struct RequestSpec<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// Path and query, beginning with `/`; every `{id}` in it is replaced.
    pub path: &'a str,
    /// The value of `Host`, unless `headers` has one.
    pub host: &'a str,
    /// Additional headers. A `User-Agent` or `Host` here replaces the default.
    pub headers: &'a [(String, String)],
    /// The body, if any.
    pub body: Option<&'a [u8]>,
    /// Relative frequency.
    pub weight: u32,
    /// True if the connection stays open; if not, the request says so.
    pub keepalive: bool,
}

/// A request with placeholders for ids. A single piece has no placeholder and is sent as it is.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pieces: Vec<Arc<[u8]>>,
    /// Sum of the weights up to and including this one.
    weight_sum: u64,
    answer_has_body: bool,
    idempotent: bool,
}

impl RequestMix {
    /// Prepares the requests; there is at least one.
    ///
    /// # Errors
    /// Returns the problem with a request, or with the ids.
    pub fn new(
        requests: &[RequestSpec<'_>],
        ids: Option<(Ids, Distribution)>,
    ) -> Result<Self, RequestError> {
        if requests.len() > URLS_MAX {
            return Err(RequestError::TooMany(requests.len()));
        }
        let (mut templates, mut weight_sum) = (Vec::with_capacity(requests.len()), 0);
        for request in requests {
            if !(1..=WEIGHT_MAX).contains(&request.weight) {
                return Err(RequestError::Weight(request.weight));
            }
            weight_sum += u64::from(request.weight);
            templates.push(Template::new(request, weight_sum)?);
        }
        let gaps = templates.iter().any(|t| t.pieces.len() > 1);
        match (gaps, &ids) {
            (true, None) => Err(RequestError::NothingToFill),
            (false, Some(_)) => Err(RequestError::NowhereToFill),
            _ => Ok(Self { templates, ids }),
        }
    }

    /// Returns the same requests as HEAD, whose responses have no bodies; `None` unless all are
    /// GET.
    #[must_use]
    pub fn as_head(&self) -> Option<Self> {
        let head = |template: &Template| {
            let [first, rest @ ..] = template.pieces.as_slice() else { return None };
            let after = first.strip_prefix(b"GET ")?;
            let first = Arc::from([b"HEAD ", after].concat());
            let pieces = [first].into_iter().chain(rest.iter().cloned()).collect();
            Some(Template { pieces, answer_has_body: false, ..template.clone() })
        };
        let templates = self.templates.iter().map(head).collect::<Option<Vec<_>>>()?;
        Some(Self { templates, ids: self.ids.clone() })
    }

    /// Returns the same requests without their `Connection: close`.
    #[must_use]
    pub fn with_keepalive(&self) -> Self {
        const CLOSE: &[u8] = b"Connection: close\r\n";
        // Users cannot set that header, and the head precedes the body: the first occurrence is
        // ours.
        let without = |template: &Template| {
            let mut pieces = template.pieces.clone();
            for piece in &mut pieces {
                if let Some(at) = piece.windows(CLOSE.len()).position(|window| window == CLOSE) {
                    *piece = Arc::from([&piece[..at], &piece[at + CLOSE.len()..]].concat());
                    break;
                }
            }
            Template { pieces, ..template.clone() }
        };
        Self { templates: self.templates.iter().map(without).collect(), ids: self.ids.clone() }
    }

    /// Passes the first request of this `seed` to `send`, as it is sent.
    pub fn with_first<T>(&self, seed: u64, send: impl FnOnce(Request<'_>) -> T) -> T {
        let mut share = self.share(seed, 0, 1);
        let PreparedRequest { bytes, answer_has_body, .. } = share.next();
        send(Request { bytes, answer_has_body })
    }

    /// Returns the requests of thread `index` of `threads`.
    pub(crate) fn share(&self, seed: u64, index: u32, threads: u32) -> RequestGenerator {
        RequestGenerator {
            templates: self.templates.clone(),
            drawer: self
                .ids
                .as_ref()
                .map(|(ids, pick)| IdSampler::new(ids, *pick, seed, index, threads)),
            choice: Random::new(seed, CHOICE_STREAM + u64::from(index)),
            filled: Vec::new(),
            http2: Vec::new(),
        }
    }
}

impl Template {
    fn new(request: &RequestSpec<'_>, weight_sum: u64) -> Result<Self, RequestError> {
        let head = head(request)?;
        if head.len() > HEAD_BYTES_MAX {
            return Err(RequestError::TooLong(head.len()));
        }
        // Only the path may have placeholders: in a header, `{id}` means these four characters.
        let line_end = head.find("\r\n").unwrap_or(head.len());
        let (line, rest) = head.split_at(line_end);
        let mut pieces: Vec<Vec<u8>> =
            line.split(ID_PLACEHOLDER).map(|piece| piece.as_bytes().to_vec()).collect();
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(rest.as_bytes());
            last.extend_from_slice(request.body.unwrap_or_default());
        }
        let pieces = pieces.into_iter().map(Arc::from).collect();
        Ok(Self {
            pieces,
            weight_sum,
            answer_has_body: request.method != "HEAD",
            idempotent: IDEMPOTENT_METHODS.contains(&request.method),
        })
    }
}

fn head(request: &RequestSpec<'_>) -> Result<String, RequestError> {
    if request.method.is_empty() || !request.method.bytes().all(is_token) {
        return Err(RequestError::Method(request.method.to_owned()));
    }
    if !request.path.starts_with('/') || !request.path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(RequestError::Path(request.path.to_owned()));
    }
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
    let given = |name: &str| request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !given("host") {
        head.push_str(&format!("Host: {}\r\n", request.host));
    }
    if !given("user-agent") {
        head.push_str(concat!("User-Agent: hotrow/", env!("CARGO_PKG_VERSION"), "\r\n"));
    }
    for (name, value) in request.headers {
        check_header(name, value)?;
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !request.keepalive {
        head.push_str("Connection: close\r\n");
    }
    if let Some(body) = request.body {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    Ok(head)
}

fn check_header(name: &str, value: &str) -> Result<(), RequestError> {
    let value_fits = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
    if name.is_empty() || !name.bytes().all(is_token) || !value_fits {
        return Err(RequestError::Header(name.to_owned()));
    }
    let instead = match name.to_ascii_lowercase().as_str() {
        "content-length" | "transfer-encoding" => "it follows from the body",
        "connection" => "use --no-keepalive, or leave it out",
        "upgrade" | "expect" => "the generator speaks plain HTTP/1.1 and sends the body at once",
        _ => return Ok(()),
    };
    Err(RequestError::ReservedHeader { name: name.to_owned(), instead })
}

/// Returns whether a byte is a token character (RFC 9110 section 5.6.2). The server has its own
/// copy: the load generator shares no code with its target.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Produces one thread's requests.
#[derive(Debug)]
pub(crate) struct RequestGenerator {
    templates: Vec<Template>,
    drawer: Option<IdSampler>,
    choice: Random,
    /// Buffer for requests with placeholders.
    filled: Vec<u8>,
    /// The same templates for HTTP/2; empty without it.
    http2: Vec<http2::Http2Template>,
}

/// A request ready to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedRequest<'a> {
    pub(crate) bytes: &'a [u8],
    /// The same bytes, when they stay constant for the whole run.
    pub(crate) whole: Option<&'a Arc<[u8]>>,
    /// True if its response may have a body: not after HEAD.
    pub(crate) answer_has_body: bool,
    /// True if it may be sent again.
    pub(crate) idempotent: bool,
}

impl RequestGenerator {
    /// Returns the index of the next template by weight.
    #[inline]
    fn choose(&mut self) -> usize {
        match self.templates.as_slice() {
            [_] => 0,
            several => {
                let weights = several.last().map_or(1, |t| t.weight_sum);
                let point = self.choice.below(weights);
                several.partition_point(|t| t.weight_sum <= point).min(several.len() - 1)
            }
        }
    }

    /// Returns the next request. Allocates nothing after the first.
    #[inline]
    pub(crate) fn next(&mut self) -> PreparedRequest<'_> {
        let index = self.choose();
        let template = &self.templates[index];
        let Template { answer_has_body, idempotent, .. } = *template;
        if let ([first, rest @ ..], Some(drawer)) = (template.pieces.as_slice(), &mut self.drawer)
            && !rest.is_empty()
        {
            self.filled.clear();
            self.filled.extend_from_slice(first);
            for piece in rest {
                drawer.fill(&mut self.filled);
                self.filled.extend_from_slice(piece);
            }
            return PreparedRequest {
                bytes: &self.filled,
                whole: None,
                answer_has_body,
                idempotent,
            };
        }
        let whole = template.pieces.first();
        PreparedRequest {
            bytes: whole.map_or(&[], |piece| piece),
            whole,
            answer_has_body,
            idempotent,
        }
    }
}

/// The media type of the result of [`encode_form`].
pub const FORM_MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// Encodes form fields (name and value) as `application/x-www-form-urlencoded`: URL standard of the
/// WHATWG, section 5.2.
pub fn encode_form<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<String> =
        fields.into_iter().map(|(k, v)| format!("{}={}", escaped(k), escaped(v))).collect();
    fields.join("&")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RequestSpec<'_> = RequestSpec {
        method: "GET",
        path: "/p",
        host: "h:1",
        headers: &[],
        body: None,
        weight: 1,
        keepalive: true,
    };

    fn sent(
        description: RequestSpec<'_>,
        ids: Option<(Ids, Distribution)>,
    ) -> Result<String, RequestError> {
        let mix = RequestMix::new(&[description], ids)?;
        Ok(String::from_utf8(mix.share(1, 0, 1).next().bytes.to_vec()).unwrap())
    }

    #[test]
    fn a_request_has_what_it_needs() {
        let agent = concat!("User-Agent: hotrow/", env!("CARGO_PKG_VERSION"), "\r\n");
        assert_eq!(
            sent(PLAIN, None).unwrap(),
            format!("GET /p HTTP/1.1\r\nHost: h:1\r\n{agent}\r\n")
        );
        let headers =
            [("X-A".to_owned(), "1".to_owned()), ("user-agent".to_owned(), "me".to_owned())];
        let post = RequestSpec {
            method: "POST",
            headers: &headers,
            body: Some(b"ab"),
            keepalive: false,
            ..PLAIN.clone()
        };
        assert_eq!(
            sent(post, None).unwrap(),
            "POST /p HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nuser-agent: me\r\nConnection: \
             close\r\nContent-Length: 2\r\n\r\nab"
        );
    }

    #[test]
    fn requests_are_made_into_heads_and_kept_ones() {
        let ids = || Some((Ids::range(7, 7).unwrap(), Distribution::Uniform));
        let bytes =
            |mix: &RequestMix| String::from_utf8(mix.share(1, 0, 1).next().bytes.to_vec()).unwrap();
        let closing = RequestSpec { path: "/{id}", keepalive: false, ..PLAIN };
        let mix = RequestMix::new(&[closing], ids()).unwrap();
        assert!(bytes(&mix).contains("Connection: close\r\n"));
        let kept = bytes(&mix.with_keepalive());
        assert!(
            kept.starts_with("GET /7 HTTP/1.1\r\n")
                && !kept.contains("close")
                && kept.ends_with("\r\n\r\n"),
            "{kept}"
        );
        let head = mix.as_head().unwrap();
        assert!(bytes(&head).starts_with("HEAD /7 HTTP/1.1\r\n"));
        assert!(!head.share(1, 0, 1).next().answer_has_body);
        let mix = RequestMix::new(&[PLAIN, RequestSpec { method: "POST", ..PLAIN }], None).unwrap();
        assert!(mix.as_head().is_none());
    }

    #[test]
    fn every_gap_of_the_path_is_filled() {
        let ids = || Some((Ids::range(7, 7).unwrap(), Distribution::Uniform));
        let headers = [("X".to_owned(), "{id}".to_owned())];
        let request = RequestSpec { path: "/a/{id}?b={id}", headers: &headers, ..PLAIN };
        let text = sent(request.clone(), ids()).unwrap();
        assert!(
            text.starts_with("GET /a/7?b=7 HTTP/1.1\r\n") && text.contains("X: {id}\r\n"),
            "{text}"
        );
        assert_eq!(sent(request, None), Err(RequestError::NothingToFill));
        assert_eq!(sent(PLAIN, ids()), Err(RequestError::NowhereToFill));
    }

    #[test]
    fn weights_are_kept() {
        let with = |path, weight| RequestSpec { path, weight, ..PLAIN };
        let mut requests =
            RequestMix::new(&[with("/a", 1), with("/b", 3)], None).unwrap().share(1, 0, 1);
        let a = (0..40_000).filter(|_| requests.next().bytes.starts_with(b"GET /a")).count();
        // Five standard deviations of a binomial count.
        assert!(a.abs_diff(10_000) < 433, "{a}");
    }

    #[test]
    fn an_invalid_request_is_refused() {
        let header = |name: &str, value: &str| {
            sent(RequestSpec { headers: &[(name.to_owned(), value.to_owned())], ..PLAIN }, None)
                .unwrap_err()
        };
        assert!(matches!(header("Content-Length", "1"), RequestError::ReservedHeader { .. }));
        assert!(matches!(header("connection", "close"), RequestError::ReservedHeader { .. }));
        for (name, value) in [("a b", "1"), ("", "1"), ("a", "1\r\nb: 2"), ("a", "\0")] {
            assert!(matches!(header(name, value), RequestError::Header(_)), "{name:?}");
        }
        assert!(matches!(
            sent(RequestSpec { method: "G T", ..PLAIN }, None),
            Err(RequestError::Method(_))
        ));
        assert!(matches!(
            sent(RequestSpec { path: "/a b", ..PLAIN }, None),
            Err(RequestError::Path(_))
        ));
        assert!(matches!(
            sent(RequestSpec { weight: 0, ..PLAIN }, None),
            Err(RequestError::Weight(0))
        ));
    }

    #[test]
    fn forms_are_urlencoded() {
        assert_eq!(encode_form([("a b&c", "ä/*"), ("d", "")]), "a+b%26c=%C3%A4%2F*&d=");
    }
}
