//! What follows an attempt to send a message, as the protocol says (OTLP 1.x, "OTLP/HTTP
//! Response"): 429, 502, 503 and 504, and connections that fail, are tried again; other failures
//! lose the message.

use std::time::Duration;

/// Most attempts for one message.
pub const ATTEMPTS_MAX: u32 = 5;
/// Longest time of all attempts for one message. Later spans wait in the queue.
pub const TIME_MAX: Duration = Duration::from_secs(60);
/// Pause after the first failed attempt; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause, whatever `Retry-After` says.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// An answer with this status.
    Status {
        /// The status.
        status: u16,
        /// Seconds of `Retry-After`, if it has that field.
        retry_after_s: Option<u64>,
    },
    /// No answer: no connection, a connection that failed, or a time-out.
    NoAnswer,
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The collector has the message.
    Done,
    /// Send it again after this pause.
    Again(Duration),
    /// It is lost.
    GiveUp,
}

/// Decides what follows. `attempts`: made so far, this one included. `since`: the first one began.
/// `random`: 0 to 1, so that instances do not return together.
pub fn next(attempt: Attempt, attempts: u32, since: Duration, random: f64) -> Next {
    let asked = match attempt {
        Attempt::Status { status: 200..=299, .. } => return Next::Done,
        Attempt::Status { status: 429 | 502 | 503 | 504, retry_after_s } => {
            retry_after_s.map(Duration::from_secs)
        }
        Attempt::Status { .. } => return Next::GiveUp,
        Attempt::NoAnswer => None,
    };
    let doubled = PAUSE_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let own = doubled.min(PAUSE_MAX).mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0));
    let pause = asked.map_or(own, |asked| asked.max(own)).min(PAUSE_MAX);
    if attempts >= ATTEMPTS_MAX || since + pause > TIME_MAX {
        return Next::GiveUp;
    }
    Next::Again(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn status(status: u16) -> Attempt {
        Attempt::Status { status, retry_after_s: None }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for temporary in [status(429), status(502), status(503), status(504), Attempt::NoAnswer] {
            let Next::Again(pause) = next(temporary, 1, NO_TIME, 0.0) else {
                panic!("{temporary:?}");
            };
            assert_eq!(pause, PAUSE_FIRST / 2, "{temporary:?}");
        }
        for lasting in [301, 400, 401, 403, 404, 413, 415, 500, 501] {
            assert_eq!(next(status(lasting), 1, NO_TIME, 0.0), Next::GiveUp, "{lasting}");
        }
        for done in [200, 202, 204] {
            assert_eq!(next(status(done), 1, NO_TIME, 0.0), Next::Done, "{done}");
        }
    }

    #[test]
    fn pauses_double_and_are_bounded() {
        let pause = |attempts| next(Attempt::NoAnswer, attempts, NO_TIME, 1.0);
        let pauses: Vec<Next> = (1..=ATTEMPTS_MAX).map(pause).collect();
        let again = |s| Next::Again(Duration::from_secs(s));
        assert_eq!(pauses, [again(1), again(2), again(4), again(8), Next::GiveUp]);
    }

    #[test]
    fn the_collector_may_ask_for_longer_pauses() {
        let asked = |s| Attempt::Status { status: 503, retry_after_s: Some(s) };
        assert_eq!(next(asked(7), 1, NO_TIME, 1.0), Next::Again(Duration::from_secs(7)));
        // Not for shorter ones, and not for ever.
        assert_eq!(next(asked(0), 2, NO_TIME, 1.0), Next::Again(Duration::from_secs(2)));
        assert_eq!(next(asked(u64::MAX), 1, NO_TIME, 1.0), Next::Again(PAUSE_MAX));
        assert_eq!(next(asked(30), 1, Duration::from_secs(31), 1.0), Next::GiveUp);
    }
}
