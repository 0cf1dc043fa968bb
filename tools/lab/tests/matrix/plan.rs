//! The instructions of a planted process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Environment variable with the plan of a planted process.
pub(crate) const PLAN: &str = "HOTROW_PLANT";

/// The work of a started process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// Answers requests.
    Service(Service),
    /// Uses this many CPUs, and does nothing.
    Burner(usize),
}

/// Parameters of an HTTP service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) listen: IpAddr,
    pub(crate) threads: Threads,
    pub(crate) work: Work,
    pub(crate) body_bytes: usize,
    /// Backlog passed to `listen`.
    pub(crate) backlog: i32,
    /// Pause of the accepting thread after each connection.
    pub(crate) accept_rest_ms: u64,
    /// `RLIMIT_NOFILE`, soft and hard.
    pub(crate) open_files: Option<u64>,
}

/// The threads that answer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Threads {
    /// A thread for each connection.
    Each,
    /// Event loops with connections of their own; one is a single-threaded service.
    Loops(usize),
}

/// The work per request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// CPU time.
    Cpu { us: u64 },
    /// CPU time, one request at a time.
    Locked { us: u64 },
    /// A sleep.
    Sleep { ms: u64 },
    /// A request to another service, on a connection per thread.
    Query { backend: SocketAddr },
    /// An append to a file with a wait for the disk.
    Sync { folder: PathBuf, bytes: usize },
}

impl Default for Service {
    fn default() -> Self {
        Self {
            listen: IpAddr::from([127, 0, 0, 1]),
            threads: Threads::Each,
            work: Work::Cpu { us: 100 },
            body_bytes: 100,
            backlog: 1024,
            accept_rest_ms: 0,
            open_files: None,
        }
    }
}
