//! Settings lowered to what the system allows the process.

use hotrow_admission::byte_budget::Totals;

use crate::config::Resolved;
use crate::open_files::{self, Fit, OpenFileNeeds};
use crate::serve::error::ServeError;

/// Lowers `limits.connections` to the limit on open files and logs a warning.
///
/// # Errors
/// The limit leaves no room for connections.
pub(crate) fn connections(resolved: &mut Resolved) -> Result<(), ServeError> {
    let connections = resolved.server.limits.connections;
    let wanted = OpenFileNeeds {
        connections,
        workers: resolved.server.workers,
        readers: resolved.cache_sources.iter().map(|source| source.reads_in_flight).sum(),
    };
    let limit = hotrow_cli::raise_open_files_limit();
    match open_files::fit(&wanted, limit) {
        Fit::Fits => {}
        Fit::Fewer(fewer) => {
            tracing::warn!(
                connections,
                serving_at_most = fewer,
                open_files_limit = limit,
                "limits.connections does not fit the limit on open files; raise the limit (ulimit \
                 -n) or lower the setting"
            );
            resolved.server.limits.connections = fewer;
        }
        Fit::TooFew => return Err(ServeError::OpenFiles { limit: limit.unwrap_or_default() }),
    }
    Ok(())
}

/// Lowers `cache.capacity` to the limit on address space, because allocation beyond that limit ends
/// the process; logs a warning. `used_bytes`: what the cache has of it already.
pub(crate) fn cache(resolved: &mut Resolved, used_bytes: u64) {
    let Some(left) = hotrow_answer::budgets::address_space_left() else { return };
    let left = left.saturating_add(used_bytes);
    let capacity = resolved.cache.capacity_bytes;
    if let Some(capacity_bytes) = Totals::cache_within(capacity, left) {
        tracing::warn!(
            capacity,
            lowered_to = capacity_bytes,
            address_space_left = left,
            "cache.capacity does not fit the limit on address space; raise the limit (ulimit -v) \
             or lower the setting"
        );
        resolved.cache.capacity_bytes = capacity_bytes;
    }
}
