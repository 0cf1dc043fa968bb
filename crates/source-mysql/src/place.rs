//! Positions in the binary log: a file's number and an offset, combined to an ascending point.

/// Bits of the offset: a log file has at most 2^40 bytes.
const OFFSET_BITS: u32 = 40;
/// Largest file number of the log.
const FILE_MAX: u64 = (1 << (64 - OFFSET_BITS)) - 1;

/// Position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPosition {
    file: u64,
    offset: u64,
}

impl LogPosition {
    /// Parses the position from the file's name, whose number follows the last dot.
    pub(crate) fn new(file: &[u8], offset: u64) -> Option<Self> {
        let digits =
            file.rsplit(|b| *b == b'.').next().filter(|digits| digits.len() < file.len())?;
        let file =
            std::str::from_utf8(digits).ok()?.parse().ok().filter(|file| *file <= FILE_MAX)?;
        (offset >> OFFSET_BITS == 0).then_some(Self { file, offset })
    }

    /// Returns the position of a point.
    pub(crate) fn of_point(point: u64) -> Self {
        Self { file: point >> OFFSET_BITS, offset: point & ((1 << OFFSET_BITS) - 1) }
    }

    /// Returns the name of the position's file, by that of another file of the log.
    pub(crate) fn file_name(self, other: &str) -> String {
        let base = other.rsplit_once('.').map_or(other, |(base, _)| base);
        format!("{base}.{:06}", self.file)
    }

    /// Returns the position as one number: `file number << 40 | offset`.
    pub(crate) fn point(self) -> u64 {
        self.file << OFFSET_BITS | self.offset
    }

    /// Returns the offset in the file.
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// Moves to an offset of a file. None if the name is not that of a log file.
    pub(super) fn rotate(&mut self, file: &[u8], at: u64) -> Option<()> {
        *self = Self::new(file, at)?;
        Some(())
    }

    /// Moves to the end of an event. The log has only its lower 32 bits. For artificial events of
    /// the server it has 0 or a value before this position.
    pub(crate) fn pass(&mut self, end: u32) {
        const HALF: u64 = 1 << 31;
        let whole = self.offset & !u64::from(u32::MAX) | u64::from(end);
        if end == 0 {
        } else if whole >= self.offset {
            self.offset = whole;
        } else if self.offset - whole > HALF {
            self.offset = whole + (1 << 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_number_is_parsed_from_the_name() {
        let position = LogPosition::new(b"my.bin.000012", 345).unwrap();
        assert_eq!(position.point(), 12 << 40 | 345);
        for bad in ["bin", "bin.", "bin.x1", ".", "", "bin.99999999999"] {
            assert_eq!(LogPosition::new(bad.as_bytes(), 4), None, "{bad}");
        }
        assert_eq!(LogPosition::new(b"bin.1", 1 << 40), None);
        assert_eq!(LogPosition::of_point(position.point()), position);
        assert_eq!(position.file_name("my.bin.000100"), "my.bin.000012");
        let later = LogPosition::new(b"bin.1000012", 4).unwrap();
        assert_eq!(later.file_name("bin.1000099"), "bin.1000012");
    }

    #[test]
    fn ends_are_widened_and_artificial_events_are_ignored() {
        let mut position = LogPosition::new(b"bin.1", 500).unwrap();
        for (end, offset) in
            [(600, 600), (0, 600), (256, 600), (u32::MAX - 5, 0xffff_fffa), (10, 0x1_0000_000a)]
        {
            position.pass(end);
            assert_eq!(position.offset(), offset, "{end}");
        }
    }
}
