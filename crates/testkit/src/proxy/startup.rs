//! Class of a connection, by its first message (PostgreSQL's documentation, "Message Formats").

use super::Class;

/// Longest startup message.
const STARTUP_BYTES_MAX: usize = 10_000;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// Result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Too few bytes.
    Incomplete,
    /// A request for encryption of this length. It is declined, because the proxy must read the
    /// following messages.
    Encryption(usize),
    /// A connection of that class.
    Session(Class),
    /// Not PostgreSQL.
    Nonsense,
}

/// Parses the first bytes sent by the service.
pub fn classify(bytes: &[u8]) -> Startup {
    let number =
        |at: usize| bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
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

/// Returns the class by the parameters, which are pairs of texts that each end with a zero byte.
fn class(message: &[u8]) -> Class {
    let texts: Vec<&[u8]> = message.split(|byte| *byte == 0).collect();
    let value =
        |name: &[u8]| texts.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    if value(b"replication").is_some() {
        return Class::Replication;
    }
    let name =
        String::from_utf8_lossy(value(b"application_name").unwrap_or_default()).to_lowercase();
    if name.contains("feed") { Class::FeedSql } else { Class::Readers }
}
