//! What each network interface moved: `/proc/net/dev`, and how fast it is: `/sys/class/net/NAME/speed`.

use crate::root::{Root, Seen, Unseen, Why};

/// The file.
pub const FILE: &str = "proc/net/dev";
/// Most interfaces that are kept.
const INTERFACES_MAX: usize = 256;

/// Counts of one interface since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it received.
    pub received: Moved,
    /// What it sent.
    pub sent: Moved,
}

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were broken.
    pub errors: u64,
    /// Packets that were thrown away for want of room.
    pub dropped: u64,
}

/// Reads the file's text: after two lines of heading `name: bytes packets errs drop fifo frame compressed multicast
/// bytes …`.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Interface>> {
    let interfaces: Option<Vec<Interface>> = text.lines().skip(2).take(INTERFACES_MAX).map(interface).collect();
    interfaces.filter(|interfaces| !interfaces.is_empty())
}

fn interface(line: &str) -> Option<Interface> {
    // A name may hold a colon itself.
    let (name, counters) = line.rsplit_once(':')?;
    let counters: Vec<u64> = counters.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let moved = |from: usize| {
        let [bytes, packets, errors, dropped] = *counters.get(from..)?.first_chunk()?;
        Some(Moved { bytes, packets, errors, dropped })
    };
    Some(Interface { name: name.trim().to_owned(), received: moved(0)?, sent: moved(8)? })
}

impl Moved {
    /// What was added since `earlier`.
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

/// Speed of an interface in bits per second. Virtual ones have none: reading it fails, or it is -1.
///
/// # Errors
/// When it is not told.
pub fn speed(root: &Root, name: &str) -> Seen<u64> {
    let file = format!("sys/class/net/{name}/speed");
    if name.contains('/') || name.starts_with('.') {
        return Err(Unseen { file, why: Why::Missing });
    }
    root.parse(&file, |text| text.trim().parse::<u64>().ok()?.checked_mul(1_000_000))
}
