//! Requests, prepared as bytes before the run.

use std::sync::Arc;

use crate::ids::{Drawer, Ids, Pick};
use crate::random::Random;

/// Where ids go in a path.
const PLACE: &str = "{id}";
/// Largest request head that is accepted, in bytes, and the most URLs of one run.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most URLs of one run.
pub const URLS_MAX: usize = 1000;
/// Largest weight of one URL.
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Stream of the seed that chooses between URLs, one per thread from here on.
const CHOICE_STREAM: u64 = 1 << 32;

/// What is sent, for all threads together.
#[derive(Clone, Debug)]
pub struct Mix {
    templates: Vec<Template>,
    ids: Option<(Ids, Pick)>,
}

/// One kind of request, as its user describes it.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// Path and query, beginning with `/`; every `{id}` in it is filled.
    pub path: &'a str,
    /// The value of `Host`, unless `headers` has one.
    pub host: &'a str,
    /// Further headers. A `User-Agent` and a `Host` here replace ours.
    pub headers: &'a [(String, String)],
    /// The body, if there is one.
    pub body: Option<&'a [u8]>,
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// Whether the connection stays open; if not, the request says so.
    pub keepalive: bool,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a token.
    #[error("{0:?} is no HTTP method; use letters, as in GET or POST")]
    Method(String),
    /// The path holds what cannot stand in a request line.
    #[error("the path {0:?} has a blank, a control character or one outside ASCII; write it percent-encoded")]
    Path(String),
    /// A header's name or value.
    #[error(
        "the header {0:?} is not valid: a name of letters, digits and dashes, a colon, a value without line breaks"
    )]
    Header(String),
    /// A header that only the generator can set right.
    #[error("the header {name} cannot be set by hand: {instead}")]
    ReservedHeader {
        /// Its name.
        name: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// Longer than [`HEAD_BYTES_MAX`].
    #[error("the request's head is {0} bytes long; at most {HEAD_BYTES_MAX} are sent")]
    TooLong(usize),
    /// A weight of nought, or too large.
    #[error("a URL's weight must be between 1 and {WEIGHT_MAX}, not {0}")]
    Weight(u32),
    /// Too many.
    #[error("{0} URLs are too many; at most {URLS_MAX} can be mixed")]
    TooMany(usize),
    /// `{id}` without ids.
    #[error("the URL has {{id}} in it; say what to fill it with: --ids FROM..TO or --ids-file FILE")]
    NothingToFill,
    /// Ids without `{id}`.
    #[error("ids are given, but no URL has {{id}} in it")]
    NowhereToFill,
    /// An empty range.
    #[error("the range of ids {from}..{to} is empty; the first must not be larger than the last")]
    EmptyRange {
        /// Its first id.
        from: u64,
        /// Its last.
        to: u64,
    },
    /// An empty list.
    #[error("the file of ids is empty; it must have one id per line")]
    NoIds,
    /// An id that no URL can hold.
    #[error("line {line} of the ids: {id:?} cannot stand in a URL; write it percent-encoded")]
    BadId {
        /// Its line, from 1.
        line: usize,
        /// The id.
        id: String,
    },
}

/// A request with gaps for ids. With one piece there is no gap and the bytes go out as they are.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pieces: Vec<Arc<[u8]>>,
    /// Sum of the weights up to and with this one.
    weight_sum: u64,
    answer_has_body: bool,
}

