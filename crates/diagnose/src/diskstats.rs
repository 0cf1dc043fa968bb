//! Bytes to and from disks: `/proc/diskstats`.

use std::io;
use std::path::Path;

/// The file counts in sectors of 512 bytes, whatever the disk has (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: u64 = 512;
/// Devices that stand for others or for memory, whose bytes would count twice or never reach a disk.
const NOT_DISKS: [&str; 5] = ["loop", "ram", "zram", "dm-", "md"];

/// What all disks together counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskBytes {
    /// Read, in bytes.
    pub read: u64,
    /// Written, in bytes.
    pub written: u64,
}

/// Reads the counters; partitions are left out, for their disks count them. `proc` is `/proc`, or a copy of it in a test.
///
/// # Errors
/// When the file cannot be read or understood. A machine without a disk has zeros.
pub fn total(proc: &Path) -> io::Result<DiskBytes> {
    let text = std::fs::read_to_string(proc.join("diskstats"))?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "diskstats holds other than it should"))
}

/// `major minor name reads merged sectors-read ms writes merged sectors-written …`.
fn parse(text: &str) -> Option<DiskBytes> {
    let mut total = DiskBytes::default();
    let mut disks: Vec<&str> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next()?;
        let mut counter = |skipped: usize| words.nth(skipped)?.parse::<u64>().ok();
        let (read, written) = (counter(2)?, counter(3)?);
        // A disk stands before its partitions.
        if NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)) || disks.iter().any(|d| is_partition(name, d)) {
            continue;
        }
        disks.push(name);
        total.read = total.read.saturating_add(read.saturating_mul(SECTOR_BYTES));
        total.written = total.written.saturating_add(written.saturating_mul(SECTOR_BYTES));
    }
    Some(total)
}

/// `sda1` of `sda`; `nvme0n1p2` of `nvme0n1`: a disk whose name ends in a digit has a `p` between.
fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let rest = if disk.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p').unwrap_or("") } else { rest };
    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_added_up_and_partitions_left_out() {
        let text = "   8  0 sda 10 0 100 5 20 0 200 7 0 0 0 0 0 0 0 0 0\n   8  1 sda1 9 0 99 5 19 0 199 7 0 0 0\n\
                    259 0 nvme0n1 1 0 2 0 1 0 4 0 0 0 0\n259 1 nvme0n1p1 1 0 2 0 1 0 4 0 0 0 0\n\
                    259 2 nvme0n11 1 0 1 0 1 0 1 0 0 0 0\n7 0 loop0 5 0 50 0 0 0 0 0 0 0 0\n253 0 dm-0 5 0 5 0 5 0 5 0 0 0 0\n";
        assert_eq!(parse(text), Some(DiskBytes { read: 103 * 512, written: 205 * 512 }));
        assert_eq!(parse(""), Some(DiskBytes::default()));
    }

    #[test]
    fn anything_else_is_no_figure() {
        for text in ["8 0 sda 1 2", "8 0 sda 1 0 x 5 20 0 200 7", "8 0\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_machine_has_it() {
        total(Path::new("/proc")).unwrap();
    }
}
