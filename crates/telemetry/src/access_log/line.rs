//! Form of a line: one object of JSON, with the names that are usual for such fields.
//!
//! Reference `logs`: Members of a line
//!
//! - `time`: arrival of the head, in UTC. Lines of different workers are not in its order.
//! - `protocol`: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`; `RESP2` or `RESP3` for [commands of the Redis
//!   protocol](logs.md#commands-of-the-redis-protocol).
//! - `client`: the address, or on the Unix socket `uid:` and the user id. A [trusted
//!   proxy](rate-limits.md#who-is-counted) names its client.
//! - `path`: the target as it was sent, at most 1,024 bytes. `ids = false` leaves it out.
//! - `collection`: absent if the path names none, or the credential was refused before.
//! - `cache`: as in [`Hotrow-Cache`](http.md#response-headers); `none` for refusals.
//! - `duration_us`: from the end of the head to the answer, not to its last byte.
//! - `bytes`: of the body.
//! - `roles` (at most eight), `key` or `certificate`: names in the [configuration](access.md).
//!   Never a credential, and never the subject of a token.
//! - `trace_id`: see [traces](logs.md#traces).
//!
//! Reference `logs`: Members of a command of the Redis protocol
//!
//! - `method`: the command; `UNKNOWN` for those that are not served.
//! - `path`: the keys, with spaces between. Of other commands nothing is shown.
//! - `collection`: absent if the keys are of several.
//! - `status`: 200; 404 for one key without a record; for errors that of HTTP: `NOAUTH` and
//!   `WRONGPASS` 401, `NOPERM` 403, `RATELIMIT` 429, `BUSY`, `TRYAGAIN` and `MASTERDOWN` 503,
//!   `TIMEOUT` 504, an unknown collection 404, an unknown command 405, other `ERR` 400 or as over
//!   HTTP.
//! - `cache`: of several keys the worst outcome, as for a batch.
//! - `duration_us`: from the arrival of the command to its reply.
//! - `bytes`: of the records, or of the error.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_access::caller::Peer;
use hotrow_config::access::HolderName;
use x509_cert::der::DateTime;

use super::Entry;

/// Most bytes of a path in a line; a longer one is cut off.
pub const PATH_BYTES_MAX: usize = 1024;

