//! What a planted process does, as it is handed to it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The variable in which a planted process finds its plan.
pub(crate) const PLAN: &str = "HOTROW_PLANT";

/// What a process that is started does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// Answers requests.
    Service(Service),
    /// Uses this many CPUs, and does nothing.
    Burner(usize),
}

/// How requests are answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) listen: IpAddr,
    pub(crate) threads: Threads,
    pub(crate) work: Work,
    pub(crate) body_bytes: usize,
    /// Length that `listen` is told.
    pub(crate) backlog: i32,
    /// Rest of the thread that accepts, after each connection.
    pub(crate) accept_rest_ms: u64,
    /// `RLIMIT_NOFILE`, soft and hard.
    pub(crate) open_files: Option<u64>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Threads {
    /// A thread for each connection.
    Each,
    /// Event loops with connections of their own; one is a single-threaded service.
    Loops(usize),
}

/// What is done for each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// CPU time.
    Cpu { us: u64 },
    /// CPU time, one request at a time.
    Locked { us: u64 },
    /// Waiting for nobody.
    Sleep { ms: u64 },
    /// Asking another service, on a connection of each thread's own.
    Ask { backend: SocketAddr },
    /// Appending to a file, and waiting until it is on the disk.
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
