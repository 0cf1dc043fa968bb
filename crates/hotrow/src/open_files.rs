//! Check of the configured number of connections against the limit on open files, because every
//! connection is an open file.

use hotrow_front::worker::BEYOND_LIMIT_MAX;
use hotrow_server::service::ADMIN_CONNECTIONS;

/// Open files that are not client connections: standard streams, logs, allocator and runtime.
const FILES_BASE: usize = 64;
/// Open files per worker: its listener, its event queue, wake-ups, one connection just accepted,
/// and those that are being rejected or evicted.
const FILES_PER_WORKER: usize = 16 + BEYOND_LIMIT_MAX;
/// Open files of the admin side: its worker and all its connections. They are reserved, so that an
/// operator can connect when the data side is full.
const FILES_ADMIN: usize = FILES_PER_WORKER + ADMIN_CONNECTIONS;
/// Open files per database reader: database, WAL, shared memory, and temporary files.
const FILES_PER_READER: usize = 8;
/// Minimum number of connections to start with.
const CONNECTIONS_MIN: usize = 16;

/// Numbers that determine the open files of the service.
#[derive(Clone, Copy, Debug)]
pub struct OpenFileNeeds {
    /// Client connections.
    pub connections: usize,
    /// Worker threads.
    pub workers: usize,
    /// Database readers.
    pub readers: usize,
}

/// Result of the comparison with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All connections fit.
    Fits,
    /// Only this many connections fit.
    Fewer(usize),
    /// Fewer than the minimum fit.
    TooFew,
}

/// Compares the needed open files with a limit.
pub fn fit(wanted: &OpenFileNeeds, limit: Option<u64>) -> Fit {
    let Some(limit) = limit else { return Fit::Fits };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let others = FILES_BASE
        + FILES_ADMIN
        + wanted.workers * FILES_PER_WORKER
        + wanted.readers * FILES_PER_READER;
    match limit.saturating_sub(others) {
        left if left >= wanted.connections => Fit::Fits,
        left if left >= CONNECTIONS_MIN => Fit::Fewer(left),
        _ => Fit::TooFew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_what_is_left() {
        let wanted = OpenFileNeeds { connections: 1000, workers: 2, readers: 4 };
        // Two workers and the admin worker with 64 each, 64 admin connections, four readers with 8
        // each.
        let others = 64 + 2 * 64 + (64 + 64) + 4 * 8;
        assert_eq!(fit(&wanted, None), Fit::Fits);
        assert_eq!(fit(&wanted, Some(1000 + others)), Fit::Fits);
        assert_eq!(fit(&wanted, Some(999 + others)), Fit::Fewer(999));
        assert_eq!(fit(&wanted, Some(16 + others)), Fit::Fewer(16));
        assert_eq!(fit(&wanted, Some(15 + others)), Fit::TooFew);
        assert_eq!(fit(&wanted, Some(0)), Fit::TooFew);
    }
}
