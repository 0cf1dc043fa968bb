//! Errors in requests.

/// Largest request head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of URLs of a run.
pub const URLS_MAX: usize = 1000;
/// Largest weight of a URL.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// Errors in a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is not a token.
    #[error("{0:?} is no HTTP method; use letters, as in GET or POST")]
    Method(String),
    /// The path has characters that are invalid in a request line.
    #[error(
        "the path {0:?} has a blank, a control character or one outside ASCII; write it \
         percent-encoded"
    )]
    Path(String),
    /// A header name or value is invalid.
    #[error(
        "the header {0:?} is not valid: it must have a name of letters, digits and dashes, \
         and a value without line breaks"
    )]
    Header(String),
    /// A header that only the generator can set.
    #[error("the header {name} cannot be set by hand: {instead}")]
    ReservedHeader {
        /// The header name.
        name: String,
        /// The alternative.
        instead: &'static str,
    },
    /// Longer than [`HEAD_BYTES_MAX`].
    #[error("the request's head is {0} bytes long; at most {HEAD_BYTES_MAX} are sent")]
    TooLong(usize),
    /// The weight is zero or too large.
    #[error("a URL's weight must be between 1 and {WEIGHT_MAX}, not {0}")]
    Weight(u32),
    /// There are too many URLs.
    #[error("{0} URLs are too many; at most {URLS_MAX} can be mixed")]
    TooMany(usize),
    /// `{id}` without ids.
    #[error(
        "the URL has {{id}} in it; say what to fill it with: --ids FROM..TO or --ids-file FILE"
    )]
    NothingToFill,
    /// Ids without `{id}`.
    #[error("ids are given, but no URL has {{id}} in it")]
    NowhereToFill,
    /// The range is empty.
    #[error("the range of ids {from}..{to} is empty; the first must not be larger than the last")]
    EmptyRange {
        /// Its first id.
        from: u64,
        /// Its last id.
        to: u64,
    },
    /// The list is empty.
    #[error("the file of ids is empty; it must have one id per line")]
    NoIds,
    /// An id that is invalid in a URL.
    #[error("line {line} of the ids: a URL cannot contain {id:?}; write it percent-encoded")]
    BadId {
        /// Its line, from 1.
        line: usize,
        /// The id.
        id: String,
    },
}
