//! Content in both directions: what arrives and is read, what may be sent, and the end of streams.

use super::{Connection, Event, Turn};
use crate::PAYLOAD_BYTES_MAX;
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, FrameHeader, HEADER_BYTES, flag, unpadded};
use crate::streams::Slot;

/// Bytes of content for which a client may open windows once more.
const BYTES_PER_UPDATE: usize = 1_024;
/// Most frames that do nothing for a request and that a client may save up.
const CONTROL_EARNED_MAX: u32 = 100_000;

impl Turn<'_> {
    pub(super) fn data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        let (id, is_last) = (header.stream, header.has(flag::END_STREAM));
        if id == 0 || id > connection.last_stream {
            return Err(ConnectionError::Protocol);
        }
        let content = unpadded(header, payload)?;
        connection
            .receive_window
            .arrived(payload.len())
            .map_err(|_| ConnectionError::FlowControl)?;
        let Some(slot) = connection.streams.find(id) else {
            return self.data_of_closed(id, payload.len());
        };
        let Some(stream) = connection.streams.get_mut(slot) else { return Ok(Event::None) };
        if !stream.is_receiving {
            connection.give_back(payload.len(), self.out);
            return self.reset_by_error(id, ErrorCode::StreamClosed);
        }
        if stream.receive_window.arrived(payload.len()).is_err() {
            connection.give_back(payload.len(), self.out);
            return self.reset_by_error(id, ErrorCode::FlowControl);
        }
        let mut is_sound = true;
        if let Some(left) = stream.content_left {
            let left_now = left.checked_sub(content.len() as u64);
            is_sound = left_now.is_some_and(|left| left == 0 || !is_last);
            stream.content_left = left_now;
        }
        stream.is_receiving = !is_last;
        if !is_sound {
            connection.give_back(payload.len(), self.out);
            return self.reset_by_error(id, ErrorCode::Protocol);
        }
        if content.is_empty() && !is_last {
            self.control()?;
        }
        // The padding is not content: no service reads it.
        self.connection.read(slot, payload.len() - content.len(), self.out);
        let from = HEADER_BYTES + usize::from(header.has(flag::PADDED));
        Ok(Event::Content { slot, from, to: from + content.len(), is_last })
    }

    /// Ignores content of a stream that this side has reset: it was on its way. Other streams that
    /// have ended were ended by the client.
    fn data_of_closed(&mut self, id: u32, bytes: usize) -> Result<Event, ConnectionError> {
        self.connection.give_back(bytes, self.out);
        if !self.connection.was_reset(id) {
            return self.reset_by_error(id, ErrorCode::StreamClosed);
        }
        if bytes == 0 { self.control() } else { Ok(Event::None) }
    }

    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event, ConnectionError> {
        let bytes = <[u8; 4]>::try_from(payload).map_err(|_| ConnectionError::FrameSize)?;
        let bytes = i64::from(u32::from_be_bytes(bytes) & super::STREAM_MAX);
        let connection = &mut *self.connection;
        let id = header.stream;
        if id == 0 {
            if bytes == 0 {
                return Err(ConnectionError::Protocol);
            }
            connection.send_window.change(bytes).map_err(|_| ConnectionError::FlowControl)?;
            self.control()?;
            return Ok(Event::Room);
        }
        if id > connection.last_stream {
            return Err(ConnectionError::Protocol);
        }
        // A client opens the window of a stream whose answer is out: it is to be ignored (RFC 9113
        // section 5.1), and has cost less than the answer.
        let Some(slot) = connection.streams.find(id) else { return Ok(Event::None) };
        if bytes == 0 {
            return self.reset_by_error(id, ErrorCode::Protocol);
        }
        let Some(stream) = connection.streams.get_mut(slot) else { return Ok(Event::None) };
        if stream.send_window.change(bytes).is_err() {
            return self.reset_by_error(id, ErrorCode::FlowControl);
        }
        self.control()?;
        Ok(Event::Room)
    }

    pub(super) fn reset_by_client(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event, ConnectionError> {
        if payload.len() != 4 {
            return Err(ConnectionError::FrameSize);
        }
        let connection = &mut *self.connection;
        if header.stream == 0 || header.stream > connection.last_stream {
            return Err(ConnectionError::Protocol);
        }
        // To be ignored too. A stream that was answered has cost no more than its answer.
        let Some(slot) = connection.streams.find(header.stream) else { return Ok(Event::None) };
        if !connection.resets.take(self.now_ns) {
            return Err(ConnectionError::Flood);
        }
        connection.streams.remove(slot);
        Ok(Event::Closed(slot))
    }
}

