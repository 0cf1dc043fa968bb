//! Request of a stream: its head becomes one of HTTP/1.1 and is parsed as such.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hotrow_http1::error::{Malformed, ParseError};
use hotrow_measure::clock::Nanos;
use hotrow_supervisor::TaskGuard;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::answer::{AnswerBody, answer, rejected};
use super::streams::{OpenRequest, Streams};
use crate::connection::close::{LINGER, LINGER_BYTES};
use crate::connection::rejection::Rejection;
use crate::connection::request::{Protocol, Request, RequestBody, StreamBody};
use crate::connection::serve::{Serve, Served};
use crate::context::ConnectionContext;
use crate::metrics::CacheOutcome;

/// Service of the streams of one connection.
pub(super) struct StreamService<S> {
    inner: Rc<Inner<S>>,
}

struct Inner<S> {
    service: Rc<S>,
    connection: Rc<ConnectionContext>,
    streams: Rc<Streams>,
    /// Text of the head that is being read or written; at most about `limits.header_bytes`.
    head: Cell<Vec<u8>>,
}

/// An answer, at once or later.
pub(super) enum Answering<B> {
    /// `None`: it was taken.
    Now(Option<Response<AnswerBody<B>>>),
    Later(Pin<Box<dyn Future<Output = Response<AnswerBody<B>>>>>),
}

impl<S: Serve> StreamService<S> {
    pub(super) fn new(
        service: Rc<S>,
        connection: Rc<ConnectionContext>,
        streams: Rc<Streams>,
    ) -> Self {
        Self { inner: Rc::new(Inner { service, connection, streams, head: Cell::default() }) }
    }
}

impl<S: Serve> hyper::service::Service<http::Request<Incoming>> for StreamService<S> {
    type Response = Response<AnswerBody<S::Body>>;
    type Error = Infallible;
    type Future = Answering<S::Body>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let inner = &self.inner;
        let mut head = inner.head.take();
        head.clear();
        write_head(&parts, &mut head);
        let answering = inner.serve(&head, parts.method == Method::HEAD, body);
        inner.head.set(head);
        // Requests of several streams do not arrive as one turn.
        inner.service.turn_ended();
        answering
    }
}

impl<B> Future for Answering<B> {
    type Output = Result<Response<AnswerBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(response) => response.take().map_or(Poll::Pending, |r| Poll::Ready(Ok(r))),
            Self::Later(future) => future.as_mut().poll(cx).map(Ok),
        }
    }
}

impl<B> Unpin for Answering<B> {}

impl<S: Serve> Inner<S> {
    fn serve(self: &Rc<Self>, head: &[u8], to_head: bool, body: Incoming) -> Answering<S::Body> {
        let open = self.streams.begin();
        let worker = self.streams.worker();
        let limits = worker.parse_limits();
        let body = StreamBody::new(body, limits.body_bytes);
        let mut parser = worker.parser.take();
        let served = match parser.parse(head, &limits) {
            Err(error) => Err(error.into()),
            // A head that ends early, or not at all, is none that its parts could make.
            Ok(bytes) if bytes != Some(head.len()) => Err(malformed()),
            Ok(_) => match parser.head(head, &limits) {
                Err(error) => Err(Rejection::from(error)),
                Ok(head) => {
                    let connection = &self.connection;
                    let body = RequestBody::of_stream(&body);
                    let (now, protocol) = (Nanos::now(), Protocol::Http2);
                    let request = Request { head, body, connection, now, protocol };
                    Ok(self.service.serve(request))
                }
            },
        };
        parser.reset();
        worker.parser.set(parser);
        let answer = match served {
            Ok(Served::Later(future)) => {
                let inner = Rc::clone(self);
                return Answering::Later(Box::pin(inner.answer_later(future, to_head, open, body)));
            }
            Ok(Served::Now(ready)) => self.answer(ready, to_head, open),
            Ok(Served::Malformed) => self.reject(malformed(), to_head, open),
            Err(rejection) => self.reject(rejection, to_head, open),
        };
        drop_rest(body, answer.status());
        Answering::Now(Some(answer))
    }

