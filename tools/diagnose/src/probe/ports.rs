//! Local ports for outgoing connections: `/proc/sys/net/ipv4/ip_local_port_range` without reserved
//! ports.

use crate::root::{ProbeResult, Root};

/// File of the first and last port.
pub const RANGE_FILE: &str = "proc/sys/net/ipv4/ip_local_port_range";
/// File of the reserved ports.
pub const RESERVED_FILE: &str = "proc/sys/net/ipv4/ip_local_reserved_ports";

/// The port range of `connect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
    /// Reserved ports within the range.
    pub reserved: u64,
}

impl Ports {
    /// Returns the number of usable ports.
    pub fn count(&self) -> u64 {
        (u64::from(self.last) + 1)
            .saturating_sub(u64::from(self.first))
            .saturating_sub(self.reserved)
    }
}

/// Reads both files; without the second no port is reserved.
///
/// # Errors
/// Fails when the range is not readable.
pub fn read(root: &Root) -> ProbeResult<Ports> {
    let (first, last) = root.parse(RANGE_FILE, parse_range)?;
    let reserved = root.parse(RESERVED_FILE, |text| parse_reserved(text, first, last)).unwrap_or(0);
    Ok(Ports { first, last, reserved })
}

/// Parses first and last port, separated by a tab.
pub fn parse_range(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_ascii_whitespace();
    let (first, last) = (super::number(&mut words)?, super::number(&mut words)?);
    (first <= last).then_some((first, last))
}

/// Parses `8080,9000-9010` (sorted, without overlap, as the kernel prints it); returns how many lie
/// in the range.
pub fn parse_reserved(text: &str, first: u16, last: u16) -> Option<u64> {
    let mut reserved = 0;
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u16>().ok()?.max(first), to.parse::<u16>().ok()?.min(last));
        reserved += (u64::from(to) + 1).saturating_sub(u64::from(from));
    }
    Some(reserved)
}
