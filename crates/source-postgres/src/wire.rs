//! A replication session: the part of PostgreSQL's wire protocol that the feed needs.
//!
//! The readers' driver has no replication mode, so this small client uses the same streams. Source:
//! PostgreSQL documentation, "Frontend/Backend Protocol". [`startup`] logs in; [`replication`] has
//! the commands and the stream of a replication session.

mod error;
pub(crate) mod frame;
pub(crate) mod replication;
pub(crate) mod startup;

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use self::error::ServerError;
pub(crate) use self::error::WireError;
use self::frame::Row;

/// Longest message that is kept whole. Of a longer one (a row with a huge column) the feed gets the
/// beginning.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Most bytes read from the stream at once.
const READ_BYTES: usize = 64 << 10;
/// Most rows of a query's answer; the feed's own commands return one.
const ROWS_MAX: usize = 1000;
/// Header of a message: the kind, and a length that counts itself and the body.
const HEADER_BYTES: usize = 5;

/// One message of the server.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The message's kind.
    pub(crate) tag: u8,
    /// The bytes after the length.
    pub(crate) body: Bytes,
    /// The message was longer than [`MESSAGE_BYTES_MAX`]: `body` is its beginning.
    pub(crate) is_cut: bool,
}

/// A session over any stream.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    input: BytesMut,
    /// Remaining bytes of a cut message.
    skip: usize,
    output: BytesMut,
    /// The server's process id, as in `pg_stat_activity`.
    pub(crate) backend_pid: i32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, input: BytesMut::new(), skip: 0, output: BytesMut::new(), backend_pid: 0 }
    }

    /// Returns the next message, without a time limit. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Result<Frame, WireError> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(WireError::Closed);
            }
        }
    }

    /// Returns the next message if it has arrived.
    pub(crate) fn buffered(&mut self) -> Result<Option<Frame>, WireError> {
        let skipped = self.skip.min(self.input.len());
        self.input.advance(skipped);
        self.skip -= skipped;
        let (Some(tag), Some(length)) =
            (self.input.first().copied(), self.input.get(1..HEADER_BYTES))
        else {
            return Ok(None);
        };
        let length = length.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        // The length counts its own four bytes.
        let Some(body) = length.checked_sub(4) else {
            return Err(WireError::Protocol(format!("a message has the length {length}")));
        };
        let kept_bytes = body.min(MESSAGE_BYTES_MAX);
        if kept_bytes < body && tag != b'd' {
            return Err(WireError::Protocol(format!(
                "a message `{}` has {body} bytes",
                tag.escape_ascii()
            )));
        }
        if self.input.len() < HEADER_BYTES + kept_bytes {
            self.input.reserve(HEADER_BYTES + kept_bytes - self.input.len());
            return Ok(None);
        }
        self.input.advance(HEADER_BYTES);
        let frame = Frame {
            tag,
            body: self.input.split_to(kept_bytes).freeze(),
            is_cut: kept_bytes < body,
        };
        self.skip = body - kept_bytes;
        Ok(Some(frame))
    }

    /// Sends the bytes that `write` puts into the buffer.
    pub(crate) async fn send(
        &mut self,
        deadline: Instant,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), WireError> {
        self.output.clear();
        write(&mut self.output)?;
        let stream = &mut self.stream;
        let output = &self.output;
        within(deadline, "sending", async {
            stream.write_all(output).await?;
            stream.flush().await
        })
        .await
        .and_then(|sent| sent.map_err(WireError::from))
    }

    /// Returns the next message other than a notice or a parameter's status. An error of the server
    /// is returned as an error.
    pub(crate) async fn answer(
        &mut self,
        deadline: Instant,
        what: &'static str,
    ) -> Result<Frame, WireError> {
        loop {
            let frame = within(deadline, what, self.recv()).await??;
            match frame.tag {
                b'E' => return Err(WireError::Server(Box::new(ServerError::parse(&frame.body)))),
                b'N' => {
                    tracing::debug!(notice = %ServerError::parse(&frame.body), "notice from the \
                        server")
                }
                b'S' | b'A' => {}
                _ => return Ok(frame),
            }
        }
    }

    /// Runs one command and returns the rows of its answer.
    pub(crate) async fn query(
        &mut self,
        sql: &str,
        deadline: Instant,
        what: &'static str,
    ) -> Result<Vec<Row>, WireError> {
        self.send(deadline, |out| frontend::query(sql, out)).await?;
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            match self.answer(deadline, what).await {
                Ok(frame) if frame.tag == b'Z' => return refused.map_or(Ok(rows), Err),
                Ok(frame) if frame.tag == b'D' && rows.len() < ROWS_MAX => {
                    rows.push(Row::parse(&frame.body)?)
                }
                Ok(frame) if frame.tag == b'D' => {
                    return Err(WireError::Protocol(format!(
                        "{what} returned more than {ROWS_MAX} rows"
                    )));
                }
                Ok(_) => {}
                // After an error the session continues, unless the server ends it.
                Err(e @ WireError::Server(_)) if refused.is_none() => refused = Some(e),
                // The server's last error explains more than the end of the connection after it.
                Err(e) => return Err(refused.unwrap_or(e)),
            }
        }
    }
}

/// Waits for `work` until `deadline`.
pub(crate) async fn within<F: Future>(
    deadline: Instant,
    what: &'static str,
    work: F,
) -> Result<F::Output, WireError> {
    tokio::time::timeout_at(deadline, work).await.map_err(|_| WireError::Timeout(what))
}

/// Returns the time `after` from now, or a century from now if that is not representable.
pub(crate) fn deadline(after: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + after.min(CENTURY)
}

#[cfg(test)]
mod tests;
