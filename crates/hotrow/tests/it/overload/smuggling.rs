//! Ends of messages: Hotrow alone, and behind real proxies that keep their connections to it and
//! put the requests of several clients on one.
//!
//! The cases follow RFC 9112, published request smuggling (CL.TE, TE.CL, TE.TE, 0.CL), and the
//! differences that comparisons of parsers find: chunk sizes, ends of lines, trailers, odd bytes in
//! names.

mod alone;
mod chunks;
mod codings;
mod heads;
mod lengths;
mod proxied;
mod streams;

/// Returns every case; their names are unique.
fn cases() -> Vec<Case> {
    let parts =
        [codings::cases(), lengths::cases(), chunks::cases(), heads::cases(), streams::cases()];
    let cases: Vec<Case> = parts.into_iter().flatten().collect();
    let mut names: Vec<&str> = cases.iter().map(|case| case.what.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "two cases of one name");
    assert!(cases.len() >= 80, "{} cases", cases.len());
    cases
}

/// Request hidden in a case: never to be answered inside a body.
pub(super) const HIDDEN: &str = "GET /products/666 HTTP/1.1\r\nHost: h\r\n\r\n";
/// Body of a batch that is answered 200: 11 bytes.
pub(super) const BATCH: &str = "{\"ids\":[1]}";
/// The same body in chunks.
pub(super) const BATCH_CHUNKED: &str = "b\r\n{\"ids\":[1]}\r\n0\r\n\r\n";

/// Bytes that a client sends on a fresh connection.
pub(super) struct Case {
    pub(super) what: String,
    /// All bytes sent, without the probe that follows.
    pub(super) bytes: Vec<u8>,
    /// Expected answers without a proxy.
    pub(super) alone: Alone,
}

/// Expected answers of Hotrow to a case and to the probe after it. Statuses of 1xx are not listed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alone {
    /// These statuses, then the probe's answer.
    Continues(&'static [u16]),
    /// These statuses, then the connection is closed; the probe is not answered.
    Closes(&'static [u16]),
    /// The message is incomplete, and the probe is a part of it: at most a refusal.
    Open,
}

/// A refusal with status 400.
pub(super) const REFUSED: Alone = Alone::Closes(&[400]);
/// One good answer.
pub(super) const ANSWERED: Alone = Alone::Continues(&[200]);

pub(super) fn case(what: impl Into<String>, bytes: impl Into<Vec<u8>>, alone: Alone) -> Case {
    Case { what: what.into(), bytes: bytes.into(), alone }
}

/// Returns a batch request with these header lines, each with its line end, and this body.
pub(super) fn post(fields: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = b"POST /products HTTP/1.1\r\nHost: h\r\n".as_slice();
    [head, fields.as_ref(), b"\r\n", body.as_ref()].concat()
}

/// Returns a request for record 1 with these header lines, each with its line end.
pub(super) fn get(fields: impl AsRef<[u8]>) -> Vec<u8> {
    let head = b"GET /products/1 HTTP/1.1\r\nHost: h\r\n".as_slice();
    [head, fields.as_ref(), b"\r\n"].concat()
}

/// Returns a request with this first line.
pub(super) fn line(line: impl AsRef<[u8]>) -> Vec<u8> {
    [line.as_ref(), b"\r\nHost: h\r\n\r\n"].concat()
}
