//! Points of the log at which a follower continues.

use std::fmt;

use hotrow_types::version::Position;

/// A point up to which a follower has got all commits.
///
/// It is valid at every instance that follows the same log. The generation matters in one case
/// only: where the position is that of the beginning of a window, it shows whether the follower got
/// it before or after the loss in front of that beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeId {
    /// The point of the log.
    pub position: Position,
    /// Generation of the window that gave it; `None`: the position is that of an answer.
    pub generation: Option<u32>,
}

/// Error of a text that is not a [`ResumeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Last-Event-ID is not the id of an event: a position as in Hotrow-Position, or one with a \
     hyphen and a hexadecimal number behind it"
)]
pub struct ResumeIdError;

impl ResumeId {
    /// Longest text form in bytes.
    pub const TEXT_BYTES_MAX: usize = Position::TEXT_BYTES_MAX + 9;

    /// Parses the text form, or that of a position.
    ///
    /// # Errors
    /// For a text that neither prints exactly so.
    pub fn parse(text: &str) -> Result<Self, ResumeIdError> {
        let (before, last) = text.rsplit_once('-').ok_or(ResumeIdError)?;
        if !before.contains('-') {
            let position = Position::parse(text).map_err(|_| ResumeIdError)?;
            return Ok(Self { position, generation: None });
        }
        let is_canonical = last.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && (last == "0" || !last.starts_with('0'));
        if !is_canonical {
            return Err(ResumeIdError);
        }
        let generation = u32::from_str_radix(last, 16).map_err(|_| ResumeIdError)?;
        let position = Position::parse(before).map_err(|_| ResumeIdError)?;
        Ok(Self { position, generation: Some(generation) })
    }
}

impl fmt::Display for ResumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Some(generation) => write!(f, "{}-{generation:x}", self.position),
            None => self.position.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let position = Position { incarnation: 0xab, at: 1204 };
        for generation in [None, Some(0), Some(0x1f), Some(u32::MAX)] {
            let id = ResumeId { position, generation };
            assert_eq!(ResumeId::parse(&id.to_string()), Ok(id));
        }
        let end = Position { incarnation: u64::MAX, at: u64::MAX };
        let longest = ResumeId { position: end, generation: Some(u32::MAX) };
        assert_eq!(longest.to_string().len(), ResumeId::TEXT_BYTES_MAX);
        for bad in [
            "",
            "-",
            "7",
            "00000000000000ab-1204-",
            "00000000000000ab-1204-01",
            "00000000000000ab-1204-F",
            "00000000000000ab-1204-100000000",
            "00000000000000ab-1204-1-1",
            "00000000000000ab--1",
            "00000000000000ab-01",
        ] {
            assert_eq!(ResumeId::parse(bad), Err(ResumeIdError), "{bad}");
        }
    }
}
