//! A replication session: PostgreSQL's wire protocol, as far as the feed needs it.
//!
//! The driver that the readers use has no replication mode, so this small client speaks it over the same streams.
//! Source: PostgreSQL documentation, "Frontend/Backend Protocol". [`startup`] logs in, [`replication`] has the commands
//! of a replication session and what it streams.

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

use self::frame::{Row, ServerError};

/// Longest message that is kept whole. Of longer ones (a row with a huge column) the feed gets the front.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Most bytes taken from the stream at once.
const READ_BYTES: usize = 64 << 10;
/// Most rows kept of a query's answer; the feed's own commands answer with one.
const ROWS_MAX: usize = 1000;
/// A header is the kind and the length, which counts itself and what follows.
const HEADER_BYTES: usize = 5;

/// Why a replication session cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The system says so.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// End of the stream.
    #[error("the server closed the connection")]
    Closed,
    /// No answer in time.
    #[error("the server did not answer in time ({0})")]
    Timeout(&'static str),
    /// The server says so.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// What came does not fit the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The server wants proof that we cannot give, or cannot prove itself.
    #[error("cannot log in: {0}")]
    Login(String),
}

impl WireError {
    /// The SQLSTATE, where the server gave one.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Server(e) => Some(&e.code),
            _ => None,
        }
    }
}

/// One message of the server.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Its kind.
    pub(crate) tag: u8,
    /// What follows the length.
    pub(crate) body: Bytes,
    /// Whether the message was longer than [`MESSAGE_BYTES_MAX`], so that `body` is its front.
    pub(crate) is_cut: bool,
}

/// A session over any stream.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    input: BytesMut,
    /// Bytes of a cut message that are still to come.
    skip: usize,
    output: BytesMut,
    /// The server's process, as its `pg_stat_activity` names it.
    pub(crate) backend_pid: i32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, input: BytesMut::new(), skip: 0, output: BytesMut::new(), backend_pid: 0 }
    }

    /// The next message, for as long as it takes. Nothing is lost when the future is dropped.
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

    /// The next message, if it has arrived.
    pub(crate) fn buffered(&mut self) -> Result<Option<Frame>, WireError> {
        let skipped = self.skip.min(self.input.len());
        self.input.advance(skipped);
        self.skip -= skipped;
        let (Some(tag), Some(length)) = (self.input.first().copied(), self.input.get(1..HEADER_BYTES)) else {
            return Ok(None);
        };
        let length = length.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        // The length counts its own four bytes.
        let Some(body) = length.checked_sub(4) else {
            return Err(WireError::Protocol(format!("a message has the length {length}")));
        };
        let kept = body.min(MESSAGE_BYTES_MAX);
        if kept < body && tag != b'd' {
            return Err(WireError::Protocol(format!("a message `{}` has {body} bytes", tag.escape_ascii())));
        }
        if self.input.len() < HEADER_BYTES + kept {
            self.input.reserve(HEADER_BYTES + kept - self.input.len());
            return Ok(None);
        }
        self.input.advance(HEADER_BYTES);
        let frame = Frame { tag, body: self.input.split_to(kept).freeze(), is_cut: kept < body };
        self.skip = body - kept;
        Ok(Some(frame))
    }

    /// Sends what `write` puts into the buffer.
    pub(crate) async fn send(
        &mut self,
        deadline: Instant,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), WireError> {
        self.output.clear();
        write(&mut self.output)?;
        let (stream, output) = (&mut self.stream, &self.output);
        within(deadline, "sending", async {
            stream.write_all(output).await?;
            stream.flush().await
        })
        .await
        .and_then(|sent| sent.map_err(WireError::from))
    }

    /// The next message that is no news of the server about itself; what the server refuses is an error.
    pub(crate) async fn answer(&mut self, deadline: Instant, what: &'static str) -> Result<Frame, WireError> {
        loop {
            let frame = within(deadline, what, self.recv()).await??;
            match frame.tag {
                b'E' => return Err(WireError::Server(Box::new(ServerError::parse(&frame.body)))),
                b'N' => tracing::debug!(notice = %ServerError::parse(&frame.body), "the server says"),
                b'S' | b'A' => {}
                _ => return Ok(frame),
            }
        }
    }

    /// Runs one command and gives the rows of its answer.
    pub(crate) async fn query(
        &mut self,
        sql: &str,
        deadline: Instant,
        what: &'static str,
    ) -> Result<Vec<Row>, WireError> {
        self.send(deadline, |out| frontend::query(sql, out)).await?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            match self.answer(deadline, what).await {
                Ok(frame) if frame.tag == b'Z' => return refused.map_or(Ok(rows), Err),
                Ok(frame) if frame.tag == b'D' && rows.len() < ROWS_MAX => rows.push(Row::parse(&frame.body)?),
                Ok(frame) if frame.tag == b'D' => {
                    return Err(WireError::Protocol(format!("{what} brought more than {ROWS_MAX} rows")));
                }
                Ok(_) => {}
                // After an error the session goes on, unless the server ends it.
                Err(e @ WireError::Server(_)) if refused.is_none() => refused = Some(e),
                // What the server said last says more than that it hung up then.
                Err(e) => return Err(refused.unwrap_or(e)),
            }
        }
    }
}

/// Gives up at `deadline`.
pub(crate) async fn within<F: Future>(deadline: Instant, what: &'static str, work: F) -> Result<F::Output, WireError> {
    tokio::time::timeout_at(deadline, work).await.map_err(|_| WireError::Timeout(what))
}

/// The deadline `after` from now; a century when it cannot be told.
pub(crate) fn deadline(after: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + after.min(CENTURY)
}

#[cfg(test)]
mod tests;
