//! From the answer of a service to frames, as far as the client's windows allow.

use std::task::Context;

use bytes::Bytes;
use hotrow_answer::rejection::Rejection;
use hotrow_http2::error::ErrorCode;
use hotrow_http2::frame;
use hotrow_http2::hpack::encoder::{self, name};
use hotrow_http2::streams::Slot;
use hotrow_net::stream::Stream;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::Protocol;
use http_body::Body;
use tokio::time::Instant;

use super::exchange::Exchange;
use super::work::{Outgoing, Rest, Wait, Work, WorkPhase};
use crate::connection::close::{LINGER, LINGER_BYTES};
use crate::connection::serve::Serve;

/// Longest content that leaves at once with its head.
const AT_ONCE_BYTES_MAX: usize = 8 * 1024;
/// First status of an error. Behind one what the client still sends is dropped for a while.
pub(super) const FIRST_ERROR: u16 = 400;

/// Receiver of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseStream {
    pub(crate) stream: u32,
    pub(super) to_head: bool,
    /// Whether content of the request may still come.
    pub(super) is_receiving: bool,
    /// Place of the stream, if its request had to wait.
    pub(crate) slot: Option<Slot>,
}

impl ResponseStream {
    /// Returns the receiver of an answer that was waited for.
    pub(crate) fn waiting(slot: Slot, stream: u32, to_head: bool) -> Self {
        Self { stream, to_head, is_receiving: false, slot: Some(slot) }
    }
}

impl<S: Serve> WorkPhase<S> {
    /// Begins to drop what still comes.
    pub(super) fn dropping() -> Self {
        Self::Dropping { bytes_left: LINGER_BYTES, until: Instant::now() + LINGER }
    }
}

impl<T: Stream, S: Serve> Exchange<T, S> {
    /// Writes an answer. Returns its status if the stream has no slot, and all of it is written.
    pub(crate) fn answer(&mut self, answer: S::Answer, to: ResponseStream) -> Option<u16> {
        let before = self.output.len();
        let out = self.output.buffer();
        let start = self.http2.begin_head(out);
        let mut text = self.worker.head_text.take();
        let written = self.service.write_fields(answer, &mut text, out);
        self.worker.head_text.set(text);
        self.is_closing |= written.closes;
        let whole = S::whole(&written.body);
        let length = written.body_bytes(whole);
        let has_content = !matches!(written.status, 100..=199 | 204 | 304);
        if let Some(bytes) = length.filter(|_| has_content && !written.has_length) {
            encoder::field(out, name::CONTENT_LENGTH, itoa::Buffer::new().format(bytes).as_bytes());
        }
        encoder::field(out, name::DATE, &self.worker.date(self.worker.now.get()));
        let status = written.status;
        let is_empty = !has_content || to.to_head || written.body.is_end_stream();
        frame::end_head(out, start, to.stream, is_empty);
        let is_short = |bytes: &&[u8]| bytes.len() <= AT_ONCE_BYTES_MAX;
        let is_written = if is_empty {
            true
        } else if let Some(bytes) = whole.filter(is_short)
            && self.has_room(to, bytes.len())
        {
            self.put_whole(to, bytes);
            true
        } else {
            self.send(to, Outgoing::of_body(written.body), status);
            false
        };
        self.output.added(self.output.len() - before);
        self.end_answer(is_written, to, status)
    }

    /// Answers a request that no service has seen, or whose body did not arrive.
    pub(super) fn reject(&mut self, rejection: Rejection, to: ResponseStream) -> Option<u16> {
        let metrics = &self.worker.metrics;
        metrics.refused(rejection);
        metrics.answered(rejection.status(), CacheOutcome::None);
        self.service.rejected(rejection, &self.connection, Protocol::Http2);
        let text = rejection.problem(&self.worker.limits());
        let status = rejection.status();
        let out = self.output.buffer();
        let before = out.len();
        let start = self.http2.begin_head(out);
        encoder::status(out, status);
        encoder::field(out, name::CONTENT_TYPE, b"application/problem+json");
        let length = itoa::Buffer::new().format(text.len()).to_owned();
        encoder::field(out, name::CONTENT_LENGTH, length.as_bytes());
        if matches!(status, 429 | 503) {
            encoder::named_field(out, b"retry-after", b"1");
        }
        encoder::field(out, name::DATE, &self.worker.date(self.worker.now.get()));
        frame::end_head(out, start, to.stream, to.to_head);
        let is_written = to.to_head || self.has_room(to, text.len());
        if !to.to_head && is_written {
            self.put_whole(to, text.as_bytes());
        } else if !is_written {
            self.send(to, Outgoing::of_text(Bytes::from(text)), status);
        }
        self.output.added(self.output.len() - before);
        self.end_answer(is_written, to, status)
    }

