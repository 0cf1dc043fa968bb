//! Closing so that the last answer arrives.
//!
//! Closing a socket that has unread input sends a reset, which may overtake the answer and destroy it at the client. So after a
//! last answer our side is closed, and the client's bytes are read and dropped for a bounded while.

use std::time::{Duration, SystemTime};

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Limits;
use crate::guard::Shared;
use crate::guard::refusal::Refusal;
use crate::metrics::CacheOutcome;

/// How long a closing connection's input is dropped.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// How many bytes of it are dropped.
const LINGER_BYTES: usize = 256 * 1024;
/// How long the last answer may take to be written; it fits any socket's buffer unless the client stopped reading.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Answers `refusal`, counts it, and closes.
pub(crate) async fn answer_and_close(mut stream: TcpStream, shared: &Shared, refusal: Refusal) {
    if matches!(refusal, Refusal::HeadTime | Refusal::BodyTime) {
        shared.metrics.refused(refusal);
    }
    shared.metrics.answered(refusal.status(), CacheOutcome::None);
    let answer = refusal.answer(&shared.limits, unix_s());
    if matches!(timeout(LAST_WRITE, stream.write_all(&answer)).await, Ok(Ok(()))) {
        shared.metrics.bytes_sent.add(answer.len() as u64);
        linger(stream).await;
    }
}

/// Tells a client which limit on connections was reached, and closes.
pub(crate) async fn turn_away(mut stream: TcpStream, refusal: Refusal, limits: &Limits) {
    let answer = refusal.answer(limits, unix_s());
    if matches!(timeout(LAST_WRITE, stream.write_all(&answer)).await, Ok(Ok(()))) {
        linger(stream).await;
    }
}

/// Closes our side, then drops what the client still sends until it closes too, or enough.
pub(crate) async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
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
    // Either way the socket closes now.
    let _ = timeout(LINGER, drop_input).await;
}

/// Closes with a reset, so that the kernel does not keep the unsent answer for a client that does not read.
pub(crate) fn reset(stream: TcpStream) {
    // If it cannot be set, the kernel gives the data up in its own time.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    drop(stream);
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
