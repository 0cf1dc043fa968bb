//! A request as a service receives it, and its body.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hotrow_http1::error::ParseError;
use hotrow_http1::head::Head;
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
    Stream(Box<StreamBody>),
}

/// A body that comes over a stream of HTTP/2.
#[derive(Debug)]
struct StreamBody {
    incoming: Incoming,
    bytes_left: usize,
    arrival: Arrival,
}

/// Whether a body has arrived in full, as far as its service has read it.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrival(Rc<Cell<bool>>);

impl Arrival {
    pub(super) fn is_complete(&self) -> bool {
        self.0.get()
    }
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

    /// Returns the body of a stream of HTTP/2, which may have `bytes_max` bytes.
    pub(super) fn of_stream(incoming: Incoming, bytes_max: usize) -> Self {
        if incoming.is_end_stream() {
            return Self::default();
        }
        let body = StreamBody { incoming, bytes_left: bytes_max, arrival: Arrival::default() };
        Self(BodySource::Stream(Box::new(body)))
    }

    /// Returns whether a body of a stream has arrived; `None`: it had when the request began.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        match &self.0 {
            BodySource::Empty | BodySource::Pipe(_) => None,
            BodySource::Stream(body) => Some(body.arrival.clone()),
        }
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
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            None => {
                self.arrival.0.set(true);
                return Poll::Ready(None);
            }
            Some(Err(_)) => return Poll::Ready(Some(Err(BodyError::Ended))),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(frame)
            }
            None => Err(BodyError::Refused(ParseError::BodyBytes)),
        }))
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
            BodySource::Stream(body) => return body.poll_frame(cx),
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
            BodySource::Stream(body) => body.incoming.is_end_stream(),
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
                hint.set_lower(body.incoming.size_hint().lower());
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
