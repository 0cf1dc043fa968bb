//! One HTTP/2 connection of a worker, without I/O: bytes in, bytes out, and the outcome of each
//! stream. The protocol itself is the crate `h2`, whose futures the worker polls when bytes have
//! arrived or requests were sent; there is no runtime.
//!
//! A request is sent only while the server allows another stream, so that no request waits where
//! the worker does not see it. Receive windows are so large, and given back at once, that they
//! never hold a response back.

mod pipe;
mod wake;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::RecvStream;
use h2::client::{Connection, ResponseFuture, SendRequest};

use crate::sent_request::SentRequest;
use pipe::{Pipe, PipeEnd};
use wake::{Flag, StreamWaker, WokenStreams};

/// Most streams of one connection.
pub const STREAMS_MAX: usize = 1000;
/// Receive window of each stream, in bytes.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
/// Receive window of the connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// Longest list of response headers, in bytes.
const HEADERS_BYTES_MAX: u32 = crate::response::malformed::HEAD_BYTES_MAX as u32;

/// A request as HTTP/2 sends it.
#[derive(Debug)]
pub(crate) struct Http2Request {
    pub(crate) head: http::Request<()>,
    pub(crate) body: Option<Bytes>,
}

/// Whether a request can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamRoom {
    /// A stream is free.
    Free,
    /// All streams are in use: the server allows this many.
    Limited(usize),
    /// The connection takes no new stream: the server has announced its end, or it has failed.
    Ending,
}

/// The ways in which a stream can end without a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFailure {
    /// GOAWAY without an error: the server has not processed it, and it may be sent again.
    NotProcessed,
    /// GOAWAY with an error.
    GoAway,
    /// `RST_STREAM` with `REFUSED_STREAM`.
    Refused,
    /// `RST_STREAM` with another reason.
    Reset,
    /// The connection ended.
    Closed,
    /// The response violates HTTP/2.
    Malformed,
}

/// A finished stream.
#[derive(Debug)]
pub(crate) struct FinishedStream {
    pub(crate) sent: SentRequest,
    /// The status of a complete response.
    pub(crate) outcome: Result<u16, (StreamFailure, String)>,
}

/// One connection.
pub(crate) struct Http2Session {
    connection: Connection<PipeEnd, Bytes>,
    requests: SendRequest<Bytes>,
    pipe: Arc<Mutex<Pipe>>,
    slots: Vec<StreamSlot>,
    free: Vec<u32>,
    woken: Arc<WokenStreams>,
    /// Set when the connection must be polled again.
    again: Arc<Flag>,
    waker: Waker,
    ended: Option<SessionEnd>,
}

/// The end of a connection.
#[derive(Debug)]
struct SessionEnd {
    /// The failure in words; nothing if the end was orderly.
    failure: Option<String>,
    /// True if the server gave an error as its reason.
    goaway: bool,
}

/// A place for one stream. Its waker is made once.
struct StreamSlot {
    waker: Waker,
    exchange: Option<Exchange>,
}

struct Exchange {
    sent: SentRequest,
    stage: Stage,
}

enum Stage {
    Head(ResponseFuture),
    Body { status: u16, body: RecvStream },
}

