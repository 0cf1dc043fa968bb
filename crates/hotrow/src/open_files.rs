//! Every connection is an open file: does the limit on open files allow the configured number?

use hotrow_server::service::ADMIN_CONNECTIONS;
use hotrow_server::worker::BEYOND_LIMIT_MAX;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Open files that are not client connections: standard streams, logs, the allocator's and the runtime's own.
const FILES_BASE: usize = 64;
/// Per worker: its listener, its event queue, wake-ups, one connection just accepted, and those that are being refused or make room.
const FILES_PER_WORKER: usize = 16 + BEYOND_LIMIT_MAX;
/// The admin side: its worker, and all the connections it serves. They are kept free of data connections, so that who looks
/// after the service gets in when it is full.
const FILES_ADMIN: usize = FILES_PER_WORKER + ADMIN_CONNECTIONS;
/// Per database reader: database, WAL, shared memory, and temporary files.
const FILES_PER_READER: usize = 8;
/// Fewer connections than this are not worth starting for.
const CONNECTIONS_MIN: usize = 16;

/// What the service wants to hold open.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Client connections.
    pub connections: usize,
    /// Worker threads.
    pub workers: usize,
    /// Database readers.
    pub readers: usize,
}

/// How the wish fits the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Fits,
    /// Only this many connections do.
    Fewer(usize),
    /// Not even a handful does.
    TooFew,
}

/// Raises the soft limit to the hard one and returns what holds then; `None` is unlimited.
///
/// When raising fails the old limit simply stays in force, and is what is returned.
#[must_use]
pub fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = getrlimit(Resource::Nofile);
        }
    }
    limit.current
}

/// Compares a wish with a limit on open files.
#[must_use]
pub fn fit(wanted: &Wanted, limit: Option<u64>) -> Fit {
    let Some(limit) = limit else { return Fit::Fits };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let others = FILES_BASE + FILES_ADMIN + wanted.workers * FILES_PER_WORKER + wanted.readers * FILES_PER_READER;
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
        let wanted = Wanted { connections: 1000, workers: 2, readers: 4 };
        // Two workers and the admin's with 64 each, the admin's 64 connections, four readers with 8 each.
        let others = 64 + 2 * 64 + (64 + 64) + 4 * 8;
        assert_eq!(fit(&wanted, None), Fit::Fits);
        assert_eq!(fit(&wanted, Some(1000 + others)), Fit::Fits);
        assert_eq!(fit(&wanted, Some(999 + others)), Fit::Fewer(999));
        assert_eq!(fit(&wanted, Some(16 + others)), Fit::Fewer(16));
        assert_eq!(fit(&wanted, Some(15 + others)), Fit::TooFew);
        assert_eq!(fit(&wanted, Some(0)), Fit::TooFew);
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let raised = raise_limit();
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum);
    }
}
