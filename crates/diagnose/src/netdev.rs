//! Bytes over the network: `/proc/net/dev`.

use std::io;
use std::path::Path;

/// What all interfaces together counted, loopback included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetBytes {
    /// Received, in bytes.
    pub received: u64,
    /// Sent, in bytes.
    pub sent: u64,
}

/// Reads the counters of this process's network namespace. `proc` is `/proc`, or a copy of it in a test.
///
/// # Errors
/// When the file cannot be read, or holds no interface.
pub fn total(proc: &Path) -> io::Result<NetBytes> {
    let text = std::fs::read_to_string(proc.join("net/dev"))?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "net/dev holds no interface"))
}

/// After two lines of heading: `name: bytes packets errs drop fifo frame compressed multicast bytes …`.
fn parse(text: &str) -> Option<NetBytes> {
    let mut total = None;
    for (_, counters) in text.lines().skip(2).filter_map(|line| line.rsplit_once(':')) {
        let mut counters = counters.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        let (received, sent) = (counters.next()??, counters.nth(7)??);
        let sum: &mut NetBytes = total.get_or_insert_default();
        sum.received = sum.received.saturating_add(received);
        sum.sent = sum.sent.saturating_add(sent);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n";

    #[test]
    fn interfaces_are_added_up() {
        let text = format!(
            "{HEADING}    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n eth0:1: 7 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n  tun0:1000000 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n"
        );
        assert_eq!(parse(&text), Some(NetBytes { received: 1_000_107, sent: 142 }));
    }

    #[test]
    fn anything_else_is_no_figure() {
        for text in ["", HEADING, &format!("{HEADING} lo: 1 2 3\n"), &format!("{HEADING} lo: x 2 3 4 5 6 7 8 9\n")] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_machine_has_it() {
        total(Path::new("/proc")).unwrap();
        assert_eq!(total(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