    /// Returns whether content may leave at once, in one frame.
    fn has_room(&self, to: ResponseStream, bytes: usize) -> bool {
        match to.slot {
            Some(slot) => bytes <= self.http2.sendable(slot),
            None => self.http2.has_room(bytes),
        }
    }

    fn put_whole(&mut self, to: ResponseStream, bytes: &[u8]) {
        match to.slot {
            Some(slot) => self.http2.sent(slot, bytes.len()),
            None => self.http2.sent_at_once(bytes.len()),
        }
        frame::put_data(self.output.buffer(), to.stream, bytes, true);
    }

    /// Begins to send content for which there is no room, or which is long.
    fn send(&mut self, to: ResponseStream, content: Outgoing<S::Body>, status: u16) {
        let phase = WorkPhase::Sending { content, status, wait: Wait::None };
        let slot = to.slot.unwrap_or_else(|| self.http2.open(to.stream, None, to.is_receiving));
        if let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut)
            && let Some(upload) = work.upload.take()
        {
            // The service has read what it wants. The rest is dropped as it comes.
            self.http2.read(slot, upload.unread, self.output.buffer());
        }
        self.remove(slot);
        self.insert(slot, Work { to_head: to.to_head, phase, upload: None });
    }

    fn end_answer(&mut self, is_written: bool, to: ResponseStream, status: u16) -> Option<u16> {
        match (is_written, to.slot) {
            (true, Some(slot)) => self.end_work(slot, status),
            (true, None) => return Some(status),
            (false, _) => {}
        }
        None
    }

    /// Ends a stream whose answer is written.
    fn end_work(&mut self, slot: Slot, status: u16) {
        self.remove(slot);
        if !self.http2.is_receiving(slot) {
            return self.http2.close(slot);
        }
        if status < FIRST_ERROR {
            return self.http2.reset(slot, ErrorCode::NoError, self.output.buffer());
        }
        self.insert(slot, Work { to_head: false, phase: WorkPhase::dropping(), upload: None });
    }

    /// Adds content of answers in turn, a frame of each, as long as there is room. Returns whether
    /// any was added.
    pub(crate) fn fill(&mut self) -> bool {
        let mut is_any = false;
        let mut idle = 0;
        while self.sending > 0 && idle < self.works.len() && self.output.has_room() {
            let slot = self.next_to_send % self.works.len();
            self.next_to_send = slot + 1;
            let is_added = self.add_frame(slot);
            is_any |= is_added;
            idle = if is_added { 0 } else { idle + 1 };
        }
        is_any
    }

    /// Adds the next frame of a stream's content, if it may send one.
    fn add_frame(&mut self, slot: Slot) -> bool {
        let bytes_max = self.http2.sendable(slot);
        let Some(work) = self.works.get_mut(slot).and_then(Option::as_mut) else { return false };
        let WorkPhase::Sending { content, status, wait } = &mut work.phase else { return false };
        let status = *status;
        let Some(stream) = self.http2.id(slot) else { return false };
        let mut cx = Context::from_waker(&self.wakers[slot]);
        if bytes_max == 0 {
            // Whether its client is late depends on whether there is something to send.
            let is_late = match wait {
                Wait::None => true,
                Wait::Body => content.fetch(&mut cx),
                Wait::Window(_) => false,
            };
            if is_late {
                *wait = Wait::Window(Instant::now());
            }
            return false;
        }
        let out = self.output.buffer();
        let start = frame::begin_data(out);
        let rest = content.take(bytes_max, &mut cx, out);
        let bytes = out.len() - start - frame::HEADER_BYTES;
        if rest == Rest::Failed || (bytes == 0 && rest == Rest::Pending) {
            out.truncate(start);
        } else {
            frame::end_data(out, start, stream, rest == Rest::End);
            // Without the frame's header: a window of one byte must not count ten times.
            self.output.added(bytes);
            self.http2.sent(slot, bytes);
        }
        *wait = if rest == Rest::Pending { Wait::Body } else { Wait::None };
        match rest {
            Rest::More => true,
            Rest::Pending => bytes > 0,
            Rest::End => {
                self.end_work(slot, status);
                true
            }
            Rest::Failed => {
                self.remove(slot);
                self.http2.reset(slot, ErrorCode::Internal, self.output.buffer());
                true
            }
        }
    }
}
