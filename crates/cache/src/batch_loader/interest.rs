//! Whether the answers of a query in flight are still wanted.

use std::sync::Arc;

use crate::flight::Flight;

/// Interest in a query: its reader may check whether any waiter is left.
#[derive(Debug)]
pub struct Interest<E>(pub(super) Vec<Arc<Flight<E>>>);

impl<E: Clone> Interest<E> {
    /// Returns whether any of the query's answers is still wanted.
    pub fn is_wanted(&self) -> bool {
        self.0.iter().any(|flight| flight.is_wanted())
    }
}
