//! Outage of a server: the reason that no connection can be opened, and the time of the next
//! attempt.

use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::SourceError;

/// First delay after a failed attempt to connect. It doubles with each further failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest delay, and thus the longest time until a server that is back is found.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The same where the server refuses the credential. It works again only when an operator acts, and
/// servers lock accounts and addresses with too many failed logins.
const LOGIN_BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Outage of the server that the readers use, if there is one.
#[derive(Debug, Default)]
pub struct Outage(Mutex<Option<Failure>>);

/// Period in which no attempt has succeeded.
#[derive(Debug)]
struct Failure {
    attempts: u32,
    /// Time of the next attempt.
    retry_at: Instant,
    /// True if an open connection has answered since the last attempt.
    answered: bool,
    /// True if the server refused the credential.
    is_login: bool,
    why: Arc<str>,
}

impl Outage {
    /// Records a failed attempt to reach the server.
    pub fn failed(&self, why: &str) {
        self.record(why, false);
    }

    /// Records an attempt whose credential the server refused.
    pub fn login_refused(&self, why: &str) {
        self.record(why, true);
    }

    fn record(&self, why: &str, is_login: bool) {
        let longest = if is_login { LOGIN_BACKOFF_MAX } else { BACKOFF_MAX };
        let mut failure = self.0.lock();
        let attempts = failure.as_ref().map_or(0, |failure| failure.attempts).saturating_add(1);
        let delay = longest.min(BACKOFF_FIRST * (1 << attempts.min(12).saturating_sub(1)));
        // Spreads instances over time. One instance makes only one attempt at a time.
        let jitter = 0.5 + f64::from(Nanos::now().0 as u32 % 512) / 1024.0;
        let retry_at = Instant::now() + delay.mul_f64(jitter);
        let why = why.into();
        *failure = Some(Failure { attempts, retry_at, answered: false, is_login, why });
    }

    /// Records a successful attempt: the outage has ended.
    pub fn connected(&self) {
        *self.0.lock() = None;
    }

    /// Records an answer on a connection that was open already. The server is healthy then, but new
    /// connections may still be refused.
    pub fn answered(&self) {
        if let Some(failure) = &mut *self.0.lock() {
            failure.answered = true;
        }
    }

    /// Records an answer to the feed, of an engine whose readers do not open their connections by
    /// themselves: an outage has ended. Only a refusal of the credential may still apply to new
    /// connections.
    pub fn feed_answered(&self) {
        let mut failure = self.0.lock();
        match &mut *failure {
            Some(refused) if refused.is_login => refused.answered = true,
            _ => *failure = None,
        }
    }

    /// Permits a read by a driver that connects by itself: while the server refuses the credential,
    /// under the rules of [`Self::may_connect`].
    ///
    /// # Errors
    /// See [`Self::may_connect`].
    pub fn may_log_in(&self, attempt_max: Duration) -> Result<(), SourceError> {
        let is_refused = self.0.lock().as_ref().is_some_and(|failure| failure.is_login);
        if is_refused { self.may_connect(attempt_max) } else { Ok(()) }
    }

    /// Permits an attempt to connect, which takes at most `attempt_max`. During an outage only one
    /// caller at a time has the permission.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`] with the reason of the outage.
    pub fn may_connect(&self, attempt_max: Duration) -> Result<(), SourceError> {
        let mut failure = self.0.lock();
        let Some(failure) = &mut *failure else { return Ok(()) };
        let now = Instant::now();
        if now < failure.retry_at {
            return Err(SourceError::unavailable(&*failure.why));
        }
        // The attempt defers those of other callers for as long as it may take.
        failure.retry_at = now + attempt_max;
        Ok(())
    }

    /// Checks that no outage lasts; see [`crate::Source::health`].
    ///
    /// # Errors
    /// Returns the reason of the outage.
    pub fn health(&self) -> Result<(), String> {
        match &*self.0.lock() {
            Some(failure) if !failure.answered => Err(failure.why.to_string()),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT_MAX: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn one_caller_at_a_time_connects_during_an_outage() {
        let outage = Outage::default();
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()));
        outage.failed("refused");
        let refused = Err(SourceError::unavailable("refused"));
        assert_eq!(outage.may_connect(ATTEMPT_MAX), refused);
        tokio::time::advance(BACKOFF_FIRST).await;
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()));
        assert_eq!(outage.may_connect(ATTEMPT_MAX), refused, "another caller is connecting");
        tokio::time::advance(ATTEMPT_MAX).await;
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()), "that caller is gone");
        outage.connected();
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_up_to_a_bound() {
        let outage = Outage::default();
        for _ in 0..40 {
            outage.failed("refused");
        }
        tokio::time::advance(BACKOFF_MAX / 2 - Duration::from_millis(1)).await;
        assert!(outage.may_connect(ATTEMPT_MAX).is_err());
        tokio::time::advance(BACKOFF_MAX / 2).await;
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_logins_become_rare() {
        let outage = Outage::default();
        let begun = Instant::now();
        let mut logins = 0;
        while begun.elapsed() < Duration::from_secs(600) {
            if outage.may_connect(ATTEMPT_MAX).is_ok() {
                logins += 1;
                outage.login_refused("password");
            }
            tokio::time::advance(BACKOFF_FIRST).await;
        }
        assert!((20..60).contains(&logins), "{logins} in ten minutes");
        // A driver that connects by itself waits too, also while the feed's connection is open.
        outage.feed_answered();
        assert_eq!(outage.health(), Ok(()));
        assert!(outage.may_log_in(ATTEMPT_MAX).is_err());
        // Once the server is merely away, it is found as fast as before.
        outage.failed("refused");
        assert_eq!(outage.may_log_in(ATTEMPT_MAX), Ok(()));
        tokio::time::advance(BACKOFF_MAX).await;
        assert_eq!(outage.may_connect(ATTEMPT_MAX), Ok(()));
    }

    #[test]
    fn an_answer_restores_the_health() {
        let outage = Outage::default();
        assert_eq!(outage.health(), Ok(()));
        outage.failed("refused");
        assert_eq!(outage.health(), Err("refused".into()));
        outage.answered();
        assert_eq!(outage.health(), Ok(()));
        outage.failed("refused again");
        assert_eq!(outage.health(), Err("refused again".into()));
        outage.connected();
        assert_eq!(outage.health(), Ok(()));
    }
}
