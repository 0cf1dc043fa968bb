//! Sending requests, receiving responses, and failed requests.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::connect::words;
use super::{READS_MAX, Worker};
use crate::connection::{ConnectionPhase, WaitingSlot};
use crate::plan::Slot;
use crate::response::{Response, StreamEnd};
use crate::sent_request::SentRequest;
use crate::stream::{ReadResult, StreamError};
use crate::tally::RequestFailure;

/// Message for bytes that belong to no request.
const UNEXPECTED_BYTES: &str =
    "the server sent bytes after a complete answer: is its Content-Length right?";

impl Worker {
    /// Handles an event of a socket.
    pub(super) fn event(&mut self, index: usize, generation: u32, flags: EventFlags) {
        let connection = &mut self.connections[index];
        // An event of a socket that has been closed.
        if connection.generation != generation {
            return;
        }
        connection.ending |=
            flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            ConnectionPhase::Connecting { .. } => self.continue_connecting(index),
            ConnectionPhase::Open if flags.contains(EventFlags::OUT) => self.flush(index),
            ConnectionPhase::Open
            | ConnectionPhase::Closed
            | ConnectionPhase::BackingOff { .. } => {}
        }
        // A connection may open and end in one event, which is not reported again.
        let connection = &self.connections[index];
        let still =
            connection.generation == generation && connection.phase == ConnectionPhase::Open;
        if still && (connection.ending || flags.contains(EventFlags::IN)) {
            self.receive(index);
        }
    }

    /// Reads until the socket is empty, or other connections must get their turn.
    pub(super) fn receive(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let generation = self.connections[index].generation;
        let mut reads = 0;
        while self.connections[index].generation == generation {
            if reads == READS_MAX {
                self.postpone(index);
                break;
            }
            reads += 1;
            let Some(stream) = &mut self.connections[index].stream else { break };
            match stream.read(&mut buffer) {
                Ok(ReadResult::Bytes { n, drained }) => {
                    let now_ns = self.now_ns();
                    self.consume(index, &buffer[..n], now_ns);
                    // No further event follows an announced end: read on until it comes.
                    if drained && !self.connections[index].ending {
                        break;
                    }
                }
                Ok(ReadResult::Blocked) => break,
                Ok(ReadResult::End) => self.stream_ended(index, false),
                Ok(ReadResult::Truncated) => self.stream_ended(index, true),
                Err(error) => self.failed(index, &error),
            }
        }
        self.buffer = buffer;
    }

    /// Adds the connection to the list, once.
    fn postpone(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !std::mem::replace(&mut connection.postponed, true) {
            self.postponed.push((index as u32, connection.generation));
        }
    }

    #[inline]
    fn consume(&mut self, index: usize, mut bytes: &[u8], now_ns: u64) {
        if now_ns >= self.schedule.warmup_ns() {
            self.tally.received(bytes.len());
        }
        if self.connections[index].http2.is_some() {
            self.consume_http2(index, bytes, now_ns);
            return;
        }
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            let Some(sent) = connection.sent.front_mut() else {
                // No request is open. Some servers send 408 before they close an idle connection.
                // Other bytes are reported, except on connections without an earlier request.
                if connection.answers > 0 && !bytes.starts_with(b"HTTP/1.1 408") {
                    self.tally.failure_message(UNEXPECTED_BYTES.to_owned());
                }
                self.fail_connection(index, RequestFailure::Closed, now_ns);
                return;
            };
            if sent.first_byte_ns == 0 {
                sent.first_byte_ns = now_ns.max(1);
            }
            match connection.parser.feed(bytes, sent.has_body) {
                Ok(fed) => {
                    bytes = &bytes[fed.used..];
                    if let Some(answer) = fed.answer
                        && !self.answered(index, answer, now_ns)
                    {
                        return;
                    }
                }
                Err(malformed) => {
                    self.tally.failure_message(malformed.to_string());
                    self.fail_connection(index, RequestFailure::Malformed, now_ns);
                    return;
                }
            }
        }
    }

    /// Handles the response to the oldest request; returns whether the connection stays open.
    #[inline]
    fn answered(&mut self, index: usize, answer: Response, now_ns: u64) -> bool {
        let connection = &mut self.connections[index];
        let Some(sent) = connection.sent.pop_front() else { return false };
        connection.answers += 1;
        self.tally.answered(&sent, answer, now_ns);
        if self.burn_ns > 0 {
            self.burn();
        }
        let stays = answer.keep && self.config.keepalive;
        if !stays {
            self.close_after_answer(index, now_ns);
        }
        self.release(index, now_ns);
        stays
    }

    /// Closes a connection whose last response this was. The server has not processed the requests
    /// behind it (RFC 9112 section 9.6): repeatable ones are sent again on a new connection, each
    /// as the next of the mix. Each connection answers at least one, so this ends.
    #[inline]
    fn close_after_answer(&mut self, index: usize, now_ns: u64) {
        let behind = self.connections[index].close();
        if behind.is_empty() {
            return;
        }
        for sent in behind {
            if sent.idempotent {
                let waiting = WaitingSlot { slot: sent.slot, sent: Some(sent) };
                self.connections[index].waiting.push_back(waiting);
            } else {
                self.tally.lost(&sent, RequestFailure::Closed, now_ns);
                self.release(index, now_ns);
            }
        }
        if !self.connections[index].waiting.is_empty() {
            self.open(index, now_ns);
        }
    }

    /// Burns CPU time. Preemption reduces it, which matters little for such short times.
    #[cold]
    pub(super) fn burn(&self) {
        let until_ns = self.now_ns().saturating_add(self.burn_ns);
        while self.now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }

    /// Frees a permit, or uses it for the next slot if one is due.
    #[inline]
    pub(super) fn release(&mut self, index: usize, now_ns: u64) {
        self.occupied -= 1;
        // With free permits, slots are dispatched by the schedule.
        let slot = if self.free.is_empty() { self.schedule.take(now_ns) } else { None };
        match slot {
            Some(slot) => {
                self.starved_ns = now_ns;
                self.ready.push((index as u32, slot));
            }
            None => self.free.push_back(index as u32),
        }
    }

    /// Sends the slots taken on responses, after all available responses have been read. Their
    /// times then include no sends, and the target gets work in larger batches.
    pub(super) fn send_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.gathering = self.config.depth > 1;
        for (index, slot) in &ready {
            let now_ns = self.now_ns();
            self.begin_slot(*index as usize, *slot, now_ns);
        }
        if std::mem::take(&mut self.gathering) {
            for (index, _) in &ready {
                if self.connections[*index as usize].phase == ConnectionPhase::Open {
                    self.flush(*index as usize);
                }
            }
        }
        ready.clear();
        // Failed sends may have freed permits: those slots come with the next batch.
        ready.append(&mut self.ready);
        self.ready = ready;
    }

    /// Assigns a slot to a connection: sends its request, or opens the connection first.
    #[inline]
    pub(super) fn begin_slot(&mut self, index: usize, slot: Slot, now_ns: u64) {
        self.occupied += 1;
        self.taken_ns = slot.intended_ns;
        self.tally.scheduled(slot);
        match self.connections[index].phase {
            ConnectionPhase::Open => {
                self.send(index, slot.into(), now_ns, slot.intended_ns > self.starved_ns)
            }
            ConnectionPhase::Closed => {
                self.connections[index].waiting.push_back(slot.into());
                self.open(index, now_ns);
            }
            ConnectionPhase::Connecting { .. } | ConnectionPhase::BackingOff { .. } => {
                self.connections[index].waiting.push_back(slot.into())
            }
        }
    }

    /// Sends a request on an open connection. `own_lag`: its lateness was not caused by a wait for
    /// a connection.
    #[inline]
    pub(super) fn send(&mut self, index: usize, waiting: WaitingSlot, now_ns: u64, own_lag: bool) {
        if self.connections[index].http2.is_some() {
            self.send_http2(index, waiting, now_ns, own_lag);
            return;
        }
        let prepared = self.requests.next();
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return };
        let taken = if self.gathering || !connection.out.is_empty() {
            Ok(0)
        } else {
            stream.write(prepared.bytes)
        };
        let sent = SentRequest {
            slot: waiting.slot,
            sent_ns: now_ns,
            first_byte_ns: 0,
            idempotent: prepared.idempotent,
            has_body: prepared.answer_has_body,
        };
        match taken {
            Ok(n) if n < prepared.bytes.len() => {
                connection.out.push(prepared.bytes, prepared.whole, n)
            }
            Ok(_) => {}
            Err(error)
                if connection.sent.is_empty() && connection.answers > 0 && was_closed(&error) =>
            {
                // The server closed an idle connection, and nothing was sent: the request goes out
                // on a new one.
                connection.close();
                connection.waiting.push_back(waiting);
                self.open(index, now_ns);
                return;
            }
            Err(error) => {
                if waiting.sent.is_none() {
                    self.tally.sent(waiting.slot, now_ns, 0, own_lag);
                }
                connection.sent.push_back(sent);
                self.failed(index, &error);
                return;
            }
        }
        match waiting.sent {
            None => self.tally.sent(waiting.slot, now_ns, prepared.bytes.len(), own_lag),
            Some(_) => self.tally.resent(waiting.slot, prepared.bytes.len()),
        }
        connection.sent.push_back(sent);
    }

    /// Writes the remaining bytes.
    pub(super) fn flush(&mut self, index: usize) {
        if self.connections[index].http2.is_some() {
            self.advance_http2(index);
            return;
        }
        if let Err(error) = self.write_out(index) {
            self.failed(index, &error);
        }
    }

    /// Writes what the socket accepts of the remaining bytes.
    pub(super) fn write_out(&mut self, index: usize) -> Result<(), StreamError> {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return Ok(()) };
        stream.flush()?;
        while !connection.out.is_empty() {
            match stream.write(connection.out.front())? {
                0 => break,
                n => _ = connection.out.wrote(n),
            }
        }
        Ok(())
    }

    /// Handles the end of the server's side. `truncated`: it is no proof that all bytes arrived.
    fn stream_ended(&mut self, index: usize, truncated: bool) {
        let now_ns = self.now_ns();
        if self.connections[index].http2.is_some() {
            self.http2_ended(index);
            return;
        }
        let connection = &self.connections[index];
        if !connection.sent.is_empty() {
            match connection.parser.end() {
                StreamEnd::Complete(_) if truncated => self.tally.failure_message(
                    "the server ended TLS without close_notify, so that the end of the answer is \
                     unknown"
                        .to_owned(),
                ),
                StreamEnd::Complete(answer) => {
                    self.answered(index, answer, now_ns);
                    return;
                }
                StreamEnd::BetweenResponses => self.tally.failure_message(
                    "the server closed the connection without an answer".to_owned(),
                ),
                StreamEnd::Truncated => self.tally.failure_message(
                    "the server closed the connection within an answer".to_owned(),
                ),
            }
        }
        self.fail_connection(index, RequestFailure::Closed, now_ns);
    }

    /// Handles a failure of the socket or of TLS.
    pub(super) fn failed(&mut self, index: usize, error: &StreamError) {
        if matches!(self.connections[index].phase, ConnectionPhase::Connecting { .. }) {
            let words = words(error, &self.config.address);
            self.connect_failed(index, &words);
            return;
        }
        if self.connections[index].is_awaiting() {
            self.tally.failure_message(words(error, &self.config.address));
        }
        let now_ns = self.now_ns();
        self.fail_connection(index, RequestFailure::Reset, now_ns);
    }

    /// Closes a connection. The oldest request on it fails with `loss`, those behind it as closed.
    pub(super) fn fail_connection(&mut self, index: usize, loss: RequestFailure, now_ns: u64) {
        let streams = self.connections[index].http2.is_some();
        let sent = self.connections[index].close();
        for (i, sent) in sent.iter().enumerate() {
            let own = i == 0 || streams;
            self.tally.lost(sent, if own { loss } else { RequestFailure::Closed }, now_ns);
        }
        sent.iter().for_each(|_| self.release(index, now_ns));
    }

    /// Abandons the oldest request after its time-out, and those behind it on the same connection,
    /// which wait for it.
    pub(super) fn time_out_oldest(&mut self, index: usize, now_ns: u64) {
        let sent = self.connections[index].close();
        sent.iter().for_each(|sent| self.tally.timed_out(sent, now_ns));
        sent.iter().for_each(|_| self.release(index, now_ns));
    }
}

/// Returns whether an error means that the server had closed the connection earlier.
fn was_closed(error: &StreamError) -> bool {
    match error {
        StreamError::Socket(e) => {
            matches!(Errno::from_io_error(e), Some(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
        }
        StreamError::Tls(_) => false,
    }
}
