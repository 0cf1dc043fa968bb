//! Plan that a feed publishes to the readers, or the reason that nothing can be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_types::key::KeySchema;
use parking_lot::{RwLock, RwLockWriteGuard};

/// Current plan of the readers, or the reason that nothing can be read.
pub type Current<P> = Result<Arc<P>, Arc<str>>;

/// Place where a feed publishes the plan `P` of the readers.
#[derive(Debug)]
pub struct Published<P> {
    current: RwLock<Current<P>>,
    generation: AtomicU64,
}

impl<P> Published<P> {
    /// Creates a place without a plan, for this reason.
    pub fn nothing(why: &str) -> Self {
        Self { current: RwLock::new(Err(why.into())), generation: AtomicU64::new(0) }
    }

    /// Returns the current plan.
    ///
    /// # Errors
    /// Returns the reason that nothing can be read.
    pub fn plan(&self) -> Current<P> {
        self.current.read().clone()
    }

    /// Returns the generation of the connections. One of another generation leads to another
    /// database or to an outdated state of this one.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Outdates every open connection and returns the new generation. Call it with the lock of
    /// [`Self::write`] held, so that no plan of the old generation is published afterwards.
    pub fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Locks the plan to replace it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Current<P>> {
        self.current.write()
    }

    /// Withdraws the plan: nothing can be read, and every open connection is outdated.
    pub fn down(&self, why: &str) {
        let mut current = self.current.write();
        self.next_generation();
        *current = Err(why.into());
    }

    /// Replaces the reason that nothing can be read. Does nothing if there is a plan.
    pub fn explain(&self, why: &str) {
        let mut current = self.current.write();
        if current.is_err() {
            *current = Err(why.into());
        }
    }
}

/// Checks that a table still has the key types of the start, which ids in flight and the feed's
/// keys have. `schema` is the key of the start, `now` that of the table.
///
/// # Errors
/// Returns the reason that the table cannot be read.
pub fn key_is_unchanged(
    schema: Option<&KeySchema>,
    now: &KeySchema,
    table: &str,
) -> Result<(), Arc<str>> {
    if schema.is_some_and(|schema| schema.types() == now.types()) {
        return Ok(());
    }
    Err(format!(
        "the key of `{table}` changed its type since the start; restart to use the new type"
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_plan_outdates_connections_and_its_reason_may_change() {
        let published = Published::nothing("not open yet");
        assert_eq!(published.plan(), Err("not open yet".into()));
        *published.write() = Ok(Arc::new(7));
        published.explain("a reason without effect");
        assert_eq!((published.plan(), published.generation()), (Ok(Arc::new(7)), 0));
        published.down("the server is gone");
        assert_eq!(published.generation(), 1);
        published.explain("no route to the server");
        assert_eq!(published.plan(), Err("no route to the server".into()));
    }
}
