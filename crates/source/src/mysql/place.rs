//! Points of the binary log: a file's number and an offset, as one number that grows.

/// Bits of the offset: a file of the log has at most 2^40 bytes.
const OFFSET_BITS: u32 = 40;
/// Names of files have no larger number.
const FILE_MAX: u64 = (1 << (64 - OFFSET_BITS)) - 1;

/// A point of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    file: u64,
    offset: u64,
}

impl Place {
    /// A point by the name of its file, whose number stands behind the last dot.
    pub(crate) fn new(file: &[u8], offset: u64) -> Option<Self> {
        let digits = file.rsplit(|b| *b == b'.').next().filter(|digits| digits.len() < file.len())?;
        let file = std::str::from_utf8(digits).ok()?.parse().ok().filter(|file| *file <= FILE_MAX)?;
        (offset >> OFFSET_BITS == 0).then_some(Self { file, offset })
    }

    /// As one number: `number of the file << 40 | offset`.
    pub(crate) fn point(self) -> u64 {
        self.file << OFFSET_BITS | self.offset
    }

    /// Where the file is read from.
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// Goes to a point of a file; none when its name is none of a file of the log.
    pub(super) fn rotate(&mut self, file: &[u8], at: u64) -> Option<()> {
        *self = Self::new(file, at)?;
        Some(())
    }

    /// Goes to where an event ends. The log has only the lower 32 bits of that, and 0 or something in front of this point for
    /// events that the server makes up.
    pub(super) fn pass(&mut self, end: u32) {
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
    fn a_name_tells_the_files_number() {
        let place = Place::new(b"my.bin.000012", 345).unwrap();
        assert_eq!(place.point(), 12 << 40 | 345);
        for bad in ["bin", "bin.", "bin.x1", ".", "", "bin.99999999999"] {
            assert_eq!(Place::new(bad.as_bytes(), 4), None, "{bad}");
        }
        assert_eq!(Place::new(b"bin.1", 1 << 40), None);
    }

    #[test]
    fn ends_are_widened_and_made_up_events_move_nothing() {
        let mut place = Place::new(b"bin.1", 500).unwrap();
        for (end, offset) in [(600, 600), (0, 600), (256, 600), (u32::MAX - 5, 0xffff_fffa), (10, 0x1_0000_000a)] {
            place.pass(end);
            assert_eq!(place.offset(), offset, "{end}");
        }
    }
}