impl Mix {
    /// Prepares requests; there is at least one.
    ///
    /// # Errors
    /// What is wrong with one of them, or with the ids for them.
    pub fn new(requests: &[Description<'_>], ids: Option<(Ids, Pick)>) -> Result<Self, RequestError> {
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

    /// The same requests as HEAD, whose answers have no bodies; none unless all of them are GETs.
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

    /// The same requests without the `Connection: close` of those that close.
    #[must_use]
    pub fn as_kept(&self) -> Self {
        const CLOSE: &[u8] = b"Connection: close\r\n";
        // Nobody else may set that header, and a head comes before a body: the first is ours.
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

    /// The requests of thread `index` of `threads`.
    pub(crate) fn share(&self, seed: u64, index: u32, threads: u32) -> Requests {
        Requests {
            templates: self.templates.clone(),
            drawer: self.ids.as_ref().map(|(ids, pick)| Drawer::new(ids, *pick, seed, index, threads)),
            choice: Random::new(seed, CHOICE_STREAM + u64::from(index)),
            filled: Vec::new(),
        }
    }
}

impl Template {
    fn new(request: &Description<'_>, weight_sum: u64) -> Result<Self, RequestError> {
        let head = head(request)?;
        if head.len() > HEAD_BYTES_MAX {
            return Err(RequestError::TooLong(head.len()));
        }
        // Only the path may have gaps: a header that holds `{id}` means these four characters.
        let line_end = head.find("\r\n").unwrap_or(head.len());
        let (line, rest) = head.split_at(line_end);
        let mut pieces: Vec<Vec<u8>> = line.split(PLACE).map(|piece| piece.as_bytes().to_vec()).collect();
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(rest.as_bytes());
            last.extend_from_slice(request.body.unwrap_or_default());
        }
        let pieces = pieces.into_iter().map(Arc::from).collect();
        Ok(Self { pieces, weight_sum, answer_has_body: request.method != "HEAD" })
    }
}

fn head(request: &Description<'_>) -> Result<String, RequestError> {
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
        return Err(RequestError::Header(format!("{name}: {value}")));
    }
    let instead = match name.to_ascii_lowercase().as_str() {
        "content-length" | "transfer-encoding" => "it follows from the body",
        "connection" => "use --no-keepalive, or leave it out",
        "upgrade" | "expect" => "the generator speaks plain HTTP/1.1 and sends the body at once",
        _ => return Ok(()),
    };
    Err(RequestError::ReservedHeader { name: name.to_owned(), instead })
}

/// What names are made of (RFC 9110 section 5.6.2). The server has its own: who judges shares no code with what is judged.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// One thread's requests.
#[derive(Debug)]
pub(crate) struct Requests {
    templates: Vec<Template>,
    drawer: Option<Drawer>,
    choice: Random,
    /// Where a request with gaps is put together.
    filled: Vec<u8>,
}

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) bytes: &'a [u8],
    /// The same bytes, when they stay as they are for the whole run.
    pub(crate) whole: Option<&'a Arc<[u8]>>,
    /// Whether its answer may have a body: not after HEAD.
    pub(crate) answer_has_body: bool,
}

