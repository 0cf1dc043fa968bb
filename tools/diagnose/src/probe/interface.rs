//! Traffic of network interfaces: `/proc/net/dev`, and their speed: `/sys/class/net/NAME/speed`.

use crate::root::{ProbeError, ProbeErrorKind, ProbeResult, Root};

/// The file's path.
pub const FILE: &str = "proc/net/dev";
/// Most interfaces read.
const INTERFACES_MAX: usize = 256;

/// Counters of an interface since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Receive counters.
    pub received: InterfaceCounters,
    /// Send counters.
    pub sent: InterfaceCounters,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Invalid packets.
    pub errors: u64,
    /// Packets dropped for lack of buffers.
    pub dropped: u64,
}

/// Parses the file: after two header lines `name: bytes packets errs drop fifo frame compressed
/// multicast bytes …`.
pub fn parse(text: &str) -> Option<Vec<Interface>> {
    let interfaces: Option<Vec<Interface>> =
        text.lines().skip(2).take(INTERFACES_MAX).map(interface).collect();
    interfaces.filter(|interfaces| !interfaces.is_empty())
}

fn interface(line: &str) -> Option<Interface> {
    // A name may contain a colon.
    let (name, counters) = line.rsplit_once(':')?;
    let counters: Vec<u64> =
        counters.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let moved = |from: usize| {
        let [bytes, packets, errors, dropped] = *counters.get(from..)?.first_chunk()?;
        Some(InterfaceCounters { bytes, packets, errors, dropped })
    };
    Some(Interface { name: name.trim().to_owned(), received: moved(0)?, sent: moved(8)? })
}

impl InterfaceCounters {
    /// Returns the increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            packets: self.packets.saturating_sub(earlier.packets),
            errors: self.errors.saturating_sub(earlier.errors),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

/// Returns an interface's speed in bits per second. Virtual interfaces have none: reading fails, or
/// gives -1.
///
/// # Errors
/// Fails when the speed is not reported.
pub fn speed(root: &Root, name: &str) -> ProbeResult<u64> {
    let file = format!("sys/class/net/{name}/speed");
    if name.contains('/') || name.starts_with('.') {
        return Err(ProbeError { file, why: ProbeErrorKind::Missing });
    }
    root.parse(&file, |text| text.trim().parse::<u64>().ok()?.checked_mul(1_000_000))
}
