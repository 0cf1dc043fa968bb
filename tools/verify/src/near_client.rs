//! A client of the Redis protocol with a near cache: one instance, one tracking mode, one
//! connection at a time. The caller gives the time.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use crate::history::Ns;
use crate::http::RequestError;
use crate::near_cache::{Liveness, NearCache, NearCacheCounts};
use crate::observation::Claim;
use crate::redis::{RedisConnection, RedisTarget, TrackingMode, error_text};

/// Characters of a reply in a message.
const SHOWN_MAX: usize = 120;

/// A client with its near cache.
#[derive(Debug)]
pub struct NearClient {
    target: Arc<RedisTarget>,
    mode: TrackingMode,
    collection: String,
    timeout: Duration,
    connection: Option<RedisConnection>,
    near: NearCache,
    liveness: Liveness,
}

/// A reply with the times of its command.
#[derive(Debug)]
pub struct Replied {
    /// The reply.
    pub reply: Value,
    /// Time just before the first byte of the command was sent.
    pub sent_ns: Ns,
    /// Time just after the last byte of the reply was received.
    pub received_ns: Ns,
}

impl NearClient {
    /// Creates a client without a connection.
    #[must_use]
    pub fn new(
        target: Arc<RedisTarget>,
        mode: TrackingMode,
        collection: &str,
        timeout: Duration,
    ) -> Self {
        Self {
            target,
            mode,
            collection: collection.to_owned(),
            timeout,
            connection: None,
            near: NearCache::default(),
            liveness: Liveness::default(),
        }
    }

    /// Returns its counts so far.
    pub fn counts(&self) -> NearCacheCounts {
        self.near.counts
    }

    /// Connects unless it is connected. Returns whether it did.
    ///
    /// # Errors
    /// There is no connection, or tracking was refused.
    pub fn connect(&mut self) -> Result<bool, RequestError> {
        if self.connection.is_some() {
            return Ok(false);
        }
        // Why is known from the probe, or is a fault of the run.
        let opened = self.target.open(self.mode, &self.collection, self.timeout);
        self.connection = Some(opened.map_err(|_| RequestError::Connect)?);
        self.liveness = Liveness::default();
        Ok(true)
    }

    /// Returns whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Closes the connection, and forgets all copies.
    pub fn disconnect(&mut self) {
        self.connection = None;
        self.near.disconnected();
    }

    /// Applies what was pushed by now. What is left holds at a time before the call.
    ///
    /// # Errors
    /// The connection has ended, or brought something else.
    pub fn take_pushes(&mut self) -> Result<(), RequestError> {
        let Self { connection, near, .. } = self;
        let connection = connection.as_mut().ok_or(RequestError::Closed)?;
        let mut is_known = true;
        connection.take_pushes(&mut |push| is_known &= near.apply(&push))?;
        if is_known { Ok(()) } else { Err(RequestError::Malformed) }
    }

    /// Sends a command, and returns its reply.
    ///
    /// # Errors
    /// The connection has ended, or brought no reply in time.
    pub fn ask(
        &mut self,
        arguments: &[&str],
        clock: &dyn Fn() -> Ns,
    ) -> Result<Replied, RequestError> {
        let sent_ns = clock();
        let Self { connection, near, liveness, .. } = self;
        let connection = connection.as_mut().ok_or(RequestError::Closed)?;
        let mut is_known = true;
        let reply = connection.ask(arguments, &mut |push| is_known &= near.apply(&push))?;
        let received_ns = clock();
        liveness.answered(sent_ns, received_ns);
        if is_known {
            Ok(Replied { reply, sent_ns, received_ns })
        } else {
            Err(RequestError::Malformed)
        }
    }

    /// Keeps what a reply says of a key, if it says something.
    pub fn keep(&mut self, text: &str, key: u32, seen: &Claim) {
        self.near.keep(text, key, seen);
    }

    /// Returns the copy of a key.
    #[must_use]
    pub fn copy(&self, text: &str) -> Option<&Claim> {
        self.near.get(text)
    }

    /// Returns all copies.
    pub fn copies(&self) -> impl Iterator<Item = (u32, &Claim)> {
        self.near.all()
    }

    /// Returns the key that was kept first, and takes it to the end of the order.
    pub fn oldest(&mut self) -> Option<u32> {
        self.near.oldest()
    }

    /// Counts copies that were used.
    pub fn count_used(&mut self, copies: u64) {
        self.near.counts.copies_read += copies;
    }

    /// Returns whether a proof that the connection is alive is needed before a copy is used.
    pub fn needs_proof(&self, now: Ns) -> bool {
        self.liveness.needs_proof(now)
    }

    /// Returns whether copies may be used.
    pub fn may_use(&self, now: Ns) -> bool {
        self.liveness.may_use(now)
    }
}

/// Interprets the reply for one key; `stated` interprets the bytes of its record. A refusal has the
/// status that HTTP has for it.
pub fn claim(reply: &Value, stated: impl FnOnce(&[u8]) -> Result<Claim, String>) -> Claim {
    match reply {
        Value::Nil => Claim::Absent,
        Value::BulkString(record) => stated(record)
            .unwrap_or_else(|what| Claim::Invalid(format!("a record, but {what}").into())),
        Value::ServerError(error) => match error.code() {
            "NOAUTH" | "WRONGPASS" => Claim::Refused(401),
            "NOPERM" => Claim::Refused(403),
            "RATELIMIT" => Claim::Refused(429),
            "BUSY" | "TRYAGAIN" | "MASTERDOWN" => Claim::Refused(503),
            "TIMEOUT" => Claim::Refused(504),
            _ => Claim::Invalid(shown(reply).into()),
        },
        _ => Claim::Invalid(shown(reply).into()),
    }
}

/// Returns the beginning of a reply as text.
pub(crate) fn shown(reply: &Value) -> String {
    let text = match reply {
        Value::ServerError(error) => format!("the error {}", error_text(error)),
        other => format!("the reply {other:?}"),
    };
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Value {
        ::redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error")
    }

    #[test]
    fn replies_are_claims_and_refusals_have_the_status_of_http() {
        let stated = |record: &[u8]| match record {
            b"7" => Ok(Claim::Version(7)),
            _ => Err("another number".to_owned()),
        };
        let claim = |reply: &Value| claim(reply, stated);
        assert_eq!(claim(&Value::Nil), Claim::Absent);
        assert_eq!(claim(&Value::BulkString(b"7".to_vec())), Claim::Version(7));
        for (text, status) in
            [("NOAUTH x", 401), ("NOPERM", 403), ("BUSY a", 503), ("MASTERDOWN", 503)]
        {
            assert_eq!(claim(&refusal(text)), Claim::Refused(status), "{text}");
        }
        for reply in [refusal("ERR bad id"), Value::Int(1), Value::BulkString(b"8".to_vec())] {
            assert!(matches!(claim(&reply), Claim::Invalid(_)), "{reply:?}");
        }
    }
}
