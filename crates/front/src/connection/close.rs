//! Closing so that the last answer arrives.
//!
//! Closing a socket with unread input sends a reset, which may overtake the answer and destroy it
//! at the client. So after a last answer our side is closed, and the client's bytes are read and
//! dropped for a bounded time.

use std::time::{Duration, SystemTime};

use hotrow_answer::rejection::Rejection;
use hotrow_net::stream::Stream;
use hotrow_telemetry::outcome::CacheOutcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connection::worker_context::WorkerContext;
use hotrow_config::Limits;

/// Longest time for which a closing connection's input is dropped.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// Most bytes of it that are dropped.
pub(crate) const LINGER_BYTES: usize = 256 * 1024;
/// Longest time for writing the last answer; it fits any socket's buffer unless the client stopped
/// reading.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Answers `refusal`, counts it, and closes. `to_head`: the refused message is a HEAD request.
pub(crate) async fn answer_and_close(
    mut stream: impl Stream,
    worker: &WorkerContext,
    refusal: Rejection,
    to_head: bool,
) {
    if matches!(refusal, Rejection::HeadTime | Rejection::BodyTime) {
        worker.metrics.refused(refusal);
    }
    worker.metrics.answered(refusal.status(), CacheOutcome::None);
    let answer = refusal.answer(&worker.limits(), unix_s(), to_head);
    if matches!(timeout(LAST_WRITE, stream.write_all(&answer)).await, Ok(Ok(()))) {
        worker.metrics.bytes_sent.add(answer.len() as u64);
        linger(stream).await;
    }
}

/// Answers with the limit on connections that was reached, and closes. No request has been read, so
/// the method is unknown and the answer has a body.
pub(crate) async fn turn_away(stream: impl Stream, refusal: Rejection, limits: &Limits) {
    let answer = refusal.answer(limits, unix_s(), false);
    write_and_close(stream, &answer).await;
}

/// Writes a last answer, and closes.
pub(crate) async fn write_and_close(mut stream: impl Stream, answer: &[u8]) {
    if matches!(timeout(LAST_WRITE, stream.write_all(answer)).await, Ok(Ok(()))) {
        linger(stream).await;
    }
}

/// Closes a connection whose input is used up.
pub(crate) async fn close<T: Stream>(mut stream: T) {
    if T::ANNOUNCES_END {
        // In both cases the socket closes now.
        let _ = timeout(LAST_WRITE, stream.shutdown()).await;
    }
}

/// Closes our side, then drops the client's input until it closes too, or until a bound.
pub(crate) async fn linger(mut stream: impl Stream) {
    // It waits only where bytes must be sent for it, as by TLS.
    if !matches!(timeout(LAST_WRITE, stream.shutdown()).await, Ok(Ok(()))) {
        return;
    }
    let mut left = LINGER_BYTES;
    let drop_input = async {
        let mut sink = [0; 2048];
        while left > 0 {
            match stream.read(&mut sink).await {
                Ok(n @ 1..) => left = left.saturating_sub(n),
                _ => return,
            }
        }
    };
    // In both cases the socket closes now.
    let _ = timeout(LINGER, drop_input).await;
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
