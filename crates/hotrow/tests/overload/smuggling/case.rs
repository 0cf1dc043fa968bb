//! One case: what a client sends, and what Hotrow alone must make of it.

/// What a case would smuggle in: never to be answered where it stands in a body.
pub(super) const HIDDEN: &str = "GET /products/666 HTTP/1.1\r\nHost: h\r\n\r\n";
/// A batch that is answered 200: 11 bytes.
pub(super) const BATCH: &str = "{\"ids\":[1]}";
/// The same in chunks.
pub(super) const BATCH_CHUNKED: &str = "b\r\n{\"ids\":[1]}\r\n0\r\n\r\n";

/// Bytes that a client sends on a fresh connection.
pub(super) struct Case {
    /// Its name.
    pub(super) what: String,
    /// All that is sent, without the probe that follows.
    pub(super) bytes: Vec<u8>,
    /// What comes back when nobody stands in between.
    pub(super) alone: Alone,
}

/// What Hotrow answers to a case and to the probe behind it. Statuses of 1xx are not listed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alone {
    /// These statuses, then the probe's answer.
    Goes(&'static [u16]),
    /// These statuses, then the connection is closed; the probe is not answered.
    Ends(&'static [u16]),
    /// The message is not complete, and the probe is a part of it: at most a refusal.
    Open,
}

/// `REFUSED` alone.
pub(super) const REFUSED: Alone = Alone::Ends(&[400]);
/// One good answer.
pub(super) const ANSWERED: Alone = Alone::Goes(&[200]);

pub(super) fn case(what: impl Into<String>, bytes: impl Into<Vec<u8>>, alone: Alone) -> Case {
    Case { what: what.into(), bytes: bytes.into(), alone }
}

/// A batch request with these header lines, each with its end, and this body.
pub(super) fn post(fields: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = b"POST /products HTTP/1.1\r\nHost: h\r\n".as_slice();
    [head, fields.as_ref(), b"\r\n", body.as_ref()].concat()
}

/// A request for record 1 with these header lines, each with its end.
pub(super) fn get(fields: impl AsRef<[u8]>) -> Vec<u8> {
    let head = b"GET /products/1 HTTP/1.1\r\nHost: h\r\n".as_slice();
    [head, fields.as_ref(), b"\r\n"].concat()
}

/// A request with this first line.
pub(super) fn line(line: impl AsRef<[u8]>) -> Vec<u8> {
    [line.as_ref(), b"\r\nHost: h\r\n\r\n"].concat()
}
