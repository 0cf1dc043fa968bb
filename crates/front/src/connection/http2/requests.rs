//! From the frames of a request to its service, and from what its client does to its end.

use std::rc::Rc;
use std::task::{Context, Poll};

use hotrow_answer::activity::Phase;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::{BodyError, BodyPipe, Request, RequestBody};
use hotrow_http1::error::{Malformed, ParseError};
use hotrow_http2::connection::RequestStart;
use hotrow_http2::error::ErrorCode;
use hotrow_http2::frame;
use hotrow_http2::head::{HeadFault, HeadText};
use hotrow_http2::hpack::encoder;
use hotrow_http2::streams::Slot;
use hotrow_measure::clock::Nanos;
use hotrow_net::stream::Stream;
use hotrow_telemetry::request::Protocol;
use tokio::time::Instant;

use super::answers::{FIRST_ERROR, ResponseStream};
use super::exchange::Exchange;
use super::work::{Upload, Work, WorkPhase};
use crate::connection::serve::{Serve, Served};

/// Places of streams that a connection keeps when none is open.
const WORKS_KEPT: usize = 4;

impl<T: Stream, S: Serve> Exchange<T, S> {
    /// Begins a request, whose head is complete.
    pub(crate) fn begin(&mut self, start: RequestStart, head: &HeadText, now: Nanos) {
        self.activity.request(Phase::Handling, self.worker.now.get());
        let to = ResponseStream {
            stream: start.stream,
            to_head: head.is_head_request(),
            is_receiving: start.has_content,
            slot: None,
        };
        match start.fault {
            None => {}
            Some(HeadFault::TooLarge) => return self.reject_start(Rejection::HeadBytes, to),
            Some(HeadFault::Target | HeadFault::Malformed) => {
                return self.reject_start(malformed(), to);
            }
        }
        let worker = Rc::clone(&self.worker);
        let limits = worker.parse_limits();
        let announced = head.content_length();
        let pipe = start.has_content.then(|| BodyPipe::new(announced));
        let text = head.text();
        let mut parser = worker.parser.take();
        let mut expects_continue = false;
        let served = match parser.parse(text, &limits) {
            Err(error) => Err(error.into()),
            // A head that ends early, or not at all, is none that its fields could make.
            Ok(bytes) if bytes != Some(text.len()) => Err(malformed()),
            Ok(_) => match parser.head(text, &limits) {
                Err(error) => Err(Rejection::from(error)),
                Ok(head) => {
                    expects_continue = head.expects_continue();
                    let body = pipe.as_ref().map(RequestBody::from_pipe).unwrap_or_default();
                    let (connection, protocol) = (&self.connection, Protocol::Http2);
                    Ok(self.service.serve(Request { head, body, connection, now, protocol }))
                }
            },
        };
        parser.reset();
        worker.parser.set(parser);
        match served {
            Ok(Served::Now(answer)) => {
                let status = self.answer(answer, to);
                self.end_start(status, to);
            }
            Ok(Served::Later(future)) => {
                let upload = pipe.map(|pipe| Upload {
                    pipe,
                    bytes_left: limits.body_bytes,
                    unread: 0,
                    expects_continue,
                    until: Some(Instant::now() + worker.limits().body_timeout),
                });
                let slot = self.http2.open(start.stream, announced, start.has_content);
                let phase = WorkPhase::Waiting(future);
                self.insert(slot, Work { to_head: to.to_head, phase, upload });
                self.readiness.mark(slot);
            }
            Ok(Served::Malformed) => self.reject_start(malformed(), to),
            Err(rejection) => self.reject_start(rejection, to),
        }
    }

    fn reject_start(&mut self, rejection: Rejection, to: ResponseStream) {
        let status = self.reject(rejection, to);
        self.end_start(status, to);
    }

    /// Ends a stream without a slot that was answered. `status` is `None` if the answer has opened
    /// one.
    fn end_start(&mut self, status: Option<u16>, to: ResponseStream) {
        let Some(status) = status.filter(|_| to.is_receiving) else { return };
        if status < FIRST_ERROR {
            let out = self.output.buffer();
            return self.http2.reset_at_once(to.stream, ErrorCode::NoError, out);
        }
        let slot = self.http2.open(to.stream, None, true);
        let phase = WorkPhase::dropping();
        self.insert(slot, Work { to_head: to.to_head, phase, upload: None });
    }

