//! A stream that is not answered at once: its request waits, or its answer is being sent, or what
//! still comes of its content is dropped.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::Body;
use tokio::time::Instant;

use crate::connection::serve::Serve;
use hotrow_answer::request::BodyPipe;

/// An open stream.
pub(super) struct Work<S: Serve> {
    pub(super) to_head: bool,
    pub(super) phase: WorkPhase<S>,
    /// Content of the request that has not arrived, or was not read.
    pub(super) upload: Option<Upload>,
}

pub(super) enum WorkPhase<S: Serve> {
    /// The service needs more than memory.
    Waiting(Pin<Box<dyn Future<Output = S::Answer>>>),
    /// The head of the answer is written, and its content is not.
    Sending { content: Outgoing<S::Body>, status: u16, wait: Wait },
    /// The answer is written. The client still sends, and may send this many bytes.
    Dropping { bytes_left: usize, until: Instant },
}

/// What content that is being sent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing but the socket.
    None,
    /// The body has nothing yet.
    Body,
    /// The client must open a window; since then.
    Window(Instant),
}

/// Content of a request.
pub(super) struct Upload {
    pub(super) pipe: Rc<BodyPipe>,
    /// Bytes that may still come.
    pub(super) bytes_left: usize,
    /// Bytes that have arrived and for which the client has not been given room.
    pub(super) unread: usize,
    /// `true`: the client waits for the status 100.
    pub(super) expects_continue: bool,
    /// End of the time in which it must have arrived; `None`: it has.
    pub(crate) until: Option<Instant>,
}

impl<S: Serve> Work<S> {
    /// Returns the time at which the client is late. `write_timeout`: for content without an end,
    /// which other streams must not keep alive.
    pub(crate) fn deadline(&self, write_timeout: Duration) -> Option<Instant> {
        match (&self.phase, &self.upload) {
            (WorkPhase::Dropping { until, .. }, _) => Some(*until),
            (WorkPhase::Sending { content, wait: Wait::Window(since), .. }, _) => {
                content.is_endless().then(|| *since + write_timeout)
            }
            (WorkPhase::Waiting(_), Some(upload)) => upload.until,
            _ => None,
        }
    }

    pub(super) fn is_sending(&self) -> bool {
        matches!(self.phase, WorkPhase::Sending { .. })
    }

    /// Returns whether it has content that the client has not taken.
    pub(super) fn is_untaken(&self) -> bool {
        matches!(self.phase, WorkPhase::Sending { wait: Wait::None | Wait::Window(_), .. })
    }

    pub(super) fn is_dropping(&self) -> bool {
        matches!(self.phase, WorkPhase::Dropping { .. })
    }
}

/// Content of an answer on its way to the output.
pub(super) struct Outgoing<B: Body> {
    body: Option<B>,
    piece: Piece<B::Data>,
}

enum Piece<D> {
    None,
    Text(Bytes),
    Body(D),
}

/// State of outgoing content behind the bytes that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    More,
    /// The body has nothing yet.
    Pending,
    /// All was taken.
    End,
    /// The body failed.
    Failed,
}

impl<B: Body + Unpin> Outgoing<B> {
    pub(super) fn of_body(body: B) -> Self {
        Self { body: Some(body), piece: Piece::None }
    }

    pub(super) fn of_text(text: Bytes) -> Self {
        Self { body: None, piece: Piece::Text(text) }
    }

    /// Appends at most `bytes_max` bytes to `out`.
    pub(crate) fn take(
        &mut self,
        mut bytes_max: usize,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Rest {
        loop {
            let run = self.chunk();
            if run.is_empty() {
                match self.next(cx) {
                    Rest::More => continue,
                    end => return end,
                }
            }
            let taken = run.len().min(bytes_max);
            out.extend_from_slice(&run[..taken]);
            self.advance(taken);
            bytes_max -= taken;
            if self.is_at_end() {
                return Rest::End;
            }
            if bytes_max == 0 {
                return Rest::More;
            }
        }
    }

    /// Returns whether its length is unknown.
    pub(super) fn is_endless(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.size_hint().exact().is_none())
    }

    /// Asks the body for its next piece, if there is none. Returns whether there is something to
    /// send.
    pub(crate) fn fetch(&mut self, cx: &mut Context<'_>) -> bool {
        !self.chunk().is_empty() || self.next(cx) != Rest::Pending
    }

    pub(super) fn body_mut(&mut self) -> Option<&mut B> {
        self.body.as_mut()
    }

    fn chunk(&self) -> &[u8] {
        match &self.piece {
            Piece::None => &[],
            Piece::Text(text) => text.chunk(),
            Piece::Body(data) => data.chunk(),
        }
    }

    fn advance(&mut self, bytes: usize) {
        match &mut self.piece {
            Piece::None => {}
            Piece::Text(text) => text.advance(bytes),
            Piece::Body(data) => data.advance(bytes),
        }
    }

    fn is_at_end(&self) -> bool {
        self.chunk().is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Asks the body for its next piece.
    fn next(&mut self, cx: &mut Context<'_>) -> Rest {
        let Some(body) = &mut self.body else { return Rest::End };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => Rest::Pending,
            Poll::Ready(None) => Rest::End,
            Poll::Ready(Some(Err(_))) => Rest::Failed,
            Poll::Ready(Some(Ok(frame))) => {
                // No service has trailers.
                self.piece = frame.into_data().map_or(Piece::None, Piece::Body);
                Rest::More
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::Waker;

    use http_body::Frame;

    use super::*;

    /// A body of these pieces, which has nothing yet where one is empty.
    struct Pieces(Vec<&'static str>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop() {
                None => Poll::Ready(None),
                Some("") => Poll::Pending,
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece))))),
            }
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn take(outgoing: &mut Outgoing<Pieces>, bytes_max: usize) -> (String, Rest) {
        let mut out = Vec::new();
        let rest = outgoing.take(bytes_max, &mut Context::from_waker(Waker::noop()), &mut out);
        (String::from_utf8(out).unwrap(), rest)
    }

    #[test]
    fn content_is_taken_across_its_pieces_as_far_as_allowed() {
        let mut outgoing = Outgoing::of_body(Pieces(vec!["efg", "", "d", "abc"]));
        assert_eq!(take(&mut outgoing, 2), ("ab".to_owned(), Rest::More));
        assert_eq!(take(&mut outgoing, 9), ("cd".to_owned(), Rest::Pending));
        assert_eq!(take(&mut outgoing, 2), ("ef".to_owned(), Rest::More));
        assert_eq!(take(&mut outgoing, 1), ("g".to_owned(), Rest::End), "with its last byte");
        let mut text = Outgoing::<Pieces>::of_text(Bytes::from_static(b"text"));
        assert_eq!(take(&mut text, 4), ("text".to_owned(), Rest::End));
    }
}
