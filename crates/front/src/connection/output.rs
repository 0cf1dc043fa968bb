//! Output of one connection: heads and small bodies in one buffer, larger bodies from where they
//! lie.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::Body;
use tokio::io::AsyncWrite;

use super::worker_context::WorkerContext;
use hotrow_answer::activity::Activity;

/// Buffered bytes from which nothing more is added before they are written.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;
/// Longest run of a body that is copied into the buffer. A longer one costs less as a slice of its
/// own in the same system call.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Most bytes of a body that are written at once. One write to a fast reader could go on for all of
/// a long body.
const WRITTEN_BYTES_MAX: usize = 128 * 1024;

/// Answers that are not yet sent.
pub(crate) struct Output<B: Body> {
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    /// Of the worker while it has content, else without memory.
    buffer: Vec<u8>,
    /// Leading bytes of the buffer that are sent.
    sent: usize,
    /// Body that follows the buffer.
    body: Option<PendingBody<B>>,
}

struct PendingBody<B: Body> {
    body: B,
    data: Option<B::Data>,
}

impl<B: Body + Unpin> Output<B> {
    pub(crate) fn new(worker: Rc<WorkerContext>, activity: Rc<Activity>) -> Self {
        Self { worker, activity, buffer: Vec::new(), sent: 0, body: None }
    }

    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.len() == self.sent && self.body.is_none()
    }

    /// Returns whether another answer may be added: none after a body that is not in the buffer.
    pub(crate) fn has_room(&self) -> bool {
        self.body.is_none() && self.buffer.len() < BUFFER_BYTES
    }

    /// Returns the buffer, to add to it.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.capacity() == 0 {
            self.buffer = self.worker.take_output();
        }
        &mut self.buffer
    }

    /// Adds a body that is in one piece, if it is short enough to be copied. Returns whether it
    /// was.
    pub(crate) fn copied(&mut self, whole: Option<&[u8]>) -> bool {
        let short = whole.filter(|bytes| self.body.is_none() && bytes.len() <= COPIED_BYTES_MAX);
        let Some(bytes) = short else { return false };
        self.buffer().extend_from_slice(bytes);
        true
    }

    /// Adds the body of the answer whose head ends the buffer.
    ///
    /// # Errors
    /// The body failed.
    pub(super) fn add_body(&mut self, body: B, cx: &mut Context<'_>) -> Result<(), Broken> {
        self.body = Some(PendingBody { body, data: None });
        match self.fill(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    /// Moves what should be copied from the body to the buffer. Pending: the body has nothing yet.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while let Some(pending) = &mut self.body
            && self.buffer.len() - self.sent < BUFFER_BYTES
        {
            let Some(data) = pending.data.as_mut().filter(|data| data.has_remaining()) else {
                match ready!(Pin::new(&mut pending.body).poll_frame(cx)) {
                    Some(Ok(frame)) => pending.data = frame.into_data().ok(),
                    Some(Err(_)) => return Poll::Ready(Err(Broken)),
                    None => self.body = None,
                }
                continue;
            };
            let run = data.chunk();
            if run.len() > COPIED_BYTES_MAX {
                break;
            }
            if self.buffer.capacity() == 0 {
                self.buffer = self.worker.take_output();
            }
            if self.sent >= BUFFER_BYTES / 2 {
                // A client that takes little at a time must not make the buffer grow.
                self.buffer.drain(..self.sent);
                self.sent = 0;
            }
            let copied = run.len();
            self.buffer.extend_from_slice(run);
            data.advance(copied);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes until nothing waits.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        if self.buffer.capacity() == 0 && self.body.is_none() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let filled = self.fill(cx);
            if matches!(filled, Poll::Ready(Err(_))) {
                return filled;
            }
            let buffered = self.buffer.len() - self.sent;
            let data = self.body.as_ref().and_then(|pending| pending.data.as_ref());
            let run = data.map_or(&[][..], Buf::chunk);
            if buffered == 0 && run.is_empty() {
                // A TLS stream may still hold sealed bytes; others hold none.
                let flushed = Pin::new(&mut *stream).poll_flush(cx);
                if flushed.is_pending() {
                    self.activity.write_blocked(self.worker.now.get());
                }
                ready!(flushed).map_err(|_| Broken)?;
                if filled.is_pending() && self.activity.is_write_blocked() {
                    // The body may have waited for the flush.
                    self.activity.all_taken();
                    continue;
                }
                if filled.is_pending() {
                    // The body goes on later, and its connection needs no memory until then.
                    self.worker.give_output(std::mem::take(&mut self.buffer));
                    self.activity.all_taken();
                    return Poll::Pending;
                }
                self.rest();
                return Poll::Ready(Ok(()));
            }
            let written = if run.is_empty() {
                Pin::new(&mut *stream).poll_write(cx, &self.buffer[self.sent..])
            } else {
                let run = &run[..run.len().min(WRITTEN_BYTES_MAX)];
                let slices = [IoSlice::new(&self.buffer[self.sent..]), IoSlice::new(run)];
                Pin::new(&mut *stream).poll_write_vectored(cx, &slices)
            };
            let written = ready!(self.note(written)).map_err(|_| Broken)?;
            let of_buffer = written.min(buffered);
            self.sent += of_buffer;
            if self.sent == self.buffer.len() {
                self.buffer.clear();
                self.sent = 0;
            }
            if let Some(data) = self.body.as_mut().and_then(|pending| pending.data.as_mut()) {
                // What was written beyond the buffer is of the run.
                data.advance(written - of_buffer);
            }
            if !self.is_empty() && self.worker.must_yield(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Gives the memory back: a connection that waits needs none.
    fn rest(&mut self) {
        self.worker.give_output(std::mem::take(&mut self.buffer));
        self.activity.all_sent();
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(bytes)) => {
                self.activity.wrote(bytes);
                self.worker.metrics.bytes_sent.add(bytes as u64);
                self.worker.worked(bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.activity.write_blocked(self.worker.now.get()),
        }
        written
    }
}

/// The socket, or the body of an answer, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::task::Waker;

    use bytes::Bytes;
    use hotrow_measure::clock::Nanos;
    use http_body::Frame;

    use hotrow_config::Limits;

    use super::*;
    use crate::connection::tests::SlowClient;
    use hotrow_answer::metrics::WorkerMetrics;

    const PIECE: &[u8] = &[b'x'; 1024];

    /// A body of this many small pieces.
    struct Pieces(usize);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PIECE)))))
        }
    }

    /// A body of one piece, which ends once the client takes what was written.
    struct PieceThenEnd {
        piece: Option<&'static [u8]>,
        activity: Rc<Activity>,
    }

    impl Body for PieceThenEnd {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.activity.is_write_blocked() {
                return Poll::Pending;
            }
            let piece = self.piece.take();
            Poll::Ready(piece.map(|bytes| Ok(Frame::data(Bytes::from_static(bytes)))))
        }
    }

    /// A stream that holds what was written until it is flushed a second time.
    #[derive(Default)]
    struct LateFlush(bool);

    impl AsyncWrite for LateFlush {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if std::mem::replace(&mut self.0, true) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_body_that_waits_for_the_flush_goes_on_after_it() {
        let metrics = Arc::new(WorkerMetrics::default());
        let limits = Limits::small();
        let worker = Rc::new(WorkerContext::new(limits, metrics, Nanos(1)));
        let activity = Rc::new(Activity::new(Nanos(1)));
        let mut output = Output::new(worker, Rc::clone(&activity));
        let mut cx = Context::from_waker(Waker::noop());
        activity.write_blocked(Nanos(1));
        let body = PieceThenEnd { piece: Some(PIECE), activity };
        assert_eq!(output.add_body(body, &mut cx), Ok(()));
        let mut stream = LateFlush::default();
        assert!(output.poll_flush(&mut stream, &mut cx).is_pending(), "the flush");
        assert_eq!(output.poll_flush(&mut stream, &mut cx), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_client_that_takes_little_at_a_time_does_not_make_the_buffer_grow() {
        const PIECES: usize = 1_024;
        let limits = Limits::small();
        let metrics = Arc::new(WorkerMetrics::default());
        let worker = Rc::new(WorkerContext::new(limits, metrics, Nanos(1)));
        let mut output = Output::new(worker, Rc::new(Activity::new(Nanos(1))));
        let mut cx = Context::from_waker(Waker::noop());
        output.buffer().extend_from_slice(b"head");
        assert_eq!(output.add_body(Pieces(PIECES), &mut cx), Ok(()));
        let mut client = SlowClient::taking(1_000);
        while output.poll_flush(&mut client, &mut cx).is_pending() {
            assert!(output.buffer.len() <= 2 * BUFFER_BYTES, "{}", output.buffer.len());
        }
        assert_eq!(client.taken_bytes, "head".len() + PIECES * PIECE.len());
        assert_eq!(output.buffer.capacity(), 0, "no memory is kept");
    }
}
