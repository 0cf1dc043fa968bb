//! Heads: their frames, and the requests and trailers that they are.

use super::{Event, Leaving, OpenHead, RequestStart, Turn};
use crate::CONTINUATIONS_MAX;
use crate::PAYLOAD_BYTES_MAX;
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{FrameHeader, flag, unpadded};
use crate::head::HeadFault;

/// Bytes of a priority at the front of a head.
const PRIORITY_BYTES: usize = 5;

impl Turn<'_> {
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event, ConnectionError> {
        // A client's streams have odd numbers.
        if header.stream.is_multiple_of(2) {
            return Err(ConnectionError::Protocol);
        }
        let mut block = unpadded(header, payload)?;
        if header.has(flag::PRIORITY) {
            let (priority, rest) =
                block.split_first_chunk::<PRIORITY_BYTES>().ok_or(ConnectionError::FrameSize)?;
            let [a, b, c, d, _] = *priority;
            check_dependency(header.stream, [a, b, c, d])?;
            block = rest;
        }
        let ends_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.head(header.stream, ends_stream, block);
        }
        let open = OpenHead {
            stream: header.stream,
            ends_stream,
            block: block.to_vec(),
            continuations: 0,
        };
        self.connection.open_head = Some(Box::new(open));
        Ok(Event::None)
    }

    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Event, ConnectionError> {
        // The order of frames was checked.
        let mut open = self.connection.open_head.take().ok_or(ConnectionError::Protocol)?;
        open.continuations += 1;
        open.block.extend_from_slice(payload);
        // A head that is too large is answered if it ends soon: the decoder must read it all.
        let bytes_max = self.limits.head_bytes + PAYLOAD_BYTES_MAX;
        if open.continuations > CONTINUATIONS_MAX || open.block.len() > bytes_max {
            return Err(ConnectionError::Flood);
        }
        if header.has(flag::END_HEADERS) {
            return self.head(open.stream, open.ends_stream, &open.block);
        }
        self.connection.open_head = Some(open);
        Ok(Event::None)
    }

    /// Decodes a whole head. That of a stream that is not served is decoded too, because those
    /// behind it depend on it.
    fn head(&mut self, id: u32, ends_stream: bool, block: &[u8]) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        let is_new = id > connection.last_stream;
        let scratch = &mut *self.scratch;
        scratch.head.begin(self.limits.head_bytes, !is_new);
        connection
            .decoder
            .decode(block, &mut scratch.decoded, |name, value| scratch.head.add(name, value))
            .map_err(|_| ConnectionError::Compression)?;
        let ended = scratch.head.end();
        if is_new {
            self.request(id, ends_stream, ended)
        } else {
            self.trailer(id, ends_stream, ended)
        }
    }

    fn request(
        &mut self,
        id: u32,
        ends_stream: bool,
        ended: Result<(), HeadFault>,
    ) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        let next = if connection.last_stream == 0 { 1 } else { connection.last_stream + 2 };
        connection.has_skipped |= id != next;
        connection.last_stream = id;
        let is_refused = matches!(connection.leaving, Leaving::After(_));
        if connection.streams.is_full() || is_refused {
            // No fault: the client may not know of the limit, or of the end.
            connection.reset_at_once(id, ErrorCode::RefusedStream, self.out);
            return self.control();
        }
        let announced = self.scratch.head.content_length();
        let is_contradiction = ends_stream && announced.is_some_and(|bytes| bytes > 0);
        if ended == Err(HeadFault::Malformed) || is_contradiction {
            return self.reset_by_error(id, ErrorCode::Protocol);
        }
        Ok(Event::Request(RequestStart {
            stream: id,
            has_content: !ends_stream,
            fault: ended.err(),
        }))
    }

    /// Ends the content of a stream that is open.
    fn trailer(
        &mut self,
        id: u32,
        ends_stream: bool,
        ended: Result<(), HeadFault>,
    ) -> Result<Event, ConnectionError> {
        let connection = &mut *self.connection;
        let Some(slot) = connection.streams.find(id) else {
            return match (connection.was_reset(id), connection.has_skipped) {
                (true, _) => self.control(),
                // It may never have been open, and must not be opened now.
                (false, true) => Err(ConnectionError::Protocol),
                (false, false) => Err(ConnectionError::StreamClosed),
            };
        };
        let Some(stream) = connection.streams.get_mut(slot) else { return Ok(Event::None) };
        if !stream.is_receiving {
            return self.reset_by_error(id, ErrorCode::StreamClosed);
        }
        let is_short = stream.content_left.is_some_and(|left| left > 0);
        if !ends_stream || ended.is_err() || is_short {
            return self.reset_by_error(id, ErrorCode::Protocol);
        }
        stream.is_receiving = false;
        Ok(Event::ContentEnd(slot))
    }
}

/// Refuses a stream that depends on itself (RFC 7540 section 5.3.1). Otherwise a priority is
/// ignored.
pub(super) fn check_dependency(stream: u32, dependency: [u8; 4]) -> Result<(), ConnectionError> {
    let dependency = u32::from_be_bytes(dependency) & super::STREAM_MAX;
    if dependency == stream { Err(ConnectionError::Protocol) } else { Ok(()) }
}
