//! Errors of texts that should name a record.

/// Longest key in bytes as encoded, collection included: what a length of 16 bits can name. The
/// server bounds ids by their URL form before (`limits.target_bytes`, at most 64 KiB).
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Error of a text that cannot be a key of its collection. The message is safe to show to a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The percent-encoding is broken.
    #[error("the id has bad percent-encoding; write % followed by two hexadecimal digits")]
    Encoding,
    /// The decoded bytes are not UTF-8.
    #[error("the id is not valid UTF-8 after percent-decoding")]
    Utf8,
    /// A NUL byte.
    #[error("the id contains a NUL byte, which no key can")]
    Nul,
    /// Wrong number of columns.
    #[error(
        "the id has {}, this collection's key has {want}; separate them with commas",
        counted(*got)
    )]
    Parts {
        /// Parts in the key of this collection.
        want: usize,
        /// Parts in the id.
        got: usize,
    },
    /// The text does not fit the column's type.
    #[error("{} is not {want}", named(*part))]
    Type {
        /// Index of the part, from 1; `None`: the key has one.
        part: Option<usize>,
        /// Description of a valid value.
        want: &'static str,
    },
    /// Longer than [`KEY_BYTES_MAX`].
    #[error("the id is longer than {KEY_BYTES_MAX} bytes")]
    TooLong,
}

fn counted(parts: usize) -> String {
    if parts == 1 { "1 part".to_owned() } else { format!("{parts} parts") }
}

fn named(part: Option<usize>) -> String {
    part.map_or_else(|| "the id".to_owned(), |part| format!("part {part} of the id"))
}
