//! A request as a service receives it, and its body.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hotrow_http1::error::ParseError;
use hotrow_http1::head::Head;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::request::Protocol;
use http_body::{Frame, SizeHint};

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
}

/// One piece of a body, between the connection and the service that reads it.
#[derive(Debug)]
pub struct BodyPipe {
    state: RefCell<State>,
    /// Length by the head, if it gives one.
    announced_bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// What has arrived and is not read.
    piece: Vec<u8>,
    /// Bytes that were read since [`BodyPipe::take_read`].
    read_bytes: usize,
    end: Option<Result<(), BodyError>>,
    reader: Option<Waker>,
}

impl RequestBody {
    /// Returns a body whose pieces come through `pipe`.
    pub fn from_pipe(pipe: &Rc<BodyPipe>) -> Self {
        Self(BodySource::Pipe(Rc::clone(pipe)))
    }

    /// Returns the connection's side.
    pub fn pipe(&self) -> Option<Rc<BodyPipe>> {
        match &self.0 {
            BodySource::Empty => None,
            BodySource::Pipe(pipe) => Some(Rc::clone(pipe)),
        }
    }
}

impl BodyPipe {
    /// Creates a body of which nothing has arrived.
    pub fn new(announced_bytes: Option<u64>) -> Rc<Self> {
        Rc::new(Self { state: RefCell::default(), announced_bytes })
    }

    /// Returns whether the service waits for a piece.
    pub fn is_wanted(&self) -> bool {
        let state = self.state.borrow();
        state.reader.is_some() && state.piece.is_empty() && state.end.is_none()
    }

    /// Returns whether a piece waits to be read.
    #[inline]
    pub fn has_content(&self) -> bool {
        !self.state.borrow().piece.is_empty()
    }

    /// Hands over a piece. It is joined to the one before if that has not been read.
    pub fn push(&self, piece: Vec<u8>) {
        let mut state = self.state.borrow_mut();
        if piece.is_empty() {
            return;
        }
        if state.piece.is_empty() {
            state.piece = piece;
        } else {
            state.piece.extend_from_slice(&piece);
        }
        state.wake();
    }

    /// Returns the number of bytes that were read since this was asked last.
    pub fn take_read(&self) -> usize {
        std::mem::take(&mut self.state.borrow_mut().read_bytes)
    }

    /// Ends the body behind the piece that was handed over, unless it was refused.
    pub fn end_if_open(&self) {
        if self.state.borrow().end.is_none() {
            self.end(Ok(()));
        }
    }

    /// Ends the body behind the piece that was handed over.
    pub fn end(&self, result: Result<(), BodyError>) {
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
            BodySource::Pipe(pipe) => pipe,
        };
        let mut state = pipe.state.borrow_mut();
        if !state.piece.is_empty() {
            let piece = std::mem::take(&mut state.piece);
            state.read_bytes += piece.len();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))));
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
            BodySource::Pipe(pipe) => {
                let state = pipe.state.borrow();
                state.piece.is_empty() && state.end == Some(Ok(()))
            }
        }
    }

    /// The announced length until the body is read.
    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Empty => SizeHint::with_exact(0),
            BodySource::Pipe(pipe) => {
                let mut hint = SizeHint::default();
                hint.set_lower(pipe.announced_bytes.unwrap_or(0));
                hint
            }
        }
    }
}
