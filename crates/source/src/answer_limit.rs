//! Time limit of an answer that counts only time in which this process ran.
//!
//! A process that was stopped, frozen with its container, or moved with its virtual machine finds
//! that a limit has passed and that the answer waits in the socket, unread. An ordinary time-out
//! would take that for a silent server, and the feed would lose its position. So the limit is
//! waited for in parts, and a part that took much longer than it should is not counted.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Parts of a limit.
const PARTS: u32 = 10;
/// Most parts that are waited for, counted or not: a machine that is always late must not hide a
/// silent server.
const PARTS_MAX: u32 = 4 * PARTS;

/// No answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer in time")]
pub struct NoAnswer;

/// Waits for an answer, at most `limit` of running time. Without suspensions that is the time of a
/// clock; it is never more than four times `limit` and the suspensions.
///
/// # Errors
/// The limit passed.
pub async fn answer_within<T>(
    limit: Duration,
    answer: impl IntoFuture<Output = T>,
) -> Result<T, NoAnswer> {
    let part = limit / PARTS;
    let mut answer = pin!(answer.into_future());
    let mut counted = 0;
    for _ in 0..PARTS_MAX {
        let began_at = Instant::now();
        // Between two parts the tasks of this thread run, among them the connection that reads.
        if let Ok(answer) = timeout(part, answer.as_mut()).await {
            return Ok(answer);
        }
        if began_at.elapsed() <= 2 * part {
            counted += 1;
        }
        if counted == PARTS {
            break;
        }
    }
    Err(NoAnswer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_at_the_limit() {
        let began_at = Instant::now();
        assert_eq!(answer_within(LIMIT, std::future::pending::<()>()).await, Err(NoAnswer));
        let waited = began_at.elapsed();
        // The timer counts milliseconds and rounds up, part by part.
        assert!(waited >= LIMIT && waited <= LIMIT + Duration::from_millis(20), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_returned() {
        let late = tokio::time::sleep(LIMIT - Duration::from_millis(1));
        assert_eq!(answer_within(LIMIT, late).await, Ok(()));
        assert_eq!(answer_within(Duration::ZERO, async { 7 }).await, Ok(7));
        assert_eq!(
            answer_within(Duration::ZERO, std::future::pending::<()>()).await,
            Err(NoAnswer)
        );
    }

    /// The answer is in the socket when the process continues; the task that reads it runs after
    /// the one that waits for it.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_during_a_suspension_is_not_late() {
        for before in [Duration::ZERO, LIMIT / 2, LIMIT - Duration::from_millis(500)] {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let (socket, readable) = tokio::sync::oneshot::channel::<()>();
            let connection = tokio::spawn(async move {
                readable.await.unwrap();
                answer.send(7).unwrap();
            });
            let mut waiting = pin!(answer_within(LIMIT, answered));
            // Waits as long without a suspension.
            assert!(timeout(before, waiting.as_mut()).await.is_err());
            tokio::time::advance(100 * LIMIT).await;
            socket.send(()).unwrap();
            assert_eq!(waiting.await, Ok(Ok(7)), "{before:?}");
            connection.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_always_late_gives_up_too() {
        let mut polls = 0;
        // Each look at the answer takes three times as long as the part.
        let slow = std::future::poll_fn(|context| {
            polls += 1;
            let late = tokio::time::advance(3 * LIMIT / PARTS);
            _ = pin!(late).poll(context);
            std::task::Poll::<()>::Pending
        });
        assert_eq!(answer_within(LIMIT, slow).await, Err(NoAnswer));
        assert!(polls >= PARTS, "{polls}");
    }
}
