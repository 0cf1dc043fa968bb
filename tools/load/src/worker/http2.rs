//! Requests and responses on HTTP/2 connections.
//!
//! A permit is room for one stream. If the server allows fewer streams than there are permits,
//! slots wait on their connection, unsent, and their latency counts from their intended time.

use hotrow_transport::explain::NO_HTTP2;
use hotrow_transport::tls::HttpVersion;

use super::Worker;
use crate::connection::{ConnectionPhase, WaitingSlot};
use crate::http2::{FinishedStream, Http2Session, StreamFailure, StreamRoom};
use crate::response::Response;
use crate::sent_request::SentRequest;
use crate::tally::RequestFailure;

/// Message for a connection that ended before the server's settings arrived.
const NO_SETTINGS: &str = "the server closed the connection instead of speaking HTTP/2; does it \
                           accept HTTP/2 here?";

impl Worker {
    /// Sends the preface on a connection whose socket, and TLS, are open. It opens when the
    /// server's settings arrive.
    pub(super) fn begin_http2(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(stream) = &connection.stream else { return };
        if self.config.tls.is_some() && stream.alpn() != Some(HttpVersion::Http2.alpn()) {
            self.connect_failed(index, NO_HTTP2);
            return;
        }
        match Http2Session::new(self.config.depth) {
            Ok(session) => {
                connection.http2 = Some(Box::new(session));
                self.advance_http2(index);
                // The settings may have come with the end of the handshake.
                self.receive(index);
            }
            Err(why) => self.connect_failed(index, &why),
        }
    }

    /// Handles received bytes.
    pub(super) fn consume_http2(&mut self, index: usize, bytes: &[u8], now_ns: u64) {
        let Some(session) = &mut self.connections[index].http2 else { return };
        if !session.receive(bytes) {
            self.tally.failure_message("the server sends without reading".to_owned());
            self.fail_connection(index, RequestFailure::Malformed, now_ns);
            return;
        }
        self.advance_http2(index);
    }

    /// Handles the end of the server's bytes.
    pub(super) fn http2_ended(&mut self, index: usize) {
        if let Some(session) = &mut self.connections[index].http2 {
            session.receive_end();
        }
        self.advance_http2(index);
        // The protocol reports an end at once; without a report the connection is of no use.
        if self.connections[index].http2.is_some() {
            self.close_http2(index, None);
        }
    }

    /// Lets the protocol handle what was received and sent; writes, and accounts for the streams
    /// that have ended.
    pub(super) fn advance_http2(&mut self, index: usize) {
        let mut finished = std::mem::take(&mut self.finished);
        loop {
            let now_ns = self.now_ns();
            let connection = &mut self.connections[index];
            let Some(session) = &mut connection.http2 else { break };
            session.drive(now_ns, &mut finished);
            for stream in finished.drain(..) {
                self.stream_finished(index, stream, now_ns);
            }
            match self.write_http2(index, now_ns) {
                None => break,
                Some(true) => {}
                Some(false) if self.settle_http2(index) => {}
                Some(false) => break,
            }
        }
        self.finished = finished;
    }

    /// Writes the protocol's bytes as far as the socket accepts them; returns `None` if the
    /// connection has failed, and true if the protocol had to wait and can go on.
    fn write_http2(&mut self, index: usize, now_ns: u64) -> Option<bool> {
        let counts = self.began && now_ns >= self.schedule.warmup_ns();
        let mut was_full = false;
        loop {
            if let Err(error) = self.write_out(index) {
                self.failed(index, &error);
                return None;
            }
            let connection = &mut self.connections[index];
            let mut pipe = connection.http2.as_ref()?.pipe();
            // What the socket does not accept stays in the pipe, which is bounded.
            if !connection.out.is_empty() || pipe.out.is_empty() {
                return Some(was_full && connection.out.is_empty());
            }
            was_full |= pipe.is_full();
            connection.out.push(&pipe.out, None, 0);
            if counts {
                self.tally.transmitted(pipe.out.len());
            }
            pipe.out.clear();
        }
    }

    /// Opens a connection whose settings have arrived, closes one that has ended, and sends waiting
    /// slots; returns true if the protocol has more to do.
    fn settle_http2(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let Some(session) = &mut connection.http2 else { return false };
        if let Some(failure) = session.ended() {
            let failure = failure.map(str::to_owned);
            self.close_http2(index, failure);
            return false;
        }
        if matches!(connection.phase, ConnectionPhase::Connecting { .. }) {
            if session.is_open() {
                self.opened(index);
                return true;
            }
            return false;
        }
        if session.room() == StreamRoom::Ending && session.in_flight() == 0 {
            self.close_http2(index, None);
            return false;
        }
        if connection.waiting.is_empty() || session.room() != StreamRoom::Free {
            return false;
        }
        self.send_waiting(index);
        true
    }

