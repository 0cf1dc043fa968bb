//! `Server-Timing` (W3C): the parts of an answer's time, for the tools of browsers and clients.
//!
//! The time of a record's read shows which records are in memory. So collections whose records
//! belong to tenants have no such field.

use std::time::Duration;

use hotrow_http1::write;
use hotrow_measure::clock::Nanos;

use crate::outcome::CacheOutcome;

/// Time at which the last read of an answer was sent, among the extensions of an answer of the
/// crate `http`.
#[derive(Clone, Copy, Debug)]
pub struct ReadAt(pub Nanos);

/// Parts of an answer's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTiming {
    outcome: CacheOutcome,
    parts: Parts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    /// It was answered at once, from memory or with a refusal.
    Cache(Micros),
    /// It waited for a query to be sent, and for its result.
    Read { queue: Micros, database: Micros },
    /// It waited in vain.
    Total(Micros),
}

/// Microseconds. Small, because each answer is moved with its parts; more than an hour is shown as
/// 71 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Micros(u32);

impl From<Duration> for Micros {
    fn from(time: Duration) -> Self {
        Self(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
    }
}

impl ServerTiming {
    /// Returns the parts of an answer that did not wait.
    pub fn at_once(outcome: CacheOutcome, took: Duration) -> Self {
        Self { outcome, parts: Parts::Cache(took.into()) }
    }

    /// Returns the parts of an answer that waited from `since` until `now`. `read_at`: the time at
    /// which its last read was sent; before `since` if it joined one.
    pub fn waited(outcome: CacheOutcome, since: Nanos, now: Nanos, read_at: Option<Nanos>) -> Self {
        let parts = match (read_at, outcome) {
            // A stale record was read long before.
            (None, _) | (_, CacheOutcome::Stale | CacheOutcome::None) => {
                Parts::Total(now.since(since).into())
            }
            (Some(read_at), _) => Parts::Read {
                queue: read_at.since(since).into(),
                database: now.since(read_at.max(since)).into(),
            },
        };
        Self { outcome, parts }
    }

    /// Writes the field.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"server-timing: cache;desc=");
        out.extend_from_slice(self.outcome.label().as_bytes());
        match self.parts {
            Parts::Cache(took) => write_ms(";dur=", took, out),
            Parts::Read { queue, database } => {
                write_ms(", queue;dur=", queue, out);
                write_ms(", db;dur=", database, out);
            }
            Parts::Total(took) => write_ms(", total;dur=", took, out),
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a duration in milliseconds with three decimals.
fn write_ms(name: &str, Micros(us): Micros, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    write::decimal(out, u64::from(us / 1_000));
    let decimals = us % 1_000;
    out.push(b'.');
    // One digit each.
    out.extend([decimals / 100, decimals / 10 % 10, decimals % 10].map(|digit| b'0' + digit as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(timing: ServerTiming) -> String {
        let mut out = Vec::new();
        timing.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn parts_are_those_of_the_wait() {
        let at = |us: u64| Nanos(1_000_000_000 + us * 1_000);
        let waited =
            |outcome, read_at| written(ServerTiming::waited(outcome, at(0), at(12_345), read_at));
        for (text, line) in [
            (
                written(ServerTiming::at_once(CacheOutcome::Hit, Duration::from_micros(7))),
                "cache;desc=hit;dur=0.007",
            ),
            (
                waited(CacheOutcome::Miss, Some(at(2_040))),
                "cache;desc=miss, queue;dur=2.040, db;dur=10.305",
            ),
            (
                waited(CacheOutcome::Coalesced, Some(Nanos(5))),
                "cache;desc=coalesced, queue;dur=0.000, db;dur=12.345",
            ),
            (waited(CacheOutcome::None, None), "cache;desc=none, total;dur=12.345"),
            (waited(CacheOutcome::Stale, Some(at(1))), "cache;desc=stale, total;dur=12.345"),
        ] {
            assert_eq!(text, format!("server-timing: {line}\r\n"));
        }
    }
}