    async fn answer_later(
        self: Rc<Self>,
        mut future: Pin<Box<dyn Future<Output = S::Answer>>>,
        to_head: bool,
        open: OpenRequest,
        body: StreamBody,
    ) -> Response<AnswerBody<S::Body>> {
        if !body.is_complete() {
            let limit = self.streams.worker().limits().body_timeout;
            match timeout(limit, future.as_mut()).await {
                Ok(ready) => {
                    let answer = self.answer(ready, to_head, open);
                    drop_rest(body, answer.status());
                    return answer;
                }
                Err(_) if !body.is_complete() => {
                    drop(future);
                    let answer = self.reject(Rejection::BodyTime, to_head, open);
                    drop_rest(body, answer.status());
                    return answer;
                }
                Err(_) => {}
            }
        }
        let answer = self.answer(future.await, to_head, open);
        drop_rest(body, answer.status());
        answer
    }

    fn answer(
        &self,
        ready: S::Answer,
        to_head: bool,
        open: OpenRequest,
    ) -> Response<AnswerBody<S::Body>> {
        let worker = self.streams.worker();
        let mut head = worker.take_output();
        let written = self.service.write_head(ready, &mut head);
        if written.closes {
            self.streams.close();
        }
        let answer = answer(&head, written, to_head, open);
        worker.give_output(head);
        answer
    }

    fn reject(
        &self,
        rejection: Rejection,
        to_head: bool,
        open: OpenRequest,
    ) -> Response<AnswerBody<S::Body>> {
        let worker = self.streams.worker();
        worker.metrics.refused(rejection);
        worker.metrics.answered(rejection.status(), CacheOutcome::None);
        self.service.rejected(rejection, &self.connection, Protocol::Http2);
        rejected(rejection, &worker.limits(), to_head, open)
    }
}

/// Reads and drops what still comes of a body behind an error, for a bounded time. Otherwise the
/// stream is reset behind the answer, and clients that still send may take the reset for it. Behind
/// any other answer it is reset at once: curl 7.88 would wait without end for a stream that it has
/// no reason to give up.
fn drop_rest(body: StreamBody, status: StatusCode) {
    if body.is_complete() || status.as_u16() < 400 {
        return;
    }
    spawn_local(async move {
        let _guard = TaskGuard::new();
        let mut left = LINGER_BYTES;
        let drop_pieces = poll_fn(|cx| {
            while left > 0 {
                match ready!(body.poll_piece(cx)) {
                    Some(piece) => left = left.saturating_sub(piece.len()),
                    None => break,
                }
            }
            Poll::Ready(())
        });
        // In both cases the stream ends now.
        let _ = timeout(LINGER, drop_pieces).await;
    });
}

fn malformed() -> Rejection {
    ParseError::Malformed(Malformed::Target).into()
}

/// Writes a head of HTTP/1.1 with the parts of a request. `h2` has refused what has no place in
/// one: fields of the connection, upper case, white space around values.
fn write_head(parts: &Parts, out: &mut Vec<u8>) {
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    match parts.uri.path_and_query() {
        // Its target is an authority (RFC 9113 section 8.5).
        None => out.extend_from_slice(parts.uri.authority().map_or("", |a| a.as_str()).as_bytes()),
        Some(path) => out.extend_from_slice(path.as_str().as_bytes()),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // A field that repeats the authority is the same; any other is a second host.
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    if let Some(authority) = authority {
        write_field("host", authority, out);
    }
    for (name, value) in &parts.headers {
        let repeats = |value: &HeaderValue| Some(value.as_bytes()) == authority;
        if name != HOST || !repeats(value) {
            write_field(name.as_str(), value.as_bytes(), out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: http::request::Builder) -> String {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        write_head(&parts, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_of_http_1_1_has_the_parts_of_a_request() {
        let get = http::Request::get("https://a.test:1/products/7?x=%2F&y");
        let plain = "GET /products/7?x=%2F&y HTTP/1.1\r\nhost: a.test:1\r\n";
        assert_eq!(head(get), format!("{plain}\r\n"));
        let get = http::Request::get("https://a.test:1/products/7?x=%2F&y");
        let get = get.header("host", "a.test:1").header("accept", "a").header("accept", "b");
        assert_eq!(head(get), format!("{plain}accept: a\r\naccept: b\r\n\r\n"));
        let two = http::Request::get("https://a.test/").header("host", "b.test");
        assert_eq!(head(two), "GET / HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\n\r\n");
        let none = http::Request::get("/").header("host", "b.test");
        assert_eq!(head(none), "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n");
        let options = http::Request::builder().method("OPTIONS").uri("*");
        assert_eq!(head(options), "OPTIONS * HTTP/1.1\r\n\r\n");
        let connect = http::Request::connect("a.test:443");
        assert_eq!(head(connect), "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n");
    }
}