    /// Closes an ended connection: its unanswered requests are lost; slots that wait open it again.
    fn close_http2(&mut self, index: usize, failure: Option<String>) {
        let connection = &mut self.connections[index];
        if matches!(connection.phase, ConnectionPhase::Connecting { .. }) {
            let words = failure.unwrap_or_else(|| NO_SETTINGS.to_owned());
            self.connect_failed(index, &words);
            return;
        }
        if connection.is_awaiting() {
            let words = failure
                .unwrap_or_else(|| "the server closed the connection without an answer".to_owned());
            self.tally.failure_message(words);
        }
        let now_ns = self.now_ns();
        self.fail_connection(index, RequestFailure::Closed, now_ns);
        let connection = &self.connections[index];
        if !connection.waiting.is_empty() && connection.phase == ConnectionPhase::Closed {
            self.open(index, now_ns);
        }
    }

    /// Sends slots that wait, as far as streams are free. The caller advances the protocol.
    pub(super) fn send_waiting(&mut self, index: usize) {
        loop {
            let now_ns = self.now_ns();
            let connection = &mut self.connections[index];
            let Some(session) = &mut connection.http2 else { return };
            if session.room() != StreamRoom::Free {
                return;
            }
            let Some(waiting) = connection.waiting.pop_front() else { return };
            self.begin_stream(index, waiting, now_ns, false);
        }
    }

    /// Sends a request, or lets it wait for a stream.
    pub(super) fn send_http2(
        &mut self,
        index: usize,
        waiting: WaitingSlot,
        now_ns: u64,
        own_lag: bool,
    ) {
        let connection = &mut self.connections[index];
        let Some(session) = &mut connection.http2 else { return };
        match session.room() {
            StreamRoom::Free if connection.waiting.is_empty() => {
                self.begin_stream(index, waiting, now_ns, own_lag)
            }
            StreamRoom::Limited(allowed) => {
                connection.waiting.push_back(waiting);
                if !std::mem::replace(&mut connection.limit_reported, true) {
                    self.tally.failure_message(format!(
                        "the server allows {allowed} streams at a time on a connection; requests \
                         waited for one"
                    ));
                }
            }
            StreamRoom::Free | StreamRoom::Ending => connection.waiting.push_back(waiting),
        }
        if !self.gathering {
            self.advance_http2(index);
        }
    }

    fn begin_stream(&mut self, index: usize, waiting: WaitingSlot, now_ns: u64, own_lag: bool) {
        let connection = &mut self.connections[index];
        let Some(session) = &mut connection.http2 else { return };
        let prepared = self.requests.next_http2();
        let idempotent = prepared.as_ref().is_some_and(|prepared| prepared.idempotent);
        let sent = SentRequest {
            slot: waiting.slot,
            sent_ns: now_ns,
            first_byte_ns: 0,
            idempotent,
            has_body: true,
        };
        match waiting.sent {
            None => self.tally.sent(waiting.slot, now_ns, 0, own_lag),
            Some(_) => self.tally.resent(waiting.slot, 0),
        }
        let begun = match prepared {
            Some(prepared) => session.send(prepared.request, sent),
            None => Err("an id makes no valid path".to_owned()),
        };
        if let Err(why) = begun {
            self.tally.failure_message(why);
            self.tally.lost(&sent, RequestFailure::Closed, now_ns);
            self.release(index, now_ns);
        }
    }

    /// Accounts for a stream that has ended.
    fn stream_finished(&mut self, index: usize, stream: FinishedStream, now_ns: u64) {
        let FinishedStream { sent, outcome } = stream;
        let connection = &mut self.connections[index];
        let (failure, why) = match outcome {
            Ok(status) => {
                connection.answers += 1;
                self.tally.answered(&sent, Response { status, keep: true }, now_ns);
                if self.burn_ns > 0 {
                    self.burn();
                }
                self.release(index, now_ns);
                return;
            }
            Err(failure) => failure,
        };
        // Each connection answers at least one, so this ends.
        if failure == StreamFailure::NotProcessed && connection.answers > 0 {
            connection.waiting.push_back(WaitingSlot { slot: sent.slot, sent: Some(sent) });
            return;
        }
        self.tally.failure_message(why);
        self.tally.lost(&sent, failure.into(), now_ns);
        self.release(index, now_ns);
    }

    /// Abandons the streams past their time-out; the others continue.
    pub(super) fn time_out_streams(&mut self, index: usize, now_ns: u64) {
        let Some(session) = &mut self.connections[index].http2 else { return };
        for sent in session.abandon_sent_before(now_ns.saturating_sub(self.timeout_ns)) {
            self.tally.timed_out(&sent, now_ns);
            self.release(index, now_ns);
        }
        self.advance_http2(index);
    }
}

impl From<StreamFailure> for RequestFailure {
    fn from(failure: StreamFailure) -> Self {
        match failure {
            StreamFailure::NotProcessed | StreamFailure::GoAway => Self::GoAway,
            StreamFailure::Refused => Self::RefusedStream,
            StreamFailure::Reset => Self::StreamReset,
            StreamFailure::Closed => Self::Closed,
            StreamFailure::Malformed => Self::Malformed,
        }
    }
}
