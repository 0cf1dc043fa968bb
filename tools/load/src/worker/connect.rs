//! Opening connections, before and during the run.

use rustix::event::epoll::{self, EventData, EventFlags};

use hotrow_transport::explain;
use hotrow_transport::target::Address;
use hotrow_transport::tls::HttpVersion;

use super::{Events, Worker};
use crate::connection::ConnectionPhase;
use crate::stream::{self, StreamError};
use crate::tally::RequestFailure;

/// Connections opened concurrently before the run: more would overflow the accept queue of a server
/// that is not ready.
const OPENING_MAX: usize = 64;
/// Prefix of the message of a failed connect.
pub(crate) const NO_CONNECTION: &str = "no connection: ";
/// Back-off after a failed connect.
const BACKOFF_NS: u64 = 100_000_000;

impl Worker {
    /// Opens all connections before the run, one after another as fast as the server accepts;
    /// returns how many are open. Without keep-alive each request opens its own: then one is tried
    /// and closed again.
    pub(super) fn open_all(&mut self, events: &mut Events) -> usize {
        let wanted = if self.config.keepalive { self.connections.len() } else { 1 };
        let (mut next, mut failed_at) = (0, None);
        loop {
            // After one failure, the remaining connects would most likely fail too, each after its
            // time-out.
            while next < wanted && self.connecting < OPENING_MAX && failed_at.is_none() {
                let now_ns = self.now_ns();
                self.open(next, now_ns);
                next += 1;
            }
            let begun = &self.connections[..next];
            let resting =
                begun.iter().any(|c| matches!(c.phase, ConnectionPhase::BackingOff { .. }));
            failed_at = failed_at.or(resting.then_some(next));
            let all_begun = next == wanted || failed_at.is_some();
            if (all_begun && self.connecting == 0)
                || self.ended.load(std::sync::atomic::Ordering::Relaxed)
            {
                break;
            }
            let now_ns = self.now_ns();
            self.time_out_opening(now_ns);
            self.wait(now_ns.saturating_add(super::SLEEP_MAX_NS / 5), events);
        }
        let opened = self.connections.iter().filter(|c| c.phase == ConnectionPhase::Open).count();
        if !self.config.keepalive {
            let connection = &mut self.connections[0];
            if connection.phase == ConnectionPhase::Open {
                connection.close();
            }
            connection.opened_before = false;
        }
        opened
    }

    fn time_out_opening(&mut self, now_ns: u64) {
        for index in 0..self.connections.len() {
            if matches!(
                self.connections[index].phase,
                ConnectionPhase::Connecting { deadline_ns, .. } if deadline_ns <= now_ns
            ) {
                self.connect_timed_out(index, now_ns);
            }
        }
    }

    /// Begins to open a connection.
    pub(super) fn open(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        let connect =
            stream::connect(&self.config.address, self.config.tls.as_ref()).and_then(|stream| {
                let data =
                    EventData::new_u64((u64::from(connection.generation) << 32) | index as u64);
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                epoll::add(&self.epoll, stream.socket(), data, flags)?;
                Ok(stream)
            });
        match connect {
            Ok(stream) => {
                let deadline_ns = now_ns.saturating_add(self.connect_timeout_ns);
                connection.stream = Some(stream);
                connection.phase = ConnectionPhase::Connecting { begun_ns: now_ns, deadline_ns };
                self.connecting += 1;
                self.sweep_at_ns = self.sweep_at_ns.min(deadline_ns);
            }
            Err(error) => self.back_off(index, &words(&error, &self.config.address), now_ns),
        }
    }

    /// Continues when the socket is writable, has failed, or received bytes during the handshake.
    pub(super) fn continue_connecting(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else { return };
        if connection.http2.is_some() {
            // The server's settings complete it.
            self.receive(index);
            return;
        }
        match stream.connected().and_then(|()| stream.continue_handshake()) {
            Ok(true) if self.config.version == HttpVersion::Http2 => self.begin_http2(index),
            Ok(true) => self.opened(index),
            Ok(false) => {}
            Err(error) => {
                let words = words(&error, &self.config.address);
                self.connect_failed(index, &words);
            }
        }
    }

    /// Handles a failure while the connection was being opened.
    pub(super) fn connect_failed(&mut self, index: usize, words: &str) {
        self.connecting -= 1;
        let now_ns = self.now_ns();
        self.back_off(index, words, now_ns);
    }

    pub(super) fn opened(&mut self, index: usize) {
        self.connecting -= 1;
        let now_ns = self.now_ns();
        let connection = &mut self.connections[index];
        let took_ns = match connection.phase {
            ConnectionPhase::Connecting { begun_ns, .. } => now_ns.saturating_sub(begun_ns),
            // Only connections being opened get here.
            _ => 0,
        };
        connection.phase = ConnectionPhase::Open;
        let again = connection.opened_before && self.config.keepalive;
        connection.opened_before = true;
        self.tally.connection_opened(again, took_ns);
        if self.connections[index].http2.is_some() {
            self.send_waiting(index);
            return;
        }
        while self.connections[index].phase == ConnectionPhase::Open
            && let Some(waiting) = self.connections[index].waiting.pop_front()
        {
            let now_ns = self.now_ns();
            self.send(index, waiting, now_ns, false);
        }
    }

    pub(super) fn connect_timed_out(&mut self, index: usize, now_ns: u64) {
        self.connecting -= 1;
        let words = format!("it was not open within {:?}", self.config.connect_timeout);
        self.back_off(index, &words, now_ns);
    }

    /// Handles a failed connect: its slots stay unsent, and the connection backs off.
    fn back_off(&mut self, index: usize, words: &str, now_ns: u64) {
        self.tally.failure_message(format!("{NO_CONNECTION}{words}"));
        let connection = &mut self.connections[index];
        connection.close();
        let waited = connection.waiting.len();
        // Before the run there is no slot; the failure is reported as a message.
        let measured = connection.waiting.front().is_some_and(|waiting| waiting.slot.measured);
        self.tally.connect_failed(measured);
        for waiting in connection.waiting.drain(..) {
            match waiting.sent {
                None => self.tally.unsent(waiting.slot, now_ns),
                Some(sent) => self.tally.lost(&sent, RequestFailure::Closed, now_ns),
            }
        }
        self.occupied -= waited;
        connection.withheld_permits += waited as u32;
        let until_ns = now_ns.saturating_add(BACKOFF_NS);
        connection.phase = ConnectionPhase::BackingOff { until_ns };
        self.sweep_at_ns = self.sweep_at_ns.min(until_ns);
    }

    /// Frees its permits after the back-off; slots assigned since then open it.
    pub(super) fn end_backoff(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        connection.phase = ConnectionPhase::Closed;
        let max_in_flight = std::mem::take(&mut connection.withheld_permits);
        let waited_for = !connection.waiting.is_empty();
        self.free.extend((0..max_in_flight).map(|_| index as u32));
        if waited_for {
            self.open(index, now_ns);
        }
    }
}

/// Returns an error as text for the user.
pub(super) fn words(error: &StreamError, address: &Address) -> String {
    match error {
        StreamError::Socket(error) => explain::socket(error, address),
        StreamError::Tls(error) => explain::tls(error),
    }
}
