//! The end of a connection that speaks the Redis protocol.

use hotrow_answer::activity::Expiry;
use hotrow_answer::metrics::CloseCause;
use hotrow_answer::rejection::Rejection;
use hotrow_net::stream::Stream;

use super::super::close::{close, linger, write_and_close};
use super::super::end::ConnectionEnd;

/// Last reply to a command that did not arrive in time.
const INCOMPLETE: &[u8] = b"-ERR the command was not complete within limits.header_timeout\r\n";

/// State of a connection at its end.
#[derive(Clone, Copy)]
pub(super) struct Leftover {
    /// `true`: its input is not used up, and closing at once could destroy a reply on its way.
    pub(super) has_unread: bool,
    /// `true`: its input is no command.
    pub(crate) is_refused: bool,
    /// `true`: nothing of an earlier reply waits.
    pub(super) all_sent: bool,
}

/// Closes, and returns the cause.
pub(crate) async fn finish(
    stream: impl Stream,
    end: ConnectionEnd,
    leftover: Leftover,
) -> CloseCause {
    match end {
        ConnectionEnd::Expired(Expiry::Write) => {
            stream.reset();
            CloseCause::WriteTimeout
        }
        ConnectionEnd::Expired(Expiry::SlowReader) => {
            stream.reset();
            CloseCause::DrainRate
        }
        ConnectionEnd::Expired(Expiry::SendBytes) => {
            stream.reset();
            CloseCause::SendBytes
        }
        ConnectionEnd::Expired(Expiry::Head | Expiry::Body) => {
            if leftover.all_sent {
                write_and_close(stream, INCOMPLETE).await;
            } else {
                stream.reset();
            }
            CloseCause::HeaderTimeout
        }
        ConnectionEnd::Expired(expiry @ (Expiry::Idle | Expiry::Drained | Expiry::Reclaimed)) => {
            close(stream).await;
            match expiry {
                Expiry::Drained => CloseCause::Drained,
                Expiry::Reclaimed => CloseCause::Reclaimed,
                _ => CloseCause::Idle,
            }
        }
        ConnectionEnd::Finished if leftover.has_unread => {
            linger(stream).await;
            if leftover.is_refused { CloseCause::Refused } else { CloseCause::Finished }
        }
        ConnectionEnd::Finished => {
            close(stream).await;
            CloseCause::Finished
        }
        ConnectionEnd::Broken => {
            linger(stream).await;
            CloseCause::Broken
        }
    }
}

/// Replies that a limit on connections was reached, and closes.
pub(crate) async fn turn_away(stream: impl Stream, refusal: Rejection) {
    let reply: &[u8] = match refusal {
        Rejection::ClientConnections => {
            b"-ERR max number of clients reached for one address \
              (limits.connections_per_client)\r\n"
        }
        _ => b"-ERR max number of clients reached\r\n",
    };
    write_and_close(stream, reply).await;
}
