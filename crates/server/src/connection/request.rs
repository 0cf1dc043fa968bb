//! A request as a service receives it, and its body.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hotrow_http1::error::ParseError;
use hotrow_http1::head::{Head, Version};
use hotrow_measure::clock::Nanos;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::context::ConnectionContext;

/// A request whose head has arrived.
pub struct Request<'a> {
    /// Its head.
    pub head: Head<'a>,
    /// Its body.
    pub body: RequestBody,
    /// The connection over which it came.
    pub connection: &'a Rc<ConnectionContext>,
    /// A time after the arrival of its last byte so far.
    pub now: Nanos,
    /// The version of HTTP that its client speaks.
    pub protocol: Protocol,
}

/// Version of HTTP that a client speaks. A request of HTTP/2 has a head of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Returns its name, as in a request line.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

impl From<Version> for Protocol {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::Http10,
            Version::Http11 => Self::Http11,
        }
    }
}

/// Reason for which a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is malformed or too large.
    #[error(transparent)]
    Refused(#[from] ParseError),
    /// The client closed its side first.
    #[error("the body did not arrive in full")]
    Ended,
}

/// Body of a request. It is received while it is read, one piece at a time.
#[derive(Debug, Default)]
pub struct RequestBody(BodySource);

#[derive(Debug, Default)]
enum BodySource {
    #[default]
    Empty,
    Pipe(Rc<BodyPipe>),
    Stream(StreamBody),
}

/// A body that comes over a stream of HTTP/2. Its connection keeps one too, and drops the part that
/// the service does not read.
#[derive(Clone, Debug)]
pub(super) struct StreamBody(Rc<RefCell<StreamState>>);

#[derive(Debug)]
struct StreamState {
    incoming: Incoming,
    bytes_left: usize,
    /// `true`: nothing more comes.
    is_ended: bool,
}

/// One piece of a body, between the connection and the service that reads it.
#[derive(Debug)]
pub(super) struct BodyPipe {
    state: RefCell<State>,
    /// Length by the head, if it gives one.
    announced_bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    piece: Option<Bytes>,
    end: Option<Result<(), BodyError>>,
    reader: Option<Waker>,
}

impl RequestBody {
    /// Returns a body whose pieces come through `pipe`.
    pub(super) fn from_pipe(pipe: &Rc<BodyPipe>) -> Self {
        Self(BodySource::Pipe(Rc::clone(pipe)))
    }

    /// Returns the body of a stream as its service reads it.
    pub(super) fn of_stream(body: &StreamBody) -> Self {
        if body.is_complete() { Self::default() } else { Self(BodySource::Stream(body.clone())) }
    }

    /// Returns the connection's side.
    pub(super) fn pipe(&self) -> Option<Rc<BodyPipe>> {
        match &self.0 {
            BodySource::Empty | BodySource::Stream(_) => None,
            BodySource::Pipe(pipe) => Some(Rc::clone(pipe)),
        }
    }
}

impl StreamBody {
    /// The service may read `bytes_max` bytes.
    pub(super) fn new(incoming: Incoming, bytes_max: usize) -> Self {
        let is_ended = incoming.is_end_stream();
        Self(Rc::new(RefCell::new(StreamState { incoming, bytes_left: bytes_max, is_ended })))
    }

    /// Returns whether all of it has been read.
    pub(super) fn is_complete(&self) -> bool {
        self.0.borrow().is_ended
    }

    /// Reads the next piece, whatever the service may still read.
    pub(super) fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.borrow_mut();
        let frame = ready!(state.poll_frame(cx));
        Poll::Ready(frame.and_then(Result::ok).map(|frame| frame.into_data().unwrap_or_default()))
    }

    fn poll_limited(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.borrow_mut();
        let frame = match ready!(state.poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(match state.bytes_left.checked_sub(bytes) {
            Some(left) => {
                state.bytes_left = left;
                Ok(frame)
            }
            None => Err(BodyError::Refused(ParseError::BodyBytes)),
        }))
    }
}

impl StreamState {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        self.is_ended = !matches!(frame, Some(Ok(_))) || self.incoming.is_end_stream();
        Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyError::Ended)))
    }
}

impl BodyPipe {
    pub(super) fn new(announced_bytes: Option<u64>) -> Rc<Self> {
        Rc::new(Self { state: RefCell::default(), announced_bytes })
    }

    /// Returns whether the service waits for a piece.
    pub(super) fn is_wanted(&self) -> bool {
        let state = self.state.borrow();
        state.reader.is_some() && state.piece.is_none() && state.end.is_none()
    }

    /// Returns whether a piece waits to be read.
    pub(super) fn has_content(&self) -> bool {
        self.state.borrow().piece.is_some()
    }

    /// Hands over a piece. The one before has been taken.
    pub(super) fn push(&self, piece: Bytes) {
        let mut state = self.state.borrow_mut();
        if !piece.is_empty() {
            state.piece = Some(piece);
            state.wake();
        }
    }

    /// Ends the body behind the piece that was handed over.
    pub(super) fn end(&self, result: Result<(), BodyError>) {
        let mut state = self.state.borrow_mut();
        state.end = Some(result);
        state.wake();
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let pipe = match &mut self.0 {
            BodySource::Empty => return Poll::Ready(None),
            BodySource::Stream(body) => return body.poll_limited(cx),
            BodySource::Pipe(pipe) => pipe,
        };
        let mut state = pipe.state.borrow_mut();
        if let Some(piece) = state.piece.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Empty => true,
            BodySource::Stream(body) => body.is_complete(),
            BodySource::Pipe(pipe) => {
                let state = pipe.state.borrow();
                state.piece.is_none() && state.end == Some(Ok(()))
            }
        }
    }

    /// The announced length until the body is read.
    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Empty => SizeHint::with_exact(0),
            BodySource::Stream(body) => {
                let mut hint = SizeHint::default();
                hint.set_lower(body.0.borrow().incoming.size_hint().lower());
                hint
            }
            BodySource::Pipe(pipe) => {
                let mut hint = SizeHint::default();
                hint.set_lower(pipe.announced_bytes.unwrap_or(0));
                hint
            }
        }
    }
}
