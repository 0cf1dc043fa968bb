//! Turns of other tasks of a worker.

use tokio::task::spawn_local;

/// Waits until every task that is ready now has had a turn. `yield_now` does not suffice: the
/// runtime returns to its main future after a few tasks, however many are ready, so a worker would
/// accept faster than it serves.
pub async fn yield_to_ready_tasks() {
    // Queued behind all ready tasks. It cannot panic, and is cancelled only with the runtime.
    _ = spawn_local(async {}).await;
}
