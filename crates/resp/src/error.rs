//! Protocol errors: input after which no command can be found, so that the connection must end.

/// Reason for which a client's bytes are not a command. The text follows `Protocol error: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or over the limit.
    #[error("invalid multibulk length")]
    MultibulkLength,
    /// The line with the number of arguments has no end.
    #[error("too big mbulk count string")]
    CountLine,
    /// An argument does not begin with its length.
    #[error("expected '$', got '{}'", shown(*.0))]
    Dollar(u8),
    /// The length of an argument is no number, or over the limit.
    #[error("invalid bulk length")]
    BulkLength,
    /// The line with the length of an argument has no end.
    #[error("too big bulk count string")]
    LengthLine,
    /// An argument does not end where its length says.
    #[error("invalid bulk terminator")]
    Terminator,
    /// The command exceeds its limit.
    #[error("too big command")]
    CommandBytes,
    /// A command of one line exceeds its limit.
    #[error("too big inline request")]
    InlineBytes,
    /// A quote in a command of one line is not closed, or not followed by white space.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// Returns the byte as a printable character.
fn shown(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_the_client_cannot_end_the_line_of_the_error() {
        for (byte, text) in [(b'x', "expected '$', got 'x'"), (b'\r', "expected '$', got '?'")] {
            assert_eq!(ProtocolError::Dollar(byte).to_string(), text);
        }
        for byte in 0..=u8::MAX {
            let text = ProtocolError::Dollar(byte).to_string();
            assert!(text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{text:?}");
        }
    }
}