impl Http2Session {
    /// Begins a connection with at most this many streams; the preface is ready to be written.
    ///
    /// # Errors
    /// The reason the protocol cannot begin, in words.
    pub(crate) fn new(streams: usize) -> Result<Self, String> {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        let again = Arc::new(Flag::default());
        let waker = Waker::from(again.clone());
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADERS_BYTES_MAX)
            // No request may be sent before the server has stated its limit.
            .initial_max_send_streams(0);
        let mut handshake = Box::pin(builder.handshake(PipeEnd(pipe.clone())));
        // The preface fits into the pipe, so that one poll completes this.
        let begun = handshake.as_mut().poll(&mut Context::from_waker(&waker));
        let (requests, connection) = match begun {
            Poll::Ready(begun) => begun.map_err(|error| error.to_string())?,
            Poll::Pending => return Err("the HTTP/2 preface could not be prepared".to_owned()),
        };
        let woken = Arc::new(WokenStreams::default());
        let slot = |index: u32| StreamSlot {
            waker: Waker::from(Arc::new(StreamWaker::new(index, woken.clone()))),
            exchange: None,
        };
        let slots = (0..streams as u32).map(slot).collect();
        let free = (0..streams as u32).rev().collect();
        drop(handshake);
        Ok(Self { connection, requests, pipe, slots, free, woken, again, waker, ended: None })
    }

    /// Returns whether the server has stated its limits, so that requests can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.requests.current_max_send_streams() > 0
    }

    /// Returns the number of streams without a complete response.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the requests without a complete response.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &SentRequest> {
        self.slots.iter().filter_map(|slot| slot.exchange.as_ref().map(|exchange| &exchange.sent))
    }

    /// Returns the end of the connection: the failure in words, or nothing if it was orderly.
    pub(crate) fn ended(&self) -> Option<Option<&str>> {
        self.ended.as_ref().map(|end| end.failure.as_deref())
    }

    /// Adds received bytes; returns false if the connection is too far behind to take them.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> bool {
        self.pipe().receive(bytes)
    }

    /// Marks the end of the server's bytes.
    pub(crate) fn receive_end(&mut self) {
        self.pipe().receive_end();
    }

    /// Returns the bytes to be written, to be cleared as far as they are.
    pub(crate) fn pipe(&self) -> MutexGuard<'_, Pipe> {
        // Only this thread uses it, and no operation on it panics.
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether another request can be sent.
    pub(crate) fn room(&mut self) -> StreamRoom {
        if self.ended.is_some() {
            return StreamRoom::Ending;
        }
        match self.requests.poll_ready(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(Err(_)) => StreamRoom::Ending,
            Poll::Ready(Ok(())) => {
                let allowed = self.requests.current_max_send_streams().min(self.slots.len());
                let room = self.in_flight() < allowed;
                if room { StreamRoom::Free } else { StreamRoom::Limited(allowed) }
            }
            Poll::Pending => StreamRoom::Limited(self.in_flight()),
        }
    }

    /// Sends a request, for which there must be [`StreamRoom::Free`].
    ///
    /// # Errors
    /// The reason it could not be sent, in words.
    pub(crate) fn send(&mut self, request: Http2Request, sent: SentRequest) -> Result<(), String> {
        let Some(index) = self.free.pop() else { return Err("no stream is free".to_owned()) };
        let end_of_stream = request.body.is_none();
        let begun = self.requests.send_request(request.head, end_of_stream);
        let sending = begun.and_then(|(response, mut stream)| {
            // The whole body is given to the library, which sends it as the server's window allows.
            request.body.map_or(Ok(()), |body| stream.send_data(body, true))?;
            Ok(response)
        });
        match sending {
            Ok(response) => {
                let slot = &mut self.slots[index as usize];
                slot.exchange = Some(Exchange { sent, stage: Stage::Head(response) });
                // Its first poll registers the waker.
                self.woken.push(index);
                Ok(())
            }
            Err(error) => {
                self.free.push(index);
                Err(error.to_string())
            }
        }
    }

    /// Advances the connection with the bytes received so far and adds the streams that have ended.
    pub(crate) fn drive(&mut self, now_ns: u64, finished: &mut Vec<FinishedStream>) {
        let mut indexes = Vec::new();
        loop {
            self.again.0.store(false, Ordering::Relaxed);
            if self.ended.is_none() {
                let context = &mut Context::from_waker(&self.waker);
                match Pin::new(&mut self.connection).poll(context) {
                    Poll::Pending => {}
                    Poll::Ready(end) => {
                        let error = end.err();
                        self.ended = Some(SessionEnd {
                            goaway: error.as_ref().is_some_and(|e| e.is_go_away() && e.is_remote()),
                            failure: error.map(|e| e.to_string()),
                        });
                    }
                }
            }
            self.woken.take(&mut indexes);
            for index in indexes.drain(..) {
                if let Some(stream) = self.advance(index, now_ns) {
                    self.free.push(index);
                    finished.push(stream);
                }
            }
            let again = self.again.0.load(Ordering::Relaxed) && self.ended.is_none();
            if !again && self.woken.is_empty() {
                return;
            }
        }
    }

    /// Abandons requests that were sent before a time; the server gets `RST_STREAM`.
    pub(crate) fn abandon_sent_before(&mut self, before_ns: u64) -> Vec<SentRequest> {
        let mut abandoned = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(old) = slot.exchange.take_if(|e| e.sent.sent_ns <= before_ns) {
                abandoned.push(old.sent);
                self.free.push(index as u32);
            }
        }
        abandoned
    }

    /// Polls a stream; returns it when it has ended.
    fn advance(&mut self, index: u32, now_ns: u64) -> Option<FinishedStream> {
        let slot = self.slots.get_mut(index as usize)?;
        let mut context = Context::from_waker(&slot.waker);
        let exchange = slot.exchange.as_mut()?;
        let outcome = match exchange.poll(&mut context, now_ns) {
            Poll::Pending => return None,
            Poll::Ready(Ok(status)) => Ok(status),
            Poll::Ready(Err(error)) => Err(match (failure(&error), &self.ended) {
                // The stream was lost because of the reason that the server has given before.
                (StreamFailure::Closed, Some(SessionEnd { goaway: true, failure })) => {
                    (StreamFailure::GoAway, failure.clone().unwrap_or_default())
                }
                (failure, _) => (failure, error.to_string()),
            }),
        };
        slot.exchange.take().map(|exchange| FinishedStream { sent: exchange.sent, outcome })
    }
}

impl Exchange {
    /// Returns the status when the response is complete.
    fn poll(&mut self, context: &mut Context<'_>, now_ns: u64) -> Poll<Result<u16, h2::Error>> {
        loop {
            match &mut self.stage {
                Stage::Head(response) => {
                    let response = std::task::ready!(Pin::new(response).poll(context))?;
                    self.sent.first_byte_ns = now_ns.max(1);
                    let status = response.status().as_u16();
                    let body = response.into_body();
                    if body.is_end_stream() {
                        return Poll::Ready(Ok(status));
                    }
                    self.stage = Stage::Body { status, body };
                }
                Stage::Body { status, body } => {
                    match std::task::ready!(body.poll_data(context)) {
                        Some(piece) => {
                            let length = piece?.len();
                            // The connection may have ended, which the next poll reports.
                            let _ = body.flow_control().release_capacity(length);
                        }
                        None => {
                            std::task::ready!(body.poll_trailers(context))?;
                            return Poll::Ready(Ok(*status));
                        }
                    }
                }
            }
        }
    }
}

fn failure(error: &h2::Error) -> StreamFailure {
    if error.is_io() {
        StreamFailure::Closed
    } else if error.is_go_away() && error.is_remote() {
        let orderly = error.reason() == Some(Reason::NO_ERROR);
        if orderly { StreamFailure::NotProcessed } else { StreamFailure::GoAway }
    } else if error.is_reset() && error.is_remote() {
        let refused = error.reason() == Some(Reason::REFUSED_STREAM);
        if refused { StreamFailure::Refused } else { StreamFailure::Reset }
    } else {
        StreamFailure::Malformed
    }
}

impl std::fmt::Debug for Http2Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Session").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
