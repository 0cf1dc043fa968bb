//! What a connection needs of a service, and the adapter for services that know only requests and
//! answers of the crate `http`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_admission::byte_budget::ByteBudget;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::{Request, RequestBody};
use hotrow_answer::written::Written;
use hotrow_http1::write;
use hotrow_http2::hpack::encoder;
use hotrow_measure::clock::Nanos;
use hotrow_resp::arguments::Arguments;
use hotrow_telemetry::request::Protocol;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::response::Parts;
use http::{Method, Response, Uri};
use http_body::Body;

use super::commands::{ClientSession, Replied};
use super::worker_context::WorkerContext;

/// Service of a worker. Made on the worker's thread; neither it nor its futures leave that thread.
pub trait Serve: 'static {
    /// An answer before it is written.
    type Answer: 'static;
    /// Its body.
    type Body: Body + Unpin + 'static;
    /// State of a client of the Redis protocol.
    type Session: ClientSession;

    /// Begins to answer a request.
    fn serve(self: &Rc<Self>, request: Request<'_>) -> Served<Self::Answer>;

    /// Writes the answer's status line and header fields to `out`, except for those that belong to
    /// the connection: `Content-Length`, `Date` and `Connection`.
    fn write_head(&self, answer: Self::Answer, out: &mut Vec<u8>) -> Written<Self::Body>;

    /// Writes the same as fields of HTTP/2, status first, to `out`. `text` is memory that is used
    /// again.
    fn write_fields(
        &self,
        answer: Self::Answer,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Self::Body> {
        text.clear();
        let written = self.write_head(answer, text);
        encoder::head(out, written.status, text);
        written
    }

    /// Returns the bytes of a body that is complete and in one piece; `None`: it comes by frames.
    fn whole(_: &Self::Body) -> Option<&[u8]> {
        None
    }

    /// Called before a body without an end is dropped because its client takes nothing of it.
    fn note_stuck(_: &mut Self::Body) {}

    /// Called when a request is answered without the service, which did not see it.
    fn rejected(&self, _: Rejection, _: &Rc<ConnectionContext>, _: Protocol) {}

    /// Called when all requests that arrived together have been passed to [`Serve::serve`].
    fn turn_ended(&self) {}

    /// Begins to answer a command of the Redis protocol, which arrived before `now`, and writes the
    /// reply to `out` as far as it is ready. Only the data side has such clients.
    fn command(
        self: &Rc<Self>,
        _: Arguments<'_>,
        _: &Rc<Self::Session>,
        _now: Nanos,
        out: &mut Vec<u8>,
    ) -> Replied {
        hotrow_resp::write::error(out, "ERR this address serves no commands");
        Replied::Last
    }

    /// Called when input of a client of the Redis protocol is refused without the service, which
    /// did not see it. `status`: that of the same refusal over HTTP.
    fn input_refused(&self, _: &Self::Session, _status: u16) {}

    /// Returns the budget of commands that have not arrived in full; `None`: they may not be large.
    fn input_budget(&self) -> Option<Arc<ByteBudget>> {
        None
    }

    /// Runs beside the connections of the worker, on its thread, as long as it serves: takes over
    /// changes of the configuration.
    fn attend(
        self: Rc<Self>,
        worker: Rc<WorkerContext>,
    ) -> Pin<Box<dyn Future<Output = Infallible>>> {
        drop(worker);
        Box::pin(std::future::pending())
    }
}

/// First step of an answer.
pub enum Served<A> {
    /// The answer is ready.
    Now(A),
    /// It needs more than memory.
    Later(Pin<Box<dyn Future<Output = A>>>),
    /// The method or the target is not one that this service can read.
    Malformed,
}

/// A service that takes its requests with copied heads and always waits.
pub trait HttpService: 'static {
    /// Body of an answer.
    type Body: Body + Unpin + 'static;

    /// Answers a request.
    fn call(
        &self,
        request: http::Request<RequestBody>,
    ) -> Pin<Box<dyn Future<Output = Response<Self::Body>>>>;
}

impl<S: HttpService> Serve for S {
    type Answer = Response<S::Body>;
    type Body = S::Body;
    type Session = ();

    fn serve(self: &Rc<Self>, request: Request<'_>) -> Served<Self::Answer> {
        match copied(request) {
            Some(request) => Served::Later(self.call(request)),
            None => Served::Malformed,
        }
    }

    fn write_head(&self, answer: Self::Answer, out: &mut Vec<u8>) -> Written<S::Body> {
        write_response(answer, out)
    }
}

/// Copies the head into the types of the crate `http`, which are narrower than a valid head.
fn copied(request: Request<'_>) -> Option<http::Request<RequestBody>> {
    let head = &request.head;
    let mut copy = http::Request::new(request.body);
    *copy.method_mut() = Method::from_bytes(head.method()).ok()?;
    *copy.uri_mut() = head.target().parse::<Uri>().ok()?;
    for (name, value) in head.fields().iter() {
        let name = http::HeaderName::from_bytes(name).ok()?;
        copy.headers_mut().append(name, http::HeaderValue::from_bytes(value).ok()?);
    }
    Some(copy)
}

/// Writes the head of an answer of the crate `http`.
pub fn write_response<B>(answer: Response<B>, out: &mut Vec<u8>) -> Written<B> {
    let (Parts { status, headers, .. }, body) = answer.into_parts();
    write::status_line(out, status.as_u16(), status.canonical_reason().unwrap_or(""));
    let (mut closes, mut has_length) = (false, false);
    for (name, value) in &headers {
        closes |= name == CONNECTION && value.as_bytes().eq_ignore_ascii_case(b"close");
        has_length |= name == CONTENT_LENGTH;
        write::field(out, name.as_str(), value.as_bytes());
    }
    Written { status: status.as_u16(), closes, has_length, body }
}
