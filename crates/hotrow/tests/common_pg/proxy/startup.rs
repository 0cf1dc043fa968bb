//! The first message of a connection tells what it is for (PostgreSQL's documentation, "Message Formats").

use super::Class;

/// Longer startup messages are none.
const STARTUP_BYTES_MAX: usize = 10_000;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Startup {
    /// Too few to tell.
    Incomplete,
    /// A question for encryption of so many bytes, to which we say no: we must see what follows.
    Encryption(usize),
    /// A connection of that class.
    Session(Class),
    /// Not PostgreSQL.
    Nonsense,
}

/// Looks at what the service sent first.
pub(super) fn classify(bytes: &[u8]) -> Startup {
    let number = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let (Some(length), Some(code)) = (number(0), number(4)) else { return Startup::Incomplete };
    let length = length as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Startup::Nonsense;
    }
    let Some(message) = bytes.get(8..length) else { return Startup::Incomplete };
    match code {
        SSL_REQUEST | GSS_REQUEST => Startup::Encryption(length),
        CANCEL_REQUEST => Startup::Session(Class::Readers),
        _ => Startup::Session(class(message)),
    }
}

/// By the parameters, which are pairs of texts, each ended by a zero.
fn class(message: &[u8]) -> Class {
    let texts: Vec<&[u8]> = message.split(|byte| *byte == 0).collect();
    let value = |name: &[u8]| texts.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    if value(b"replication").is_some() {
        return Class::Replication;
    }
    let name = String::from_utf8_lossy(value(b"application_name").unwrap_or_default()).to_lowercase();
    if name.contains("feed") { Class::FeedSql } else { Class::Readers }
}
