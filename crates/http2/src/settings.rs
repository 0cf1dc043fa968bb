//! Settings of a client (RFC 9113 section 6.5.2), as far as a server that pushes nothing uses them.

use crate::error::ConnectionError;
use crate::flow::WINDOW_BYTES_MAX;
use crate::frame::setting;
use crate::{PAYLOAD_BYTES_MAX, TABLE_BYTES_MAX};

/// Largest limit on a payload.
const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;

/// Changes by one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// New initial window of each stream.
    pub(crate) initial_window: Option<u32>,
    /// Whether answers may no longer use a dynamic table of the initial size.
    pub(crate) shrinks_table: bool,
}

/// Reads the payload of a frame.
pub(crate) fn parse(payload: &[u8]) -> Result<Changes, ConnectionError> {
    let (settings, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() {
        return Err(ConnectionError::FrameSize);
    }
    let mut changes = Changes::default();
    for [a, b, c, d, e, f] in settings {
        let value = u32::from_be_bytes([*c, *d, *e, *f]);
        match u16::from_be_bytes([*a, *b]) {
            setting::HEADER_TABLE_SIZE => {
                changes.shrinks_table |= (value as usize) < TABLE_BYTES_MAX;
            }
            setting::ENABLE_PUSH if value > 1 => return Err(ConnectionError::Protocol),
            setting::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_BYTES_MAX => {
                return Err(ConnectionError::FlowControl);
            }
            setting::INITIAL_WINDOW_SIZE => changes.initial_window = Some(value),
            setting::MAX_FRAME_SIZE
                if (value as usize) < PAYLOAD_BYTES_MAX || value > FRAME_SIZE_MAX =>
            {
                return Err(ConnectionError::Protocol);
            }
            // No frame that is sent is longer than the least limit; others concern the client.
            _ => {}
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(settings: &[(u16, u32)]) -> Result<Changes, ConnectionError> {
        let bytes: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        parse(&bytes)
    }

    #[test]
    fn settings_are_within_their_bounds() {
        let both = parsed(&[(4, 10), (1, 0), (4, 20), (9, 7)]);
        assert_eq!(both, Ok(Changes { initial_window: Some(20), shrinks_table: true }));
        assert_eq!(parsed(&[(1, 4_096), (2, 1), (5, 16_384)]), Ok(Changes::default()));
        assert_eq!(parsed(&[(2, 2)]), Err(ConnectionError::Protocol));
        assert_eq!(parsed(&[(4, 1 << 31)]), Err(ConnectionError::FlowControl));
        assert_eq!(parsed(&[(5, 16_383)]), Err(ConnectionError::Protocol));
        assert_eq!(parsed(&[(5, 1 << 24)]), Err(ConnectionError::Protocol));
        assert_eq!(parse(&[0; 5]), Err(ConnectionError::FrameSize));
    }
}
