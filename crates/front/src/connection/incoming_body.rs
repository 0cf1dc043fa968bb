//! A body that arrives while its request waits: decoded here, and passed on piece by piece.

use std::rc::Rc;

use hotrow_answer::request::{BodyError, BodyPipe, RequestBody};
use hotrow_http1::Limits;
use hotrow_http1::body::{BodyDecoder, BodyLength};
use hotrow_http1::error::ParseError;

/// A body that has not arrived in full.
pub(super) struct IncomingBody {
    decoder: BodyDecoder,
    pipe: Rc<BodyPipe>,
    /// `true`: the client waits for `100 Continue`.
    expects_continue: bool,
}

impl IncomingBody {
    pub(crate) fn new(length: BodyLength, expects_continue: bool) -> Self {
        let announced_bytes = match length {
            BodyLength::Bytes(bytes) => Some(bytes),
            BodyLength::Empty | BodyLength::Chunked => None,
        };
        let pipe = BodyPipe::new(announced_bytes);
        Self { decoder: BodyDecoder::new(length), pipe, expects_continue }
    }

    /// Returns the body as its service reads it.
    pub(crate) fn reader(&self) -> RequestBody {
        RequestBody::from_pipe(&self.pipe)
    }

    /// Returns whether all of it has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.decoder.is_complete()
    }

    /// Returns whether the service waits for more.
    pub(crate) fn is_wanted(&self) -> bool {
        self.pipe.is_wanted()
    }

    /// Returns whether the client has to be asked for the body, once.
    pub(super) fn must_ask(&mut self) -> bool {
        std::mem::take(&mut self.expects_continue)
    }

    /// Reports that the client has closed its side.
    pub(super) fn end_early(&self) {
        self.pipe.end(Err(BodyError::Ended));
    }

    /// Passes the body's part of `bytes` on. Returns its length.
    ///
    /// # Errors
    /// The body is refused; its reader knows.
    pub(super) fn pass_all(&mut self, bytes: &[u8], limits: &Limits) -> Result<usize, ParseError> {
        let mut content = Vec::new();
        let used = self.decode(bytes, limits, &mut content);
        self.pipe.push(content);
        match used {
            Ok(_) if self.is_complete() => self.pipe.end(Ok(())),
            Ok(_) => {}
            Err(error) => self.pipe.end(Err(BodyError::Refused(error))),
        }
        used
    }

    fn decode(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        content: &mut Vec<u8>,
    ) -> Result<usize, ParseError> {
        let mut used = 0;
        while used < bytes.len() && !self.decoder.is_complete() {
            let decoded = self.decoder.decode(&bytes[used..], limits)?;
            content.extend_from_slice(&bytes[used..][decoded.data]);
            used += decoded.consumed;
        }
        Ok(used)
    }
}
