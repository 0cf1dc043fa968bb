//! What the service shares with the rest of its process.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hotrow_supervisor::Supervisor;

/// State that the service shares with the rest of its process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Supervisor of all background threads; its counts are shown, and failing threads make
    /// `/healthz` fail.
    pub supervisor: Supervisor,
    /// Log lines that could not be written.
    pub log_dropped_total: Arc<AtomicU64>,
}
