//! Answer of a stream: its head, made of the one that the service writes, and its body, which notes
//! what the client has taken.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::streams::{OpenRequest, Untaken};
use crate::config::Limits;
use crate::connection::rejection::Rejection;
use crate::connection::serve::Written;

/// Fields for which a table of 16 places is made: more would double it.
const FIELDS_USUAL: usize = 12;

/// Body of an answer.
pub(super) struct AnswerBody<B> {
    content: Content<B>,
    /// `None`: nothing is to be taken.
    untaken: Option<Rc<Untaken>>,
}

enum Content<B> {
    Empty,
    Bytes(Bytes),
    Service(B),
}

/// The body of an answer failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body of an answer failed")]
pub(super) struct BodyFailed;

/// Makes the answer of the head that a service wrote to `head` and of what follows from it.
pub(super) fn answer<B: Body>(
    head: &[u8],
    written: Written<B>,
    to_head: bool,
    request: OpenRequest,
) -> Response<AnswerBody<B>> {
    let has_content = !matches!(written.status, 100..=199 | 204 | 304);
    let length = written.body.size_hint().exact();
    let mut headers = fields(head);
    if let Some(length) = length.filter(|_| has_content && !written.has_length) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    let content = if has_content && !to_head && !written.body.is_end_stream() {
        Content::Service(written.body)
    } else {
        drop(written.body);
        request.give_back();
        Content::Empty
    };
    let mut response = Response::new(AnswerBody::new(content, request));
    // The status of a head that was written is a valid one.
    *response.status_mut() =
        StatusCode::from_u16(written.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// Makes the answer to a request that no service has seen.
pub(super) fn rejected<B>(
    rejection: Rejection,
    limits: &Limits,
    to_head: bool,
    request: OpenRequest,
) -> Response<AnswerBody<B>> {
    let text = rejection.problem(limits);
    let length = text.len();
    let content = if to_head { Content::Empty } else { Content::Bytes(text.into()) };
    let mut response = Response::new(AnswerBody::new(content, request));
    *response.status_mut() =
        StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CONTENT_LENGTH, length.into());
    if matches!(rejection.status(), 429 | 503) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Parses the fields of a head that this process has written. `hyper` removes those that belong to
/// the connection. The values share one allocation.
fn fields(head: &[u8]) -> HeaderMap {
    let head = Bytes::copy_from_slice(head);
    let mut headers = HeaderMap::with_capacity(FIELDS_USUAL);
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = head.slice_ref(line[colon + 1..].trim_ascii());
        if let Some(name) = name(&line[..colon])
            && let Ok(value) = HeaderValue::from_maybe_shared(value)
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Returns the name of a field. Those of a record's answer take no allocation.
fn name(name: &[u8]) -> Option<HeaderName> {
    let name = match name {
        b"hotrow-cache" => HeaderName::from_static("hotrow-cache"),
        b"hotrow-position" => HeaderName::from_static("hotrow-position"),
        _ => return HeaderName::from_bytes(name).ok(),
    };
    Some(name)
}

impl<B> AnswerBody<B> {
    fn new(content: Content<B>, request: OpenRequest) -> Self {
        let untaken = match &content {
            // Nothing follows the head: the request ends here.
            Content::Empty => None,
            Content::Bytes(_) | Content::Service(_) => Some(request.into_untaken()),
        };
        Self { content, untaken }
    }

    /// Drops the content. Its reservation stays until the client has taken the pieces.
    fn end(&mut self) {
        self.content = Content::Empty;
        if let Some(untaken) = self.untaken.take() {
            untaken.keep_reservations();
        }
    }
}

impl<B> Drop for AnswerBody<B> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = Taken<B::Data>;
    type Error = BodyFailed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BodyFailed>>> {
        let piece = match &mut self.content {
            Content::Empty => None,
            Content::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                self.content = Content::Empty;
                Some(Piece::Bytes(bytes))
            }
            Content::Service(body) => loop {
                match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) if data.has_remaining() => break Some(Piece::Service(data)),
                        // No service has trailers.
                        Ok(_) | Err(_) => {}
                    },
                    Some(Err(_)) => return Poll::Ready(Some(Err(BodyFailed))),
                    None => break None,
                }
            },
        };
        let Some(piece) = piece else {
            self.end();
            return Poll::Ready(None);
        };
        let untaken = self.untaken.clone();
        Poll::Ready(Some(Ok(Frame::data(Taken { piece, untaken }))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::Service(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Service(body) => body.size_hint(),
        }
    }
}

/// A piece of a body on its way to the socket, which notes how far it has come.
pub(super) struct Taken<D> {
    piece: Piece<D>,
    untaken: Option<Rc<Untaken>>,
}

enum Piece<D> {
    Bytes(Bytes),
    Service(D),
}

impl<D: Buf> Buf for Taken<D> {
    fn remaining(&self) -> usize {
        match &self.piece {
            Piece::Bytes(bytes) => bytes.remaining(),
            Piece::Service(data) => data.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.piece {
            Piece::Bytes(bytes) => bytes.chunk(),
            Piece::Service(data) => data.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.piece {
            Piece::Bytes(bytes) => bytes.advance(count),
            Piece::Service(data) => data.advance(count),
        }
        if let Some(untaken) = &self.untaken {
            untaken.took(count);
        }
    }
}