/// Appends a line of at most `PIPE_BUF_BYTES`, its end included. Does not allocate if `out` has
/// room and the path is UTF-8.
///
/// # Errors
/// None: writing to a `Vec` cannot fail.
pub(super) fn write(entry: &Entry<'_>, has_ids: bool, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(b"{\"time\":\"");
    write_time(entry.ended - entry.took.unwrap_or_default(), out)?;
    match entry.client {
        Peer::Address(address) => write!(out, "\",\"client\":\"{address}\"")?,
        Peer::User(user) => write!(out, "\",\"client\":\"uid:{user}\"")?,
    }
    write!(out, ",\"protocol\":\"{}\"", entry.protocol)?;
    if let Some(request) = &entry.request {
        text("method", request.method, out)?;
        if has_ids && !request.target.is_empty() {
            let cut = request.target.get(..PATH_BYTES_MAX).unwrap_or(request.target);
            text("path", cut, out)?;
        }
    }
    if let Some(collection) = entry.collection {
        text("collection", collection.as_bytes(), out)?;
    }
    write!(out, ",\"status\":{},\"cache\":\"{}\"", entry.status, entry.outcome.label())?;
    if let Some(took) = entry.took {
        write!(out, ",\"duration_us\":{}", took.as_micros())?;
    }
    if let Some(bytes) = entry.bytes {
        write!(out, ",\"bytes\":{bytes}")?;
    }
    write_sender(entry, out)?;
    if let Some(trace_id) = entry.trace_id {
        write!(out, ",\"trace_id\":\"{trace_id}\"")?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Writes the names of the sender's roles and of its key or certificate: never a credential, nor
/// the subject of a token.
fn write_sender(entry: &Entry<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    let Some((names, caller)) = entry.sender else { return Ok(()) };
    let mut separator = ",\"roles\":[\"";
    for role in names.roles_of(caller.roles).take(ROLES_MAX) {
        write!(out, "{separator}{role}")?;
        separator = "\",\"";
    }
    if separator == "\",\"" {
        out.extend_from_slice(b"\"]");
    }
    match caller.identity.and_then(|identity| names.holder(&identity)) {
        Some(HolderName::Key(name)) => write!(out, ",\"key\":\"{name}\""),
        Some(HolderName::Certificate(name)) => write!(out, ",\"certificate\":\"{name}\""),
        None => Ok(()),
    }
}

/// Most roles that a line lists. A role's name has at most 64 bytes.
const ROLES_MAX: usize = 8;

fn text(name: &str, value: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    write!(out, ",\"{name}\":")?;
    Ok(serde_json::to_writer(out, &*String::from_utf8_lossy(value))?)
}

/// Writes a time in the form of RFC 3339, in UTC, with microseconds.
fn write_time(time: SystemTime, out: &mut Vec<u8>) -> io::Result<()> {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = Duration::from_secs(since_1970.as_secs());
    // It ends with the year 9999.
    let Ok(at) = DateTime::from_unix_duration(seconds) else { return Ok(()) };
    write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minutes(),
        at.seconds(),
        since_1970.subsec_micros()
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hotrow_access::grant::Roles;
    use hotrow_access::identity::Identity;
    use hotrow_http1::fields::FieldsBuf;
    use serde_json::{Value, json};

    use super::super::RequestLine;
    use super::super::output::PIPE_BUF_BYTES;
    use super::*;
    use crate::outcome::CacheOutcome;
    use crate::trace_context::parent_of;
    use hotrow_access::caller::Caller;
    use hotrow_config::access::Names;

    fn entry<'a>(method: &'a [u8], target: &'a [u8]) -> Entry<'a> {
        Entry {
            ended: UNIX_EPOCH + Duration::from_millis(1_790_000_000_500),
            took: Some(Duration::from_micros(1_250)),
            client: Peer::Address(IpAddr::from([192, 0, 2, 1])),
            protocol: "HTTP/1.1",
            request: Some(RequestLine { method, target }),
            collection: Some("products"),
            status: 200,
            outcome: CacheOutcome::Miss,
            bytes: Some(17),
            sender: None,
            trace_id: None,
        }
    }

    fn written(entry: &Entry<'_>, has_ids: bool) -> Value {
        let mut out = Vec::new();
        write(entry, has_ids, &mut out).unwrap();
        assert!(out.len() <= PIPE_BUF_BYTES, "{}", out.len());
        assert_eq!(memchr::memchr(b'\n', &out), Some(out.len() - 1));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_line_names_what_happened() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let value = format!("00-{trace}-00f067aa0ba902b7-01");
        let fields = FieldsBuf::from_iter([("traceparent", value)]);
        let identity = Identity::of_certificate("CN=billing");
        let names = Names {
            roles: vec!["reader".to_owned(), "other".to_owned(), "batch".to_owned()],
            holders: [(identity, HolderName::Key("billing".to_owned()))].into(),
        };
        let roles = Roles::single(0).union(Roles::single(2));
        let caller = Caller { roles, identity: Some(identity), ..Caller::default() };
        let entry = Entry {
            sender: Some((&names, caller)),
            trace_id: parent_of(fields.as_fields()).map(|parent| parent.span.trace_id),
            ..entry(b"GET", b"/products/1?x=%20")
        };
        let line = json!({
            "time": "2026-09-21T14:13:20.498750Z", "client": "192.0.2.1", "protocol": "HTTP/1.1",
            "method": "GET", "path": "/products/1?x=%20", "collection": "products",
            "status": 200, "cache": "miss", "duration_us": 1250, "bytes": 17,
            "roles": ["reader", "batch"], "key": "billing", "trace_id": trace,
        });
        assert_eq!(written(&entry, true), line);
        let without = written(&entry, false);
        assert_eq!(without.get("path"), None);
        assert_eq!(without["collection"], "products");
    }

    #[test]
    fn a_request_without_a_head_has_no_path() {
        let entry = Entry {
            client: Peer::User(1000),
            request: None,
            collection: None,
            took: None,
            bytes: None,
            status: 431,
            outcome: CacheOutcome::None,
            ..entry(b"", b"")
        };
        let line = json!({
            "time": "2026-09-21T14:13:20.500000Z", "client": "uid:1000", "protocol": "HTTP/1.1",
            "status": 431, "cache": "none",
        });
        assert_eq!(written(&entry, true), line);
    }

    #[test]
    fn the_longest_line_has_its_bound() {
        let names = Names {
            roles: (0..64).map(|number| format!("{number:064}")).collect(),
            holders: [(Identity::of_certificate("CN=a"), HolderName::Certificate("c".repeat(64)))]
                .into(),
        };
        let roles = (0..64).map(Roles::single).fold(Roles::default(), Roles::union);
        let identity = Some(Identity::of_certificate("CN=a"));
        let collection = "x".repeat(64);
        for byte in [b'"', b'a', 0xff] {
            let target = vec![byte; 8192];
            let entry = Entry {
                sender: Some((&names, Caller { roles, identity, ..Caller::default() })),
                collection: Some(&collection),
                ..entry(b"GET", &target)
            };
            let line = written(&entry, true);
            let path = line["path"].as_str().unwrap();
            assert_eq!(path.chars().count(), PATH_BYTES_MAX);
            assert_eq!(line["roles"].as_array().unwrap().len(), ROLES_MAX);
        }
    }
}
