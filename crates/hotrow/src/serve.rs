//! Composes the subsystems: the only place where cache, source and server meet.

use std::net::SocketAddr;
use std::path::Path;

use tokio::sync::watch;

use crate::config::{Resolved, SourceConfig};
use crate::logging;
use crate::open_files::{self, Fit, Wanted};
use crate::signals::Phase;

/// Where the service really listens, known once it does (port 0 asks for any free one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The data API.
    pub data: SocketAddr,
    /// The admin API.
    pub admin: SocketAddr,
}

/// Why serving could not begin, or broke.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system allows too few open files for any useful number of connections.
    #[error(
        "the limit on open files ({limit}) leaves no room for connections; raise it, for instance with ulimit -n 20000"
    )]
    OpenFiles {
        /// The hard limit.
        limit: u64,
    },
    /// A subsystem failed; its words name the thing and what to do.
    #[error("{0}")]
    Subsystem(String),
}

/// Serves until `phase` says to drain and the drain is done. `ready` is called once, when requests are answered.
///
/// # Errors
/// What kept it from serving.
pub fn run(
    mut resolved: Resolved,
    phase: watch::Receiver<Phase>,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    logging::start(resolved.log);
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    fit_connections(&mut resolved)?;
    compose(resolved, phase, ready)
}

/// Lowers `limits.connections` to what the limit on open files allows, loudly.
fn fit_connections(resolved: &mut Resolved) -> Result<(), ServeError> {
    let SourceConfig::Sqlite(source) = &resolved.source;
    let connections = resolved.server.limits.connections;
    let wanted = Wanted { connections, workers: resolved.server.workers, readers: source.reads_in_flight };
    let limit = open_files::raise_limit();
    match open_files::fit(&wanted, limit) {
        Fit::Fits => {}
        Fit::Fewer(fewer) => {
            tracing::warn!(
                connections,
                serving_at_most = fewer,
                open_files_limit = limit,
                "limits.connections does not fit the limit on open files; raise the limit (ulimit -n) or lower the setting"
            );
            resolved.server.limits.connections = fewer;
        }
        Fit::TooFew => return Err(ServeError::OpenFiles { limit: limit.unwrap_or_default() }),
    }
    Ok(())
}

// ---- MERGE POINT 1: cache, source and server are put together here. ----
fn compose(
    _resolved: Resolved,
    _phase: watch::Receiver<Phase>,
    _ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    Err(ServeError::Subsystem("this build has no server yet".to_owned()))
}

// ---- MERGE POINT 2: calls the SQLite engine's removal of its change log and triggers. ----
/// Removes from `database` what `watch = "triggers"` added.
///
/// # Errors
/// What kept it from doing so.
pub fn unwatch(database: &Path) -> Result<(), String> {
    Err(format!("{}: this build cannot remove the change log yet", database.display()))
}
