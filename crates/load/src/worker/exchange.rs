//! Requests out, answers in, and what becomes of requests that get none.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::{READS_MAX, Worker};
use crate::connection::{Phase, Sent};
use crate::plan::Slot;
use crate::response::{Answer, Ended};
use crate::stream::{Input, StreamError};
use crate::tally::Loss;

/// Words for bytes that belong to no request.
const UNASKED: &str = "the server sent bytes after a complete answer: is its Content-Length right?";

impl Worker {
    /// Something happened on a socket.
    pub(super) fn event(&mut self, index: usize, generation: u32, flags: EventFlags) {
        let connection = &mut self.connections[index];
        // An event of a socket that was closed meanwhile.
        if connection.generation != generation {
            return;
        }
        connection.ending |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            Phase::Connecting { .. } => self.go_on_connecting(index),
            Phase::Open if flags.contains(EventFlags::OUT) => self.flush(index),
            Phase::Open | Phase::Closed | Phase::Resting { .. } => {}
        }
        // A connection may open and end in one event, which is not told again.
        let connection = &self.connections[index];
        let still = connection.generation == generation && connection.phase == Phase::Open;
        if still && (connection.ending || flags.contains(EventFlags::IN)) {
            self.receive(index);
        }
    }

    /// Reads until nothing is left, or until it is the others' turn.
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
                Ok(Input::Bytes { n, drained }) => {
                    let now_ns = self.now_ns();
                    self.take_in(index, &buffer[..n], now_ns);
                    // Of an end that was announced nothing further will be heard: read on until it comes.
                    if drained && !self.connections[index].ending {
                        break;
                    }
                }
                Ok(Input::Blocked) => break,
                Ok(Input::End) => self.stream_ended(index),
                Err(error) => self.failed(index, &error),
            }
        }
        self.buffer = buffer;
    }

    /// Puts it on the list, once.
    fn postpone(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !std::mem::replace(&mut connection.postponed, true) {
            self.postponed.push((index as u32, connection.generation));
        }
    }

    #[inline]
    fn take_in(&mut self, index: usize, mut bytes: &[u8], now_ns: u64) {
        if now_ns >= self.agenda.warmup_ns() {
            self.tally.received(bytes.len());
        }
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            let Some(sent) = connection.sent.front() else {
                // Nobody asked. Some servers say 408 before they close an idle connection; anything else is told, but not of
                // connections that no request was sent on yet.
                if connection.answers > 0 && !bytes.starts_with(b"HTTP/1.1 408") {
                    self.tally.trouble(UNASKED.to_owned());
                }
                self.lose(index, Loss::Closed, now_ns);
                return;
            };
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
                    self.tally.trouble(malformed.to_string());
                    self.lose(index, Loss::Malformed, now_ns);
                    return;
                }
            }
        }
    }

    /// The oldest request is answered; whether the connection stays.
    #[inline]
    fn answered(&mut self, index: usize, answer: Answer, now_ns: u64) -> bool {
        let connection = &mut self.connections[index];
        let Some(sent) = connection.sent.pop_front() else { return false };
        connection.answers += 1;
        self.tally.answered(&sent, answer, now_ns);
        if self.burn_ns > 0 {
            self.burn();
        }
        let stays = answer.keep && self.config.keepalive;
        if !stays {
            self.lose(index, Loss::Closed, now_ns);
        }
        self.release(index, now_ns);
        stays
    }

    /// Wastes time of the CPU. A thread that is interrupted meanwhile wastes less, which matters little for so short times.
    #[cold]
    fn burn(&self) {
        let until_ns = self.now_ns().saturating_add(self.burn_ns);
        while self.now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }

    /// A place is free again: it takes the next slot if one is due.
    #[inline]
    fn release(&mut self, index: usize, now_ns: u64) {
        self.held -= 1;
        // With others free, slots are handed out in their own time.
        let slot = if self.free.is_empty() { self.agenda.take(now_ns) } else { None };
        match slot {
            Some(slot) => {
                self.starved_ns = now_ns;
                self.ready.push((index as u32, slot));
            }
            None => self.free.push_back(index as u32),
        }
    }

    /// Sends what answers have made room for, after all answers at hand have been read: their times hold no sends then,
    /// and the target gets work in larger portions.
    pub(super) fn send_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.gathering = self.config.pipeline > 1;
        for (index, slot) in &ready {
            let now_ns = self.now_ns();
            self.begin_slot(*index as usize, *slot, now_ns);
        }
        if std::mem::take(&mut self.gathering) {
            for (index, _) in &ready {
                if self.connections[*index as usize].phase == Phase::Open {
                    self.flush(*index as usize);
                }
            }
        }
        ready.clear();
        // Sends that failed may have made room again: those come with the next portion.
        ready.append(&mut self.ready);
        self.ready = ready;
    }

    /// A connection gets a slot: sends its request, or opens first.
    #[inline]
    pub(super) fn begin_slot(&mut self, index: usize, slot: Slot, now_ns: u64) {
        self.held += 1;
        self.taken_ns = slot.intended_ns;
        self.tally.scheduled(slot);
        match self.connections[index].phase {
            Phase::Open => self.send(index, slot, now_ns, slot.intended_ns > self.starved_ns),
            Phase::Closed => {
                self.connections[index].waiting.push_back(slot);
                self.open(index, now_ns);
            }
            Phase::Connecting { .. } | Phase::Resting { .. } => self.connections[index].waiting.push_back(slot),
        }
    }

    /// Sends a request on an open connection. `own_lag`: when it is late, it did not wait for a connection.
    #[inline]
    pub(super) fn send(&mut self, index: usize, slot: Slot, now_ns: u64, own_lag: bool) {
        let prepared = self.requests.next();
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return };
        let taken = if self.gathering || !connection.out.is_empty() { Ok(0) } else { stream.write(prepared.bytes) };
        match taken {
            Ok(n) if n < prepared.bytes.len() => connection.out.push(prepared.bytes, prepared.whole, n),
            Ok(_) => {}
            Err(error) if connection.sent.is_empty() && connection.answers > 0 && was_closed(&error) => {
                // The server closed an idle connection, and nothing was sent: the request goes out on a new one.
                connection.close();
                connection.waiting.push_back(slot);
                self.open(index, now_ns);
                return;
            }
            Err(error) => {
                let has_body = prepared.answer_has_body;
                self.tally.sent(slot, now_ns, 0, own_lag);
                connection.sent.push_back(Sent { slot, sent_ns: now_ns, has_body });
                self.failed(index, &error);
                return;
            }
        }
        self.tally.sent(slot, now_ns, prepared.bytes.len(), own_lag);
        connection.sent.push_back(Sent { slot, sent_ns: now_ns, has_body: prepared.answer_has_body });
    }

    /// Writes what is left over.
    fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return };
        let flushed = stream.flush().and_then(|()| {
            while !connection.out.is_empty() {
                match stream.write(connection.out.front())? {
                    0 => break,
                    n => _ = connection.out.wrote(n),
                }
            }
            Ok(())
        });
        if let Err(error) = flushed {
            self.failed(index, &error);
        }
    }

    /// The server closed its side.
    fn stream_ended(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let connection = &self.connections[index];
        if !connection.sent.is_empty() {
            match connection.parser.end() {
                Ended::Complete(answer) => {
                    self.answered(index, answer, now_ns);
                    return;
                }
                Ended::Between => self.tally.trouble("the server closed the connection without an answer".to_owned()),
                Ended::Inside => self.tally.trouble("the server closed the connection within an answer".to_owned()),
            }
        }
        self.lose(index, Loss::Closed, now_ns);
    }

    /// The socket or TLS failed.
    fn failed(&mut self, index: usize, error: &StreamError) {
        if !self.connections[index].sent.is_empty() {
            self.tally.trouble(error.to_string());
        }
        let now_ns = self.now_ns();
        self.lose(index, Loss::Reset, now_ns);
    }

    /// Closes a connection. The oldest request on it is lost in this way, those behind it because it was closed.
    fn lose(&mut self, index: usize, loss: Loss, now_ns: u64) {
        let sent = self.connections[index].close();
        for (i, sent) in sent.iter().enumerate() {
            self.tally.lost(sent, if i == 0 { loss } else { Loss::Closed });
        }
        sent.iter().for_each(|_| self.release(index, now_ns));
    }

    /// The oldest request took too long. Those behind it on the same connection wait for it: they are given up too.
    pub(super) fn give_up(&mut self, index: usize, now_ns: u64) {
        let sent = self.connections[index].close();
        sent.iter().for_each(|sent| self.tally.timed_out(sent, now_ns));
        sent.iter().for_each(|_| self.release(index, now_ns));
    }
}

/// Whether an error says that the other side closed the connection earlier.
fn was_closed(error: &StreamError) -> bool {
    match error {
        StreamError::Socket(e) => {
            matches!(Errno::from_io_error(e), Some(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
        }
        StreamError::Tls(_) => false,
    }
}
