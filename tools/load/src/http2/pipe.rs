//! The bytes between the protocol and the socket, which belongs to the worker.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Received bytes that the protocol has not taken, at most. It takes all unless it must write
/// first.
const IN_BYTES_MAX: usize = 4 << 20;
/// Bytes to be written before the protocol must wait for the socket.
const OUT_BYTES_MAX: usize = 1 << 20;

/// The bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    received: Vec<u8>,
    /// Bytes of `received` that the protocol has taken.
    taken: usize,
    ended: bool,
    /// Bytes for the socket, cleared by the worker.
    pub(crate) out: Vec<u8>,
}

impl Pipe {
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        self.received.extend_from_slice(bytes);
        self.received.len() - self.taken <= IN_BYTES_MAX
    }

    pub(super) fn receive_end(&mut self) {
        self.ended = true;
    }

    /// Returns whether the protocol waits for the socket.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() >= OUT_BYTES_MAX
    }
}

/// The protocol's end. It wakes no task: the worker polls after each change.
#[derive(Debug)]
pub(super) struct PipeEnd(pub(super) Arc<Mutex<Pipe>>);

impl PipeEnd {
    fn pipe(&self) -> MutexGuard<'_, Pipe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for PipeEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.pipe();
        let available = &pipe.received[pipe.taken..];
        if available.is_empty() {
            return if pipe.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let length = available.len().min(into.remaining());
        into.put_slice(&available[..length]);
        pipe.taken += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.pipe();
        if pipe.is_full() {
            return Poll::Pending;
        }
        pipe.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn bytes_pass_in_order_and_within_their_bounds() {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        let mut end = PipeEnd(pipe.clone());
        let mut context = Context::from_waker(Waker::noop());
        let mut space = [0; 3];
        let mut read = |end: &mut PipeEnd| {
            let mut into = ReadBuf::new(&mut space);
            Pin::new(end)
                .poll_read(&mut context, &mut into)
                .map(|r| r.map(|()| into.filled().to_vec()))
        };
        assert!(read(&mut end).is_pending());
        assert!(pipe.lock().unwrap().receive(b"hello"));
        for part in [&b"hel"[..], b"lo"] {
            assert!(matches!(read(&mut end), Poll::Ready(Ok(got)) if got == part));
        }
        pipe.lock().unwrap().receive_end();
        assert!(matches!(read(&mut end), Poll::Ready(Ok(got)) if got.is_empty()));
        assert!(!pipe.lock().unwrap().receive(&vec![0; IN_BYTES_MAX + 1]));
        let large = vec![1; OUT_BYTES_MAX];
        let mut write = |bytes: &[u8]| {
            Pin::new(&mut end).poll_write(&mut Context::from_waker(Waker::noop()), bytes)
        };
        assert!(matches!(write(&large), Poll::Ready(Ok(OUT_BYTES_MAX))));
        assert!(write(b"x").is_pending() && pipe.lock().unwrap().is_full());
        pipe.lock().unwrap().out.clear();
        assert!(matches!(write(b"x"), Poll::Ready(Ok(1))));
    }
}
