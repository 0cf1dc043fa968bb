//! Output of one connection: frames in one buffer, which leaves with one write.
//!
//! What a client takes is measured in bytes of answers. Answers to pings and settings do not count:
//! a client that reads nothing else must not seem to make progress.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::connection::output::{BUFFER_BYTES, Broken};
use crate::connection::worker_context::WorkerContext;
use hotrow_answer::activity::Activity;

/// Frames that are not sent.
pub(crate) struct Output {
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    /// Of the worker while it has content, else without memory.
    buffer: Vec<u8>,
    /// Leading bytes of the buffer that are sent.
    sent: usize,
    /// Bytes of answers among those that are not.
    answer_bytes: usize,
    /// `true`: the socket has not taken all, or a TLS stream still holds a part.
    is_waiting: bool,
}

impl Output {
    pub(crate) fn new(worker: Rc<WorkerContext>, activity: Rc<Activity>) -> Self {
        Self { worker, activity, buffer: Vec::new(), sent: 0, answer_bytes: 0, is_waiting: false }
    }

    /// Returns whether frames of another request or answer may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.buffer.len() - self.sent < BUFFER_BYTES
    }

    /// Returns whether the socket took less than all when it was last written to.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns whether a part of an answer waits.
    pub(super) fn has_answers(&self) -> bool {
        self.answer_bytes > 0
    }

    /// Returns the buffer, to add to it.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.capacity() == 0 {
            self.buffer = self.worker.take_output();
        }
        &mut self.buffer
    }

    /// Notes that the last `bytes` of the buffer are of an answer.
    pub(super) fn added(&mut self, bytes: usize) {
        self.answer_bytes += bytes;
    }

    /// Returns the length of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Writes until nothing waits, or the socket takes no more.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        if self.buffer.capacity() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.is_waiting = true;
        while self.sent < self.buffer.len() {
            let written = Pin::new(&mut *stream).poll_write(cx, &self.buffer[self.sent..]);
            let written = ready!(written).and_then(|bytes| match bytes {
                0 => Err(io::ErrorKind::WriteZero.into()),
                _ => Ok(bytes),
            });
            self.note(written.map_err(|_| Broken)?);
        }
        // A TLS stream may still hold sealed bytes; others hold none.
        ready!(Pin::new(&mut *stream).poll_flush(cx)).map_err(|_| Broken)?;
        // Gives the memory back: a connection that waits needs none.
        self.worker.give_output(std::mem::take(&mut self.buffer));
        (self.sent, self.answer_bytes, self.is_waiting) = (0, 0, false);
        self.activity.all_sent();
        Poll::Ready(Ok(()))
    }

    fn note(&mut self, written: usize) {
        self.sent += written;
        if self.sent >= BUFFER_BYTES / 2 {
            // A client that takes little at a time must not make the buffer grow.
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
        self.worker.metrics.bytes_sent.add(written as u64);
        self.worker.worked(written);
        let of_answers = written.min(self.answer_bytes);
        if of_answers > 0 {
            self.answer_bytes -= of_answers;
            self.activity.wrote(of_answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use hotrow_measure::clock::Nanos;

    use hotrow_config::Limits;

    use super::*;
    use crate::connection::tests::SlowClient;
    use hotrow_answer::metrics::WorkerMetrics;

    #[test]
    fn what_a_client_takes_is_counted_in_bytes_of_answers() {
        let limits = Limits::small();
        let metrics = Arc::new(WorkerMetrics::default());
        let worker = Rc::new(WorkerContext::new(limits, metrics, Nanos(1)));
        let activity = Rc::new(Activity::new(Nanos(1)));
        let mut output = Output::new(worker, Rc::clone(&activity));
        let mut cx = Context::from_waker(Waker::noop());
        let mut client = SlowClient::taking(10);
        output.buffer().extend_from_slice(&[b'p'; 25]);
        while output.poll_flush(&mut client, &mut cx).is_pending() {}
        assert_eq!(activity.answer_bytes(), 0, "no part of an answer");
        output.buffer().extend_from_slice(&[b'a'; 25]);
        output.added(25);
        while output.poll_flush(&mut client, &mut cx).is_pending() {}
        assert_eq!((activity.answer_bytes(), client.taken_bytes), (25, 50));
        assert_eq!(output.buffer.capacity(), 0, "no memory is kept");
    }
}