impl Requests {
    /// The next request. Allocates nothing once the first was made.
    #[inline]
    pub(crate) fn next(&mut self) -> Prepared<'_> {
        let template = match self.templates.as_slice() {
            [only] => only,
            several => {
                let weights = several.last().map_or(1, |t| t.weight_sum);
                let point = self.choice.below(weights);
                &several[several.partition_point(|t| t.weight_sum <= point).min(several.len() - 1)]
            }
        };
        let answer_has_body = template.answer_has_body;
        if let ([first, rest @ ..], Some(drawer)) = (template.pieces.as_slice(), &mut self.drawer)
            && !rest.is_empty()
        {
            self.filled.clear();
            self.filled.extend_from_slice(first);
            for piece in rest {
                drawer.fill(&mut self.filled);
                self.filled.extend_from_slice(piece);
            }
            return Prepared { bytes: &self.filled, whole: None, answer_has_body };
        }
        let whole = template.pieces.first();
        Prepared { bytes: whole.map_or(&[], |piece| piece), whole, answer_has_body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Description<'_> =
        Description { method: "GET", path: "/p", host: "h:1", headers: &[], body: None, weight: 1, keepalive: true };

    fn sent(description: Description<'_>, ids: Option<(Ids, Pick)>) -> Result<String, RequestError> {
        let mix = Mix::new(&[description], ids)?;
        Ok(String::from_utf8(mix.share(1, 0, 1).next().bytes.to_vec()).unwrap())
    }

    #[test]
    fn a_request_has_what_it_needs() {
        let agent = concat!("User-Agent: hotrow/", env!("CARGO_PKG_VERSION"), "\r\n");
        assert_eq!(sent(PLAIN, None).unwrap(), format!("GET /p HTTP/1.1\r\nHost: h:1\r\n{agent}\r\n"));
        let headers = [("X-A".to_owned(), "1".to_owned()), ("user-agent".to_owned(), "me".to_owned())];
        let post =
            Description { method: "POST", headers: &headers, body: Some(b"ab"), keepalive: false, ..PLAIN.clone() };
        assert_eq!(
            sent(post, None).unwrap(),
            "POST /p HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nuser-agent: me\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"
        );
    }

    #[test]
    fn requests_are_made_into_heads_and_kept_ones() {
        let ids = || Some((Ids::range(7, 7).unwrap(), Pick::Uniform));
        let bytes = |mix: &Mix| String::from_utf8(mix.share(1, 0, 1).next().bytes.to_vec()).unwrap();
        let closing = Description { path: "/{id}", keepalive: false, ..PLAIN };
        let mix = Mix::new(&[closing], ids()).unwrap();
        assert!(bytes(&mix).contains("Connection: close\r\n"));
        let kept = bytes(&mix.as_kept());
        assert!(
            kept.starts_with("GET /7 HTTP/1.1\r\n") && !kept.contains("close") && kept.ends_with("\r\n\r\n"),
            "{kept}"
        );
        let head = mix.as_head().unwrap();
        assert!(bytes(&head).starts_with("HEAD /7 HTTP/1.1\r\n"));
        assert!(!head.share(1, 0, 1).next().answer_has_body);
        let mix = Mix::new(&[PLAIN, Description { method: "POST", ..PLAIN }], None).unwrap();
        assert!(mix.as_head().is_none());
    }

    #[test]
    fn every_gap_of_the_path_is_filled() {
        let ids = || Some((Ids::range(7, 7).unwrap(), Pick::Uniform));
        let headers = [("X".to_owned(), "{id}".to_owned())];
        let request = Description { path: "/a/{id}?b={id}", headers: &headers, ..PLAIN };
        let text = sent(request.clone(), ids()).unwrap();
        assert!(text.starts_with("GET /a/7?b=7 HTTP/1.1\r\n") && text.contains("X: {id}\r\n"), "{text}");
        assert_eq!(sent(request, None), Err(RequestError::NothingToFill));
        assert_eq!(sent(PLAIN, ids()), Err(RequestError::NowhereToFill));
    }

    #[test]
    fn weights_are_kept() {
        let with = |path, weight| Description { path, weight, ..PLAIN };
        let mut requests = Mix::new(&[with("/a", 1), with("/b", 3)], None).unwrap().share(1, 0, 1);
        let a = (0..40_000).filter(|_| requests.next().bytes.starts_with(b"GET /a")).count();
        // Five standard deviations of a binomial count.
        assert!(a.abs_diff(10_000) < 433, "{a}");
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let header = |name: &str, value: &str| {
            sent(Description { headers: &[(name.to_owned(), value.to_owned())], ..PLAIN }, None).unwrap_err()
        };
        assert!(matches!(header("Content-Length", "1"), RequestError::ReservedHeader { .. }));
        assert!(matches!(header("connection", "close"), RequestError::ReservedHeader { .. }));
        for (name, value) in [("a b", "1"), ("", "1"), ("a", "1\r\nb: 2"), ("a", "\0")] {
            assert!(matches!(header(name, value), RequestError::Header(_)), "{name:?}");
        }
        assert!(matches!(sent(Description { method: "G T", ..PLAIN }, None), Err(RequestError::Method(_))));
        assert!(matches!(sent(Description { path: "/a b", ..PLAIN }, None), Err(RequestError::Path(_))));
        assert!(matches!(sent(Description { weight: 0, ..PLAIN }, None), Err(RequestError::Weight(0))));
    }
}
