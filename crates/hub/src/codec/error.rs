//! Errors of decoding.

use crate::message::MESSAGE_BYTES_MAX;

/// Version of the form.
pub const FORM: u8 = 4;

/// Error of bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by another version of Hotrow.
    #[error(
        "a message of the hub has form {0}, and this version reads form {FORM}; run the same \
         version of hotrow as relay and as server"
    )]
    Form(u8),
    /// Too long.
    #[error("a message of the hub has {0} bytes, more than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// Ends too early, or has bytes after its end.
    #[error("a message of the hub is damaged: {0}")]
    Damaged(&'static str),
}
