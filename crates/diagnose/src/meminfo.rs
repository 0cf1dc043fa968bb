//! How much memory there is: `/proc/meminfo`.

use std::path::Path;

/// All memory that the kernel manages, in bytes; none when the file does not tell. `proc` is `/proc`, or a copy of it in
/// a test.
#[must_use]
pub fn total_bytes(proc: &Path) -> Option<u64> {
    parse(&std::fs::read_to_string(proc.join("meminfo")).ok()?)
}

/// `MemTotal:       8025452 kB`, where a kB is 1024 bytes.
fn parse(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(parse("MemTotal:       8025452 kB\nMemFree: 1 kB\n"), Some(8_025_452 * 1024));
        for text in ["", "MemFree: 1 kB\n", "MemTotal: x kB\n", "MemTotal: 5\n", "MemTotal: 18446744073709551615 kB\n"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert!(total_bytes(Path::new("/proc")).is_some());
    }
}
