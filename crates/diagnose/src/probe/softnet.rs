//! Incoming packets per CPU: `/proc/net/softnet_stat`.

/// The file's path.
pub const FILE: &str = "proc/net/softnet_stat";

/// Counters of all CPUs since boot (net/core/net-procfs.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets processed.
    pub processed: u64,
    /// Packets dropped because a queue was full (`net.core.netdev_max_backlog`).
    pub dropped: u64,
    /// Times that a processing round ended with work left (`net.core.netdev_budget`).
    pub squeezed: u64,
}

/// Parses one line per CPU, in hexadecimal; the number of columns depends on the kernel.
#[must_use]
pub fn parse(text: &str) -> Option<Softnet> {
    let mut total = None;
    for line in text.lines() {
        let mut words =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
        let sum: &mut Softnet = total.get_or_insert_default();
        sum.processed = sum.processed.saturating_add(words.next()??);
        sum.dropped = sum.dropped.saturating_add(words.next()??);
        sum.squeezed = sum.squeezed.saturating_add(words.next()??);
    }
    total
}

impl Softnet {
    /// Returns the increase since `earlier`. The counters have 32 bits and wrap.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let added = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        Self {
            processed: added(self.processed, earlier.processed),
            dropped: added(self.dropped, earlier.dropped),
            squeezed: added(self.squeezed, earlier.squeezed),
        }
    }
}