impl Connection {
    /// Opens the stream of the request that has just arrived and is not answered at once. The
    /// request would have been refused if too many were open. `has_content`: of the request.
    pub fn open(&mut self, stream: u32, announced: Option<u64>, has_content: bool) -> Slot {
        self.streams.insert(stream, self.initial_window, announced, has_content)
    }

    /// Returns whether a new stream may send `bytes` of content at once.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.send_window.available().min(self.initial_window as usize)
    }

    /// Notes content of a stream that never had a slot.
    #[inline]
    pub fn sent_at_once(&mut self, bytes: usize) {
        self.send_window.sent(bytes);
        // One for the stream and one for the connection, and more for a client that reads in
        // pieces.
        self.earn(2 + (bytes / BYTES_PER_UPDATE) as u32);
    }

    /// Allows the client more frames that do nothing for a request.
    #[inline]
    pub(super) fn earn(&mut self, frames: u32) {
        self.control_earned = (self.control_earned + frames).min(CONTROL_EARNED_MAX);
    }

    /// Returns the bytes of content that a stream may send in its next frame.
    pub fn sendable(&self, slot: Slot) -> usize {
        let stream = self.streams.get(slot).map_or(0, |stream| stream.send_window.available());
        stream.min(self.send_window.available()).min(PAYLOAD_BYTES_MAX)
    }

    /// Notes that a stream has sent `bytes` of content, at most those that it might.
    pub fn sent(&mut self, slot: Slot, bytes: usize) {
        self.sent_at_once(bytes);
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.send_window.sent(bytes);
        }
    }

    /// Notes that `bytes` of a stream's content were read, and gives the client room for more.
    pub fn read(&mut self, slot: Slot, bytes: usize, out: &mut Vec<u8>) {
        self.give_back(bytes, out);
        let Some(stream) = self.streams.get_mut(slot).filter(|stream| stream.is_receiving) else {
            return;
        };
        if let Some(given) = stream.receive_window.read(bytes) {
            frame::put_window_update(out, stream.id, given);
        }
    }

    /// Gives room of the connection's window back.
    pub fn give_back(&mut self, bytes: usize, out: &mut Vec<u8>) {
        if bytes > 0
            && let Some(given) = self.receive_window.read(bytes)
        {
            frame::put_window_update(out, 0, given);
        }
    }

    /// Returns the number of an open stream.
    pub fn id(&self, slot: Slot) -> Option<u32> {
        self.streams.get(slot).map(|stream| stream.id)
    }

    /// Returns whether the client may send more of a stream's content.
    pub fn is_receiving(&self, slot: Slot) -> bool {
        self.streams.get(slot).is_some_and(|stream| stream.is_receiving)
    }

    /// Closes a stream whose answer has ended and whose content has arrived.
    pub fn close(&mut self, slot: Slot) {
        self.streams.remove(slot);
    }

    /// Ends a stream before its time.
    pub fn reset(&mut self, slot: Slot, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(id) = self.streams.remove(slot) {
            self.remember_reset(id);
            frame::put_reset(out, id, code);
        }
    }

    /// Ends a stream that never had a slot, and whose content has not arrived in full.
    pub fn reset_at_once(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        self.remember_reset(id);
        frame::put_reset(out, id, code);
    }

    pub(super) fn remember_reset(&mut self, id: u32) {
        self.reset_streams.rotate_left(1);
        if let Some(newest) = self.reset_streams.last_mut() {
            *newest = id;
        }
    }

    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset_streams.contains(&id)
    }
}
