//! An answer whose head was written.

use http_body::Body;

/// A head that was written, and what follows from it.
pub struct Written<B> {
    /// Its status.
    pub status: u16,
    /// Whether it has announced with `Connection: close` that it is the last.
    pub closes: bool,
    /// Whether it has a `Content-Length` already.
    pub has_length: bool,
    /// The body.
    pub body: B,
}

impl<B: Body> Written<B> {
    /// Returns the length of the body, which is `whole` if it is in one piece; `None`: unknown.
    pub fn body_bytes(&self, whole: Option<&[u8]>) -> Option<u64> {
        match whole {
            Some(bytes) => Some(bytes.len() as u64),
            None => self.body.size_hint().exact(),
        }
    }
}