    /// Passes on, or drops, content of a request.
    pub(crate) fn content(&mut self, slot: Slot, bytes: &[u8], is_last: bool) {
        let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { return };
        if let WorkPhase::Dropping { bytes_left, .. } = &mut work.phase {
            let is_over = bytes.len() > *bytes_left;
            *bytes_left = bytes_left.saturating_sub(bytes.len());
            self.http2.read(slot, bytes.len(), self.output.buffer());
            if is_last {
                self.remove(slot);
                self.http2.close(slot);
            } else if is_over {
                self.remove(slot);
                self.http2.reset(slot, ErrorCode::NoError, self.output.buffer());
            }
            return;
        }
        let Some(upload) = &mut work.upload else {
            return self.http2.read(slot, bytes.len(), self.output.buffer());
        };
        upload.unread += bytes.len();
        match upload.bytes_left.checked_sub(bytes.len()) {
            Some(left) => {
                upload.bytes_left = left;
                upload.pipe.push(bytes.to_vec());
            }
            None => {
                upload.bytes_left = 0;
                upload.pipe.end(Err(BodyError::Refused(ParseError::BodyBytes)));
            }
        }
        if is_last {
            upload.until = None;
            upload.pipe.end_if_open();
        }
    }

    /// Polls the requests that can make progress.
    pub(super) fn poll_works(&mut self, cx: &mut Context<'_>) {
        if self.open_works == 0 {
            return;
        }
        self.readiness.register(cx.waker());
        for slot in self.readiness.take() {
            let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { continue };
            let WorkPhase::Waiting(future) = &mut work.phase else { continue };
            let waker = &self.wakers[slot];
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            self.note_read(slot);
            let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { continue };
            match polled {
                Poll::Ready(answer) => {
                    let stream = self.http2.id(slot).unwrap_or_default();
                    let to = ResponseStream::waiting(slot, stream, work.to_head);
                    self.answer(answer, to);
                }
                Poll::Pending => self.ask_for_content(slot),
            }
        }
    }

    /// Gives the client room for what its service has read.
    fn note_read(&mut self, slot: Slot) {
        let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(upload) = &mut work.upload else { return };
        let read = upload.pipe.take_read();
        if read > 0 {
            upload.unread -= read.min(upload.unread);
            self.http2.read(slot, read, self.output.buffer());
        }
    }

    /// Sends the status 100 if the client waits for it, and the service for content.
    fn ask_for_content(&mut self, slot: Slot) {
        let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(upload) = &mut work.upload else { return };
        if !upload.pipe.is_wanted() || !std::mem::take(&mut upload.expects_continue) {
            return;
        }
        if let Some(stream) = self.http2.id(slot)
            && self.http2.is_receiving(slot)
        {
            let out = self.output.buffer();
            let start = self.http2.begin_head(out);
            encoder::status(out, 100);
            frame::end_head(out, start, stream, false);
        }
    }

    /// Ends a stream whose client is late.
    pub(crate) fn expire(&mut self, slot: Slot) {
        let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { return };
        if work.is_dropping() {
            self.remove(slot);
            return self.http2.reset(slot, ErrorCode::NoError, self.output.buffer());
        }
        if let WorkPhase::Sending { content, .. } = &mut work.phase {
            content.body_mut().into_iter().for_each(S::note_stuck);
            self.remove(slot);
            return self.http2.reset(slot, ErrorCode::Cancel, self.output.buffer());
        }
        let stream = self.http2.id(slot).unwrap_or_default();
        let to = ResponseStream::waiting(slot, stream, work.to_head);
        self.reject(Rejection::BodyTime, to);
    }

    /// Adds a stream.
    pub(crate) fn insert(&mut self, slot: Slot, work: Work<S>) {
        while self.works.len() <= slot {
            self.wakers.push(self.readiness.waker(self.works.len()));
            self.works.push(None);
        }
        self.open_works += 1;
        self.sending += usize::from(work.is_sending());
        self.works[slot] = Some(work);
    }

    /// Drops a stream, with its request and its answer.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(work) = self.works.get_mut(slot).and_then(Option::take) else { return };
        self.open_works -= 1;
        self.sending -= usize::from(work.is_sending());
        if let Some(upload) = &work.upload {
            self.http2.give_back(upload.unread, self.output.buffer());
        }
        if self.open_works == 0 && self.works.len() > WORKS_KEPT {
            self.works = Vec::new();
            self.wakers = Vec::new();
        }
    }
}

fn malformed() -> Rejection {
    ParseError::Malformed(Malformed::Target).into()
}
